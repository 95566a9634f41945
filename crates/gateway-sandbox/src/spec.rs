//! What the gateway tells the helper, and what the helper tells back, as JSON between the two.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// What tells a file from one that took its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct FileIdentity {
    pub(crate) device: u64,
    pub(crate) inode: u64,
    pub(crate) size: u64,
    pub(crate) modified: (i64, i64),
    pub(crate) changed: (i64, i64),
}

/// The whole order to the helper.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Spec {
    /// False only where an operator switched the sandbox off.
    pub(crate) is_confined: bool,
    pub(crate) directories: Vec<Directory>,
    /// More host paths that are visible, read-only.
    pub(crate) readable: Vec<PathBuf>,
    pub(crate) limits: ProcessLimits,
    pub(crate) task: Task,
}

/// A host directory and the path it is seen under.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Directory {
    pub(crate) host: PathBuf,
    pub(crate) seen_as: PathBuf,
    pub(crate) is_writable: bool,
}

/// The limits that the helper sets; the gateway holds the others.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct ProcessLimits {
    pub(crate) cpu_seconds: Option<u64>,
    pub(crate) memory_bytes: Option<u64>,
    pub(crate) processes: u64,
    pub(crate) open_files: u64,
    pub(crate) file_bytes: u64,
    pub(crate) tmp_bytes: u64,
}

/// What runs once everything is locked down.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Task {
    /// A program.
    Execute {
        program: PathBuf,
        identity: Option<FileIdentity>,
        args: Vec<OsString>,
        env: BTreeMap<String, String>,
        cwd: PathBuf,
    },
    /// The helper's own attacks, which must all fail.
    Canary {
        /// The gateway's process.
        gateway: i32,
        /// A file of the host that must not be visible.
        secret: PathBuf,
    },
}

/// What the helper writes on its status pipe, one JSON document a line.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Report {
    /// A step failed; nothing was executed.
    Failed { stage: String, errno: i32 },
    /// The program is not the one that was pinned.
    Changed,
    /// What was set up.
    Confined { landlock_abi: i32 },
    /// The attacks that succeeded.
    Canary { escaped: Vec<String> },
    /// The program exceeded its memory.
    MemoryLimit,
    /// The program ended.
    Ended { exit: Option<i32>, signal: Option<i32>, cpu_us: u64, max_rss_bytes: u64 },
}
