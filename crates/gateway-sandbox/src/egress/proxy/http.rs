//! HTTP/1.1 as a proxy speaks it (RFC 9110, 9112): CONNECT, and requests for absolute addresses.

use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use gateway_model::bounded_text;
use http_body_util::{Either, Full};
use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::service::service_fn;
use hyper::upgrade::OnUpgrade;
use hyper::{Method, Request, Response, StatusCode, Uri, Version, client, server};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::copy_bidirectional;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::idle::Watched;
use super::{HEAD_TIME, Proxy, Refused};
use crate::egress::ConnectError;

/// The size of the largest head of a request or an answer.
const MAX_HEAD_BYTES: usize = 64 * 1024;
/// Headers of one request or answer.
const MAX_HEADERS: usize = 128;
/// Bytes of a name that a header of an answer repeats.
const MAX_NAME_BYTES: usize = 300;
/// Headers that are for the next hop alone (RFC 9110, 7.6.1), and this proxy is that hop. Framing is
/// written anew.
const HOP_BY_HOP: [HeaderName; 6] = [
    header::CONNECTION,
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];
const HOP_BY_HOP_NAMES: [&str; 2] = ["keep-alive", "proxy-connection"];

type Answer = Response<Either<Full<Bytes>, Driven>>;

/// A tunnel that was promised: the client's side, once it is told so, and the peer's.
type Tunnel = Mutex<Option<(OnUpgrade, TcpStream)>>;

/// Serves one connection: requests one after the other, the last of which may open a tunnel.
pub(super) async fn serve(proxy: &Arc<Proxy>, stream: Watched) -> io::Result<()> {
    let tunnel = Tunnel::default();
    let service = service_fn(|request| answer(proxy, &tunnel, request));
    server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME)
        .max_buf_size(MAX_HEAD_BYTES)
        .max_header_size(MAX_HEAD_BYTES)
        .max_headers(MAX_HEADERS)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades()
        .await
        .map_err(io::Error::other)?;
    let promised = tunnel.into_inner().unwrap_or_else(PoisonError::into_inner);
    let Some((client, mut peer)) = promised else { return Ok(()) };
    let mut client = TokioIo::new(client.await.map_err(io::Error::other)?);
    copy_bidirectional(&mut client, &mut peer).await.map(drop)
}

async fn answer(
    proxy: &Proxy,
    tunnel: &Tunnel,
    request: Request<Incoming>,
) -> Result<Answer, Infallible> {
    let answered = if request.method() == Method::CONNECT {
        open_tunnel(proxy, tunnel, request).await
    } else {
        forward(proxy, request).await
    };
    Ok(answered.unwrap_or_else(Refusal::into_answer))
}

async fn open_tunnel(
    proxy: &Proxy,
    tunnel: &Tunnel,
    request: Request<Incoming>,
) -> Result<Answer, Refusal> {
    let uri = request.uri();
    let (Some(host), Some(port)) = (uri.host(), uri.port_u16()) else {
        return Err(Refusal::bad_request("expected CONNECT HOST:PORT"));
    };
    let peer = proxy.connect(host, port).await.map_err(|refused| Refusal::of(uri, &refused))?;
    let promise = (hyper::upgrade::on(request), peer);
    *tunnel.lock().unwrap_or_else(PoisonError::into_inner) = Some(promise);
    Ok(Response::new(Either::Left(Full::default())))
}

