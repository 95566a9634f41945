//! Verification: is every record what was written, and is none missing?

use std::collections::HashSet;

use rusqlite::{Connection, Row};
use serde_json::{Map, Value};

use crate::sealing::{is_committed, leaf_hash};

/// A ledger that is not what was written.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    /// A record is missing.
    #[error("record {seq} is missing")]
    Missing {
        /// The position.
        seq: u64,
    },
    /// A record's bytes do not hash to its stored hash, or stand at another position.
    #[error("record {seq} was changed after it was written")]
    Changed {
        /// The position.
        seq: u64,
    },
    /// The index finds another call under a record than the record speaks of.
    #[error("the index of record {seq} was changed after it was written")]
    Misplaced {
        /// The position.
        seq: u64,
    },
    /// Content is not what its record commits to.
    #[error("the content {name:?} of record {seq} was changed after it was written")]
    Content {
        /// The position of the record.
        seq: u64,
        /// Which content.
        name: String,
    },
    /// An outcome without its intent, or a second one for the same intent.
    #[error("record {seq} is the outcome of an intent that is absent or already has one")]
    Unpaired {
        /// The position of the outcome.
        seq: u64,
    },
    /// The database itself is damaged.
    #[error("the database is damaged: {reason}")]
    Damaged {
        /// What SQLite found.
        reason: String,
    },
    /// The database could not be read.
    #[error("the records could not be read")]
    Database(#[from] rusqlite::Error),
}

/// What a verification covered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VerifyReport {
    /// Records that were read and hashed.
    pub records: u64,
    /// Pieces of content that were compared with their commitments.
    pub contents: u64,
}

/// The position of the last record, by the count that each commit writes down.
pub(crate) fn head(database: &Connection) -> rusqlite::Result<u64> {
    database.query_row("SELECT value FROM meta WHERE name = 'head'", [], |row| row.get(0))
}

/// Verifies the whole ledger: the database's own structure, records, pairs and contents.
pub(crate) fn whole(database: &Connection) -> Result<VerifyReport, VerifyError> {
    // One transaction, so that all of it is seen at one moment.
    let snapshot = database.unchecked_transaction()?;
    let found: String = snapshot.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
    if found != "ok" {
        return Err(VerifyError::Damaged { reason: found });
    }
    let last = head(&snapshot)?;
    let records = records(&snapshot, 1, last)?;
    pairs(&snapshot)?;
    let contents = contents(&snapshot)?;
    Ok(VerifyReport { records, contents })
}

/// Checks that records are dense, end with the last, and hash to what was stored.
pub(crate) fn records(database: &Connection, first: u64, last: u64) -> Result<u64, VerifyError> {
    let mut statement = database.prepare(
        "SELECT seq, leaf, hash, settled_call, run, intent_seq FROM records \
         WHERE seq >= ?1 ORDER BY seq",
    )?;
    let mut rows = statement.query([first])?;
    let mut expected = first;
    while let Some(row) = rows.next()? {
        let seq: u64 = row.get(0)?;
        if seq != expected {
            return Err(VerifyError::Missing { seq: expected });
        }
        record(row, seq)?;
        expected += 1;
    }
    if expected <= last {
        return Err(VerifyError::Missing { seq: expected });
    }
    Ok(expected - first)
}

fn record(row: &Row<'_>, seq: u64) -> Result<(), VerifyError> {
    let changed = |_any| VerifyError::Changed { seq };
    let leaf = row.get_ref(1)?.as_blob().map_err(changed)?;
    let hash = row.get_ref(2)?.as_blob().map_err(changed)?;
    if leaf_hash(leaf).0 != hash {
        return Err(VerifyError::Changed { seq });
    }
    let parsed: Map<String, Value> =
        serde_json::from_slice(leaf).map_err(|_syntax| VerifyError::Changed { seq })?;
    if parsed.get("seq").and_then(Value::as_u64) != Some(seq) {
        return Err(VerifyError::Changed { seq });
    }
    let is_outcome = parsed.get("kind").and_then(Value::as_str) == Some("outcome");
    let told = |name| parsed.get(name).filter(|_| is_outcome);
    let call: Option<String> = row.get(3)?;
    let run: Option<String> = row.get(4)?;
    let intent_seq: Option<u64> = row.get(5)?;
    let is_placed = told("call").and_then(Value::as_str) == call.as_deref()
        && told("run_id").and_then(Value::as_str) == run.as_deref()
        && told("intent_seq").and_then(Value::as_u64) == intent_seq;
    if is_placed { Ok(()) } else { Err(VerifyError::Misplaced { seq }) }
}

/// Checks that each outcome has its own intent, of the same call.
fn pairs(database: &Connection) -> Result<(), VerifyError> {
    let mut statement = database.prepare(
        "SELECT outcome.seq, outcome.settled_call, outcome.intent_seq, intent.leaf \
         FROM records AS outcome LEFT JOIN records AS intent ON intent.seq = outcome.intent_seq \
         WHERE outcome.intent_seq IS NOT NULL ORDER BY outcome.seq",
    )?;
    let mut rows = statement.query([])?;
    let mut settled = HashSet::new();
    while let Some(row) = rows.next()? {
        let seq = row.get(0)?;
        let call: String = row.get(1)?;
        let intent_seq: u64 = row.get(2)?;
        let intent: Option<Vec<u8>> = row.get(3)?;
        let intent: Value = intent
            .and_then(|leaf| serde_json::from_slice(&leaf).ok())
            .ok_or(VerifyError::Unpaired { seq })?;
        let told = |name| intent.get(name).and_then(Value::as_str);
        let is_pair = told("kind") == Some("intent") && told("call") == Some(call.as_str());
        if !is_pair || !settled.insert(intent_seq) {
            return Err(VerifyError::Unpaired { seq });
        }
    }
    Ok(())
}

/// Checks every piece of content against the commitment in its record.
fn contents(database: &Connection) -> Result<u64, VerifyError> {
    let mut statement = database.prepare(
        "SELECT seq, leaf, bundle FROM contents LEFT JOIN records USING (seq) ORDER BY seq",
    )?;
    let mut rows = statement.query([])?;
    let mut checked = 0;
    while let Some(row) = rows.next()? {
        let seq: u64 = row.get(0)?;
        let leaf: Option<Vec<u8>> = row.get(1)?;
        let leaf: Value = leaf
            .and_then(|leaf| serde_json::from_slice(&leaf).ok())
            .ok_or(VerifyError::Missing { seq })?;
        let bundle = row.get_ref(2)?.as_bytes().unwrap_or_default();
        let bundle: Map<String, Value> = serde_json::from_slice(bundle)
            .map_err(|_syntax| VerifyError::Content { seq, name: "(all)".to_owned() })?;
        for (name, part) in bundle {
            if !leaf.get(&name).is_some_and(|commitment| is_committed(&part, commitment)) {
                return Err(VerifyError::Content { seq, name });
            }
            checked += 1;
        }
    }
    Ok(checked)
}
