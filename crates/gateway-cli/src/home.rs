//! The home: the private directory of one gateway, its lock, operator token and secrets.
//!
//! INVARIANT: one process per home. The kernel holds the lock and frees it when the process ends,
//! however it ends.

mod lock;
mod secrets;
mod token;

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

pub(crate) use lock::{HomeLock, running};
pub(crate) use secrets::{SecretStore, StoreError};
pub(crate) use token::{operator_token, read_operator_token};

/// A home that cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HomeError {
    /// The directory is not there.
    #[error("home {}: does not exist", path.display())]
    Absent { path: PathBuf },
    /// The directory could not be made.
    #[error("home {}: cannot be created", path.display())]
    Create { path: PathBuf, source: io::Error },
    /// The directory could not be looked at.
    #[error("home {}: cannot be used", path.display())]
    Unusable { path: PathBuf, source: io::Error },
    /// Something else has the name.
    #[error("home {}: is not a directory; give another with --home", path.display())]
    NotADirectory { path: PathBuf },
    /// Another user decides what the name leads to, or what lies in it.
    #[error("home {}: belongs to user {owner}, not to you (user {own}); give your own with --home", path.display())]
    Foreign { path: PathBuf, owner: u32, own: u32 },
    /// Others may change what lies in it.
    #[error(
        "home {}: others may write to it (mode {mode:04o}); run `chmod 700 {}`",
        path.display(), path.display()
    )]
    Writable { path: PathBuf, mode: u32 },
}

/// Returns the home without symbolic links, created where it is missing.
///
/// # Errors
/// Refuses a directory that someone else could change.
pub(crate) fn prepare(path: &Path) -> Result<PathBuf, HomeError> {
    if fs::symlink_metadata(path).is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(path)
            .map_err(|source| HomeError::Create { path: path.to_owned(), source })?;
    }
    let real = inspect(path)?;
    for name in ["artifacts", "receipts", "policies"] {
        let path = real.join(name);
        match DirBuilder::new().mode(0o700).create(&path) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(source) => return Err(HomeError::Create { path, source }),
        }
    }
    Ok(real)
}

/// Returns an existing home without symbolic links.
///
/// # Errors
/// As [`prepare`], and refuses one that is not there.
pub(crate) fn inspect(path: &Path) -> Result<PathBuf, HomeError> {
    let unusable = |source: io::Error| match source.kind() {
        io::ErrorKind::NotFound => HomeError::Absent { path: path.to_owned() },
        _ => HomeError::Unusable { path: path.to_owned(), source },
    };
    let own = rustix::process::geteuid().as_raw();
    let link = fs::symlink_metadata(path).map_err(unusable)?;
    let real = fs::canonicalize(path)
        .map_err(|source| HomeError::Unusable { path: path.to_owned(), source })?;
    let directory = fs::symlink_metadata(&real).map_err(unusable)?;
    if !directory.is_dir() {
        return Err(HomeError::NotADirectory { path: real });
    }
    // Root may point anyone's home elsewhere, as it may do anything.
    let foreign =
        [link.uid(), directory.uid()].into_iter().find(|owner| *owner != own && *owner != 0);
    let owner = foreign.or_else(|| (directory.uid() != own).then_some(directory.uid()));
    if let Some(owner) = owner {
        return Err(HomeError::Foreign { path: path.to_owned(), owner, own });
    }
    let mode = directory.mode() & 0o7777;
    if mode & 0o022 != 0 {
        return Err(HomeError::Writable { path: real, mode });
    }
    Ok(real)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn directory() -> tempfile::TempDir {
        tempfile::tempdir().unwrap()
    }

    #[test]
    fn a_missing_home_is_created_for_its_owner_alone() {
        let parent = directory();
        let home = prepare(&parent.path().join("a/b")).unwrap();
        assert_eq!(fs::metadata(&home).unwrap().mode() & 0o777, 0o700);
        for inner in ["artifacts", "receipts", "policies"] {
            assert_eq!(fs::metadata(home.join(inner)).unwrap().mode() & 0o777, 0o700, "{inner}");
        }
        assert_eq!(prepare(&home).unwrap(), home);
    }

    #[test]
    fn a_home_that_others_may_write_to_is_refused_with_the_remedy() {
        let home = directory();
        for mode in [0o720, 0o702, 0o777] {
            fs::set_permissions(home.path(), fs::Permissions::from_mode(mode)).unwrap();
            let message = prepare(home.path()).unwrap_err().to_string();
            assert!(message.contains(&format!("mode {mode:04o}")), "{message}");
            assert!(message.contains("chmod 700 "), "{message}");
        }
    }

    #[test]
    fn a_link_leads_to_the_home_and_a_dangling_one_or_a_file_does_not() {
        let parent = directory();
        let (real, link) = (parent.path().join("real"), parent.path().join("link"));
        fs::create_dir(&real).unwrap();
        fs::set_permissions(&real, fs::Permissions::from_mode(0o700)).unwrap();
        symlink(&real, &link).unwrap();
        assert_eq!(prepare(&link).unwrap(), real.canonicalize().unwrap());

        let dangling = parent.path().join("dangling");
        symlink(parent.path().join("nowhere"), &dangling).unwrap();
        let error = prepare(&dangling).unwrap_err();
        assert!(matches!(error, HomeError::Unusable { .. }), "{error}");

        let file = parent.path().join("file");
        fs::File::create(&file).unwrap();
        let error = prepare(&file).unwrap_err();
        assert!(matches!(error, HomeError::NotADirectory { .. }), "{error}");
    }

    #[test]
    fn a_home_of_another_user_is_refused() {
        if !rustix::process::geteuid().is_root() {
            let error = inspect(Path::new("/")).unwrap_err();
            assert!(matches!(error, HomeError::Foreign { owner: 0, .. }), "{error}");
            return;
        }
        let home = directory();
        std::os::unix::fs::chown(home.path(), Some(1), None).unwrap();
        let error = inspect(home.path()).unwrap_err();
        assert!(matches!(error, HomeError::Foreign { owner: 1, own: 0, .. }), "{error}");
    }
}
