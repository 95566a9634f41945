//! What calls did: `GET /v1/receipts/{id}`, `GET /v1/runs/{run_id}/receipts`.

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Query, State};
use axum::http::{StatusCode, Uri};
use axum::response::Response;
use gateway_model::{CallId, RunId, bounded_text};
use serde_json::{Value, json};

use super::Route;
use super::operations::json_response;
use super::tools::path_text;
use crate::error::Problem;
use crate::openapi::{JSON, Operation, schema};
use crate::router::Served;

/// Receipts of one page, where the caller names no number.
const DEFAULT_LIMIT: u32 = 50;
/// The most receipts of one page.
const MAX_LIMIT: u32 = 100;
/// How many receipts are held at once; each may carry a whole input and a whole output.
const READ_AT_ONCE: u32 = 8;
/// The last position that the ledger can hold.
pub(super) const MAX_POSITION: u64 = i64::MAX.unsigned_abs();

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::get("/v1/receipts/{id}", show, show_operation()),
        Route::get("/v1/runs/{run_id}/receipts", list, list_operation()),
    ]
}

fn show_operation() -> Operation {
    Operation::new(
        "show_receipt",
        "Show one receipt",
        "With the leaves as stored and hashed, and the content they commit to.",
    )
    .path("id", "Receipt id, as in X-Receipt-Id.", json!({ "type": "string", "format": "uuid" }))
    .answer(StatusCode::OK, "The receipt.", Some((JSON, schema("Receipt"))))
    .problem(StatusCode::BAD_REQUEST, "The path is not UTF-8.")
    .problem(StatusCode::NOT_FOUND, "No such receipt.")
    .problem(StatusCode::INTERNAL_SERVER_ERROR, "The ledger could not be read.")
}

fn list_operation() -> Operation {
    let run = json!({ "type": "string", "pattern": "^[A-Za-z0-9_-]{1,128}$" });
    let after = json!({ "type": "integer", "minimum": 0, "maximum": MAX_POSITION });
    let limit =
        json!({ "type": "integer", "minimum": 1, "maximum": MAX_LIMIT, "default": DEFAULT_LIMIT });
    Operation::new(
        "list_receipts",
        "List a run's receipts",
        "In the order of the ledger, without the content they commit to. A run that left none has \
         an empty list.",
    )
    .path("run_id", "The run.", run)
    .query("after", "Leaves out receipts up to this `seq`.", after)
    .query("limit", "How many receipts at most.", limit)
    .answer(StatusCode::OK, "One page.", Some((JSON, schema("ReceiptPage"))))
    .problem(StatusCode::BAD_REQUEST, "The path is not UTF-8.")
    .problem(StatusCode::UNPROCESSABLE_ENTITY, "The run id or a query parameter cannot be used.")
    .problem(StatusCode::INTERNAL_SERVER_ERROR, "The ledger could not be read.")
}

async fn show(
    State(served): State<Served>,
    id: Result<Path<String>, PathRejection>,
) -> Result<Response, Problem> {
    let id = path_text(id)?;
    let not_found = |reason: String| Problem::new(StatusCode::NOT_FOUND, reason);
    let call: CallId = id.parse().map_err(|error| not_found(format!("no receipt: {error}")))?;
    let receipt = served.gateway.receipt(call).await.map_err(|error| unreadable(&error))?;
    let receipt = receipt.ok_or_else(|| not_found(format!("no receipt {call}")))?;
    Ok(json_response(StatusCode::OK, &receipt))
}

