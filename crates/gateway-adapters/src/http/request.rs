//! The request of one call: address, headers and body.

use gateway_engine::Job;
use gateway_model::{
    ErrorKind, ExpandError, HttpBinding, HttpBody, HttpMethod, ToolError, Violation, canonical_json,
};
use gateway_sandbox::HttpRequest;
use hyper::Method;
use hyper::body::Bytes;
use hyper::header::{
    ACCEPT, ACCEPT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, USER_AGENT,
};
use serde_json::{Value, json};

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// Makes the request of a call.
///
/// # Errors
/// Names the value of the input that cannot stand in the endpoint.
pub(super) fn of(job: &Job, binding: &HttpBinding) -> Result<HttpRequest, ToolError> {
    let url = binding.endpoint.expand(job.input()).map_err(|ExpandError { path, reason }| {
        ToolError::invalid("input", &[Violation { path, reason }])
    })?;
    let key = idempotency_key(job);
    let trace = trace_id(job);
    let body = match binding.body {
        HttpBody::None => Vec::new(),
        HttpBody::Input => canonical_json(&Value::Object(job.input().clone())),
        HttpBody::Envelope => canonical_json(&json!({
            "tool_id": job.tool().id.as_str(),
            "input": job.input(),
            "run_id": job.context().run.as_str(),
            "trace_id": trace,
            "idempotency_key": key,
            // The line runs a call once; another try is another call.
            "retry_count": 0,
        })),
    };
    Ok(HttpRequest {
        method: method(binding.method),
        url,
        headers: headers(&trace, key.as_deref(), !body.is_empty())?,
        body: Bytes::from(body),
        is_repeatable: job.tool().is_rerun_safe(),
    })
}

fn headers(trace: &str, key: Option<&str>, has_body: bool) -> Result<HeaderMap, ToolError> {
    let mut headers = HeaderMap::from_iter([
        (ACCEPT, HeaderValue::from_static("application/json, */*;q=0.5")),
        (ACCEPT_ENCODING, HeaderValue::from_static("identity")),
        (
            USER_AGENT,
            HeaderValue::from_static(concat!(
                "allternit-tools-gateway/",
                env!("CARGO_PKG_VERSION")
            )),
        ),
    ]);
    if has_body {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    }
    let parent = trace.get(16..).unwrap_or_default();
    headers.insert(TRACEPARENT, value(&format!("00-{trace}-{parent}-01"))?);
    if let Some(key) = key {
        headers.insert(IDEMPOTENCY_KEY, value(key)?);
    }
    Ok(headers)
}

fn value(text: &str) -> Result<HeaderValue, ToolError> {
    HeaderValue::from_str(text).map_err(|error| {
        ToolError::new(ErrorKind::ValidationFailed, format!("an id is no header value: {error}"))
    })
}

/// Returns the key by which the peer may recognise the effect; `None` for a tool without effects,
/// whose every call is a new one.
///
/// A caller's key is one within its run and tool, so the peer, who sees many, is told all three.
fn idempotency_key(job: &Job) -> Option<String> {
    let key = job.context().key.as_ref().filter(|_key| job.tool().has_side_effects())?;
    Some(format!("{}/{}/{key}", job.context().run, job.tool().id))
}

/// Returns the call's id as a trace id of the W3C trace context: 32 hexadecimal digits.
fn trace_id(job: &Job) -> String {
    job.call().to_string().replace('-', "")
}

fn method(method: HttpMethod) -> Method {
    match method {
        HttpMethod::Get => Method::GET,
        HttpMethod::Post => Method::POST,
        HttpMethod::Put => Method::PUT,
        HttpMethod::Patch => Method::PATCH,
        HttpMethod::Delete => Method::DELETE,
    }
}
