//! One HTTP/1.1 connection and the task that drives it.

use std::net::SocketAddr;
use std::time::Duration;

use gateway_model::HttpUrl;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::HOST;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout, timeout_at};

use super::{HttpError, HttpPhase, HttpProgress, HttpRequest};

/// The size of the largest head of an answer.
const MAX_HEAD_BYTES: usize = 64 * 1024;
/// Headers of one answer.
const MAX_HEADERS: usize = 128;

/// How long a connection whose answer is read may take to become idle.
const IDLE_TIME: Duration = Duration::from_millis(50);

/// A connection that serves one request at a time.
pub(super) struct Connection {
    sender: SendRequest<Full<Bytes>>,
    /// Dropped with the connection, which closes the socket.
    driver: JoinSet<()>,
    address: SocketAddr,
}

impl Connection {
    /// Starts HTTP on an open stream; nothing is sent.
    pub(super) async fn open<S>(
        url: &HttpUrl,
        address: SocketAddr,
        stream: S,
    ) -> Result<Self, HttpError>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (sender, connection) = http1::Builder::new()
            .max_buf_size(MAX_HEAD_BYTES)
            .max_headers(MAX_HEADERS)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(|source| HttpError::Broken {
                origin: url.origin(),
                phase: HttpPhase::Head,
                source,
            })?;
        let mut driver = JoinSet::new();
        driver.spawn(async move {
            if let Err(error) = connection.await {
                // Whoever waits for an answer on this connection is told by its sender.
                tracing::debug!(%error, "outbound connection ended");
            }
        });
        Ok(Self { sender, driver, address })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Says whether the connection is open and idle, as far as this side can know.
    pub(super) fn is_ready(&self) -> bool {
        self.sender.is_ready() && !self.driver.is_empty()
    }

    /// Waits until the connection can serve again; false where it cannot, or not at once.
    pub(super) async fn becomes_ready(&mut self) -> bool {
        matches!(timeout(IDLE_TIME, self.sender.ready()).await, Ok(Ok(())))
    }

    /// Writes a request and waits for the head of its answer.
    pub(super) async fn send(
        &mut self,
        request: &HttpRequest,
        deadline: Instant,
        progress: &HttpProgress,
    ) -> Result<Response<Incoming>, HttpError> {
        let origin = request.url.origin();
        let written = write(request)
            .map_err(|source| HttpError::Unwritable { origin: origin.clone(), source })?;
        let was_sent = progress.is_sent();
        progress.set_sent(true);
        match timeout_at(deadline, self.sender.try_send_request(written)).await {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(mut refused)) => {
                // A request that comes back was not written, not even in part.
                if refused.take_message().is_some() {
                    progress.set_sent(was_sent);
                }
                let source = refused.into_error();
                Err(HttpError::Broken { origin, phase: HttpPhase::Head, source })
            }
            Err(_elapsed) => Err(HttpError::TimedOut { origin, phase: HttpPhase::Head }),
        }
    }
}

fn write(request: &HttpRequest) -> Result<Request<Full<Bytes>>, hyper::http::Error> {
    let HttpRequest { method, url, headers, body, is_repeatable: _ } = request;
    let mut written = Request::builder()
        .method(method)
        .uri(url.path_and_query())
        .header(HOST, url.authority())
        .body(Full::new(body.clone()))?;
    written.headers_mut().extend(headers.clone());
    Ok(written)
}
