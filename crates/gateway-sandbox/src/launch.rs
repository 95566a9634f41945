//! Why a program was not started, or how it was lost.

use std::io;
use std::path::PathBuf;

use crate::state::Unavailable;

/// Why no program was started. Nothing has happened then, but for [`Self::Lost`].
///
/// Each prints what the system said as well, since it is what an operator acts upon.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// Confinement is wanted and not to be had.
    #[error(transparent)]
    Unavailable(Unavailable),
    /// The program is not the one that was registered.
    #[error(
        "program {} was changed since its tool was registered; register the tool again to accept the change",
        path.display()
    )]
    ProgramChanged {
        /// The program.
        path: PathBuf,
    },
    /// The program is missing or cannot be read.
    #[error("program {} cannot be used: {error}; restore it, or register its tool again", path.display())]
    ProgramUnreadable {
        /// The program.
        path: PathBuf,
        /// What the file system said.
        error: io::Error,
    },
    /// A step of the confinement or of the start failed.
    #[error("could not {stage}: {error}{}", advice.as_ref().map(|advice| format!(" ({advice})")).unwrap_or_default())]
    Step {
        /// The step, such as `enter the working directory /workspace/docs`.
        stage: String,
        /// What to do about it, where one thing helps.
        advice: Option<String>,
        /// What the kernel said.
        error: io::Error,
    },
    /// The helper could not be started or heard.
    #[error("the sandbox's helper cannot be used: {0}; {advice}", advice = advice_on_helper(.0))]
    Helper(io::Error),
    /// The helper was lost after it began; whatever the program did until then is done.
    #[error("the sandbox's helper was lost while the program may have run: {0}")]
    Lost(io::Error),
}

fn advice_on_helper(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::EMFILE | libc::ENFILE) => {
            "call again when fewer calls are under way, or start the gateway with a higher limit of open files (ulimit -n)"
        }
        Some(libc::EAGAIN | libc::ENOMEM) => {
            "call again when fewer calls are under way, or give the gateway more processes and memory"
        }
        _ => "see that the gateway's own file can be executed",
    }
}

#[cfg(can_confine)]
impl LaunchError {
    pub(crate) fn step(stage: String, advice: &str, error: io::Error) -> Self {
        Self::Step { stage, advice: Some(advice.to_owned()), error }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_advice_is_for_what_is_wrong() {
        for (errno, expected) in [
            (libc::EMFILE, "a higher limit of open files"),
            (libc::ENFILE, "a higher limit of open files"),
            (libc::EAGAIN, "more processes"),
            (libc::EACCES, "own file can be executed"),
        ] {
            let error = LaunchError::Helper(io::Error::from_raw_os_error(errno)).to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