/// Sends a request to its host on a connection of its own.
async fn forward(proxy: &Proxy, request: Request<Incoming>) -> Result<Answer, Refusal> {
    let uri = request.uri().clone();
    let Some(host) = uri.host().filter(|_host| uri.scheme_str() == Some("http")) else {
        return Err(Refusal::bad_request(
            "this is a proxy; expected an absolute address, http://HOST/PATH, or CONNECT HOST:PORT",
        ));
    };
    let request = for_origin(request)?;
    let peer = proxy
        .connect(host, uri.port_u16().unwrap_or(80))
        .await
        .map_err(|refused| Refusal::of(&uri, &refused))?;
    let broken = |error: hyper::Error| Refusal {
        status: StatusCode::BAD_GATEWAY,
        denied: None,
        text: format!("{host} gave no answer in HTTP: {error}\n"),
    };
    let (mut sender, connection) = client::conn::http1::Builder::new()
        .max_buf_size(MAX_HEAD_BYTES)
        .max_headers(MAX_HEADERS)
        .handshake(TokioIo::new(peer))
        .await
        .map_err(broken)?;
    let mut driver = JoinSet::new();
    driver.spawn(async move {
        if let Err(error) = connection.await {
            // Whoever waits for an answer on this connection is told by its sender.
            tracing::debug!(%error, "a call's outbound connection ended");
        }
    });
    let (mut head, body) = sender.send_request(request).await.map_err(broken)?.into_parts();
    remove_hop_by_hop(&mut head.headers);
    head.version = Version::HTTP_11;
    Ok(Response::from_parts(head, Either::Right(Driven { body, _driver: driver })))
}

/// Rewrites a request from the form for proxies to that for origin servers (RFC 9112, 3.2).
fn for_origin(request: Request<Incoming>) -> Result<Request<Incoming>, Refusal> {
    let (mut head, body) = request.into_parts();
    // Without user name and password, which no server should see in an address.
    let authority = head.uri.authority().map_or("", |authority| authority.as_str());
    let authority = authority.rsplit('@').next().unwrap_or_default();
    let host = HeaderValue::from_str(authority)
        .map_err(|_invalid| Refusal::bad_request("the address cannot be a Host header"))?;
    let path = head.uri.path_and_query().map_or("/", |path| path.as_str());
    head.uri = path.parse().map_err(|_invalid| Refusal::bad_request("the path is invalid"))?;
    head.version = Version::HTTP_11;
    remove_hop_by_hop(&mut head.headers);
    head.headers.insert(header::HOST, host);
    Ok(Request::from_parts(head, body))
}

fn remove_hop_by_hop(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    for name in named.iter().chain(&HOP_BY_HOP) {
        headers.remove(name);
    }
    for name in HOP_BY_HOP_NAMES {
        headers.remove(name);
    }
}

/// A body with the task that drives its connection, which ends with it.
struct Driven {
    body: Incoming,
    _driver: JoinSet<()>,
}

impl Body for Driven {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// An answer of the proxy's own, instead of a peer's.
struct Refusal {
    status: StatusCode,
    /// The host that is denied.
    denied: Option<String>,
    text: String,
}

impl Refusal {
    fn bad_request(text: &str) -> Self {
        Self { status: StatusCode::BAD_REQUEST, denied: None, text: format!("{text}\n") }
    }

    fn of(uri: &Uri, refused: &Refused) -> Self {
        let status = match refused {
            denied if denied.is_denied() => StatusCode::FORBIDDEN,
            Refused::Connect(ConnectError::Slow { .. }) => StatusCode::GATEWAY_TIMEOUT,
            Refused::Host(_) | Refused::Connect(_) => StatusCode::BAD_GATEWAY,
        };
        let host = bounded_text(uri.host().unwrap_or_default(), MAX_NAME_BYTES);
        let denied = refused.is_denied().then(|| host.into_owned());
        Self { status, denied, text: refused.to_text() }
    }

    fn into_answer(self) -> Answer {
        let mut answer = Response::new(Either::Left(Full::from(self.text)));
        *answer.status_mut() = self.status;
        let headers = answer.headers_mut();
        let kind = HeaderValue::from_static("text/plain; charset=utf-8");
        headers.insert(header::CONTENT_TYPE, kind);
        if let Some(Ok(host)) = self.denied.map(HeaderValue::try_from) {
            headers.insert("x-gateway-denied", host);
        }
        answer
    }
}
