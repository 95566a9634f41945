//! HTTP/1.1 over checked connections: one request, its redirects and its bounded answer.
//!
//! INVARIANT: a request that may act only once is written to one connection once. It never takes
//! a kept connection, which its server may be closing at that moment, and is never sent again.

mod connection;
mod pool;
mod redirect;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};

use gateway_model::{Digest, HostRules, HttpUrl};
use http_body_util::BodyExt as _;
use hyper::body::{Bytes, Incoming};
use hyper::{HeaderMap, Method, Response, StatusCode};
use tokio::time::{Instant, timeout_at};

use super::{ConnectError, Egress};
use connection::Connection;
pub(super) use pool::Pool;
use pool::PoolKey;

/// Redirects that one request follows.
const MAX_REDIRECTS: usize = 5;

/// One request.
#[derive(Debug, Clone)]
pub struct HttpRequest {
    /// The method.
    pub method: Method,
    /// The address.
    pub url: HttpUrl,
    /// The headers, without `Host` and `Content-Length`. Those marked sensitive, and those known
    /// to be credentials, go to no other origin than the address's own.
    pub headers: HeaderMap,
    /// The body; none where it is empty.
    pub body: Bytes,
    /// Says whether the request may reach its server twice without acting twice.
    pub is_repeatable: bool,
}

/// What holds for a request and everything it is redirected to.
#[derive(Debug, Clone, Copy)]
pub struct HttpBounds<'a> {
    /// The hosts that may be reached.
    pub rules: &'a HostRules,
    /// When the whole answer must be there.
    pub deadline: Instant,
    /// Bytes of a successful answer's body that are read.
    pub max_body_bytes: usize,
    /// Bytes of another answer's body that are read.
    pub max_error_bytes: usize,
    /// Whose requests may share kept connections: those with the same digest.
    pub partition: Digest,
}

/// How far a request has come; readable while it is under way and after it was dropped.
#[derive(Debug, Default)]
pub struct HttpProgress {
    is_sent: AtomicBool,
}

impl HttpProgress {
    /// Says whether a server may have seen the request. False is certain.
    pub fn is_sent(&self) -> bool {
        self.is_sent.load(Ordering::Relaxed)
    }

    fn set_sent(&self, is_sent: bool) {
        self.is_sent.store(is_sent, Ordering::Relaxed);
    }
}

/// The answer to a request, after its redirects.
#[derive(Debug)]
pub struct HttpResponse {
    /// The status.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// The body, as far as it was read.
    pub body: Vec<u8>,
    /// False where more of the body was sent, or was to come, than was read.
    pub is_complete: bool,
    /// Each answer on the way, in order; the last is this one.
    pub hops: Vec<Hop>,
}

/// One answer on the way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hop {
    /// Scheme, host and port that were asked.
    pub origin: String,
    /// The address that the connection led to.
    pub address: SocketAddr,
    /// The status of the answer.
    pub status: u16,
}

/// What a request was waiting for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HttpPhase {
    /// The TLS handshake; nothing of the request was sent.
    Handshake,
    /// The status and headers of the answer.
    Head,
    /// The body of the answer.
    Body,
}

impl HttpPhase {
    /// Names what was waited for, within a sentence.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Handshake => "the TLS handshake",
            Self::Head => "the head of the answer",
            Self::Body => "the body of the answer",
        }
    }
}

/// A request without an answer. [`HttpProgress`] tells whether it was sent.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// No connection.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The TLS handshake failed; nothing was sent.
    #[error("no TLS connection to {origin}")]
    Tls {
        /// The origin.
        origin: String,
        /// What failed, such as a certificate that is not trusted or is for another name.
        source: std::io::Error,
    },
    /// The certificate leads to no authority that is trusted; nothing was sent.
    #[error(
        "the certificate of {origin} is signed by nobody this gateway trusts; an operator adds its authority with \
         [egress] ca_file"
    )]
    Untrusted {
        /// The origin.
        origin: String,
        /// What the handshake said.
        source: std::io::Error,
    },
    /// The deadline passed.
    #[error("{origin} let the request time out at {}", phase.as_str())]
    TimedOut {
        /// The origin.
        origin: String,
        /// What was waited for.
        phase: HttpPhase,
    },
    /// The connection ended or what came was not HTTP.
    #[error("the connection to {origin} broke at {}", phase.as_str())]
    Broken {
        /// The origin.
        origin: String,
        /// What was waited for.
        phase: HttpPhase,
        /// What happened.
        source: hyper::Error,
    },
    /// The request cannot be written.
    #[error("the request to {origin} cannot be written")]
    Unwritable {
        /// The origin.
        origin: String,
        /// What is wrong with it.
        source: hyper::http::Error,
    },
    /// A redirect that is not followed.
    #[error("{origin} answered with the redirect {status}, which is not followed: {reason}")]
    Redirect {
        /// The origin.
        origin: String,
        /// The status.
        status: u16,
        /// Why it is not followed.
        reason: String,
    },
}

