//! A start after an end of any kind: what was acknowledged is there, what was open is settled.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use gateway_ledger::{Admission, KeyState, OpenError, Status};

use crate::child;
use crate::home::{
    ALWAYS, Home, call, effect_free, effectful, ended, lease, leaves, look_up, scope, seen, status,
    succeeded,
};

#[tokio::test]
async fn an_intent_without_outcome_is_settled_as_indeterminate_before_anything_is_admitted() {
    let home = Home::new();
    let ledger = home.open();
    let running = lease(ledger.admit(effectful(1)).await);
    // The process ends while the tool acts: nothing is written after this.
    ledger.close().await;
    drop((running, ledger));

    let (ledger, report) = home.try_open().unwrap();
    assert_eq!((report.records, report.epoch), (2, 2));
    let [found] = &*report.reconciled else { panic!("{report:?}") };
    assert_eq!((found.call, &*found.tool, &*found.run), (call(1), "mail.send", "run_1"));
    assert_eq!(status(&ledger, 1).await.as_deref(), Some("indeterminate"));
    let receipt = ledger.receipt(call(1)).await.unwrap().unwrap().to_json();
    assert_eq!(receipt["bundle"]["input"]["content"], r#"{"to":"ann@example.org"}"#);
    assert_eq!(leaves(&ledger).await[1]["intent_seq"], 1);
    assert!(matches!(seen(ledger.admit(effectful(2)).await), KeyState::Indeterminate { .. }));

    // An idempotent tool may try again, as the next attempt.
    let again =
        Admission { key: Some((scope("corr_1"), ALWAYS)), after: Some(call(1)), ..effectful(3) };
    assert_eq!(lease(ledger.admit(again).await).attempt(), 2);
    ledger.close().await;
    assert!(ledger.verify().await.is_ok());
}

#[tokio::test]
async fn a_start_with_nothing_open_only_counts() {
    let home = Home::new();
    for epoch in 1..4 {
        let (ledger, report) = home.try_open().unwrap();
        assert_eq!((report.epoch, report.reconciled.len()), (epoch, 0));
        assert_eq!(report.records, epoch - 1);
        let number = u8::try_from(epoch).unwrap();
        let call = lease(ledger.admit(effect_free(number)).await);
        assert_eq!(ledger.settle(call, succeeded()).await.unwrap(), epoch);
    }
}

#[tokio::test]
async fn a_second_ledger_in_the_same_directory_is_refused() {
    let home = Home::new();
    let ledger = home.open();
    assert!(matches!(home.try_open(), Err(OpenError::InUse { .. })));
    ledger.close().await;
    home.open();
}

#[tokio::test]
async fn closing_makes_everything_durable_that_was_asked_and_refuses_the_rest() {
    let home = Home::new();
    let ledger = home.open();
    let first = lease(ledger.admit(effectful(1)).await);
    ledger.settle(first, ended(Status::ToolError)).await.unwrap();
    ledger.close().await;
    assert!(!ledger.is_writable());
    assert!(ledger.admit(effectful(2)).await.is_err());
    assert!(look_up(&ledger).await.is_err());
    // Reading goes on.
    assert_eq!(status(&ledger, 1).await.as_deref(), Some("tool_error"));
}

#[tokio::test]
async fn only_the_owner_can_read_what_was_written() {
    let home = Home::new();
    let ledger = home.open();
    let first = lease(ledger.admit(effect_free(1)).await);
    ledger.settle(first, succeeded()).await.unwrap();
    let check = |path: &str, mode: u32| {
        let found = std::fs::metadata(home.path().join(path)).unwrap().permissions().mode();
        assert_eq!(found & 0o7777, mode, "{path}");
    };
    check("ledger", 0o700);
    check("ledger/lock", 0o600);
    check("ledger/ledger.db", 0o600);
    check("ledger/ledger.db-wal", 0o600);
    ledger.close().await;
    check("receipts", 0o700);
    check("receipts/run_1", 0o700);
    check(&format!("receipts/run_1/{}.json", call(1)), 0o600);
}

#[tokio::test]
async fn a_torn_last_write_is_dropped_and_is_not_taken_for_tampering() {
    let home = Home::new();
    let ledger = home.open();
    for number in 1..9 {
        let call = lease(ledger.admit(effect_free(number)).await);
        ledger.settle(call, succeeded()).await.unwrap();
    }
    let (file, log) = ("ledger/ledger.db", "ledger/ledger.db-wal");
    let whole = std::fs::metadata(home.path().join(log)).unwrap().len();
    for cut in [1, 100, 5_000] {
        let copy = Home::new();
        std::fs::create_dir(copy.path().join("ledger")).unwrap();
        for name in [file, log] {
            std::fs::copy(home.path().join(name), copy.path().join(name)).unwrap();
        }
        let torn = std::fs::OpenOptions::new().write(true).open(copy.path().join(log)).unwrap();
        torn.set_len(whole - cut).unwrap();
        let (restored, report) = copy.try_open().unwrap();
        assert!((6..8).contains(&report.records), "{report:?}");
        assert_eq!(restored.verify().await.unwrap().records, report.records);
    }
}

/// Writes calls until it is killed, and prints each one that was acknowledged.
#[test]
#[ignore = "started by the test below as a process of its own"]
fn child_that_is_killed() {
    let home = child::home();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).build().unwrap();
    runtime.block_on(child::write_until_killed(&home));
}

#[tokio::test]
async fn after_a_kill_what_was_acknowledged_is_there_and_what_was_open_is_indeterminate() {
    let home = Home::new();
    let mut acknowledged = Vec::new();
    let mut reconciled = Vec::new();
    for round in 0_usize..12 {
        let acks = child::kill_after(home.path(), "restart::child_that_is_killed", 7 + 31 * round);
        assert!(!acks.is_empty());
        acknowledged.extend(acks);
        let (ledger, report) = home.try_open().unwrap();
        reconciled.extend(report.reconciled.iter().map(|found| found.call));
        let verified = ledger.verify().await.unwrap();
        assert_eq!(verified.records, report.records);
        for call in &acknowledged {
            let receipt = ledger.receipt(*call).await.unwrap().unwrap().to_json();
            assert_eq!(receipt["status"], "ok");
        }
        for call in &reconciled {
            let receipt = ledger.receipt(*call).await.unwrap().unwrap().to_json();
            assert_eq!(receipt["status"], "indeterminate");
        }
        ledger.close().await;
        assert!(whole_receipts(&home.path().join("receipts")) >= acknowledged.len());
    }
    assert!(!reconciled.is_empty(), "no kill met a running call");
}

/// Counts receipt files, each of which must be whole.
fn whole_receipts(directory: &Path) -> usize {
    let mut count = 0;
    for run in std::fs::read_dir(directory).unwrap() {
        for file in std::fs::read_dir(run.unwrap().path()).unwrap() {
            let path = file.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "json") {
                let text = std::fs::read(&path).unwrap();
                let receipt: serde_json::Value = serde_json::from_slice(&text).unwrap();
                assert_eq!(receipt["receipt_id"], path.file_stem().unwrap().to_str().unwrap());
                count += 1;
            }
        }
    }
    count
}
