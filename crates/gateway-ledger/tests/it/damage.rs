//! Damage and tampering: every changed byte of a record is found, with its position.

use std::io::{Seek as _, SeekFrom, Write as _};

use gateway_ledger::{Event, Ledger, OpenError, Status, VerifyError};
use gateway_model::Digest;
use rusqlite::params;
use serde_json::json;

use crate::home::{Home, effect_free, effectful, ended, lease};

/// A closed ledger with one record of several kinds.
async fn written() -> Home {
    let home = Home::new();
    let ledger = home.open();
    ledger.append(Event::IdentityRegistered).await.unwrap();
    let started = Event::GatewayStarted { sandbox: json!({}), policy_set: Digest::of(b"p") };
    ledger.append(started).await.unwrap();
    let call = lease(ledger.admit(effectful(1)).await);
    ledger.settle(call, ended(Status::Ok)).await.unwrap();
    let call = lease(ledger.admit(effect_free(2)).await);
    ledger.settle(call, ended(Status::ToolError)).await.unwrap();
    ledger.close().await;
    home
}

#[track_caller]
fn tampered(opened: Result<(Ledger, gateway_ledger::OpenReport), OpenError>) -> VerifyError {
    match opened {
        Err(OpenError::Tampered { source, .. }) => source,
        other => panic!("tampering unnoticed: {other:?}"),
    }
}

#[tokio::test]
async fn one_flipped_byte_of_a_record_is_found_with_its_position() {
    let home = written().await;
    let database = home.database();
    let leaves: Vec<(u64, Vec<u8>)> = database
        .prepare("SELECT seq, leaf FROM records")
        .unwrap()
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))
        .unwrap()
        .collect::<Result<_, _>>()
        .unwrap();
    assert_eq!(leaves.len(), 5);
    let put = |seq: u64, leaf: &[u8]| {
        let sql = "UPDATE records SET leaf = ?2 WHERE seq = ?1";
        assert_eq!(database.execute(sql, params![seq, leaf]).unwrap(), 1);
    };
    for (seq, leaf) in leaves {
        for position in (0..leaf.len()).step_by(97) {
            let mut flipped = leaf.clone();
            flipped[position] ^= 1;
            put(seq, &flipped);
            let found = tampered(home.try_open());
            assert!(matches!(found, VerifyError::Changed { seq: at } if at == seq), "{found}");
        }
        put(seq, &leaf);
    }
    assert_eq!(home.open().verify().await.unwrap().records, 5);
}

#[tokio::test]
async fn a_missing_record_is_found_in_the_middle_and_at_the_end() {
    for seq in [2_u64, 5] {
        let home = written().await;
        home.database().execute("DELETE FROM records WHERE seq = ?1", [seq]).unwrap();
        let found = tampered(home.try_open());
        assert!(matches!(found, VerifyError::Missing { seq: at } if at == seq), "{found}");
    }
}

#[tokio::test]
async fn changes_beside_the_records_are_found_by_a_whole_verification() {
    for (sql, expected) in [
        (
            "UPDATE contents SET bundle = replace(bundle, 'sent', 'lost')",
            "content \"output\" of record 4",
        ),
        (
            "UPDATE contents SET bundle = replace(bundle, 'ann@', 'bob@')",
            "content \"input\" of record 3",
        ),
        ("UPDATE records SET run = 'run_2' WHERE seq = 4", "index of record 4"),
        ("UPDATE records SET settled_call = NULL WHERE seq = 5", "index of record 5"),
    ] {
        let home = written().await;
        // Opened first: a start looks at the tail only, and this is about what it leaves out.
        let ledger = home.open();
        home.database().execute_batch(sql).unwrap();
        let found = ledger.verify().await.unwrap_err().to_string();
        assert!(found.contains(expected), "{sql}: {found}");
    }
}

#[tokio::test]
async fn a_damaged_file_is_one_error_that_says_what_to_do() {
    let home = written().await;
    // A page that still stands in the write-ahead log is rightly read from there.
    home.database()
        .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, i64>(0))
        .map(|is_busy| assert_eq!(is_busy, 0))
        .unwrap();
    let path = home.path().join("ledger/ledger.db");
    let whole = std::fs::read(&path).unwrap();
    type Damage<'a> = (&'a str, &'a dyn Fn(&mut std::fs::File));
    let damages: [Damage<'_>; 3] = [
        ("header overwritten", &|file| file.write_all(b"not a database..").unwrap()),
        ("cut in half", &|file| file.set_len(whole.len() as u64 / 2).unwrap()),
        ("page overwritten", &|file| {
            file.seek(SeekFrom::Start(4096)).unwrap();
            file.write_all(&[0xa5; 4096]).unwrap();
        }),
    ];
    for (what, damage) in damages {
        let mut file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
        damage(&mut file);
        let error = home.try_open().map(drop).expect_err(what);
        let text = error.to_string();
        assert!(text.contains("ledger.db") && text.contains("from a backup"), "{what}: {text}");
        file.set_len(0).unwrap();
        file.seek(SeekFrom::Start(0)).unwrap();
        file.write_all(&whole).unwrap();
    }
    home.open();
}

#[tokio::test]
async fn a_ledger_of_another_format_is_refused() {
    let home = written().await;
    home.database().execute_batch("PRAGMA user_version = 9").unwrap();
    let error = home.try_open().map(drop).unwrap_err();
    assert!(error.to_string().contains("format 9"), "{error}");
}
