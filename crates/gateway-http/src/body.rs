//! Request bodies: bounded in size and time, JSON by declaration and by content.

use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use axum::http::{HeaderMap, StatusCode};
use gateway_model::{bounded_text, parse_json};
use http_body_util::BodyExt;
use serde_json::Value;

/// The largest body that is read.
pub(crate) const MAX_BODY_BYTES: usize = 2 << 20;
/// How much of a larger body is read and dropped, so that its sender gets to read the answer.
const MAX_DROPPED_BYTES: usize = 16 << 20;
/// How long a body may take to arrive.
const BODY_TIME: Duration = Duration::from_secs(30);

/// A body that no call or registration can be read from.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub(crate) struct BodyError {
    /// The status that says so.
    pub(crate) status: StatusCode,
    /// What was expected and what came.
    pub(crate) reason: String,
}

impl BodyError {
    fn new(status: StatusCode, reason: impl Into<String>) -> Self {
        Self { status, reason: reason.into() }
    }
}

/// A body that is JSON.
#[derive(Debug)]
pub(crate) struct JsonBody {
    /// The body as it came, for a second reading.
    pub(crate) text: Vec<u8>,
    /// What it says.
    pub(crate) value: Value,
}

impl JsonBody {
    /// Reads a body.
    ///
    /// # Errors
    /// 408, 413, 415, and 400 for a body that breaks off or is not strict JSON.
    pub(crate) async fn read(headers: &HeaderMap, body: Body) -> Result<Self, BodyError> {
        let text = bytes(body).await?;
        Self::parse(headers, text)
    }

    /// Reads a body that may be absent; `None` where it is.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub(crate) async fn read_optional(
        headers: &HeaderMap,
        body: Body,
    ) -> Result<Option<Self>, BodyError> {
        let text = bytes(body).await?;
        if text.is_empty() { Ok(None) } else { Self::parse(headers, text).map(Some) }
    }

    fn parse(headers: &HeaderMap, text: Vec<u8>) -> Result<Self, BodyError> {
        check_media_type(headers)?;
        let value = parse_json(&text)
            .map_err(|error| BodyError::new(StatusCode::BAD_REQUEST, error.to_string()))?;
        Ok(Self { text, value })
    }
}

/// Requires `application/json`, with or without parameters, and no content coding.
///
/// A page in a browser cannot send this type to another origin without asking first.
fn check_media_type(headers: &HeaderMap) -> Result<(), BodyError> {
    let refuse = |reason| Err(BodyError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, reason));
    if let Some(coding) = headers.get(CONTENT_ENCODING)
        && !coding.as_bytes().eq_ignore_ascii_case(b"identity")
    {
        return refuse("the body has a content-encoding; expected none".to_owned());
    }
    let given = headers.get(CONTENT_TYPE).map(|value| String::from_utf8_lossy(value.as_bytes()));
    let Some(given) = given else {
        return refuse("the content-type is absent; expected application/json".to_owned());
    };
    let essence = given.split(';').next().unwrap_or_default().trim();
    if essence.eq_ignore_ascii_case("application/json") {
        return Ok(());
    }
    refuse(format!(
        "the content-type is {:?}; expected application/json",
        bounded_text(&given, 100)
    ))
}

async fn bytes(body: Body) -> Result<Vec<u8>, BodyError> {
    tokio::time::timeout(BODY_TIME, collect(body)).await.unwrap_or_else(|_elapsed| {
        let reason = format!("the body did not arrive within {} s", BODY_TIME.as_secs());
        Err(BodyError::new(StatusCode::REQUEST_TIMEOUT, reason))
    })
}

async fn collect(mut body: Body) -> Result<Vec<u8>, BodyError> {
    let too_large = || {
        let reason = format!("the body has more than {MAX_BODY_BYTES} bytes");
        BodyError::new(StatusCode::PAYLOAD_TOO_LARGE, reason)
    };
    let announced = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    if announced > MAX_DROPPED_BYTES {
        return Err(too_large());
    }
    let mut kept = Vec::with_capacity(announced.min(MAX_BODY_BYTES));
    let mut arrived = 0_usize;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| {
            let reason = format!("the body breaks off: {error}");
            BodyError::new(StatusCode::BAD_REQUEST, reason)
        })?;
        let Ok(chunk) = frame.into_data() else { continue };
        arrived = arrived.saturating_add(chunk.len());
        if arrived <= MAX_BODY_BYTES {
            kept.extend_from_slice(&chunk);
        } else if arrived > MAX_DROPPED_BYTES {
            break;
        } else {
            kept = Vec::new();
        }
    }
    if arrived > MAX_BODY_BYTES { Err(too_large()) } else { Ok(kept) }
}

#[cfg(test)]
mod tests;
