//! The program's own HTTP client: one request to a gateway on this machine.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderMap};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// How long a gateway may take to accept a connection.
const CONNECT_TIME: Duration = Duration::from_secs(5);
/// The largest answer that is read.
const MAX_ANSWER_BYTES: usize = 64 * 1024 * 1024;

/// Talks to one gateway.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    address: SocketAddr,
    token: Option<String>,
}

/// One request.
#[derive(Debug)]
pub(crate) struct Ask<'a> {
    pub(crate) method: Method,
    /// The path, already encoded.
    pub(crate) path: String,
    pub(crate) body: Option<&'a Value>,
    /// How long the whole exchange may take.
    pub(crate) time: Duration,
}

/// What a gateway answered.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// A request without an answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ClientError {
    /// Nothing was sent.
    #[error("no gateway answers at {address}")]
    Unreachable { address: SocketAddr, source: io::Error },
    /// The request was sent, perhaps in part, and what became of it is unknown.
    #[error("the gateway at {address} gave no answer")]
    Lost { address: SocketAddr, source: hyper::Error },
    /// The request was sent and the answer did not come in time.
    #[error("the gateway at {address} gave no answer within {} s", time.as_secs())]
    Late { address: SocketAddr, time: Duration },
    /// The answer is not one of a gateway.
    #[error("the answer of {address} cannot be read: {reason}")]
    Unreadable { address: SocketAddr, reason: String },
    /// This machine cannot make a request.
    #[error("the request cannot be made")]
    Local(#[source] io::Error),
}

impl ClientError {
    /// Says whether the request may have been carried out all the same.
    pub(crate) fn is_outcome_unknown(&self) -> bool {
        match self {
            Self::Lost { .. } | Self::Late { .. } | Self::Unreadable { .. } => true,
            Self::Unreachable { .. } | Self::Local(_) => false,
        }
    }
}

impl Client {
    /// Returns a client of the gateway at an address; an unspecified one stands for this machine.
    pub(crate) fn new(address: SocketAddr, token: Option<String>) -> Self {
        let ip = match address.ip() {
            IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
            ip => ip,
        };
        Self { address: SocketAddr::new(ip, address.port()), token }
    }

    /// Sends one request and waits for the answer.
    ///
    /// # Errors
    /// Returns why there is none, and with it whether the request may have been carried out.
    pub(crate) fn send(&self, ask: &Ask<'_>) -> Result<Answer, ClientError> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(ClientError::Local)?;
        runtime.block_on(async {
            let late = || ClientError::Late { address: self.address, time: ask.time };
            let stream = self.connect().await?;
            timeout(ask.time, self.exchange(stream, ask))
                .await
                .unwrap_or_else(|_elapsed| Err(late()))
        })
    }

    async fn connect(&self) -> Result<TcpStream, ClientError> {
        #[expect(
            clippy::disallowed_methods,
            reason = "the gateway itself, asked by its own program"
        )]
        let connecting = timeout(CONNECT_TIME, TcpStream::connect(self.address)).await;
        let connected = connecting.unwrap_or_else(|elapsed| Err(elapsed.into()));
        connected.map_err(|source| ClientError::Unreachable { address: self.address, source })
    }

    async fn exchange(&self, stream: TcpStream, ask: &Ask<'_>) -> Result<Answer, ClientError> {
        let lost = |source: hyper::Error| ClientError::Lost { address: self.address, source };
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(lost)?;
        // The connection ends with this exchange: dropping the set stops it.
        let mut connections = JoinSet::new();
        connections.spawn(connection);
        let response = sender.send_request(self.request(ask)?).await.map_err(lost)?;
        self.read(response).await
    }

    fn request(&self, ask: &Ask<'_>) -> Result<Request<Full<Bytes>>, ClientError> {
        let mut request = Request::builder()
            .method(ask.method.clone())
            .uri(&ask.path)
            .header(HOST, self.address.to_string());
        if let Some(token) = &self.token {
            request = request.header(AUTHORIZATION, format!("Bearer {token}"));
        }
        let body = match ask.body {
            None => Bytes::new(),
            Some(value) => {
                request = request.header(CONTENT_TYPE, "application/json");
                Bytes::from(value.to_string())
            }
        };
        request.body(Full::new(body)).map_err(|error| ClientError::Local(io::Error::other(error)))
    }

    async fn read(&self, response: Response<hyper::body::Incoming>) -> Result<Answer, ClientError> {
        let (parts, body) = response.into_parts();
        let unreadable = |reason: String| ClientError::Unreadable { address: self.address, reason };
        let collected = Limited::new(body, MAX_ANSWER_BYTES).collect().await.map_err(|error| {
            unreadable(match error.downcast_ref::<LengthLimitError>() {
                Some(_) => format!("it has more than {MAX_ANSWER_BYTES} bytes"),
                None => error.to_string(),
            })
        })?;
        Ok(Answer { status: parts.status, headers: parts.headers, body: collected.to_bytes() })
    }
}

impl Answer {
    /// Returns the body as JSON.
    ///
    /// # Errors
    /// Returns what was there instead.
    pub(crate) fn json(&self) -> Result<Value, NotJson> {
        serde_json::from_slice(&self.body).map_err(|source| NotJson { status: self.status, source })
    }

    /// Returns the body as text.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Returns a header; `None` where it is absent.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}

/// An answer that is not JSON where a gateway answers JSON.
#[derive(Debug, thiserror::Error)]
#[error("the answer is not JSON (status {status}); is it a gateway that listens there?")]
pub(crate) struct NotJson {
    status: StatusCode,
    source: serde_json::Error,
}

/// Returns a text as one segment of a path (RFC 3986, section 2.1).
pub(crate) fn segment(text: &str) -> impl fmt::Display + '_ {
    Segment(text)
}

struct Segment<'a>(&'a str);

impl fmt::Display for Segment<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for byte in self.0.bytes() {
            if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
                write!(f, "{}", char::from(byte))?;
            } else {
                write!(f, "%{byte:02X}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        assert_eq!(segment(text).to_string(), expected);
    }

    #[test]
    fn a_segment_cannot_leave_its_place_in_the_path() {
        check("echo.test", "echo.test");
        check("a/../b?c#d", "a%2F..%2Fb%3Fc%23d");
        check("é ", "%C3%A9%20");
    }

    #[test]
    fn a_port_without_a_gateway_is_unreachable_and_nothing_was_done() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        let ask =
            Ask { method: Method::GET, path: "/health".into(), body: None, time: CONNECT_TIME };
        let error = Client::new(address, None).send(&ask).unwrap_err();
        assert!(matches!(error, ClientError::Unreachable { .. }), "{error}");
        assert!(!error.is_outcome_unknown());
    }

    #[test]
    fn an_answer_that_breaks_off_leaves_the_outcome_unknown() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let peer = std::thread::spawn(move || drop(listener.accept().unwrap()));
        let ask =
            Ask { method: Method::GET, path: "/health".into(), body: None, time: CONNECT_TIME };
        let error = Client::new(address, None).send(&ask).unwrap_err();
        peer.join().unwrap();
        assert!(error.is_outcome_unknown(), "{error:?}");
    }
}
