//! The program of a call: found when its tool is registered, pinned by its digest.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

/// A program with everything a process of it gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    /// The program's file.
    pub path: PathBuf,
    /// SHA-256 of the file, checked before every run. `None` for a program that is not pinned.
    pub digest: Option<[u8; 32]>,
    /// The arguments after the program's name.
    pub args: Vec<OsString>,
    /// What the process reads on its standard input.
    pub stdin: Vec<u8>,
    /// The whole environment; nothing is inherited.
    pub env: BTreeMap<String, String>,
    /// The directory the process starts in, as the call sees it.
    pub cwd: PathBuf,
}

/// A program that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResolvedProgram {
    /// The absolute path.
    pub path: PathBuf,
    /// SHA-256 of the file.
    pub digest: [u8; 32],
}

/// A command that names no program.
#[derive(Debug, thiserror::Error)]
pub enum ResolveError {
    /// A bare name stands in no directory of the search path.
    #[error(
        "command {command:?} is not found in {search}; expected an absolute path or a name on the search path (a command is one program; it is never split at spaces)"
    )]
    NotFound {
        /// The command.
        command: String,
        /// The directories that were searched.
        search: String,
    },
    /// A relative path with separators.
    #[error("command {command:?} is a relative path; expected an absolute path or a bare name")]
    Relative {
        /// The command.
        command: String,
    },
    /// There is no program, or one that no call may see.
    ///
    /// INVARIANT: one text for whatever is there or is not, so that nobody learns which files
    /// this machine has by registering them.
    #[error(
        "command {command:?} is no program that can be used; expected a regular file that can be read and executed, outside of the gateway's home (the gateway's log says what is wrong)"
    )]
    Unusable {
        /// The command.
        command: String,
    },
}

/// Finds a command: an absolute path, or a bare name in a search path. Never a file of the home.
///
/// # Errors
/// Names the command, where it was looked for, and what was wrong.
pub fn resolve_program(
    command: &str,
    search: &[PathBuf],
    home: &Path,
) -> Result<ResolvedProgram, ResolveError> {
    let path = if command.starts_with('/') {
        PathBuf::from(command)
    } else if command.contains('/') {
        return Err(ResolveError::Relative { command: command.to_owned() });
    } else {
        let found =
            search.iter().map(|directory| directory.join(command)).find(|path| is_executable(path));
        found.ok_or_else(|| ResolveError::NotFound {
            command: command.to_owned(),
            search: search
                .iter()
                .map(|path| path.display().to_string())
                .collect::<Vec<_>>()
                .join(":"),
        })?
    };
    match look(&path, home) {
        Ok(digest) => Ok(ResolvedProgram { path, digest }),
        Err(fault) => {
            tracing::warn!(command, path = %path.display(), %fault, "command is no program that can be used");
            Err(ResolveError::Unusable { command: command.to_owned() })
        }
    }
}

/// Returns the digest of the file that a program's path leads to.
fn look(path: &Path, home: &Path) -> io::Result<[u8; 32]> {
    // A name such as /usr/bin/python3 is a link that an upgrade moves; the file it leads to is pinned.
    let file = path.canonicalize()?;
    if is_in_home(&file, home) {
        return Err(in_home());
    }
    let metadata = file.metadata()?;
    if metadata.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    if !metadata.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    if metadata.permissions().mode() & 0o111 == 0 {
        return Err(io::Error::other("not executable"));
    }
    hash(&mut File::open(&file)?)
}

/// Says whether a file, given without links, is one of the gateway's home.
pub(crate) fn is_in_home(file: &Path, home: &Path) -> bool {
    home.canonicalize().is_ok_and(|home| file.starts_with(home))
}

pub(crate) fn in_home() -> io::Error {
    io::Error::new(
        io::ErrorKind::PermissionDenied,
        "it lies within the gateway's home, which no call may see",
    )
}

fn is_executable(path: &Path) -> bool {
    path.metadata()
        .is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

pub(crate) fn hash(file: &mut File) -> io::Result<[u8; 32]> {
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let read = file.read(&mut buffer)?;
        if read == 0 {
            return Ok(hasher.finalize().into());
        }
        hasher.update(buffer.get(..read).unwrap_or_default());
    }
}