async fn list(
    State(served): State<Served>,
    run: Result<Path<String>, PathRejection>,
    uri: Uri,
) -> Result<Response, Problem> {
    let run: RunId = path_text(run)?.parse().map_err(|error| unusable(format!("{error}")))?;
    let Page { mut after, limit } = Page::read(&uri)?;
    let mut receipts: Vec<Value> = Vec::new();
    let mut missing = limit;
    while missing > 0 {
        let asked = missing.min(READ_AT_ONCE);
        let read = served.gateway.receipts(&run, after, asked).await;
        let read = read.map_err(|error| unreadable(&error))?;
        let is_last = read.len() < asked as usize;
        after = read.last().map_or(after, position);
        receipts.extend(read.into_iter().map(without_content));
        missing = if is_last { 0 } else { missing - asked };
    }
    let is_full = receipts.len() == limit as usize;
    let next_after = after.filter(|_| is_full);
    Ok(json_response(StatusCode::OK, &json!({ "receipts": receipts, "next_after": next_after })))
}

fn position(receipt: &Value) -> Option<u64> {
    receipt.get("seq").and_then(Value::as_u64)
}

fn without_content(mut receipt: Value) -> Value {
    if let Some(members) = receipt.as_object_mut() {
        members.shift_remove("bundle");
    }
    receipt
}

/// Which part of a run's receipts is asked for.
#[derive(Debug, PartialEq, Eq)]
struct Page {
    after: Option<u64>,
    limit: u32,
}

impl Page {
    fn read(uri: &Uri) -> Result<Self, Problem> {
        let Query(pairs) = Query::<Vec<(String, String)>>::try_from_uri(uri)
            .map_err(|rejection| unusable(rejection.body_text()))?;
        let (mut after, mut limit) = (None, None);
        for (name, text) in &pairs {
            let (given, range) = match name.as_str() {
                "after" => (&mut after, 0..=MAX_POSITION),
                "limit" => (&mut limit, 1..=u64::from(MAX_LIMIT)),
                other => {
                    let other = bounded_text(other, 60);
                    return Err(unusable(format!(
                        "query parameter {other:?} is unknown; known are after, limit"
                    )));
                }
            };
            let number = number(name, text, &range)?;
            if given.replace(number).is_some() {
                return Err(unusable(format!("query parameter {name} came more than once")));
            }
        }
        let limit = limit.and_then(|limit| u32::try_from(limit).ok()).unwrap_or(DEFAULT_LIMIT);
        Ok(Self { after, limit })
    }
}

pub(super) fn number(
    name: &str,
    text: &str,
    range: &std::ops::RangeInclusive<u64>,
) -> Result<u64, Problem> {
    let is_digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let number = text.parse().ok().filter(|number| is_digits && range.contains(number));
    number.ok_or_else(|| {
        let (text, first, last) = (bounded_text(text, 60), range.start(), range.end());
        unusable(format!(
            "query parameter {name} is {text:?}; expected a number from {first} to {last}"
        ))
    })
}

pub(super) fn unusable(reason: String) -> Problem {
    Problem::new(StatusCode::UNPROCESSABLE_ENTITY, reason)
}

fn unreadable(error: &(dyn std::error::Error + 'static)) -> Problem {
    Problem::internal("the ledger could not be read", error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(query: &str, expected: Option<(Option<u64>, u32)>) {
        let uri = format!("/v1/runs/run_1/receipts{query}").parse().unwrap();
        let page = Page::read(&uri).ok().map(|page| (page.after, page.limit));
        assert_eq!(page, expected, "{query}");
    }

    #[test]
    fn a_page_is_read_from_known_parameters_within_their_ranges() {
        check("", Some((None, DEFAULT_LIMIT)));
        check("?", Some((None, DEFAULT_LIMIT)));
        check("?after=0&limit=1", Some((Some(0), 1)));
        check("?limit=100&after=9223372036854775807", Some((Some(MAX_POSITION), 100)));
        for query in [
            "?limit=0",
            "?limit=101",
            "?limit=",
            "?limit=-1",
            "?limit=%2B1",
            "?limit=1.0",
            "?limit=1&limit=1",
            "?after=9223372036854775808",
            "?after=x",
            "?lmit=1",
            "?limit=1&x=%ff",
            "?after",
        ] {
            check(query, None);
        }
    }
}
