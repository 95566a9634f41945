//! Receipts: by call, by run, as files, and checked by somebody who has only the document.

use gateway_ledger::{Event, Status};
use gateway_model::{ErrorKind, Face, Principal};
use serde_json::Value;

use crate::home::{Home, call, effect_free, effectful, ended, lease, succeeded};
use crate::records::redacted;

#[tokio::test]
async fn the_receipt_of_a_call_with_effects() {
    let home = Home::new();
    let ledger = home.open();
    let running = lease(ledger.admit(effectful(1)).await);
    assert_eq!(ledger.receipt(call(1)).await.unwrap(), None, "only an outcome makes a receipt");
    ledger.settle(running, succeeded()).await.unwrap();
    let receipt = ledger.receipt(call(1)).await.unwrap().unwrap().to_json();
    insta::assert_snapshot!(redacted(&serde_json::to_string_pretty(&receipt).unwrap()));
}

#[tokio::test]
async fn a_runs_receipts_come_in_the_order_of_the_log() {
    let home = Home::new();
    let ledger = home.open();
    for number in 1..6 {
        let mut admission = effect_free(number);
        if number == 3 {
            admission.facts.run = "run_2".parse().unwrap();
        }
        let running = lease(ledger.admit(admission).await);
        ledger.settle(running, succeeded()).await.unwrap();
    }
    let run = "run_1".parse().unwrap();
    let positions = async |after, limit| -> Vec<u64> {
        let receipts = ledger.receipts(&run, after, limit).await.unwrap();
        receipts.iter().map(gateway_ledger::Receipt::seq).collect()
    };
    assert_eq!(positions(0, 3).await, [1, 2, 4]);
    assert_eq!(positions(4, 100).await, [5]);
}

#[tokio::test]
async fn files_follow_the_ledger_and_are_written_again_where_missing() {
    let home = Home::new();
    let file = |number| home.path().join(format!("receipts/run_1/{}.json", call(number)));
    let mut ledger = home.open();
    for number in 1..4 {
        let running = lease(ledger.admit(effect_free(number)).await);
        ledger.settle(running, succeeded()).await.unwrap();
    }
    ledger.close().await;
    let original = std::fs::read(file(2)).unwrap();
    std::fs::remove_file(file(2)).unwrap();
    drop(ledger);
    ledger = home.open();
    ledger.close().await;
    assert_eq!(std::fs::read(file(2)).unwrap(), original);
    let written: Value = serde_json::from_slice(&original).unwrap();
    assert_eq!(ledger.receipt(call(2)).await.unwrap().unwrap().to_json(), written);
    assert!(!file(2).with_extension("tmp").exists());
}

/// The check of docs/receipts.md, run as a reader of it would.
#[expect(clippy::disallowed_methods, reason = "a test starts the interpreter that the page names")]
fn check_by_hand(receipt: &std::path::Path) -> std::process::Output {
    let page = include_str!("../../../../docs/receipts.md");
    let script = page.split("```python\n").nth(1).unwrap().split("```").next().unwrap();
    std::process::Command::new("python3").args(["-c", script]).arg(receipt).output().unwrap()
}

#[tokio::test]
async fn the_check_that_the_documentation_shows_works_and_finds_changes() {
    let home = Home::new();
    let ledger = home.open();
    let running = lease(ledger.admit(effectful(1)).await);
    ledger.settle(running, succeeded()).await.unwrap();
    let running = lease(ledger.admit(effect_free(2)).await);
    ledger.settle(running, ended(Status::ToolError)).await.unwrap();
    ledger.close().await;
    for number in [1, 2] {
        let path = home.path().join(format!("receipts/run_1/{}.json", call(number)));
        let checked = check_by_hand(&path);
        let printed = String::from_utf8_lossy(&checked.stdout);
        assert!(checked.status.success(), "{printed}{}", String::from_utf8_lossy(&checked.stderr));
        assert!(printed.contains("input: ok"), "{printed}");

        let text = std::fs::read_to_string(&path).unwrap();
        let changes =
            [(r#"\"principal\":\"local\""#, r#"\"principal\":\"loca1\""#), ("ann@", "bob@")];
        for (from, to) in changes {
            assert!(text.contains(from), "{text}");
            let changed = tempfile::NamedTempFile::new().unwrap();
            std::io::Write::write_all(&mut changed.as_file(), text.replace(from, to).as_bytes())
                .unwrap();
            let found = check_by_hand(changed.path());
            assert!(!found.status.success(), "{from} unnoticed");
        }
    }
}

#[tokio::test]
async fn the_input_of_a_refused_call_is_kept_unless_it_is_long() {
    let home = Home::new();
    let ledger = home.open();
    for (number, bytes, is_kept) in [(1, 10, true), (2, 16 << 10, true), (3, 17 << 10, false)] {
        let refused = Event::Refused {
            call: call(number),
            principal: Principal::Local,
            face: Face::Rest,
            ids: Default::default(),
            input: vec![b'a'; bytes],
            decision: None,
            error: ErrorKind::ValidationFailed,
        };
        let seq = ledger.append(refused).await.unwrap();
        let bundle: Vec<u8> = home
            .database()
            .query_row("SELECT bundle FROM contents WHERE seq = ?1", [seq], |row| row.get(0))
            .unwrap();
        let bundle: Value = serde_json::from_slice(&bundle).unwrap();
        assert_eq!(bundle["input"].get("content").is_some(), is_kept, "{bytes} bytes");
        assert!(bundle["input"].get("salt").is_some());
    }
    assert!(ledger.verify().await.is_ok());
}
