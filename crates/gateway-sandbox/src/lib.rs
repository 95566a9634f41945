//! What may it touch? Confinement, process starts and files beneath a directory.
//!
//! Every process of a tool is started by [`Sandbox::run`], through a one-shot helper: this very
//! program, started again with the argument `__sandbox` ([`helper_main`]).

mod confinement;
mod helper;
mod launch;
mod outcome;
mod plan;
mod program;
mod run;
mod run_directory;
mod sandbox;
mod scoped_dir;
mod spec;
mod state;
mod sys;
mod write_scope;

pub use confinement::{Confinement, Limits, RunDirectory, WorkspaceMount};
pub use helper::helper_main;
pub use launch::LaunchError;
pub use outcome::{Captured, Exit, Finished, SandboxProfile, StoppedBy, Usage};
pub use program::{Program, ResolveError, ResolvedProgram, resolve_program};
pub use run_directory::{RunDirectoryError, prepare_run_directory};
pub use sandbox::{Sandbox, SandboxOptions};
pub use scoped_dir::{FileError, FileKind, Metadata, ScopedDir};
pub use state::{SandboxState, Unavailable};
pub use write_scope::{ScopeError, WriteScope};

/// The hidden argument that makes a program the helper.
pub const HELPER_ARGUMENT: &str = "__sandbox";
