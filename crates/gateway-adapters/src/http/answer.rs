//! What a peer's answer means for its call: only status, a few headers and the body count.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use gateway_engine::Job;
use gateway_model::{
    Content, ErrorKind, FailureClass, ToolError, ToolOutput, bounded_text, parse_json,
};
use gateway_sandbox::HttpResponse;
use hyper::StatusCode;
use hyper::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, RETRY_AFTER};
use serde_json::{Map, Value, json};

use super::{MAX_BODY_BYTES, MAX_ERROR_BYTES};
use crate::text::lossy;

/// The longest wait that a peer may ask for and that is passed on.
const MAX_RETRY_AFTER_SECONDS: u64 = 24 * 3_600;

/// Reads an answer as the outcome of its call.
pub(super) fn read(job: &Job, response: HttpResponse) -> Result<ToolOutput, ToolError> {
    if !response.status.is_success() {
        return Err(refused(job, &response));
    }
    if !response.is_complete {
        let message = format!("the answer has more than {MAX_BODY_BYTES} bytes");
        return Err(ToolError::new(ErrorKind::OutputLimit, message));
    }
    if let Some(coding) = text(&response.headers, &CONTENT_ENCODING)
        && !coding.eq_ignore_ascii_case("identity")
    {
        let coding = bounded_text(coding, 40);
        let message =
            format!("the answer has content encoding {coding:?}, which was not asked for");
        return Err(ToolError::new(ErrorKind::Execution, message));
    }
    Ok(output(job, response))
}

/// Reads a successful answer by its media type: JSON is the structured output, everything else a
/// piece of content. An answer without a type is JSON where it can be.
fn output(job: &Job, response: HttpResponse) -> ToolOutput {
    let HttpResponse { headers, body, .. } = response;
    if body.is_empty() {
        return ToolOutput::from_value(Value::Null);
    }
    let declared = text(&headers, &CONTENT_TYPE);
    let media = media_type(declared.unwrap_or_default());
    let mut meta = Map::new();
    if media.is_empty() || is_json(&media) {
        match parse_json(&body) {
            Ok(value) => return ToolOutput::from_value(value),
            Err(error) if !media.is_empty() => {
                let warning = format!("the JSON of the answer is passed on as text: {error}");
                meta.insert("warning".to_owned(), warning.into());
            }
            Err(_no_json) => {}
        }
    }
    let content = match media.split_once('/') {
        Some(("image", _)) => Content::Image { base64: STANDARD.encode(&body), mime_type: media },
        Some(("audio", _)) => Content::Audio { base64: STANDARD.encode(&body), mime_type: media },
        _ if is_text(&media) || std::str::from_utf8(&body).is_ok() => {
            Content::Text { text: lossy(&body, false) }
        }
        _ => Content::Resource {
            resource: json!({
                "uri": format!("allternit://calls/{}/answer", job.call()),
                "mimeType": if media.is_empty() { "application/octet-stream" } else { &media },
                "blob": STANDARD.encode(&body),
            }),
        },
    };
    ToolOutput { structured: None, content: vec![content], meta }
}

/// Reads an answer that is no success as an error, with the status and the body, bounded.
fn refused(job: &Job, response: &HttpResponse) -> ToolError {
    let HttpResponse { status, headers, body, is_complete, hops: _ } = response;
    let code = status.as_u16();
    let tool = job.tool();
    let is_retryable =
        is_transient(*status) && tool.failure == FailureClass::Transient && tool.is_rerun_safe();
    let error = ToolError::new(ErrorKind::Execution, format!("HTTP tool error ({code})"))
        .retryable(is_retryable)
        .with("status", code)
        .with("output", printed(body, *is_complete));
    match retry_after(headers) {
        Some(wait) => error.retry_after(wait),
        None => error,
    }
}

/// Says whether a status is about this moment rather than about the request.
fn is_transient(status: StatusCode) -> bool {
    matches!(status.as_u16(), 408 | 425 | 429) || status.is_server_error()
}

fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = text(headers, &RETRY_AFTER)?.trim().parse::<u64>().ok()?;
    Some(Duration::from_secs(seconds.min(MAX_RETRY_AFTER_SECONDS)))
}

/// Returns an error's body: the object it is, or its text; cut between characters.
fn printed(body: &[u8], is_complete: bool) -> Value {
    if body.is_empty() {
        return Value::Null;
    }
    if is_complete && let Ok(value @ Value::Object(_)) = parse_json(body) {
        return value;
    }
    let text = lossy(body, !is_complete);
    let mut printed = json!({ "raw_output": bounded_text(&text, MAX_ERROR_BYTES) });
    if !is_complete && let Some(printed) = printed.as_object_mut() {
        printed.insert("truncated".to_owned(), true.into());
    }
    printed
}

fn text<'a>(headers: &'a HeaderMap, name: &hyper::header::HeaderName) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

/// Returns the media type without parameters, in lowercase; empty for what is none.
fn media_type(declared: &str) -> String {
    let media = declared.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let is_token = |part: &str| {
        let is_known = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$&^_.+-".contains(&byte);
        !part.is_empty() && part.len() <= 127 && part.bytes().all(is_known)
    };
    let is_media = media.split_once('/').is_some_and(|(kind, sub)| is_token(kind) && is_token(sub));
    if is_media { media } else { String::new() }
}

fn is_json(media: &str) -> bool {
    media == "application/json" || media.ends_with("+json")
}

fn is_text(media: &str) -> bool {
    media.starts_with("text/") || media.ends_with("+xml") || media == "application/xml"
}
