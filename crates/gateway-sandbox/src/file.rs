//! What is known of a file, and what went wrong with it.

use std::io;

/// A file operation that failed.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {fault}")]
pub struct FileError {
    /// The path as it was given.
    pub path: String,
    /// What is wrong.
    pub fault: String,
    /// The kind of the fault.
    pub kind: io::ErrorKind,
}

/// What a directory entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Link,
    /// A device, pipe or socket.
    Other,
}

/// What is known of a file without reading it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Metadata {
    /// What it is.
    pub kind: FileKind,
    /// Its size in bytes.
    pub size_bytes: u64,
    /// Its permission bits.
    pub mode: u32,
    /// When its content changed, in seconds since 1970.
    pub modified_seconds: i64,
}
