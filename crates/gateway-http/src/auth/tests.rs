use super::*;

const TOKEN: &str = "c0ffee";

fn options() -> HttpOptions {
    HttpOptions {
        operator_token: Some(TOKEN.to_owned()),
        needs_token: false,
        allowed_hosts: vec!["gateway.example".to_owned(), "fd00::7".to_owned()],
        allowed_origins: vec!["https://console.example".to_owned()],
    }
}

/// Judges a request with one set of headers; `Err` holds the status of the refusal.
fn judged(peer: &str, headers: &[(&str, &str)]) -> Result<Principal, u16> {
    let mut request = Request::builder().uri("/health");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let mut request = request.body(axum::body::Body::empty()).unwrap();
    request.extensions_mut().insert(Peer(peer.parse().unwrap()));
    judge(&options(), &request).map_err(|problem| problem.into_response().status().as_u16())
}

#[test]
fn only_hosts_of_this_gateway_are_served() {
    let check = |host: &str, is_served: bool| {
        let expected = if is_served { Ok(Principal::Local) } else { Err(421) };
        assert_eq!(judged("127.0.0.1:9", &[("host", host)]), expected, "{host:?}");
    };
    for host in [
        "127.0.0.1:3510",
        "127.0.0.1",
        "127.8.9.1:1",
        "localhost",
        "LOCALHOST:3510",
        "[::1]:3510",
        "[::1]",
        "gateway.example",
        "Gateway.Example:443",
        "[fd00::7]:443",
    ] {
        check(host, true);
    }
    for host in [
        "evil.example",
        "evil.example:3510",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "0.0.0.0",
        "10.0.0.1",
        "[::2]",
        "[::1",
        "[::1]x",
        "::1",
        "",
        ":3510",
        "localhost:x",
        "user@localhost",
        "127.1",
    ] {
        check(host, false);
    }
}

#[test]
fn a_request_has_one_host_and_an_absolute_target_must_be_ours_too() {
    assert_eq!(judged("127.0.0.1:9", &[]), Err(400));
    assert_eq!(judged("127.0.0.1:9", &[("host", "localhost"), ("host", "localhost")]), Err(400));
    let judged_target = |target: &str| {
        let request = Request::builder().uri(target).header("host", "localhost");
        let mut request = request.body(axum::body::Body::empty()).unwrap();
        request.extensions_mut().insert(Peer("127.0.0.1:9".parse().unwrap()));
        judge(&options(), &request).map_err(|problem| problem.into_response().status().as_u16())
    };
    assert_eq!(judged_target("http://127.0.0.1:3510/health"), Ok(Principal::Local));
    assert_eq!(judged_target("http://evil.example/health"), Err(421));
}

#[test]
fn an_origin_must_be_allowed() {
    let check = |origin: &str, expected: Result<Principal, u16>| {
        let headers = [("host", "localhost"), ("origin", origin)];
        assert_eq!(judged("127.0.0.1:9", &headers), expected, "{origin:?}");
    };
    check("https://console.example", Ok(Principal::Local));
    check("https://console.example:444", Err(403));
    check("http://localhost:3510", Err(403));
    check("null", Err(403));
    check("", Err(403));
}

#[test]
fn the_principal_is_the_tokens_holder_or_a_caller_on_this_machine() {
    let check = |peer: &str, authorization: Option<&str>, expected: Result<Principal, u16>| {
        let mut headers = vec![("host", "localhost")];
        headers.extend(authorization.map(|value| ("authorization", value)));
        assert_eq!(judged(peer, &headers), expected, "{peer} {authorization:?}");
    };
    check("127.0.0.1:9", None, Ok(Principal::Local));
    check("127.8.9.1:9", None, Ok(Principal::Local));
    check("[::1]:9", None, Ok(Principal::Local));
    check("[::ffff:127.0.0.1]:9", None, Ok(Principal::Local));
    check("10.0.0.1:9", None, Err(401));
    check("[fd00::8]:9", None, Err(401));
    check("10.0.0.1:9", Some("Bearer c0ffee"), Ok(Principal::Operator));
    check("127.0.0.1:9", Some("bearer c0ffee"), Ok(Principal::Operator));
    for wrong in [
        "Bearer c0ffe",
        "Bearer c0ffee0",
        "Bearer C0FFEE",
        "Bearer ",
        "Bearer",
        "c0ffee",
        "Basic c0ffee",
        "",
    ] {
        check("127.0.0.1:9", Some(wrong), Err(401));
    }
    let twice = [
        ("host", "localhost"),
        ("authorization", "Bearer c0ffee"),
        ("authorization", "Bearer c0ffee"),
    ];
    assert_eq!(judged("127.0.0.1:9", &twice), Err(400));
}

#[test]
fn what_a_proxy_passed_on_is_of_nobody_without_a_token() {
    for name in [
        "forwarded",
        "via",
        "x-real-ip",
        "x-forwarded-for",
        "X-Forwarded-Host",
        "x-forwarded-proto",
    ] {
        let mut headers = vec![("host", "127.0.0.1:3510"), (name, "203.0.113.9")];
        assert_eq!(judged("127.0.0.1:9", &headers), Err(401), "{name}");
        headers.push(("authorization", "Bearer c0ffee"));
        assert_eq!(judged("127.0.0.1:9", &headers), Ok(Principal::Operator), "{name}");
    }
    let other = [("host", "localhost"), ("x-forwarder", "none")];
    assert_eq!(judged("127.0.0.1:9", &other), Ok(Principal::Local));
}

#[test]
fn a_gateway_that_others_may_reach_takes_nobody_without_a_token() {
    let options = HttpOptions { needs_token: true, ..options() };
    let peer = Some(Peer("127.0.0.1:9".parse().unwrap()));
    let refusal = principal(&options, peer, &HeaderMap::new()).unwrap_err().into_response();
    assert_eq!(refusal.status(), StatusCode::UNAUTHORIZED);
    let headers =
        HeaderMap::from_iter([(AUTHORIZATION, HeaderValue::from_static("Bearer c0ffee"))]);
    assert_eq!(principal(&options, peer, &headers).unwrap(), Principal::Operator);
}

#[test]
fn a_request_of_unknown_origin_counts_as_foreign() {
    let request = Request::builder().uri("/health").header("host", "localhost");
    let request = request.body(axum::body::Body::empty()).unwrap();
    let refusal = judge(&options(), &request).unwrap_err().into_response();
    assert_eq!(refusal.status(), StatusCode::UNAUTHORIZED);
    assert_eq!(refusal.headers()["www-authenticate"], CHALLENGE);
}

#[test]
fn without_a_token_nobody_is_the_operator() {
    let options = HttpOptions { operator_token: None, ..options() };
    let headers =
        HeaderMap::from_iter([(AUTHORIZATION, HeaderValue::from_static("Bearer c0ffee"))]);
    assert!(principal(&options, None, &headers).is_err());
}
