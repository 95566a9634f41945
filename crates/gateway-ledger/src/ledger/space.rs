//! The free space of the ledger's disk, looked at now and then.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use gateway_model::{Clock, Timestamp};

use super::LedgerError;

/// How long an answer of the file system is believed.
const INTERVAL: Duration = Duration::from_millis(500);
/// Writes after which the file system is asked again, as a share of the reserve.
const SHARE: u64 = 16;

/// Keeps room for the outcomes of what runs.
pub(crate) struct Space {
    directory: PathBuf,
    reserve_bytes: u64,
    clock: Arc<dyn Clock>,
    free_bytes: AtomicU64,
    /// When the file system was asked, in milliseconds since 1970; zero for never.
    asked_at: AtomicU64,
    written_since: AtomicU64,
    /// Bytes of entries that are on their way to the disk.
    pending: AtomicU64,
}

/// Room for one entry on its way; given back to what was written when dropped.
pub(crate) struct Room<'space> {
    space: &'space Space,
    bytes: u64,
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        self.space.written_since.fetch_add(self.bytes, Ordering::Relaxed);
        self.space.pending.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Space {
    pub(super) fn new(directory: PathBuf, reserve_bytes: u64, clock: Arc<dyn Clock>) -> Self {
        Self {
            directory,
            reserve_bytes,
            clock,
            free_bytes: AtomicU64::new(u64::MAX),
            asked_at: AtomicU64::new(0),
            written_since: AtomicU64::new(0),
            pending: AtomicU64::new(0),
        }
    }

    /// Takes room for an entry, and refuses what only outcomes may still use.
    pub(crate) fn take(&self, bytes: usize) -> Result<Room<'_>, LedgerError> {
        let room = self.take_reserved(bytes);
        self.check()?;
        Ok(room)
    }

    /// Refuses where what is free, less what is on its way, is less than the reserve.
    pub(crate) fn check(&self) -> Result<(), LedgerError> {
        let (reserve_bytes, free_bytes) = (self.reserve_bytes, self.free());
        let used =
            self.pending.load(Ordering::Relaxed) + self.written_since.load(Ordering::Relaxed);
        let free_bytes = free_bytes.saturating_sub(used);
        if free_bytes < reserve_bytes {
            return Err(LedgerError::Full { free_bytes, reserve_bytes });
        }
        Ok(())
    }

    /// Takes room for an outcome, for which the reserve is kept.
    pub(crate) fn take_reserved(&self, bytes: usize) -> Room<'_> {
        let bytes = bytes as u64;
        self.pending.fetch_add(bytes, Ordering::Relaxed);
        Room { space: self, bytes }
    }

    fn free(&self) -> u64 {
        let now = self.clock.now();
        let asked_at = Timestamp(self.asked_at.load(Ordering::Relaxed));
        let is_recent = asked_at <= now && asked_at.plus(INTERVAL) > now;
        if is_recent && self.written_since.load(Ordering::Relaxed) < self.reserve_bytes / SHARE {
            return self.free_bytes.load(Ordering::Relaxed);
        }
        // A file system that does not say is not held against the caller: the write will tell.
        let free_bytes = rustix::fs::statvfs(&self.directory)
            .map_or(u64::MAX, |found| found.f_bavail.saturating_mul(found.f_frsize));
        self.free_bytes.store(free_bytes, Ordering::Relaxed);
        self.written_since.store(0, Ordering::Relaxed);
        self.asked_at.store(now.0, Ordering::Relaxed);
        free_bytes
    }
}
