//! Digests of program files, remembered for as long as the file cannot have changed.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use crate::program::hash;
use crate::spec::FileIdentity;

impl FileIdentity {
    pub(crate) fn of(metadata: &std::fs::Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}

/// Digests of program files, by identity: a file whose status never changed is not read again.
#[derive(Debug, Default)]
pub(crate) struct PinnedPrograms {
    known: Mutex<BTreeMap<FileIdentity, [u8; 32]>>,
}

/// Files whose digests are remembered.
const MAX_KNOWN: usize = 4_096;
/// A file that changed within this time could change again unseen, within the file system's clock.
const UNSETTLED: Duration = Duration::from_secs(2);

impl PinnedPrograms {
    /// Returns the file's identity and its digest.
    pub(crate) async fn digest(&self, path: &Path) -> io::Result<(FileIdentity, [u8; 32])> {
        let mut file = File::open(path)?;
        let identity = FileIdentity::of(&file.metadata()?);
        if let Some(digest) = self.lock().get(&identity) {
            return Ok((identity, *digest));
        }
        let (digest, after) = tokio::task::spawn_blocking(move || -> io::Result<_> {
            Ok((hash(&mut file)?, FileIdentity::of(&file.metadata()?)))
        })
        .await
        .map_err(io::Error::other)??;
        if after == identity && is_settled(&identity) {
            let mut known = self.lock();
            if known.len() >= MAX_KNOWN {
                known.clear();
            }
            known.insert(identity, digest);
        }
        Ok((identity, digest))
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<FileIdentity, [u8; 32]>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "compared with times of the file system, never recorded"
)]
fn is_settled(identity: &FileIdentity) -> bool {
    let seconds = u64::try_from(identity.changed.0).unwrap_or(u64::MAX);
    let changed = SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds));
    changed.is_some_and(|changed| {
        SystemTime::now().duration_since(changed).is_ok_and(|age| age > UNSETTLED)
    })
}
