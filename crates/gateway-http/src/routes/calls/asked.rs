//! What a request asks for: the call in its body, path and headers, or what is wrong with it.

use std::time::Duration;

use axum::http::HeaderMap;
use gateway_engine::RequestIds;
use gateway_model::wire::{ExecuteRequest, FieldError, RequiredId};
use gateway_model::{ToolError, Violation, parse_json};
use serde_json::{Map, Value};

use super::{KEY_HEADER, PREFER_HEADER, RUN_HEADER, WIH_HEADER};
use crate::body::JsonBody;

/// The run and the workflow handle of a caller that names none.
const DEFAULT_ID: &str = "default";

/// A call as it is asked for, its ids not yet judged.
#[derive(Debug, PartialEq)]
pub(super) struct Asked {
    pub(super) tool: String,
    pub(super) input: Value,
    pub(super) ids: RequestIds,
    /// The client speaks the protocol of the `Idempotency-Key` header.
    pub(super) is_key_in_header: bool,
}

/// A request that asks for no call that could be made.
#[derive(Debug)]
pub(super) struct Faulty {
    /// What it names of a call; `None` where it names none.
    pub(super) named: Option<Box<Named>>,
    pub(super) error: ToolError,
}

/// What a faulty request names of a call, for the journal.
#[derive(Debug, PartialEq)]
pub(super) struct Named {
    pub(super) tool: String,
    pub(super) ids: RequestIds,
    pub(super) input: Value,
}

impl Asked {
    /// Returns the call of an execute request.
    pub(super) fn of(request: ExecuteRequest, is_key_in_header: bool) -> Self {
        let ExecuteRequest { tool_id, input, correlation_id, run_id, wih_id } = request;
        let ids = RequestIds { run: run_id, wih: wih_id, key: Some(correlation_id) };
        Self { tool: tool_id, input, ids, is_key_in_header }
    }

    /// Reads a call whose every part is in the body, but that its key may be in a header.
    pub(super) fn in_body(body: JsonBody, headers: &HeaderMap) -> Result<Self, Faulty> {
        let JsonBody { text, value } = body;
        read_body(value, headers).map_err(|fault| {
            // The reader took the value apart, so what it names is read from the text again.
            let whole = parse_json(&text).unwrap_or_default();
            Faulty { named: Named::in_body(whole, headers), error: refusal(fault) }
        })
    }

    /// Reads a call whose input is the body.
    pub(super) fn in_headers(
        tool: String,
        body: Option<JsonBody>,
        headers: &HeaderMap,
    ) -> Result<Self, Faulty> {
        let input = match body.map(|body| body.value) {
            None | Some(Value::Null) => Value::Object(Map::new()),
            Some(value) => value,
        };
        let (ids, fault) = match (read_ids(headers), &input) {
            (Ok(ids), Value::Object(_)) => {
                let is_key_in_header = ids.key.is_some();
                return Ok(Self { tool, input, ids, is_key_in_header });
            }
            (Ok(ids), _) => (ids, fault("", "expected the tool's input, an object")),
            (Err(fault), _) => (Named::no_ids(), fault),
        };
        Err(Faulty { named: Some(Box::new(Named { tool, ids, input })), error: refusal(fault) })
    }
}

impl Named {
    /// Returns what a request names, as far as it is what it must be.
    fn in_body(whole: Value, headers: &HeaderMap) -> Option<Box<Self>> {
        let Value::Object(mut whole) = whole else { return None };
        let mut text = |id: RequiredId| match whole.shift_remove(id.field()) {
            Some(Value::String(text)) => Some(text),
            _ => None,
        };
        let tool = text(RequiredId::Tool).unwrap_or_default();
        let ids = RequestIds {
            run: text(RequiredId::Run).unwrap_or_default(),
            wih: text(RequiredId::Wih).unwrap_or_default(),
            key: text(RequiredId::Correlation)
                .or_else(|| header(headers, KEY_HEADER).ok()?.map(unquoted)),
        };
        let input = whole.shift_remove("input").unwrap_or_default();
        Some(Box::new(Self { tool, ids, input }))
    }

    fn no_ids() -> RequestIds {
        RequestIds { run: String::new(), wih: String::new(), key: None }
    }
}

fn read_body(mut value: Value, headers: &HeaderMap) -> Result<Asked, FieldError> {
    let key = header(headers, KEY_HEADER)?.map(unquoted);
    let field = RequiredId::Correlation.field();
    if let (Some(key), Some(body)) = (&key, value.as_object_mut()) {
        let in_body = body.entry(field).or_insert_with(|| Value::String(key.clone()));
        if in_body.as_str().is_some_and(|in_body| in_body != key) {
            let reason =
                format!("differs from the header {KEY_HEADER}; expected one of them alone");
            return Err(FieldError { path: format!("/{field}"), reason });
        }
    }
    ExecuteRequest::read(value).map(|request| Asked::of(request, key.is_some()))
}

fn read_ids(headers: &HeaderMap) -> Result<RequestIds, FieldError> {
    let named = |name| header(headers, name).map(|id| id.unwrap_or_else(|| DEFAULT_ID.to_owned()));
    Ok(RequestIds {
        run: named(RUN_HEADER)?,
        wih: named(WIH_HEADER)?,
        key: header(headers, KEY_HEADER)?.map(unquoted),
    })
}

/// Returns a header; bytes that are not text become characters that no id holds.
fn header(headers: &HeaderMap, name: &str) -> Result<Option<String>, FieldError> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(value), None) => Ok(Some(String::from_utf8_lossy(value.as_bytes()).into_owned())),
        (Some(_), Some(_)) => {
            Err(fault("", &format!("the header {name} came more than once; expected it once")))
        }
    }
}

/// Returns how long the caller would wait for a person: `wait` of RFC 7240, section 4.3.
///
/// A preference that cannot be read is ignored, as section 2 has it.
pub(super) fn patience(headers: &HeaderMap) -> Duration {
    let preferences = headers.get_all(PREFER_HEADER).iter().filter_map(|value| value.to_str().ok());
    let seconds = preferences.flat_map(|value| value.split(',')).find_map(|preference| {
        let (name, value) = preference.split(';').next()?.split_once('=')?;
        let value = value.trim().trim_matches('"');
        let is_wait = name.trim().eq_ignore_ascii_case("wait");
        value.parse::<u16>().ok().filter(|_| is_wait)
    });
    Duration::from_secs(seconds.unwrap_or(0).into())
}

/// Takes off the quotes of a string as structured fields write it (RFC 9651, section 3.3.3).
fn unquoted(key: String) -> String {
    match key.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) {
        Some(inside) => inside.to_owned(),
        None => key,
    }
}

fn fault(path: &str, reason: &str) -> FieldError {
    FieldError { path: path.to_owned(), reason: reason.to_owned() }
}

fn refusal(fault: FieldError) -> ToolError {
    let FieldError { path, reason } = fault;
    let path = if path == "(root)" { String::new() } else { path };
    ToolError::invalid("request", &[Violation { path, reason }])
}

#[cfg(test)]
mod tests;
