//! The directory of a run, made before its first call.

use std::io;
use std::path::{Path, PathBuf};

use gateway_model::RunId;
use rustix::fs::{Mode, OFlags, ResolveFlags};

/// A run directory that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("run directory {path} cannot be used")]
pub struct RunDirectoryError {
    path: PathBuf,
    #[source]
    source: io::Error,
}

/// Returns the directory of a run beneath `artifacts`, made with mode 0700 where it is missing.
///
/// # Errors
/// Refuses a directory that is a link or anything else than a directory.
pub fn prepare_run_directory(artifacts: &Path, run: &RunId) -> Result<PathBuf, RunDirectoryError> {
    let path = artifacts.join(run.as_str());
    let refused =
        |source: rustix::io::Errno| RunDirectoryError { path: path.clone(), source: source.into() };
    match rustix::fs::mkdir(&path, Mode::RWXU) {
        Ok(()) | Err(rustix::io::Errno::EXIST) => {}
        Err(error) => return Err(refused(error)),
    }
    let root = rustix::fs::open(
        artifacts,
        OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )
    .map_err(refused)?;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    rustix::fs::openat2(&root, run.as_str(), flags, Mode::empty(), resolve).map_err(refused)?;
    Ok(path)
}
