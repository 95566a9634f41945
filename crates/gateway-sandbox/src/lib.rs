//! What may it touch? Confinement, process starts and files beneath a directory.
//!
//! Every process of a tool is started by [`Sandbox::run`], through a one-shot helper: this very
//! program, started again with the argument `__sandbox` ([`helper_main`]).

mod confinement;
mod program;
mod run_directory;
mod sandbox;
mod scoped_dir;
#[cfg(target_os = "linux")]
mod canary;
#[cfg(target_os = "linux")]
mod helper;
#[cfg(target_os = "linux")]
mod lockdown;
#[cfg(target_os = "linux")]
mod root;
#[cfg(target_os = "linux")]
mod run;
mod spec;
#[cfg(target_os = "linux")]
mod sys;

pub use confinement::{Confinement, Limits, RunDirectory, WorkspaceMount};
#[cfg(target_os = "linux")]
pub use helper::helper_main;
pub use program::{Program, ResolveError, ResolvedProgram, resolve_program};
pub use run_directory::{RunDirectoryError, prepare_run_directory};
pub use sandbox::{
    Captured, Exit, Finished, LaunchError, Sandbox, SandboxOptions, SandboxProfile, SandboxState, StoppedBy,
    Unavailable, Usage,
};
pub use scoped_dir::{FileError, FileKind, Metadata, ScopedDir};

/// The hidden argument that makes a program the helper.
pub const HELPER_ARGUMENT: &str = "__sandbox";
