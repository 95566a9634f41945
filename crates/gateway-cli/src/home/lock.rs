//! The lock of a home, and who holds it.
//!
//! A record lock belongs to the process: children do not inherit it, and the kernel tells others
//! who holds it without their taking it. It would be lost if this process closed another handle
//! of the file, so it is opened once.

use std::fs::{File, OpenOptions};
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, fcntl_lock};
use rustix::io::Errno;
use rustix::process::{Flock, FlockType, fcntl_getlk};

const NAME: &str = "gateway.lock";

/// The lock, held until the process ends.
#[derive(Debug)]
pub(crate) struct HomeLock {
    file: File,
    path: PathBuf,
}

/// The gateway that holds a home.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Running {
    /// Its process, where it can be seen from here.
    pub(crate) process: Option<i32>,
    /// Where it listens, once it does.
    pub(crate) address: Option<SocketAddr>,
}

/// A home whose lock cannot be had.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LockError {
    /// Another gateway runs in the home.
    #[error(
        "home {}: another gateway runs in it{}; stop it, or give this one its own with --home",
        path.display(), of_process(*process)
    )]
    Held { path: PathBuf, process: Option<i32> },
    /// The lock's file cannot be used.
    #[error("lock {}: cannot be used", path.display())]
    Unusable { path: PathBuf, source: io::Error },
}

fn of_process(process: Option<i32>) -> String {
    process.map_or_else(String::new, |process| format!(" (process {process})"))
}

impl HomeLock {
    /// Takes the lock without waiting.
    ///
    /// # Errors
    /// Names the process that holds it.
    pub(crate) fn take(home: &Path) -> Result<Self, LockError> {
        let path = home.join(NAME);
        let unusable = |source: io::Error| LockError::Unusable { path: path.clone(), source };
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .map_err(unusable)?;
        match fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::ACCESS | Errno::AGAIN) => {
                let process = holder(&file).ok().flatten().and_then(|running| running.process);
                return Err(LockError::Held { path: home.to_owned(), process });
            }
            Err(error) => return Err(unusable(error.into())),
        }
        // What an earlier process wrote says nothing about this one.
        file.set_len(0).map_err(unusable)?;
        Ok(Self { file, path })
    }

    /// Tells others where this gateway listens.
    ///
    /// # Errors
    /// Returns why the file could not be written.
    pub(crate) fn publish(&self, address: SocketAddr) -> Result<(), LockError> {
        self.file
            .write_all_at(format!("{address}\n").as_bytes(), 0)
            .map_err(|source| LockError::Unusable { path: self.path.clone(), source })
    }
}

/// Returns the gateway that runs in a home, if one does.
///
/// # Errors
/// Returns why the lock's file cannot be looked at.
pub(crate) fn running(home: &Path) -> Result<Option<Running>, LockError> {
    let path = home.join(NAME);
    match File::open(&path) {
        Ok(file) => holder(&file).map_err(|source| LockError::Unusable { path, source }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(LockError::Unusable { path, source }),
    }
}

fn holder(file: &File) -> io::Result<Option<Running>> {
    let Some(lock) = fcntl_getlk(file, &Flock::from(FlockType::WriteLock))? else {
        return Ok(None);
    };
    let mut bytes = [0; 64];
    let length = file.read_at(&mut bytes, 0)?;
    let text =
        bytes.get(..length).and_then(|bytes| std::str::from_utf8(bytes).ok()).unwrap_or_default();
    let process = lock.pid.map(|process| process.as_raw_nonzero().get());
    Ok(Some(Running { process, address: text.trim().parse().ok() }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_runs_in_a_fresh_home() {
        let home = tempfile::tempdir().unwrap();
        assert_eq!(running(home.path()).unwrap(), None);
    }

    #[test]
    fn a_lock_file_that_nobody_holds_means_nothing() {
        let home = tempfile::tempdir().unwrap();
        let lock = HomeLock::take(home.path()).unwrap();
        lock.publish("127.0.0.1:3510".parse().unwrap()).unwrap();
        drop(lock);
        assert_eq!(running(home.path()).unwrap(), None);
    }
}
