//! The answer to a call: the five keys, and the headers that name attempt and receipt.

use std::time::Duration;

use axum::http::header::{HeaderName, RETRY_AFTER};
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use gateway_engine::CallReport;
use gateway_model::wire::execute_response;
use gateway_model::{ErrorKind, ToolError};
use serde_json::Value;

use crate::error::keyed_status;
use crate::openapi::Operation;
use crate::routes::operations::json_response;

const CALL_ID: HeaderName = HeaderName::from_static("x-call-id");
const RECEIPT_ID: HeaderName = HeaderName::from_static("x-receipt-id");
const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");
const SERVER_TIMING: HeaderName = HeaderName::from_static("server-timing");

/// Adds the headers of a call's outcome to the answer that was added last.
pub(super) fn with_call_headers(operation: Operation) -> Operation {
    operation
        .with_header("X-Call-Id", "The attempt.")
        .with_header(
            "X-Receipt-Id",
            "The receipt, where the call came to one; a replay names the original's.",
        )
        .with_header("Idempotent-Replayed", "`true` where the outcome is an earlier call's.")
        .with_header("Server-Timing", "`call;dur=MILLISECONDS`, from arrival to answer.")
}

/// Returns the status of a call that was brought to the gateway.
pub(super) fn status(report: &CallReport, is_key_in_header: bool) -> StatusCode {
    match &report.result {
        Err(error) if is_key_in_header => keyed_status(error),
        Ok(_) | Err(_) => StatusCode::OK,
    }
}

/// Returns the answer for what became of a call.
pub(super) fn report(status: StatusCode, report: &CallReport) -> Response {
    let CallReport { call, receipt, result, is_captured, is_policy_enforced, .. } = report;
    let details = match result {
        Ok(_) => Vec::new(),
        Err(_) => vec![
            ("call_id", call.to_string().into()),
            ("receipt_id", receipt.map(|receipt| receipt.to_string()).into()),
        ],
    };
    let body = execute_response(result.as_ref(), details, *is_captured, *is_policy_enforced);
    let mut response = json_response(status, &body);
    let mut set = |name, text: String| {
        if let Ok(value) = HeaderValue::try_from(text) {
            response.headers_mut().insert(name, value);
        }
    };
    set(CALL_ID, call.to_string());
    if let Some(receipt) = receipt {
        set(RECEIPT_ID, receipt.to_string());
    }
    if report.is_replayed {
        set(REPLAYED, "true".to_owned());
    }
    set(SERVER_TIMING, format!("call;dur={:.3}", report.duration.as_secs_f64() * 1_000.0));
    if let (StatusCode::CONFLICT, Err(error)) = (status, result)
        && let Some(wait) = error.fields.get("retry_after_ms").and_then(Value::as_u64)
    {
        set(RETRY_AFTER, Duration::from_millis(wait.saturating_add(999)).as_secs().to_string());
    }
    response
}

/// Returns the answer to a request that names no call, or to one that was only explained.
pub(super) fn refused(status: StatusCode, error: &ToolError) -> Response {
    let details = vec![("call_id", Value::Null), ("receipt_id", Value::Null)];
    json_response(status, &execute_response(Err(error), details, false, false))
}

/// Returns the answer to a body from which nothing can be read.
pub(super) fn unread(status: StatusCode, reason: &str) -> Response {
    refused(status, &ToolError::new(ErrorKind::ValidationFailed, reason))
}
