//! Receipts: what one call did, with the stored bytes that a verifier hashes.

pub(crate) mod files;

use gateway_model::{CallId, RunId};
use rusqlite::{Connection, OptionalExtension as _, Row};
use serde_json::{Map, Value, json};

use crate::record::leaf::{LOG_NAME, RECORD_VERSION};

/// Receipts that one answer holds at most.
const MAX_LISTED: u32 = 1_000;
/// Bytes of stored content after which an answer ends.
const MAX_LISTED_BYTES: usize = 16 << 20;

/// The receipt of one settled call.
#[derive(Debug, Clone, PartialEq)]
pub struct Receipt {
    whole: Value,
    content_bytes: usize,
}

/// A stored leaf with its position and its hash.
fn stored_leaf(seq: u64, leaf: &[u8], hash: &[u8]) -> Value {
    json!({
        "seq": seq,
        "leaf": String::from_utf8_lossy(leaf),
        "leaf_hash": format!("sha256:{}", hex::encode(hash)),
    })
}

impl Receipt {
    /// Returns the receipt as JSON.
    ///
    /// `outcome.leaf` and `intent.leaf` are the canonical texts as stored: their leaf hashes
    /// are SHA-256 over a zero byte and exactly those bytes.
    pub fn to_json(&self) -> Value {
        self.whole.clone()
    }

    /// Returns the position of the outcome, after which the next receipts of a run are listed.
    pub fn seq(&self) -> u64 {
        self.whole.get("seq").and_then(Value::as_u64).unwrap_or_default()
    }

    /// Reads the columns of [`SELECT_RECEIPT`].
    fn from_row(row: &Row<'_>) -> rusqlite::Result<Self> {
        let seq = row.get(0)?;
        let leaf = row.get_ref(1)?.as_blob()?;
        let told: Value = serde_json::from_slice(leaf).unwrap_or_default();
        let outcome = stored_leaf(seq, leaf, row.get_ref(2)?.as_blob()?);
        let intent = match row.get::<_, Option<u64>>(4)? {
            None => Value::Null,
            Some(seq) => stored_leaf(seq, row.get_ref(5)?.as_blob()?, row.get_ref(6)?.as_blob()?),
        };
        let (mut bundle, mut content_bytes) = (Map::new(), 0);
        // The intent holds the input, the outcome what came of it.
        for column in [7, 3] {
            let stored = row.get_ref(column)?.as_blob_or_null()?.unwrap_or(b"{}");
            content_bytes += stored.len();
            bundle.extend(serde_json::from_slice::<Map<String, Value>>(stored).unwrap_or_default());
        }
        let policy = told.get("policy");
        let whole = json!({
            "v": RECORD_VERSION,
            "receipt_id": told.get("call"),
            "log": LOG_NAME,
            "seq": seq,
            "call_id": told.get("call"),
            "run_id": told.get("run_id"),
            "tool_id": told.get("tool").and_then(|tool| tool.get("id")),
            "status": told.get("status"),
            "decision": policy.and_then(|policy| policy.get("decision")),
            "rule": policy.and_then(|policy| policy.get("rule")),
            "ts": told.get("ts"),
            "outcome": outcome,
            "intent": intent,
            "bundle": bundle,
        });
        Ok(Self { whole, content_bytes })
    }
}

/// seq, leaf, hash, bundle of the outcome; seq, leaf, hash, bundle of the intent.
const SELECT_RECEIPT: &str = "SELECT outcome.seq, outcome.leaf, outcome.hash, produced.bundle, \
     intent.seq, intent.leaf, intent.hash, given.bundle \
     FROM records AS outcome \
     LEFT JOIN contents AS produced ON produced.seq = outcome.seq \
     LEFT JOIN records AS intent ON intent.seq = outcome.intent_seq \
     LEFT JOIN contents AS given ON given.seq = outcome.intent_seq";

pub(crate) fn read(database: &Connection, call: CallId) -> rusqlite::Result<Option<Receipt>> {
    database
        .prepare_cached(&format!("{SELECT_RECEIPT} WHERE outcome.settled_call = ?1"))?
        .query_row([call.to_string()], Receipt::from_row)
        .optional()
}

pub(crate) fn of_run(
    database: &Connection,
    run: &RunId,
    after: u64,
    limit: u32,
) -> rusqlite::Result<Vec<Receipt>> {
    let mut statement = database.prepare_cached(&format!(
        "{SELECT_RECEIPT} WHERE outcome.run = ?1 AND outcome.seq > ?2 ORDER BY outcome.seq LIMIT ?3"
    ))?;
    let mut rows = statement.query((run.as_str(), after, limit.min(MAX_LISTED)))?;
    let (mut receipts, mut bytes) = (Vec::new(), 0);
    while bytes < MAX_LISTED_BYTES
        && let Some(row) = rows.next()?
    {
        let receipt = Receipt::from_row(row)?;
        bytes += receipt.content_bytes;
        receipts.push(receipt);
    }
    Ok(receipts)
}
