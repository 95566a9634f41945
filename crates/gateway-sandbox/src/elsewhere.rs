//! The same items where the kernel cannot confine a process: everything refuses.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use gateway_model::RunId;
use tokio_util::sync::CancellationToken;

use crate::confinement::{Confinement, SandboxOptions};
use crate::egress::Egress;
use crate::file::{FileError, FileKind, Metadata};
use crate::launch::LaunchError;
use crate::outcome::Finished;
use crate::program::{self, Program, ResolveError, ResolvedProgram};
use crate::state::{SandboxState, Unavailable};

/// Refuses to start programs.
#[derive(Debug)]
pub struct Sandbox {
    state: SandboxState,
    home: PathBuf,
}

impl Sandbox {
    /// Returns a sandbox that is unavailable, also where confinement is switched off: runs and
    /// workspaces cannot be kept apart here.
    #[expect(clippy::unused_async, reason = "on Linux this is a check that takes its time")]
    pub async fn probe(options: SandboxOptions) -> Self {
        Self {
            home: options.home,
            state: SandboxState::Unavailable(Unavailable {
                missing: "this gateway was built for a kernel other than Linux".to_owned(),
                remedies: vec![
                    "run the gateway on Linux 5.13 or newer, in a virtual machine for example"
                        .to_owned(),
                ],
            }),
        }
    }

    /// Returns itself: no call is started here, so none needs a way out.
    #[must_use]
    pub fn with_egress(self, _egress: Arc<Egress>) -> Self {
        self
    }

    /// Returns what confines processes.
    pub fn state(&self) -> &SandboxState {
        &self.state
    }

    /// Finds a command: an absolute path, or a bare name in a search path. Never a file of the
    /// gateway's home.
    ///
    /// # Errors
    /// Names the command and what was expected, in the same words whatever is there instead.
    pub fn resolve_program(
        &self,
        command: &str,
        search: &[PathBuf],
    ) -> Result<ResolvedProgram, ResolveError> {
        program::resolve_program(command, search, &self.home)
    }

    /// Starts nothing.
    ///
    /// # Errors
    /// Always says what is missing.
    #[expect(clippy::unused_async, reason = "on Linux this runs a program")]
    pub async fn run(
        &self,
        program: &Program,
        _confinement: &Confinement,
        _cancel: &CancellationToken,
    ) -> Result<Finished, LaunchError> {
        match &self.state {
            SandboxState::Unavailable(unavailable) => {
                Err(LaunchError::Unavailable(unavailable.clone()))
            }
            SandboxState::Enforced(_) | SandboxState::Off => Err(LaunchError::ProgramUnreadable {
                path: program.path.clone(),
                error: io::ErrorKind::Unsupported.into(),
            }),
        }
    }
}

/// Refuses to be a helper.
pub fn helper_main() -> ExitCode {
    ExitCode::FAILURE
}

/// A run directory that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("run directory {path} cannot be used: runs are kept apart on Linux alone")]
pub struct RunDirectoryError {
    path: PathBuf,
}

/// Makes nothing.
///
/// # Errors
/// Always, with the directory that would have been made.
pub fn prepare_run_directory(artifacts: &Path, run: &RunId) -> Result<PathBuf, RunDirectoryError> {
    Err(RunDirectoryError { path: artifacts.join(run.as_str()) })
}

/// A directory that cannot be opened here, because no path can be held beneath it.
#[derive(Debug)]
pub enum ScopedDir {}

impl ScopedDir {
    /// Opens nothing.
    ///
    /// # Errors
    /// Always.
    pub fn open(_host: &Path, _is_writable: bool) -> io::Result<Self> {
        Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "files are kept beneath their directory on Linux alone (openat2)",
        ))
    }

    /// Cannot be called.
    pub fn is_writable(&self) -> bool {
        match *self {}
    }

    /// Cannot be called.
    ///
    /// # Errors
    /// None.
    pub fn open_read(&self, _path: &str) -> Result<File, FileError> {
        match *self {}
    }

    /// Cannot be called.
    ///
    /// # Errors
    /// None.
    pub fn read(&self, _path: &str, _max_bytes: u64) -> Result<Vec<u8>, FileError> {
        match *self {}
    }

    /// Cannot be called.
    ///
    /// # Errors
    /// None.
    pub fn metadata(&self, _path: &str) -> Result<Metadata, FileError> {
        match *self {}
    }

    /// Cannot be called.
    ///
    /// # Errors
    /// None.
    pub fn read_dir(&self, _path: &str) -> Result<Vec<(String, FileKind)>, FileError> {
        match *self {}
    }

    /// Cannot be called.
    ///
    /// # Errors
    /// None.
    pub fn write(&self, _path: &str, _bytes: &[u8]) -> Result<(), FileError> {
        match *self {}
    }

    /// Cannot be called.
    ///
    /// # Errors
    /// None.
    pub fn copy(
        &self,
        _from: &str,
        _target: &Self,
        _to: &str,
        _max_bytes: u64,
    ) -> Result<(), FileError> {
        match *self {}
    }

    /// Cannot be called.
    ///
    /// # Errors
    /// None.
    pub fn create_dir_all(&self, _path: &str) -> Result<(), FileError> {
        match *self {}
    }

    /// Cannot be called.
    ///
    /// # Errors
    /// None.
    pub fn remove_file(&self, _path: &str) -> Result<(), FileError> {
        match *self {}
    }

    /// Cannot be called.
    ///
    /// # Errors
    /// None.
    pub fn remove_dir_all(&self, _path: &str) -> Result<(), FileError> {
        match *self {}
    }

    /// Cannot be called.
    ///
    /// # Errors
    /// None.
    pub fn rename(&self, _from: &str, _to: &str) -> Result<(), FileError> {
        match *self {}
    }
}
