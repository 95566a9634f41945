//! The free space of the ledger's disk, looked at now and then.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use gateway_model::Timestamp;

use super::LedgerError;

/// How often the file system is asked.
const INTERVAL: Duration = Duration::from_millis(500);

/// Keeps room for the outcomes of what runs.
#[derive(Debug)]
pub(super) struct Space {
    directory: PathBuf,
    reserve_bytes: u64,
    free_bytes: AtomicU64,
    /// When the file system was asked, in milliseconds since 1970; zero for never.
    asked_at: AtomicU64,
}

impl Space {
    pub(super) fn new(directory: PathBuf, reserve_bytes: u64) -> Self {
        let (free_bytes, asked_at) = (AtomicU64::new(u64::MAX), AtomicU64::new(0));
        Self { directory, reserve_bytes, free_bytes, asked_at }
    }

    /// Refuses what only outcomes may still use.
    pub(super) fn check(&self, now: Timestamp) -> Result<(), LedgerError> {
        let (reserve_bytes, free_bytes) = (self.reserve_bytes, self.free(now));
        if free_bytes < reserve_bytes {
            return Err(LedgerError::Full { free_bytes, reserve_bytes });
        }
        Ok(())
    }

    fn free(&self, now: Timestamp) -> u64 {
        let asked_at = self.asked_at.load(Ordering::Relaxed);
        let is_fresh = asked_at > 0 && now.since(Timestamp(asked_at)) < INTERVAL;
        if is_fresh && asked_at <= now.0 {
            return self.free_bytes.load(Ordering::Relaxed);
        }
        // A file system that does not say is not held against the caller: the write will tell.
        let free_bytes = rustix::fs::statvfs(&self.directory)
            .map_or(u64::MAX, |found| found.f_bavail.saturating_mul(found.f_frsize));
        self.free_bytes.store(free_bytes, Ordering::Relaxed);
        self.asked_at.store(now.0.max(1), Ordering::Relaxed);
        free_bytes
    }
}
