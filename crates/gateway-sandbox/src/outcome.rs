//! How a program that ran has ended, and what confined it.

use std::time::Duration;

use serde_json::Value;

/// A program that ran and ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finished {
    /// How it ended.
    pub exit: Exit,
    /// What stopped it, if it did not end by itself.
    pub stopped_by: Option<StoppedBy>,
    /// Its standard output.
    pub stdout: Captured,
    /// Its standard error.
    pub stderr: Captured,
    /// What it used.
    pub usage: Usage,
    /// What confined it.
    pub profile: SandboxProfile,
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// By itself, with a code.
    Code(i32),
    /// By a signal.
    Signal(i32),
}

/// What stopped a process before it ended by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoppedBy {
    /// Its wall-clock time was used up.
    WallClock,
    /// Its call was cancelled.
    Cancelled,
    /// It wrote eight times what is kept of one of its streams.
    OutputLimit,
    /// It used more memory than it may.
    MemoryLimit,
    /// Its processor time was used up.
    CpuLimit,
    /// A disk that it may write to had too little left; something else may have filled it.
    DiskFull,
}

/// What was kept of a stream.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Captured {
    /// The first bytes, up to the limit.
    pub bytes: Vec<u8>,
    /// How many bytes were written in all, as far as they were read.
    pub total_bytes: u64,
}

impl Captured {
    /// Says whether more was written than was kept.
    pub fn is_truncated(&self) -> bool {
        self.total_bytes > self.bytes.len() as u64
    }
}

/// What a run used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// Wall-clock time, from before the start to after the end.
    pub wall: Duration,
    /// Processor time of the program and its descendants; `None` where it could not be told.
    ///
    /// Of a program that was killed it includes the sandbox's own work, a few milliseconds.
    pub cpu: Option<Duration>,
    /// Peak memory of the largest process; `None` where it could not be told.
    pub max_rss_bytes: Option<u64>,
}

/// What confined a run, and which limit was enforced by what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxProfile {
    pub(crate) document: Value,
}

impl SandboxProfile {
    /// Returns the profile as it stands in receipts.
    pub fn to_json(&self) -> Value {
        self.document.clone()
    }
}
