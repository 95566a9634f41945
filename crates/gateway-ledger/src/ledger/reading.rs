//! What the ledger tells of itself: tools, receipts, records, and whether they are intact.

use gateway_model::{CallId, Digest, Principal, RunId};
use rusqlite::Connection;

use super::{Ledger, LedgerError, StoredTool};
use crate::keys;
use crate::open::connect_reader;
use crate::receipt::{self, Receipt};
use crate::verify::{self, VerifyError, VerifyReport};

/// Records that one answer holds at most.
const MAX_LISTED: u32 = 10_000;

/// A record, as stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredRecord {
    /// The position.
    pub seq: u64,
    /// The canonical text.
    pub leaf: String,
    /// SHA-256 over a zero byte and the text's bytes.
    pub hash: Digest,
}

impl Ledger {
    /// Returns the registered tools, sorted by id.
    ///
    /// # Errors
    /// Returns why the ledger could not be read.
    pub async fn tools(&self) -> Result<Vec<StoredTool>, LedgerError> {
        self.readers.read(registered_tools).await
    }

    /// Returns the receipt of a settled call.
    ///
    /// # Errors
    /// Returns why the ledger could not be read.
    pub async fn receipt(&self, call: CallId) -> Result<Option<Receipt>, LedgerError> {
        self.readers.read(move |database| receipt::read(database, call)).await
    }

    /// Returns a run's receipts after a position, in the order of the log.
    ///
    /// At most `limit`, 1 000, or what 16 MiB of content takes; the next ones are after the last.
    ///
    /// # Errors
    /// Returns why the ledger could not be read.
    pub async fn receipts(
        &self,
        run: &RunId,
        after: u64,
        limit: u32,
    ) -> Result<Vec<Receipt>, LedgerError> {
        let run = run.clone();
        self.readers.read(move |database| receipt::of_run(database, &run, after, limit)).await
    }

    /// Returns the records after a position, at most `limit` or 10 000.
    ///
    /// # Errors
    /// Returns why the ledger could not be read.
    pub async fn records(&self, after: u64, limit: u32) -> Result<Vec<StoredRecord>, LedgerError> {
        let query = move |database: &Connection| {
            database
                .prepare_cached(
                    "SELECT seq, leaf, hash FROM records WHERE seq > ?1 ORDER BY seq LIMIT ?2",
                )?
                .query_map((after, limit.min(MAX_LISTED)), |row| {
                    let leaf = String::from_utf8_lossy(row.get_ref(1)?.as_blob()?).into_owned();
                    Ok(StoredRecord { seq: row.get(0)?, leaf, hash: Digest(row.get(2)?) })
                })?
                .collect()
        };
        self.readers.read(query).await
    }

    /// Reads and checks everything: records, indexes, pairs, contents.
    ///
    /// # Errors
    /// Returns the first thing that is not what was written.
    pub async fn verify(&self) -> Result<VerifyReport, VerifyError> {
        // A connection of its own: a long look must not keep others from reading.
        let path = self.path.clone();
        let verifying = tokio::task::spawn_blocking(move || verify::whole(&connect_reader(&path)?));
        verifying.await.unwrap_or_else(|_panic| {
            Err(VerifyError::Damaged { reason: "the verification did not end".to_owned() })
        })
    }
}

fn registered_tools(database: &Connection) -> rusqlite::Result<Vec<StoredTool>> {
    database
        .prepare_cached(
            "SELECT id, version, digest, definition, registered_by FROM tools ORDER BY id",
        )?
        .query_map([], |row| {
            let is_operator = row.get_ref(4)?.as_str()? == Principal::Operator.as_str();
            Ok(StoredTool {
                id: keys::parsed(row, 0)?,
                version: row.get(1)?,
                digest: Digest(row.get(2)?),
                definition: row.get(3)?,
                registered_by: if is_operator { Principal::Operator } else { Principal::Local },
            })
        })?
        .collect()
}
