//! Reads an operator's policy files, and tells cheaply whether they changed.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::problem::{LoadError, Problem};

/// How many policy files a directory may hold.
const MAX_FILES: usize = 256;
/// The size of the largest policy file.
const MAX_FILE_BYTES: u64 = 256 * 1024;

/// The text of one policy file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Source {
    pub(crate) name: String,
    pub(crate) text: String,
    pub(crate) is_default: bool,
}

/// The policy files of a directory, as their names and inodes show them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Listing {
    /// There is no such directory.
    Absent,
    /// The files, sorted by name.
    Present(Vec<Stamp>),
}

/// One file and what changes when the file does.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Stamp {
    name: String,
    size_bytes: u64,
    inode: u64,
    modified: (i64, i64),
    changed: (i64, i64),
    kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    File,
    Symlink,
    Other,
}

/// Lists the files of a directory that end in `.cedar` and do not begin with a dot.
pub(crate) fn list(directory: &Path) -> Result<Listing, Problem> {
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Listing::Absent),
        Err(error) => return Err(unreadable(directory, &error)),
    };
    let mut stamps = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|error| unreadable(directory, &error))?;
        let file_name = entry.file_name();
        let name = file_name.to_string_lossy();
        if !name.ends_with(".cedar") || name.starts_with('.') {
            continue;
        }
        if file_name.to_str().is_none() {
            return Err(Problem::of_file(name, "the file's name is not UTF-8; rename it"));
        }
        let metadata =
            entry.metadata().map_err(|error| unreadable(Path::new(&file_name), &error))?;
        stamps.push(stamp(name.into_owned(), &metadata));
    }
    if stamps.len() > MAX_FILES {
        let message = format!("holds {} policy files; at most {MAX_FILES} are read", stamps.len());
        return Err(Problem::of_file(directory.to_string_lossy(), message));
    }
    stamps.sort();
    Ok(Listing::Present(stamps))
}

/// Returns the problem of a directory that should be there.
pub(crate) fn missing(directory: &Path) -> Problem {
    Problem::of_file(directory.to_string_lossy(), "the policy directory does not exist; create it")
}

fn unreadable(path: &Path, error: &io::Error) -> Problem {
    Problem::of_file(path.to_string_lossy(), format!("cannot be read: {error}"))
}

fn stamp(name: String, metadata: &fs::Metadata) -> Stamp {
    let kind = if metadata.is_symlink() {
        Kind::Symlink
    } else if metadata.is_file() {
        Kind::File
    } else {
        Kind::Other
    };
    Stamp {
        name,
        size_bytes: metadata.size(),
        inode: metadata.ino(),
        modified: (metadata.mtime(), metadata.mtime_nsec()),
        changed: (metadata.ctime(), metadata.ctime_nsec()),
        kind,
    }
}

/// Reads every listed file, or says what is wrong with each that cannot be used.
pub(crate) fn read_all(directory: &Path, stamps: &[Stamp]) -> Result<Vec<Source>, LoadError> {
    let mut sources = Vec::with_capacity(stamps.len());
    let mut problems = Vec::new();
    for stamp in stamps {
        match read(directory, stamp) {
            Ok(text) => {
                sources.push(Source { name: stamp.name.clone(), text, is_default: false });
            }
            Err(message) => problems.push(Problem::of_file(&stamp.name, message)),
        }
    }
    if problems.is_empty() { Ok(sources) } else { Err(LoadError { problems }) }
}

fn read(directory: &Path, stamp: &Stamp) -> Result<String, String> {
    match stamp.kind {
        Kind::File => {}
        Kind::Symlink => {
            return Err("is a symbolic link; put the file itself into the directory".to_owned());
        }
        Kind::Other => return Err("is not a regular file; remove or rename it".to_owned()),
    }
    let mut bytes = Vec::new();
    File::open(directory.join(&stamp.name))
        .and_then(|file| file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes))
        .map_err(|error| format!("cannot be read: {error}"))?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(format!("is larger than {MAX_FILE_BYTES} bytes; split it into several files"));
    }
    let text = String::from_utf8(bytes)
        .map_err(|error| format!("is not UTF-8 at byte {}", error.utf8_error().valid_up_to()))?;
    // An editor that truncates before it writes must not lift every rule of the file for a moment.
    if text.trim().is_empty() {
        return Err("is empty; write a rule into it or remove it".to_owned());
    }
    Ok(text)
}
