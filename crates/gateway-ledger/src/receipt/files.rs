//! Receipt files: derived from the ledger after the answer, never synced, rebuilt where missing.
//!
//! One thread of low priority follows the log. Under load it falls behind and loses nothing; when
//! the process ends first, the next start looks for what is missing.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};

use gateway_model::{CallId, RunId};
use rusqlite::Connection;
use serde_json::Value;

use crate::keys::parsed;
use crate::open::{create_private_directory, write_private};

/// Records before the last one among which a start looks for missing files.
const LOOKED_AT: u64 = 10_000;
/// Receipts looked at between two looks for the end.
const BATCH: u32 = 64;
/// Batches that are still written once the ledger is closed.
const LAST_BATCHES: u32 = 16;

/// The thread that writes receipt files.
#[derive(Debug)]
pub(crate) struct ReceiptFiles {
    wake: SyncSender<()>,
    thread: std::thread::JoinHandle<()>,
}

impl ReceiptFiles {
    pub(crate) fn start(
        database: Connection,
        receipts: PathBuf,
        last_seq: u64,
    ) -> std::io::Result<Self> {
        let after = last_seq.saturating_sub(LOOKED_AT);
        let mut follower = Follower { database, receipts, after, is_failing: false };
        // One wake-up stands for all that came since the last.
        let (wake, wakes) = sync_channel(1);
        let thread = std::thread::Builder::new()
            .name("ledger-receipts".to_owned())
            .spawn(move || follower.run(&wakes))?;
        Ok(Self { wake, thread })
    }

    /// Says that there is a new receipt.
    pub(crate) fn wake(&self) {
        match self.wake.try_send(()) {
            Ok(()) | Err(std::sync::mpsc::TrySendError::Full(())) => {}
            Err(std::sync::mpsc::TrySendError::Disconnected(())) => {
                tracing::debug!("receipt files are no longer written");
            }
        }
    }

    /// Waits until the last files are written, within a bound.
    pub(crate) fn finish(self) {
        drop(self.wake);
        if self.thread.join().is_err() {
            tracing::error!("the thread of receipt files panicked");
        }
    }
}

struct Follower {
    database: Connection,
    receipts: PathBuf,
    /// Everything up to this position has been looked at.
    after: u64,
    is_failing: bool,
}

impl Follower {
    fn run(&mut self, wakes: &Receiver<()>) {
        // Linux keeps a priority for each thread: calls come first.
        if let Err(error) = rustix::process::setpriority_process(None, 19) {
            tracing::debug!(%error, "receipt files are written at normal priority");
        }
        let is_open = || !matches!(wakes.try_recv(), Err(TryRecvError::Disconnected));
        loop {
            while self.batch() > 0 && is_open() {}
            if wakes.recv().is_err() {
                break;
            }
        }
        for _ in 0..LAST_BATCHES {
            if self.batch() == 0 {
                break;
            }
        }
    }

    /// Writes the missing files of the next few receipts; returns how many were looked at.
    fn batch(&mut self) -> usize {
        let next = match self.next() {
            Ok(next) => next,
            Err(error) => {
                tracing::warn!(%error, "receipts cannot be read to write their files");
                return 0;
            }
        };
        for (seq, call, run) in &next {
            let file = self.receipts.join(run.as_str()).join(format!("{call}.json"));
            let written = if file.exists() { Ok(()) } else { self.write(*call, &file) };
            match written {
                Ok(()) => self.is_failing = false,
                Err(error) if !self.is_failing => {
                    self.is_failing = true;
                    tracing::warn!(path = %file.display(), error, "receipt file not written");
                }
                Err(_same_again) => {}
            }
            self.after = *seq;
        }
        next.len()
    }

    fn next(&self) -> rusqlite::Result<Vec<(u64, CallId, RunId)>> {
        self.database
            .prepare_cached(
                "SELECT seq, settled_call, run FROM records \
                 WHERE seq > ?1 AND settled_call IS NOT NULL ORDER BY seq LIMIT ?2",
            )?
            .query_map((self.after, BATCH), |row| {
                Ok((row.get(0)?, parsed(row, 1)?, parsed(row, 2)?))
            })?
            .collect()
    }

    fn write(&self, call: CallId, file: &Path) -> Result<(), String> {
        match super::read(&self.database, call) {
            Ok(Some(receipt)) => {
                write_whole(file, &receipt.whole).map_err(|error| error.to_string())
            }
            Ok(None) => Ok(()),
            Err(error) => Err(error.to_string()),
        }
    }
}

/// Writes a file so that readers see either none or all of it.
fn write_whole(file: &Path, receipt: &Value) -> std::io::Result<()> {
    let unfinished = file.with_extension("tmp");
    let mut text = serde_json::to_vec_pretty(receipt)?;
    text.push(b'\n');
    match write_private(&unfinished, &text) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            if let Some(directory) = file.parent() {
                create_private_directory(directory)?;
            }
            write_private(&unfinished, &text)?;
        }
        written => written?,
    }
    std::fs::rename(&unfinished, file)
}
