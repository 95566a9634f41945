//! A disk that fails or fills: nothing is acknowledged that is not durable.

use std::sync::Arc;
use std::time::Duration;

use gateway_ledger::{Event, KeyState, Ledger, LedgerError, LedgerOptions};
use gateway_model::{Digest, Principal, SystemClock};

use crate::child;
use crate::home::{Home, effect_free, effectful, lease, look_up, scope, succeeded};

#[tokio::test]
async fn a_failed_write_stops_everything_for_good() {
    let home = Home::new();
    let ledger = home.open();
    let running = lease(ledger.admit(effectful(1)).await);
    let waiting = lease(ledger.admit(effect_free(2)).await);
    let KeyState::InFlight(joiner) = look_up(&ledger).await.unwrap() else { panic!("not running") };
    // The next outcome finds no table for its content.
    home.database().execute_batch("ALTER TABLE contents RENAME TO stolen").unwrap();

    assert!(matches!(ledger.settle(running, succeeded()).await, Err(LedgerError::Poisoned)));
    assert!(joiner.wait(Duration::from_secs(60)).await, "nobody waits for a dead writer");
    assert!(!ledger.is_writable());

    // What comes later is refused, even though the disk is well again.
    home.database().execute_batch("ALTER TABLE stolen RENAME TO contents").unwrap();
    assert!(matches!(ledger.settle(waiting, succeeded()).await, Err(LedgerError::Poisoned)));
    assert!(matches!(ledger.admit(effectful(3)).await, Err(LedgerError::Poisoned)));
    assert!(matches!(ledger.admit(effect_free(4)).await, Err(LedgerError::Poisoned)));
    let event = Event::PolicyActivated { policy_set: Digest::of(b"") };
    assert!(matches!(ledger.append(event).await, Err(LedgerError::Poisoned)));
    assert!(matches!(look_up(&ledger).await, Err(LedgerError::Poisoned)));
    drop(ledger);

    let (ledger, report) = home.try_open().unwrap();
    assert_eq!(report.reconciled.len(), 1, "the call whose outcome was not durable");
    assert!(ledger.verify().await.is_ok());
}

/// Writes until its files may not grow any more.
#[test]
#[ignore = "started by the test below as a process of its own"]
fn child_whose_files_may_not_grow() {
    let home = child::home();
    let options = LedgerOptions { reserve_bytes: 0, ..LedgerOptions::in_home(&home) };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (ledger, _report) = Ledger::open(options, Arc::new(SystemClock)).unwrap();
        let refusal = child::write_until_refused(&ledger, 1 << 10).await;
        assert_eq!(refusal, LedgerError::Poisoned.to_string());
        assert!(!ledger.is_writable());
        assert!(matches!(ledger.admit(effectful(1)).await, Err(LedgerError::Poisoned)));
    });
}

#[tokio::test]
async fn when_the_file_cannot_grow_nothing_is_acknowledged_that_is_not_there() {
    let home = Home::new();
    let script = r#"trap '' XFSZ; ulimit -f 1024; exec "$@""#;
    let ended = child::run(home.path(), "disk::child_whose_files_may_not_grow", script);
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    let acknowledged = child::acknowledged(&ended);
    assert!(!acknowledged.is_empty());
    let (ledger, report) = home.try_open().unwrap();
    assert!(report.reconciled.len() <= 1);
    assert!(ledger.verify().await.is_ok());
    for call in acknowledged {
        let receipt = ledger.receipt(call).await.unwrap().unwrap().to_json();
        assert_eq!(receipt["status"], "ok");
    }
}

/// Writes to a small disk of its own until the reserve is reached.
#[test]
#[ignore = "started by the test below as a process of its own"]
fn child_on_a_small_disk() {
    let home = child::home();
    let options = LedgerOptions { reserve_bytes: 40 << 20, ..LedgerOptions::in_home(&home) };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (ledger, _report) = Ledger::open(options, Arc::new(SystemClock)).unwrap();
        let running = lease(ledger.admit(effectful(1)).await);
        let refusal = child::write_until_refused(&ledger, 256 << 10).await;
        assert!(refusal.contains("free some space"), "{refusal}");
        // What runs can be settled, nothing else is written, and what is there can be read.
        ledger.settle(running, succeeded()).await.unwrap();
        assert!(ledger.is_writable());
        assert!(matches!(ledger.admit(effect_free(2)).await, Err(LedgerError::Full { .. })));
        let event = Event::PolicyActivated { policy_set: Digest::of(b"") };
        assert!(matches!(ledger.append(event).await, Err(LedgerError::Full { .. })));
        let state = ledger
            .look_up(&scope("corr_1"), crate::home::NEVER, Principal::Local, crate::home::INPUT)
            .await;
        assert!(matches!(state, Ok(KeyState::Replay(_))));
        assert!(ledger.verify().await.is_ok());
        println!("held");
    });
}

#[test]
fn on_a_nearly_full_disk_only_what_runs_is_written() {
    let home = Home::new();
    // A mount of its own needs a namespace, which some machines deny to ordinary users.
    let script = r#"exec unshare --user --map-root-user --mount sh -c '
        mount -t tmpfs -o size=80m none "$LEDGER_TEST_HOME" || exit 77; exec "$@"' sh "$@""#;
    let ended = child::run(home.path(), "disk::child_on_a_small_disk", script);
    let told = String::from_utf8_lossy(&ended.stderr);
    let has_no_namespace = ended.status.code() == Some(77) || told.contains("unshare");
    if has_no_namespace {
        eprintln!("no mount namespace here: {told}");
        return;
    }
    let printed = String::from_utf8_lossy(&ended.stdout);
    assert!(ended.status.success() && printed.contains("held"), "{told}{printed}");
}
