//! What may it touch? Confinement, process starts, files beneath a directory, and the way out.
//!
//! Every process of a tool is started by [`Sandbox::run`], through a one-shot helper: this very
//! program, started again with the argument `__sandbox` ([`helper_main`]). Where the target's
//! kernel cannot confine a process (anything but Linux), no process is started and no file is
//! reached: the same items are there, and all of them refuse.

mod confinement;
mod egress;
mod file;
mod launch;
mod outcome;
mod program;
mod state;
mod write_scope;

#[cfg(not(can_confine))]
mod elsewhere;
#[cfg(can_confine)]
mod helper;
#[cfg(can_confine)]
mod pinned;
#[cfg(can_confine)]
mod plan;
#[cfg(can_confine)]
mod profile;
#[cfg(can_confine)]
mod remedies;
#[cfg(can_confine)]
mod repository;
#[cfg(can_confine)]
mod run;
#[cfg(can_confine)]
mod run_directory;
#[cfg(can_confine)]
mod sandbox;
#[cfg(can_confine)]
mod scoped_dir;
#[cfg(can_confine)]
mod space;
#[cfg(can_confine)]
mod spec;
#[cfg(can_confine)]
mod sys;
#[cfg(can_confine)]
mod way_out;

pub use confinement::{Confinement, Limits, RunDirectory, SandboxOptions, WorkspaceMount};
pub use egress::{
    AddressRule, CheckedStream, ConnectError, Egress, EgressOptions, Hop, HttpBounds, HttpError,
    HttpPhase, HttpProgress, HttpRequest, HttpResponse, InvalidAddressRule, Resolve, Resolving,
    SystemResolver, TrustError,
};
#[cfg(not(can_confine))]
pub use elsewhere::{RunDirectoryError, Sandbox, ScopedDir, helper_main, prepare_run_directory};
pub use file::{FileError, FileKind, Metadata};
#[cfg(can_confine)]
pub use helper::helper_main;
pub use launch::LaunchError;
pub use outcome::{Captured, Exit, Finished, SandboxProfile, StoppedBy, Usage};
pub use program::{Program, ResolveError, ResolvedProgram, resolve_program};
#[cfg(can_confine)]
pub use run_directory::{RunDirectoryError, prepare_run_directory};
#[cfg(can_confine)]
pub use sandbox::Sandbox;
#[cfg(can_confine)]
pub use scoped_dir::ScopedDir;
pub use state::{SandboxState, Unavailable};
pub use write_scope::{ScopeError, WriteScope};

/// The hidden argument that makes a program the helper.
pub const HELPER_ARGUMENT: &str = "__sandbox";
