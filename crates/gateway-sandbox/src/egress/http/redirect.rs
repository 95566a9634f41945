//! Which redirects are followed, and what the next request is.

use gateway_model::HttpUrl;
use hyper::body::Bytes;
use hyper::header::{
    AUTHORIZATION, CONTENT_ENCODING, CONTENT_TYPE, COOKIE, HeaderMap, LOCATION, PROXY_AUTHORIZATION,
};
use hyper::{Method, StatusCode};

use super::{HttpError, HttpRequest};

/// Returns the request that a redirect asks for; `None` for an answer that is no redirect.
///
/// 303 asks to read the result elsewhere; 307 and 308 ask to send the same request elsewhere. 301
/// and 302 are followed for GET alone: clients turn other methods into GET there, so that an
/// effect which never happened would look done.
///
/// # Errors
/// Says why a redirect is not followed. Hosts and addresses are checked when it is connected.
pub(super) fn next(
    request: &HttpRequest,
    status: StatusCode,
    headers: &HeaderMap,
) -> Result<Option<HttpRequest>, HttpError> {
    let is_redirect = matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308);
    let Some(location) = headers.get(LOCATION).filter(|_location| is_redirect) else {
        return Ok(None);
    };
    let refuse = |reason: String| HttpError::Redirect {
        origin: request.url.origin(),
        status: status.as_u16(),
        reason,
    };
    let reference = std::str::from_utf8(location.as_bytes())
        .map_err(|_not_utf8| refuse("its Location is not UTF-8".to_owned()))?;
    let url =
        request.url.join(reference).map_err(|error| refuse(format!("its Location {error}")))?;
    if request.url.is_tls() && !url.is_tls() {
        return Err(refuse(format!("{} is not encrypted", url.origin())));
    }
    if status == StatusCode::SEE_OTHER {
        return Ok(Some(reading(request, url)));
    }
    let keeps_method =
        matches!(status, StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT);
    if !keeps_method && request.method != Method::GET {
        let reason = format!(
            "it would turn a {} into a GET; register the tool with the address it leads to, at {}",
            request.method,
            url.origin()
        );
        return Err(refuse(reason));
    }
    let headers = carried(request, &url);
    Ok(Some(HttpRequest { url, headers, ..request.clone() }))
}

/// Returns the GET that reads what another request made.
fn reading(request: &HttpRequest, url: HttpUrl) -> HttpRequest {
    let mut headers = carried(request, &url);
    for name in [CONTENT_TYPE.as_str(), CONTENT_ENCODING.as_str(), "idempotency-key"] {
        headers.remove(name);
    }
    HttpRequest {
        method: Method::GET,
        url,
        headers,
        body: Bytes::new(),
        is_repeatable: request.is_repeatable,
    }
}

/// Returns the headers for another address: without credentials where its origin is another.
fn carried(request: &HttpRequest, url: &HttpUrl) -> HeaderMap {
    if request.url.has_origin_of(url) {
        return request.headers.clone();
    }
    let is_credential = |name| [AUTHORIZATION, COOKIE, PROXY_AUTHORIZATION].contains(name);
    let harmless = request
        .headers
        .iter()
        .filter(|(name, value)| !is_credential(name) && !value.is_sensitive());
    harmless.map(|(name, value)| (name.clone(), value.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(method: Method) -> HttpRequest {
        let mut headers = HeaderMap::new();
        for name in ["authorization", "cookie", "x-key", "content-type", "idempotency-key"] {
            headers.insert(name, "value".parse().unwrap());
        }
        headers.get_mut("x-key").unwrap().set_sensitive(true);
        HttpRequest {
            method,
            url: "https://a.org/x/y".parse().unwrap(),
            headers,
            body: Bytes::from_static(b"{}"),
            is_repeatable: false,
        }
    }

    fn redirected(method: Method, status: u16, to: &[u8]) -> Result<Option<HttpRequest>, String> {
        let location = hyper::header::HeaderValue::from_bytes(to).unwrap();
        let headers = HeaderMap::from_iter([(LOCATION, location)]);
        let status = StatusCode::from_u16(status).unwrap();
        next(&request(method), status, &headers).map_err(|error| error.to_string())
    }

    #[track_caller]
    fn check(method: Method, status: u16, to: &str, expected: Result<&str, &str>) {
        match (redirected(method, status, to.as_bytes()), expected) {
            (Ok(Some(next)), Ok(expected)) => {
                assert_eq!(format!("{} {}", next.method, next.url), expected);
            }
            (Err(error), Err(expected)) => assert!(error.contains(expected), "{error}"),
            (got, _) => panic!("{status} to {to} gave {got:?}"),
        }
    }

    #[test]
    fn each_status_keeps_its_method_or_is_not_followed() {
        check(Method::GET, 301, "z", Ok("GET https://a.org/x/z"));
        check(Method::GET, 302, "//b.org", Ok("GET https://b.org/"));
        check(Method::POST, 303, "/done", Ok("GET https://a.org/done"));
        check(Method::POST, 307, "/there", Ok("POST https://a.org/there"));
        check(Method::DELETE, 308, "/there", Ok("DELETE https://a.org/there"));
        for status in [301, 302] {
            check(
                Method::POST,
                status,
                "https://b.org/z?token=1",
                Err(
                    "would turn a POST into a GET; register the tool with the address it leads to, at https://b.org",
                ),
            );
        }
        check(Method::GET, 302, "http://a.org/", Err("http://a.org is not encrypted"));
        check(Method::GET, 302, "file:///etc/passwd", Err("scheme \"file\""));
        check(Method::GET, 302, "https://u:p@b.org/", Err("user information"));
        check(Method::GET, 302, "https://0x7f.1/", Err("could be read as an address"));
        assert!(redirected(Method::GET, 302, b"/\xff").unwrap_err().contains("not UTF-8"));
        for status in [200, 300, 304, 404] {
            assert!(redirected(Method::GET, status, b"/z").unwrap().is_none());
        }
    }

    #[test]
    fn credentials_stay_with_their_origin() {
        let names = |request: Option<HttpRequest>| {
            let request = request.unwrap();
            let mut names: Vec<_> = request.headers.keys().map(ToString::to_string).collect();
            names.sort();
            (names.join(" "), request.body.len())
        };
        let all = "authorization content-type cookie idempotency-key x-key";
        let check = |status, to: &str, expected: (&str, usize)| {
            let (found, body) = names(redirected(Method::POST, status, to.as_bytes()).unwrap());
            assert_eq!((found.as_str(), body), expected, "{status} {to}");
        };
        check(307, "/there", (all, 2));
        for other in ["https://b.org/", "https://a.org:8443/"] {
            check(307, other, ("content-type idempotency-key", 2));
        }
        check(303, "/done", ("authorization cookie x-key", 0));
        check(303, "https://b.org/", ("", 0));
    }
}
