//! Who is calling: Host, Origin and Authorization of a request, judged before its route runs.
//!
//! INVARIANT: a route runs only with a [`Principal`] in the request's extensions, and only
//! [`admit`] puts one there.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header::{AUTHORIZATION, HOST, HeaderName, ORIGIN};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use gateway_model::{Principal, bounded_text};

use crate::error::Problem;
use crate::router::HttpOptions;

/// The address at the other end of the connection, as an extension of the request.
///
/// A request without one counts as coming from another machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer(pub SocketAddr);

const CHALLENGE: &str = "Bearer realm=\"allternit-io-service\"";
const CHALLENGE_INVALID: &str = "Bearer realm=\"allternit-io-service\", error=\"invalid_token\"";

/// Refuses a request that may not reach a route, and names the caller of every other.
pub(crate) async fn admit(
    State(options): State<Arc<HttpOptions>>,
    mut request: Request,
    next: Next,
) -> Response {
    match judge(&options, &request) {
        Ok(principal) => {
            request.extensions_mut().insert(principal);
            next.run(request).await
        }
        Err(problem) => problem.into_response(),
    }
}

fn judge(options: &HttpOptions, request: &Request) -> Result<Principal, Problem> {
    let headers = request.headers();
    // A target in absolute form outranks the Host header (RFC 9112, section 3.2.2), so both
    // must be ours.
    let target = request.uri().authority().map(|authority| authority.as_str());
    check_host(options, target, headers)?;
    check_origin(options, headers)?;
    let peer = request.extensions().get::<Peer>().copied();
    principal(options, peer, headers)
}

/// Refuses a host that is not the gateway's: a page whose name was rebound to a loopback address.
fn check_host(
    options: &HttpOptions,
    target: Option<&str>,
    headers: &HeaderMap,
) -> Result<(), Problem> {
    let given = single(headers, &HOST)?.ok_or_else(|| {
        Problem::new(StatusCode::BAD_REQUEST, "the Host header is absent; expected this gateway's")
    })?;
    let given = given.to_str().unwrap_or_default();
    match [Some(given), target].into_iter().flatten().find(|host| !is_served(options, host)) {
        None => Ok(()),
        Some(foreign) => Err(Problem::new(
            StatusCode::MISDIRECTED_REQUEST,
            format!(
                "host {:?} is not served here; expected localhost, a loopback address or a \
                 configured name",
                bounded_text(foreign, 100)
            ),
        )),
    }
}

fn is_served(options: &HttpOptions, host: &str) -> bool {
    let Some(name) = host_name(host) else { return false };
    name.eq_ignore_ascii_case("localhost")
        || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
        || options.allowed_hosts.iter().any(|allowed| name.eq_ignore_ascii_case(allowed))
}

/// Returns the name or address in `name`, `name:port`, `[address]` or `[address]:port`.
fn host_name(host: &str) -> Option<&str> {
    let (name, port) = match host.strip_prefix('[') {
        Some(rest) => {
            let (address, after) = rest.split_once(']')?;
            (address, if after.is_empty() { "" } else { after.strip_prefix(':')? })
        }
        None => host.split_once(':').unwrap_or((host, "")),
    };
    (port.bytes().all(|byte| byte.is_ascii_digit()) && !name.is_empty()).then_some(name)
}

fn check_origin(options: &HttpOptions, headers: &HeaderMap) -> Result<(), Problem> {
    let Some(origin) = single(headers, &ORIGIN)? else { return Ok(()) };
    if options.allowed_origins.iter().any(|allowed| allowed.as_bytes() == origin.as_bytes()) {
        return Ok(());
    }
    let origin = String::from_utf8_lossy(origin.as_bytes());
    Err(Problem::new(
        StatusCode::FORBIDDEN,
        format!("origin {:?} is not allowed to call this gateway", bounded_text(&origin, 100)),
    ))
}

fn principal(
    options: &HttpOptions,
    peer: Option<Peer>,
    headers: &HeaderMap,
) -> Result<Principal, Problem> {
    let is_loopback = peer.is_some_and(|Peer(peer)| peer.ip().to_canonical().is_loopback());
    match single(headers, &AUTHORIZATION)? {
        Some(given) => match &options.operator_token {
            Some(token) if bearer(given).is_some_and(|given| is_same(given, token)) => {
                Ok(Principal::Operator)
            }
            Some(_) | None => Err(Problem::unauthorized(
                "the Authorization header holds no valid token; expected \"Bearer\" and the \
                 operator token",
                CHALLENGE_INVALID,
            )),
        },
        None => {
            let passed_on = headers.keys().find(|name| is_of_proxy(name));
            match (is_loopback, passed_on, options.needs_token) {
                (true, None, false) => Ok(Principal::Local),
                (false, ..) => Err(no_token("a caller from another machine")),
                (true, Some(name), _) => Err(no_token(&format!(
                    "a request that was passed on, as its header {name} says,"
                ))),
                (true, None, true) => {
                    Err(no_token("every caller of a gateway that others may reach"))
                }
            }
        }
    }
}

fn no_token(who: &str) -> Problem {
    let detail = format!("{who} needs a token; expected \"Authorization: Bearer TOKEN\"");
    Problem::unauthorized(detail, CHALLENGE)
}

/// Says whether a header is one that a proxy adds: its peer may be anywhere.
fn is_of_proxy(name: &HeaderName) -> bool {
    let name = name.as_str();
    matches!(name, "forwarded" | "via" | "x-real-ip") || name.starts_with("x-forwarded-")
}

/// Returns the token of bearer credentials (RFC 6750, section 2.1).
fn bearer(credentials: &HeaderValue) -> Option<&[u8]> {
    let (scheme, token) = credentials.as_bytes().split_at_checked("Bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then_some(token).filter(|token| !token.is_empty())
}

/// Compares in a time that depends on the lengths alone.
fn is_same(given: &[u8], expected: &str) -> bool {
    let expected = expected.as_bytes();
    let difference = given.iter().zip(expected).fold(0, |all, (a, b)| all | (a ^ b));
    std::hint::black_box(difference) == 0 && given.len() == expected.len()
}

/// Returns a header that may come once; two could be read differently by two readers.
fn single<'a>(
    headers: &'a HeaderMap,
    name: &HeaderName,
) -> Result<Option<&'a HeaderValue>, Problem> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (value, None) => Ok(value),
        _ => Err(Problem::new(
            StatusCode::BAD_REQUEST,
            format!("the header {name} came more than once; expected it once"),
        )),
    }
}

#[cfg(test)]
mod tests;
