use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::Bytes;
use http_body_util::Full;
use hyper::body::Frame;

use super::*;

/// A body of which some arrives, and then nothing more.
struct Stalled(Option<Bytes>);

impl HttpBody for Stalled {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        self.0.take().map_or(Poll::Pending, |bytes| Poll::Ready(Some(Ok(Frame::data(bytes)))))
    }
}

fn headers(content_type: &str) -> HeaderMap {
    HeaderMap::from_iter([(CONTENT_TYPE, content_type.parse().unwrap())])
}

async fn status(headers: &HeaderMap, body: Body) -> u16 {
    match JsonBody::read(headers, body).await {
        Ok(_) => 200,
        Err(error) => error.status.as_u16(),
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_that_does_not_end_is_given_up() {
    let body = Body::new(Stalled(Some(Bytes::from_static(b"{"))));
    let error = JsonBody::read(&headers("application/json"), body).await.unwrap_err();
    assert_eq!(error.status, StatusCode::REQUEST_TIMEOUT);
}

#[tokio::test]
async fn the_bound_counts_what_arrives_not_what_is_announced() {
    let text = |bytes: usize| format!("\"{}\"", "x".repeat(bytes - 2));
    let json = headers("application/json");
    for (bytes, expected) in
        [(MAX_BODY_BYTES, 200), (MAX_BODY_BYTES + 1, 413), (MAX_DROPPED_BYTES + 1, 413)]
    {
        assert_eq!(status(&json, Body::from(text(bytes))).await, expected, "announced, {bytes}");
        let text = text(bytes);
        let chunks: Vec<Result<Frame<Bytes>, std::convert::Infallible>> = text
            .as_bytes()
            .chunks(100_000)
            .map(|chunk| Ok(Frame::data(Bytes::copy_from_slice(chunk))))
            .collect();
        let streamed = Chunks(chunks.into_iter());
        assert_eq!(status(&json, Body::new(streamed)).await, expected, "streamed, {bytes}");
    }
}

/// Chunks that are ready, as a stream.
struct Chunks(std::vec::IntoIter<Result<Frame<Bytes>, std::convert::Infallible>>);

impl HttpBody for Chunks {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        Poll::Ready(self.0.next())
    }
}

#[tokio::test]
async fn only_json_is_read() {
    let check = async |content_type: &str, expected: u16| {
        let body = || Body::new(Full::from("{}"));
        assert_eq!(status(&headers(content_type), body()).await, expected, "{content_type:?}");
    };
    check("application/json", 200).await;
    check("Application/JSON; charset=utf-8", 200).await;
    check("application/json;", 200).await;
    check("application/jsonx", 415).await;
    check("application/problem+json", 415).await;
    check("text/plain", 415).await;
    check("", 415).await;
    assert_eq!(status(&HeaderMap::new(), Body::from("{}")).await, 415);
    let mut coded = headers("application/json");
    coded.insert(CONTENT_ENCODING, "gzip".parse().unwrap());
    assert_eq!(status(&coded, Body::from("{}")).await, 415);
}

#[tokio::test]
async fn an_absent_body_needs_no_type() {
    let absent = JsonBody::read_optional(&HeaderMap::new(), Body::empty()).await.unwrap();
    assert!(absent.is_none());
    assert!(JsonBody::read_optional(&HeaderMap::new(), Body::from("{}")).await.is_err());
}
