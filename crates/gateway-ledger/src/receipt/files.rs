//! Receipt files: derived from the ledger after the answer, never synced, rebuilt where missing.
//!
//! One thread of low priority follows the log. Under load it falls behind and loses nothing: new
//! files make the file system's own journal longer, which every commit of the ledger waits for.
//! When the process ends first, the next start looks for what is missing.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{
    Receiver, RecvTimeoutError, Sender, SyncSender, TrySendError, channel, sync_channel,
};
use std::time::Instant;

use gateway_model::{CallId, RunId};
use rusqlite::Connection;
use serde_json::Value;

use crate::keys::parsed;
use crate::ledger::space::Space;
use crate::open::{create_private_directory, write_private};

/// Records before the last one among which a start looks for missing files.
const LOOKED_AT: u64 = 10_000;
/// Receipts looked at between two looks for the end.
const BATCH: usize = 32;
/// After a whole batch the thread rests this many times as long as the batch took.
const REST: u32 = 19;
/// A position after every record.
const NO_END: u64 = i64::MAX.cast_unsigned();
/// Batches that are still looked at once the ledger is closed.
const LAST_BATCHES: usize = 32;

/// The thread that writes receipt files.
#[derive(Debug)]
pub(crate) struct ReceiptFiles {
    wake: SyncSender<()>,
    /// Dropped to end a rest.
    open: Sender<()>,
    thread: std::thread::JoinHandle<()>,
}

impl ReceiptFiles {
    pub(crate) fn start(mut follower: Follower) -> std::io::Result<Self> {
        // One wake-up stands for all that came since the last.
        let (wake, wakes) = sync_channel(1);
        let (open, closing) = channel();
        let thread = std::thread::Builder::new()
            .name("ledger-receipts".to_owned())
            .spawn(move || follower.run(&wakes, &closing))?;
        Ok(Self { wake, open, thread })
    }

    /// Says that there is a new receipt.
    pub(crate) fn wake(&self) {
        match self.wake.try_send(()) {
            Ok(()) | Err(TrySendError::Full(())) => {}
            Err(TrySendError::Disconnected(())) => {
                tracing::debug!("receipt files are no longer written");
            }
        }
    }

    /// Waits until the last files are written, within a bound.
    pub(crate) fn finish(self) {
        drop((self.wake, self.open));
        if self.thread.join().is_err() {
            tracing::error!("the thread of receipt files panicked");
        }
    }
}

/// Reads the log and writes what has no file yet.
pub(crate) struct Follower {
    database: Connection,
    receipts: PathBuf,
    space: Arc<Space>,
    /// Outcomes of this opening up to this position have their files.
    after: u64,
    /// Earlier outcomes from this position on have been looked at; newest first.
    before: u64,
    /// Where looking back ends.
    oldest: u64,
    is_failing: bool,
}

/// An outcome: its position, its call, its run.
type Outcome = (u64, CallId, RunId);

impl Follower {
    pub(crate) fn new(
        database: Connection,
        receipts: PathBuf,
        last_seq: u64,
        space: Arc<Space>,
    ) -> Self {
        let (before, oldest) = (last_seq + 1, last_seq.saturating_sub(LOOKED_AT));
        Self { database, receipts, space, after: last_seq, before, oldest, is_failing: false }
    }

    fn run(&mut self, wakes: &Receiver<()>, closing: &Receiver<()>) {
        // Linux keeps a priority for each thread: calls come first.
        if let Err(error) = rustix::process::setpriority_process(None, 19) {
            tracing::debug!(%error, "receipt files are written at normal priority");
        }
        loop {
            let began = Instant::now();
            let looked_at = self.batch();
            let is_closing = if looked_at == 0 {
                wakes.recv().is_err()
            } else if looked_at < BATCH {
                false
            } else {
                let rest = began.elapsed() * REST;
                closing.recv_timeout(rest) == Err(RecvTimeoutError::Disconnected)
            };
            if is_closing {
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
            if self.space.check().is_err() {
                return 0;
            }
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
            if *seq > self.after {
                self.after = *seq;
            } else {
                self.before = *seq;
            }
        }
        next.len()
    }

    /// Returns the next few outcomes: new ones first, then earlier ones.
    fn next(&self) -> rusqlite::Result<Vec<Outcome>> {
        let new = self.select(
            "SELECT seq, settled_call, run FROM records \
             WHERE seq > ?1 AND seq < ?2 AND settled_call IS NOT NULL ORDER BY seq LIMIT ?3",
            (self.after, NO_END),
        )?;
        if !new.is_empty() {
            return Ok(new);
        }
        self.select(
            "SELECT seq, settled_call, run FROM records \
             WHERE seq > ?1 AND seq < ?2 AND settled_call IS NOT NULL ORDER BY seq DESC LIMIT ?3",
            (self.oldest, self.before),
        )
    }

    fn select(&self, sql: &str, (above, below): (u64, u64)) -> rusqlite::Result<Vec<Outcome>> {
        self.database
            .prepare_cached(sql)?
            .query_map((above, below, BATCH as u64), |row| {
                Ok((row.get(0)?, parsed(row, 1)?, parsed(row, 2)?))
            })?
            .collect()
    }

    fn write(&self, call: CallId, file: &Path) -> Result<(), String> {
        match super::read(&self.database, call) {
            Ok(Some(receipt)) => {
                let _room = self.space.take_reserved(receipt.content_bytes);
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
