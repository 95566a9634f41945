//! What a request without an answer means for its call: whether it acted, and what to do.

use std::error::Error;

use gateway_model::{ErrorKind, RegisteredTool, ToolError};
use gateway_sandbox::{HttpError, HttpPhase, HttpProgress};

const UNKNOWN: &str = "it is unknown whether the call acted, and it is not sent again";

/// Reads a failed request as the error of its call.
///
/// A request that was not sent did nothing. One that was sent, of a tool that must not act twice,
/// is indeterminate: nobody knows, and nobody may try.
pub(super) fn read(tool: &RegisteredTool, error: &HttpError, progress: &HttpProgress) -> ToolError {
    let message = chain(error);
    let is_open = progress.is_sent() && !tool.is_rerun_safe();
    match kind(error) {
        ErrorKind::Transport if is_open => {
            ToolError::new(ErrorKind::Indeterminate, format!("{message}; {UNKNOWN}"))
        }
        ErrorKind::Timeout => {
            let seconds = tool.limits.time_limit.as_secs();
            let limit = match error {
                HttpError::TimedOut { phase: HttpPhase::Handshake, .. } => String::new(),
                _ => format!(", after the tool's time_limit of {seconds} s"),
            };
            let unknown = if is_open { format!("; {UNKNOWN}") } else { String::new() };
            ToolError::new(ErrorKind::Timeout, format!("{message}{limit}{unknown}"))
                .retryable(!is_open)
        }
        // A certificate does not change by being asked for again.
        kind => ToolError::new(kind, message)
            .retryable(kind.is_retryable() && !matches!(error, HttpError::Untrusted { .. })),
    }
}

/// Returns the error of a call that was cancelled before its answer was there.
pub(super) fn cancelled(tool: &RegisteredTool, progress: &HttpProgress) -> ToolError {
    let unknown = match progress.is_sent() && !tool.is_rerun_safe() {
        true => format!("; {UNKNOWN}"),
        false => String::new(),
    };
    ToolError::new(ErrorKind::Cancelled, format!("the call was cancelled{unknown}"))
}

fn kind(error: &HttpError) -> ErrorKind {
    match error {
        HttpError::Connect(refused) if refused.is_denied() => ErrorKind::PermissionDenied,
        HttpError::Connect(_) | HttpError::Tls { .. } | HttpError::Untrusted { .. } => {
            ErrorKind::Transport
        }
        HttpError::Broken { .. } => ErrorKind::Transport,
        HttpError::TimedOut { .. } => ErrorKind::Timeout,
        HttpError::Unwritable { .. } | HttpError::Redirect { .. } => ErrorKind::Execution,
    }
}

/// Writes an error with all its sources.
fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        text.push_str(": ");
        text.push_str(&inner.to_string());
        source = inner.source();
    }
    text
}