impl Egress {
    /// Sends a request, follows its redirects and reads the answer.
    ///
    /// Each hop is held to the same rules and the same deadline. Dropping the future closes the
    /// connection, so that the server can notice.
    ///
    /// # Errors
    /// Says why there is no answer.
    pub async fn send(
        &self,
        request: HttpRequest,
        bounds: &HttpBounds<'_>,
        progress: &HttpProgress,
    ) -> Result<HttpResponse, HttpError> {
        let mut request = request;
        let mut hops = Vec::new();
        loop {
            let (connection, response) = self.exchange(&request, bounds, progress).await?;
            hops.push(Hop {
                origin: request.url.origin(),
                address: connection.address(),
                status: response.status().as_u16(),
            });
            match redirect::next(&request, response.status(), response.headers())? {
                None => {
                    let answered = Answered { url: &request.url, connection, hops };
                    return self.read(answered, response, bounds).await;
                }
                Some(_next) if hops.len() > MAX_REDIRECTS => {
                    return Err(HttpError::Redirect {
                        origin: request.url.origin(),
                        status: response.status().as_u16(),
                        reason: format!("it is the {}th", hops.len()),
                    });
                }
                // The connection is dropped with the body of the redirect unread.
                Some(next) => request = next,
            }
        }
    }

    /// Sends one request and waits for the head of its answer.
    async fn exchange(
        &self,
        request: &HttpRequest,
        bounds: &HttpBounds<'_>,
        progress: &HttpProgress,
    ) -> Result<(Connection, Response<Incoming>), HttpError> {
        if request.is_repeatable
            && let Some(mut kept) = self.pool.take(&PoolKey::of(&request.url, bounds.partition))
        {
            match kept.send(request, bounds.deadline, progress).await {
                Ok(response) => return Ok((kept, response)),
                // A server may close a kept connection at the moment of its use. Nothing was
                // answered, and the request may be repeated.
                Err(HttpError::Broken { source, .. }) if !source.is_parse() => {}
                Err(error) => return Err(error),
            }
        }
        let mut fresh = self.open_connection(&request.url, bounds).await?;
        let response = fresh.send(request, bounds.deadline, progress).await?;
        Ok((fresh, response))
    }

    async fn open_connection(
        &self,
        url: &HttpUrl,
        bounds: &HttpBounds<'_>,
    ) -> Result<Connection, HttpError> {
        let reached = self.connect(bounds.rules, (url.host(), url.port()), bounds.deadline).await?;
        let address = reached.address;
        if !url.is_tls() {
            return Connection::open(url, address, reached.stream).await;
        }
        let deadline = bounds.deadline.min(Instant::now() + super::CONNECT_TIME);
        let origin = || url.origin();
        let secured = timeout_at(deadline, self.trust.secure(url.host(), reached.stream))
            .await
            .map_err(|_elapsed| HttpError::TimedOut {
                origin: origin(),
                phase: HttpPhase::Handshake,
            })?
            .map_err(|source| {
                let origin = origin();
                match super::tls::is_untrusted(&source) {
                    true => HttpError::Untrusted { origin, source },
                    false => HttpError::Tls { origin, source },
                }
            })?;
        Connection::open(url, address, secured).await
    }

    /// Reads the body within its bound, and keeps the connection where it can serve again.
    async fn read(
        &self,
        answered: Answered<'_>,
        response: Response<Incoming>,
        bounds: &HttpBounds<'_>,
    ) -> Result<HttpResponse, HttpError> {
        let Answered { url, mut connection, hops } = answered;
        let (head, mut incoming) = response.into_parts();
        let is_success = head.status.is_success();
        let most = if is_success { bounds.max_body_bytes } else { bounds.max_error_bytes };
        let mut body = Vec::new();
        let is_complete = match read_body(&mut incoming, &mut body, most, bounds.deadline).await {
            Ok(is_complete) => is_complete,
            // What the server said by its status stands, however its explanation ended.
            Err(_) if !is_success => false,
            Err(None) => {
                let (origin, phase) = (url.origin(), HttpPhase::Body);
                return Err(HttpError::TimedOut { origin, phase });
            }
            Err(Some(source)) => {
                let (origin, phase) = (url.origin(), HttpPhase::Body);
                return Err(HttpError::Broken { origin, phase, source });
            }
        };
        if is_complete && connection.becomes_ready().await {
            let key = PoolKey::of(url, bounds.partition);
            self.pool.put(key, connection, &head.headers);
        }
        Ok(HttpResponse { status: head.status, headers: head.headers, body, is_complete, hops })
    }
}

/// An answer whose body is to be read.
struct Answered<'a> {
    url: &'a HttpUrl,
    connection: Connection,
    hops: Vec<Hop>,
}

/// Appends the body up to `most` bytes; says whether that is all of it.
async fn read_body(
    incoming: &mut Incoming,
    body: &mut Vec<u8>,
    most: usize,
    deadline: Instant,
) -> Result<bool, Option<hyper::Error>> {
    loop {
        let frame = match timeout_at(deadline, incoming.frame()).await {
            Err(_elapsed) => return Err(None),
            Ok(None) => return Ok(true),
            Ok(Some(frame)) => frame.map_err(Some)?,
        };
        // Trailers are of no use here.
        let Some(bytes) = frame.data_ref() else { continue };
        let room = most - body.len();
        body.extend(bytes.iter().take(room));
        if bytes.len() > room {
            return Ok(false);
        }
    }
}
