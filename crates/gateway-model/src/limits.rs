//! What a tool declares it needs; the sandbox enforces what is declared.

use std::time::Duration;

/// The resources a tool may use in one call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResourceLimits {
    /// Share of one processor in thousandths; with the time limit it gives the CPU-time budget.
    pub cpu_millis: Option<u32>,
    /// Memory of all the call's processes together.
    pub memory_bytes: Option<u64>,
    /// Hosts the tool may reach.
    pub network: NetworkLimit,
    /// Files the tool may reach beneath its run and granted workspaces.
    pub filesystem: FilesystemLimit,
    /// Wall-clock time of one attempt; at least one second.
    pub time_limit: Duration,
}

impl ResourceLimits {
    /// Returns the CPU time one attempt may use: its share of the processor over its time limit.
    pub fn cpu_time(&self) -> Option<Duration> {
        self.cpu_millis.map(|millis| self.time_limit * millis / 1000)
    }
}

/// The network a tool declares.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NetworkLimit {
    /// No network at all.
    None,
    /// Only these hosts.
    DomainAllowlist(Vec<String>),
    /// Any public host.
    Unrestricted,
}

/// The files a tool declares, as virtual paths that may hold `{run_id}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FilesystemLimit {
    /// No run directory; the working directory is empty and temporary.
    None,
    /// These trees, read-only.
    Allowlist(Vec<String>),
    /// These trees, writable.
    ReadWrite(Vec<String>),
}

impl FilesystemLimit {
    /// Returns the declared paths and whether they are writable.
    pub fn paths(&self) -> (&[String], bool) {
        match self {
            Self::None => (&[], false),
            Self::Allowlist(paths) => (paths, false),
            Self::ReadWrite(paths) => (paths, true),
        }
    }
}
