//! The one vocabulary of failure: every refused or failed call is a [`ToolError`].

use std::fmt;
use std::time::Duration;

use serde_json::{Map, Value, json};

/// The kinds of failure a caller can tell apart (`details.kind` on the wire).
///
/// The list is closed: a new kind must break every place that maps kinds to a face.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ErrorKind {
    /// No such tool in the caller's view.
    NotFound,
    /// Policy denies the call.
    PermissionDenied,
    /// A person said no.
    Declined,
    /// A person must approve the call first.
    ApprovalRequired,
    /// Nobody answered the approval in time.
    ApprovalExpired,
    /// The input, an id or a definition is not what it must be.
    ValidationFailed,
    /// The tool ran and failed, or its output broke its contract.
    Execution,
    /// The tool exceeded its time limit.
    Timeout,
    /// The tool could not be reached or started.
    Transport,
    /// The call was cancelled.
    Cancelled,
    /// The name is taken.
    Duplicate,
    /// The idempotency key was used with another input, or its stored result is gone.
    Conflict,
    /// A call with the same key is still running.
    InProgress,
    /// It is unknown whether the effect happened; the gateway will not run it a second time.
    Indeterminate,
    /// The gateway or the tool cannot serve now.
    Unavailable,
    /// Too many calls.
    RateLimited,
    /// The required confinement is not available on this machine.
    SandboxUnavailable,
    /// The tool wrote more than its output limit.
    OutputLimit,
    /// The tool used more than its memory limit.
    MemoryLimit,
}

impl ErrorKind {
    /// Every kind, in the order of the wire contract.
    pub const ALL: [Self; 19] = [
        Self::NotFound,
        Self::PermissionDenied,
        Self::Declined,
        Self::ApprovalRequired,
        Self::ApprovalExpired,
        Self::ValidationFailed,
        Self::Execution,
        Self::Timeout,
        Self::Transport,
        Self::Cancelled,
        Self::Duplicate,
        Self::Conflict,
        Self::InProgress,
        Self::Indeterminate,
        Self::Unavailable,
        Self::RateLimited,
        Self::SandboxUnavailable,
        Self::OutputLimit,
        Self::MemoryLimit,
    ];

    /// Returns the kind's name on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NotFound => "not_found",
            Self::PermissionDenied => "permission_denied",
            Self::Declined => "declined",
            Self::ApprovalRequired => "approval_required",
            Self::ApprovalExpired => "approval_expired",
            Self::ValidationFailed => "validation_failed",
            Self::Execution => "execution",
            Self::Timeout => "timeout",
            Self::Transport => "transport",
            Self::Cancelled => "cancelled",
            Self::Duplicate => "duplicate",
            Self::Conflict => "conflict",
            Self::InProgress => "in_progress",
            Self::Indeterminate => "indeterminate",
            Self::Unavailable => "unavailable",
            Self::RateLimited => "rate_limited",
            Self::SandboxUnavailable => "sandbox_unavailable",
            Self::OutputLimit => "output_limit",
            Self::MemoryLimit => "memory_limit",
        }
    }

    /// Returns the kind with this name on the wire.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == name)
    }

    /// Says whether the caller may sensibly send the same call again later.
    pub fn is_retryable(self) -> bool {
        match self {
            Self::Timeout
            | Self::Transport
            | Self::ApprovalExpired
            | Self::InProgress
            | Self::Unavailable
            | Self::RateLimited => true,
            Self::NotFound
            | Self::PermissionDenied
            | Self::Declined
            | Self::ApprovalRequired
            | Self::ValidationFailed
            | Self::Execution
            | Self::Cancelled
            | Self::Duplicate
            | Self::Conflict
            | Self::Indeterminate
            | Self::SandboxUnavailable
            | Self::OutputLimit
            | Self::MemoryLimit => false,
        }
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One place where a value is not what its schema says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// JSON Pointer (RFC 6901) to the value; empty for the whole.
    pub path: String,
    /// What was expected and what was found.
    pub reason: String,
}

/// Why a call did not succeed: a kind to branch on, a message to read, fields of the kind.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct ToolError {
    /// The kind of failure.
    pub kind: ErrorKind,
    /// The message for a person or a model; holds the wording of the wire contract.
    pub message: String,
    /// Says whether the caller may send the same call again.
    pub is_retryable: bool,
    /// The fields that belong to the kind, such as `rule` or `violations`.
    pub fields: Map<String, Value>,
}

/// Texts of errors are cut to this many bytes.
const MAX_MESSAGE_BYTES: usize = 4_000;

