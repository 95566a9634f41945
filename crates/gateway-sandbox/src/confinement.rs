//! What one call may touch and use.

use std::path::PathBuf;
use std::time::Duration;

use gateway_model::{HostRules, RunId};

/// How the sandbox is set up.
#[derive(Debug, Clone)]
pub struct SandboxOptions {
    /// False where an operator switched confinement off; every receipt then says so.
    pub enforce: bool,
    /// The program that is started with [`crate::HELPER_ARGUMENT`] and calls `helper_main`.
    pub helper: PathBuf,
    /// More host paths that calls may read, such as `/opt/tool`.
    pub readable: Vec<PathBuf>,
    /// The gateway's home. No call ever sees it.
    pub home: PathBuf,
}

/// The directories and limits of one call. What is not named here does not exist for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Confinement {
    /// The run's directory; `None` for a call that reaches no files.
    pub run: Option<RunDirectory>,
    /// Granted workspaces, in order.
    pub workspaces: Vec<WorkspaceMount>,
    /// The hosts that the call's processes reach, through the gateway's proxy alone.
    pub network: HostRules,
    /// What the call may use.
    pub limits: Limits,
}

/// The directory of a run; a call sees it as `/.allternit/artifacts/{run_id}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunDirectory {
    /// The directory on this machine.
    pub host: PathBuf,
    /// The run.
    pub run_id: RunId,
    /// Whether the call may change it.
    pub writable: bool,
}

/// A granted workspace; a call sees it as `/workspace/NAME`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkspaceMount {
    /// The name.
    pub name: String,
    /// The directory on this machine.
    pub host: PathBuf,
    /// Whether the call may change it.
    pub writable: bool,
}

impl Confinement {
    /// Returns each directory as (path that the call sees, path on this machine, writable): the
    /// run's first, if any, then the workspaces.
    pub fn directories(&self) -> impl Iterator<Item = (String, &PathBuf, bool)> {
        let run = self
            .run
            .iter()
            .map(|run| (format!("/.allternit/artifacts/{}", run.run_id), &run.host, run.writable));
        let workspaces = self.workspaces.iter().map(|workspace| {
            (format!("/workspace/{}", workspace.name), &workspace.host, workspace.writable)
        });
        run.chain(workspaces)
    }
}

/// What one call may use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Wall-clock time. Default 300 s.
    pub wall: Duration,
    /// Time between the polite stop and the kill. Default 2 s.
    pub grace: Duration,
    /// Processor time of all processes together, in whole seconds rounded up. Default: none.
    pub cpu: Option<Duration>,
    /// Memory of all processes together with `/tmp` and `/dev/shm`, looked at every 50 ms, and
    /// data of each process. Default: none.
    pub memory_bytes: Option<u64>,
    /// Processes and threads of the call. Not limited where the sandbox is off. Default 256.
    pub processes: u64,
    /// Open files of each process. Default 1,024.
    pub open_files: u64,
    /// Size of each file that is written. Default 1 GiB.
    pub file_bytes: u64,
    /// What a writable directory's file system must have free, looked at four times a second; not
    /// where the sandbox is off. Default: 256 MiB, or a twentieth of a smaller file system.
    pub free_bytes: Option<u64>,
    /// Size of `/tmp`. Default 256 MiB.
    pub tmp_bytes: u64,
    /// Bytes kept of standard output. At eight times as many the call is stopped. Default 1 MiB.
    pub stdout_bytes: u64,
    /// Bytes kept of standard error, likewise. Default 256 KiB.
    pub stderr_bytes: u64,
}

impl Limits {
    /// Returns these limits, none of them wider than the other's.
    #[must_use]
    pub fn tightened_by(&self, other: &Self) -> Self {
        // A limit that is absent on one side is the other's.
        fn least<T: Ord>(one: Option<T>, other: Option<T>) -> Option<T> {
            one.into_iter().chain(other).min()
        }
        Self {
            wall: self.wall.min(other.wall),
            grace: self.grace.min(other.grace),
            cpu: least(self.cpu, other.cpu),
            memory_bytes: least(self.memory_bytes, other.memory_bytes),
            processes: self.processes.min(other.processes),
            open_files: self.open_files.min(other.open_files),
            file_bytes: self.file_bytes.min(other.file_bytes),
            tmp_bytes: self.tmp_bytes.min(other.tmp_bytes),
            stdout_bytes: self.stdout_bytes.min(other.stdout_bytes),
            stderr_bytes: self.stderr_bytes.min(other.stderr_bytes),
            // What is left free is the tighter, the more it is.
            free_bytes: self.free_bytes.max(other.free_bytes),
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            wall: Duration::from_secs(300),
            grace: Duration::from_secs(2),
            cpu: None,
            memory_bytes: None,
            processes: 256,
            open_files: 1_024,
            file_bytes: 1 << 30,
            free_bytes: None,
            tmp_bytes: 256 << 20,
            stdout_bytes: 1 << 20,
            stderr_bytes: 256 << 10,
        }
    }
}
