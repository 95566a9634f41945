//! Errors on the wire: problem details (RFC 9457), and which status each error of the engine has.

use axum::http::header::{CONTENT_TYPE, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use gateway_engine::RegistrationError;
use gateway_model::{ErrorKind, ToolError};
use serde_json::{Map, Value, json};

/// The media type of problem details.
pub(crate) const PROBLEM_JSON: &str = "application/problem+json";

/// An answer that only says what went wrong.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Problem {
    status: StatusCode,
    detail: String,
    /// What a client must present instead (RFC 6750), with status 401.
    challenge: Option<&'static str>,
    /// Members beyond the standard ones.
    extensions: Map<String, Value>,
}

impl Problem {
    /// Returns a problem with a status and what went wrong this time.
    pub(crate) fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Self { status, detail: detail.into(), challenge: None, extensions: Map::new() }
    }

    /// Returns the problem of a caller who did not show who it is.
    pub(crate) fn unauthorized(detail: impl Into<String>, challenge: &'static str) -> Self {
        Self { challenge: Some(challenge), ..Self::new(StatusCode::UNAUTHORIZED, detail) }
    }

    /// Returns the problem of a fault of the gateway's own, which is logged here and not shown.
    pub(crate) fn internal(what: &'static str, error: &(dyn std::error::Error + 'static)) -> Self {
        tracing::error!(error = %chain(error), what, "request not answered");
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, format!("{what}; the gateway's log says why"))
    }

    /// Returns the problem with one more member.
    pub(crate) fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.extensions.insert(name.to_owned(), value.into());
        self
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut whole = json!({
            "type": "about:blank",
            "title": self.status.canonical_reason().unwrap_or("Error"),
            "status": self.status.as_u16(),
            "detail": self.detail,
        });
        if let Some(members) = whole.as_object_mut() {
            members.extend(self.extensions);
        }
        let content_type = HeaderValue::from_static(PROBLEM_JSON);
        let mut response =
            (self.status, [(CONTENT_TYPE, content_type)], whole.to_string()).into_response();
        if let Some(challenge) = self.challenge {
            response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static(challenge));
        }
        response
    }
}

/// Returns the status of a registration or removal that did not happen.
pub(crate) fn registration_status(error: &RegistrationError) -> StatusCode {
    match error {
        RegistrationError::Invalid(_) => StatusCode::UNPROCESSABLE_ENTITY,
        RegistrationError::Conflict(_) => StatusCode::CONFLICT,
        RegistrationError::Denied(_) => StatusCode::FORBIDDEN,
        RegistrationError::NotFound(_) => StatusCode::NOT_FOUND,
        RegistrationError::Failed(_) => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

/// Returns the status of a failed call whose key came in the `Idempotency-Key` header.
///
/// Such a client speaks the header's protocol and branches on the status; every other outcome,
/// and every outcome of a client whose key is in the body, is 200.
pub(crate) fn keyed_status(error: &ToolError) -> StatusCode {
    match error.kind {
        ErrorKind::InProgress | ErrorKind::Indeterminate => StatusCode::CONFLICT,
        ErrorKind::Conflict => {
            let is_expired = error.fields.get("expired") == Some(&Value::Bool(true));
            if error.fields.contains_key("first_call_id") && !is_expired {
                StatusCode::UNPROCESSABLE_ENTITY
            } else {
                StatusCode::CONFLICT
            }
        }
        ErrorKind::NotFound
        | ErrorKind::PermissionDenied
        | ErrorKind::Declined
        | ErrorKind::ApprovalRequired
        | ErrorKind::ApprovalExpired
        | ErrorKind::ValidationFailed
        | ErrorKind::Execution
        | ErrorKind::Timeout
        | ErrorKind::Transport
        | ErrorKind::Cancelled
        | ErrorKind::Duplicate
        | ErrorKind::Unavailable
        | ErrorKind::RateLimited
        | ErrorKind::SandboxUnavailable
        | ErrorKind::OutputLimit
        | ErrorKind::MemoryLimit => StatusCode::OK,
    }
}

/// Writes an error with all its sources.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        text.push_str(": ");
        text.push_str(&inner.to_string());
        source = inner.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(error: ToolError, status: u16) {
        assert_eq!(keyed_status(&error), status, "{error:?}");
    }

    #[test]
    fn a_key_in_the_header_is_answered_by_status() {
        let conflict = || ToolError::new(ErrorKind::Conflict, "the key …");
        check(ToolError::new(ErrorKind::InProgress, "…"), 409);
        check(ToolError::new(ErrorKind::Indeterminate, "…"), 409);
        check(conflict(), 409);
        check(conflict().with("first_call_id", "…"), 422);
        check(conflict().with("first_call_id", "…").with("expired", true), 409);
        check(ToolError::new(ErrorKind::Execution, "…"), 200);
    }
}
