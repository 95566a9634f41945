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
    /// The file is not a program.
    #[error("command {command:?} ({}) is {fault}; expected a file that can be executed", path.display())]
    NotExecutable {
        /// The command.
        command: String,
        /// The file it leads to.
        path: PathBuf,
        /// What it is instead.
        fault: &'static str,
    },
    /// The file cannot be read.
    #[error("command {command:?} cannot be read at {}: {source}", path.display())]
    Unreadable {
        /// The command.
        command: String,
        /// Where it was looked for.
        path: PathBuf,
        /// What the file system said.
        source: io::Error,
    },
}

/// Finds a command: an absolute path, or a bare name in a search path.
///
/// # Errors
/// Names the command, where it was looked for, and what was wrong.
pub fn resolve_program(command: &str, search: &[PathBuf]) -> Result<ResolvedProgram, ResolveError> {
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
    let unreadable = |source| ResolveError::Unreadable {
        command: command.to_owned(),
        path: path.clone(),
        source,
    };
    // A name such as /usr/bin/python3 is a link that an upgrade moves; the file it leads to is pinned.
    let file = path.canonicalize().map_err(unreadable)?;
    let metadata = file.metadata().map_err(unreadable)?;
    let not_executable = |fault| {
        Err(ResolveError::NotExecutable { command: command.to_owned(), path: file.clone(), fault })
    };
    if metadata.is_dir() {
        return not_executable("a directory");
    }
    if !metadata.is_file() {
        return not_executable("not a regular file");
    }
    if metadata.permissions().mode() & 0o111 == 0 {
        return not_executable("not executable");
    }
    let digest = hash(&mut File::open(&file).map_err(unreadable)?).map_err(unreadable)?;
    Ok(ResolvedProgram { path, digest })
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