impl ToolError {
    /// Returns an error of a kind, retryable as the kind is.
    pub fn new(kind: ErrorKind, message: impl AsRef<str>) -> Self {
        Self {
            kind,
            message: bounded_text(message.as_ref(), MAX_MESSAGE_BYTES).into_owned(),
            is_retryable: kind.is_retryable(),
            fields: Map::new(),
        }
    }

    /// Returns the error with one more field.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.fields.insert(name.to_owned(), value.into());
        self
    }

    /// Returns the error with another answer to "may I send it again?".
    #[must_use]
    pub fn retryable(mut self, is_retryable: bool) -> Self {
        self.is_retryable = is_retryable;
        self
    }

    /// Returns the error for a tool that the caller's view does not hold.
    pub fn not_found(tool: &str) -> Self {
        let tool = bounded_text(tool, 128);
        Self::new(ErrorKind::NotFound, format!("Tool not found: {tool}"))
    }

    /// Returns the error for a value that breaks its schema or bounds.
    pub fn invalid(subject: &str, violations: &[Violation]) -> Self {
        let first = violations.first().map_or_else(String::new, |violation| {
            let at = if violation.path.is_empty() { "" } else { " at " };
            format!("{at}{}: {}", violation.path, violation.reason)
        });
        let more = match violations.len() {
            0 | 1 => String::new(),
            count => format!(" (and {} more)", count - 1),
        };
        let listed: Vec<Value> = violations
            .iter()
            .map(|violation| {
                json!({
                    "path": violation.path,
                    "reason": bounded_text(&violation.reason, 500),
                })
            })
            .collect();
        Self::new(ErrorKind::ValidationFailed, format!("{subject} is invalid{first}{more}"))
            .with("violations", listed)
    }

    /// Returns the error with the time to wait before the next try, in milliseconds on the wire.
    #[must_use]
    pub fn retry_after(self, wait: Duration) -> Self {
        let milliseconds = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        self.with("retry_after_ms", milliseconds)
    }

    /// Returns the error as one JSON value, from which [`Self::from_json`] restores it.
    pub fn to_json(&self) -> Value {
        json!({
            "kind": self.kind.as_str(),
            "message": self.message,
            "retryable": self.is_retryable,
            "fields": self.fields,
        })
    }

    /// Restores an error from what [`Self::to_json`] wrote; `None` for anything else.
    pub fn from_json(value: &Value) -> Option<Self> {
        Some(Self {
            kind: ErrorKind::from_name(value.get("kind")?.as_str()?)?,
            message: value.get("message")?.as_str()?.to_owned(),
            is_retryable: value.get("retryable")?.as_bool()?,
            fields: value.get("fields")?.as_object()?.clone(),
        })
    }
}

/// Cuts a text to at most `max_bytes` at a character boundary and says that it was cut.
///
/// The notice is part of the bound, unless the bound is too small to hold it.
pub fn bounded_text(text: &str, max_bytes: usize) -> std::borrow::Cow<'_, str> {
    if text.len() <= max_bytes {
        return text.into();
    }
    let notice = format!("… [{} bytes in all]", text.len());
    let mut end = max_bytes.saturating_sub(notice.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let kept = text.get(..end).unwrap_or_default();
    format!("{kept}{notice}").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_its_own_name() {
        for kind in ErrorKind::ALL {
            assert_eq!(ErrorKind::from_name(kind.as_str()), Some(kind));
        }
    }

    #[test]
    fn an_error_survives_storage() {
        let error = ToolError::new(ErrorKind::Timeout, "Subprocess timed out")
            .retryable(false)
            .retry_after(Duration::from_millis(1500))
            .with("output", json!({"raw_output": "partial"}));
        assert_eq!(ToolError::from_json(&error.to_json()), Some(error));
    }

    #[test]
    fn texts_are_cut_between_characters_at_every_bound() {
        let text = "aé漢👩‍👩‍👧e\u{301}".repeat(40);
        for bound in 0..text.len() + 2 {
            let cut = bounded_text(&text, bound);
            let notice = format!("… [{} bytes in all]", text.len());
            assert!(cut.len() <= bound.max(notice.len()), "bound {bound}");
            assert_eq!(cut == text, bound >= text.len());
        }
    }

    #[test]
    fn a_violation_names_path_and_reason() {
        let violation = Violation { path: "/count".into(), reason: "-1 is less than 0".into() };
        let error = ToolError::invalid("input", &[violation.clone(), violation]);
        assert_eq!(error.message, "input is invalid at /count: -1 is less than 0 (and 1 more)");
    }
}
