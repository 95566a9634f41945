//! How the program ends: the documented exit codes, and failures that know theirs.

use std::fmt;
use std::process::ExitCode;

/// Every way in which the program ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    Success,
    Failed,
    Usage,
    Unreachable,
    Refused,
    Startup,
}

impl Exit {
    /// Every exit, in the order of its code.
    pub(crate) const ALL: [Self; 6] =
        [Self::Success, Self::Failed, Self::Usage, Self::Unreachable, Self::Refused, Self::Startup];

    /// Returns the code that the shell sees.
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Success => 0,
            Self::Failed => 1,
            Self::Usage => 2,
            Self::Unreachable => 3,
            Self::Refused => 4,
            Self::Startup => 5,
        }
    }

    /// Returns what the code means, for the help and the documentation.
    pub(crate) fn meaning(self) -> &'static str {
        match self {
            Self::Success => "done",
            Self::Failed => {
                "the call or its command failed, what was asked for is not there, or a check found a fault"
            }
            Self::Usage => "the command line cannot be understood",
            Self::Unreachable => "no gateway answers",
            Self::Refused => "refused by policy, or an approval is required",
            Self::Startup => "the configuration is wrong or the gateway cannot start",
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

/// Returns the exit codes as the last paragraph of the help.
pub(crate) fn help() -> String {
    let mut text = "Exit codes:".to_owned();
    for exit in Exit::ALL {
        text.push_str(&format!("\n  {}  {}", exit.code(), exit.meaning()));
    }
    text
}

/// Why a verb could not do its work, and the exit that says so.
#[derive(Debug)]
pub(crate) struct Failure {
    /// How the program ends.
    pub(crate) exit: Exit,
    /// What is printed, cause by cause.
    pub(crate) error: anyhow::Error,
    /// What to do about it, printed below.
    pub(crate) advice: Option<String>,
}

impl Failure {
    /// Returns a failure with a message for the person at the shell.
    pub(crate) fn new(exit: Exit, message: impl fmt::Display) -> Self {
        Self { exit, error: anyhow::anyhow!("{message}"), advice: None }
    }

    /// Returns the failure that an error is, for those that say enough by themselves.
    pub(crate) fn of(exit: Exit, error: impl Into<anyhow::Error>) -> Self {
        Self { exit, error: error.into(), advice: None }
    }

    /// Returns a failure that says what was done when `error` came up.
    pub(crate) fn because(
        exit: Exit,
        doing: impl fmt::Display + Send + Sync + 'static,
        error: impl std::error::Error + Send + Sync + 'static,
    ) -> Self {
        Self { exit, error: anyhow::Error::new(error).context(doing), advice: None }
    }

    /// Returns the failure with what to do about it.
    #[must_use]
    pub(crate) fn advise(self, advice: impl Into<String>) -> Self {
        Self { advice: Some(advice.into()), ..self }
    }

    /// Says whether the reader of our output has gone away, which is no failure of ours.
    pub(crate) fn is_broken_pipe(&self) -> bool {
        self.error.chain().any(|cause| {
            cause
                .downcast_ref::<std::io::Error>()
                .is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
        })
    }
}

/// Prints every layer on one line, the outermost first, and the advice on the next.
impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#}", self.error)?;
        match &self.advice {
            Some(advice) => write!(f, "\n  {advice}"),
            None => Ok(()),
        }
    }
}

/// Output that cannot be written is a failure of the verb.
impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self::because(Exit::Failed, "write the output", error)
    }
}

/// What a verb answers.
pub(crate) type Outcome = Result<Exit, Failure>;
