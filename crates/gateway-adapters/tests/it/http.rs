//! Http tools: what a peer is sent, and what becomes of what it answers.

mod effects;
mod reach;

use std::sync::Arc;

use serde_json::{Value, json};

use crate::fixture::Fixture;
use crate::peer::{Act, Names, Peer, answer, json, reaching};

/// Registers an Http tool without side effects that may reach these hosts, and changes it.
pub(crate) async fn register(
    fixture: &Fixture,
    (id, endpoint): (&str, &str),
    hosts: &[&str],
    change: impl FnOnce(&mut Value),
) -> Result<(), String> {
    fixture
        .register(id, "", |definition| {
            definition["tool_type"] = json!("Http");
            definition["endpoint"] = json!(endpoint);
            definition["resource_limits"]["network"] = json!({ "DomainAllowlist": hosts });
            change(definition);
        })
        .await
}

/// A gateway with the tool `call`, whose endpoint is at the peer.
pub(crate) async fn calling(peer: &Peer, path: &str, change: impl FnOnce(&mut Value)) -> Fixture {
    let fixture = Fixture::with_egress(&[], reaching(&[peer], &Names::of(&[]))).await;
    let host = peer.address.to_string();
    register(&fixture, ("call", &peer.url(path)), &[&host], change).await.unwrap();
    fixture
}

/// Gives the tool side effects.
pub(crate) fn with_effects(idempotency: &str) -> impl Fn(&mut Value) {
    move |definition| {
        definition["side_effects"] = json!(["network"]);
        definition["safety_tier"] = json!("T2");
        definition["idempotency_behavior"] = json!(idempotency);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_peer_is_sent_the_envelope_of_the_contract() {
    let peer = Peer::answering(json("{}")).await;
    let fixture = calling(&peer, "/run", with_effects("keyed")).await;
    fixture.succeeds("call", json!({"value": 9_007_199_254_740_993_u64})).await;
    let seen = peer.seen().remove(0);
    let trace = seen.header("traceparent").unwrap().split('-').collect::<Vec<_>>();
    let [version, trace, parent, flags] = trace[..] else { panic!("{trace:?}") };
    assert_eq!((version, trace.len(), parent.len(), flags), ("00", 32, 16, "01"));
    assert_eq!(seen.line(), "POST /run");
    assert_eq!(seen.header("host"), Some(peer.address.to_string().as_str()));
    assert_eq!(seen.header("content-type"), Some("application/json"));
    assert_eq!(seen.header("idempotency-key"), Some("run_1/call/key_0"));
    assert_eq!(
        seen.body,
        format!(
            r#"{{"idempotency_key":"run_1/call/key_0","input":{{"value":9007199254740993}},"retry_count":0,"run_id":"run_1","tool_id":"call","trace_id":"{trace}"}}"#
        )
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn method_body_and_endpoint_are_what_the_tool_declares() {
    let peer = Peer::answering(json("{}")).await;
    let fixture = calling(&peer, "/items/{{value}}/detail?q={{more}}&v=1", |definition| {
        definition["method"] = json!("GET");
    })
    .await;
    let host = peer.address.to_string();
    for (id, method) in [("put", "PUT"), ("delete", "DELETE")] {
        let declared = |definition: &mut Value| definition["method"] = json!(method);
        register(&fixture, (id, &peer.url("/x")), &[&host], declared).await.unwrap();
    }
    for (tool, input, line, body) in [
        (
            "call",
            json!({"value": "a/b?c#d", "more": "x y&z"}),
            "GET /items/a%2Fb%3Fc%23d/detail?q=x%20y%26z&v=1",
            "",
        ),
        ("call", json!({"value": "%2e%2e"}), "GET /items/%252e%252e/detail?v=1", ""),
        ("call", json!({"value": "{other}"}), "GET /items/%7Bother%7D/detail?v=1", ""),
        ("put", json!({"value": [1, 2.5]}), "PUT /x", r#"{"value":[1,2.5]}"#),
        ("delete", json!({}), "DELETE /x", ""),
    ] {
        fixture.succeeds(tool, input).await;
        let seen = peer.seen().pop().unwrap();
        assert_eq!((seen.line(), seen.body.as_str()), (line, body));
        // A tool without side effects is asked anew each time, and the peer may not replay.
        assert_eq!(seen.header("idempotency-key"), None);
    }
    let asked = peer.seen().len();
    for value in [json!("../../admin"), json!(".."), json!(""), json!(null), json!("a\r\nb")] {
        let input = json!({ "value": value });
        fixture
            .check_refused("call", input, "validation_failed", "input is invalid at /value")
            .await;
    }
    assert_eq!(peer.seen().len(), asked, "nothing is sent for an input that cannot be");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_becomes_the_output_that_its_type_says() {
    let text = |text: &str| json!({"content": [{"type": "text", "text": text}]});
    let cases = [
        (json(r#"{"n":9007199254740993,"x":1.50}"#), json!({"n": 9_007_199_254_740_993_u64, "x": 1.5})),
        (answer("201 Created", &["Content-Type: application/problem+JSON; charset=utf-8"], "[1]"), json!([1])),
        (answer("200 OK", &[], r#"{"a":1}"#), json!({"a": 1})),
        (answer("204 No Content", &[], ""), Value::Null),
        (answer("200 OK", &["content-type: text/plain"], "{\"a\": 漢字}"), text("{\"a\": 漢字}")),
        (answer("200 OK", &["content-type: text/html"], b"<p>\xff"), text("<p>\u{fffd}")),
        (answer("200 OK", &["content-type: application/json"], "{\"a\":1,\"a\":2}"), text("{\"a\":1,\"a\":2}")),
        (answer("200 OK", &[], "hello"), text("hello")),
        (
            answer("200 OK", &["content-type: image/png"], b"\x89PNG"),
            json!({"content": [{"type": "image", "data": "iVBORw==", "mimeType": "image/png"}]}),
        ),
        (
            answer("200 OK", &["content-type: audio/wav"], b"RIFF"),
            json!({"content": [{"type": "audio", "data": "UklGRg==", "mimeType": "audio/wav"}]}),
        ),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\n[1,\r\n2\r\n2]\r\n0\r\n\r\n".to_vec(), json!([1, 2])),
        (b"HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n1".to_vec(), json!(1)),
    ];
    let answers: Arc<Vec<_>> = Arc::new(cases.iter().map(|(answer, _)| answer.clone()).collect());
    let peer = Peer::start(move |number, _seen| Act::Answer(answers[number].clone())).await;
    let fixture = calling(&peer, "/", |_definition| {}).await;
    for (bytes, expected) in &cases {
        let output = fixture.succeeds("call", json!({})).await;
        assert_eq!(&output, expected, "{}", String::from_utf8_lossy(bytes));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_of_no_known_type_are_a_resource_of_the_call() {
    let bytes = answer("200 OK", &["content-type: application/octet-stream"], b"\0\xff");
    let peer = Peer::answering(bytes).await;
    let fixture = calling(&peer, "/", |_definition| {}).await;
    let output = fixture.succeeds("call", json!({})).await;
    let resource = &output["content"][0]["resource"];
    assert_eq!(
        (&resource["mimeType"], &resource["blob"]),
        (&json!("application/octet-stream"), &json!("AP8="))
    );
    let uri = resource["uri"].as_str().unwrap();
    assert!(uri.starts_with("allternit://calls/") && uri.ends_with("/answer"), "{uri}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_output_is_held_against_its_schema_and_the_effect_stays() {
    let peer = Peer::answering(json("[1]")).await;
    let fixture = calling(&peer, "/", |definition| {
        definition["output_schema"] = json!({"type": "object"});
    })
    .await;
    let error = fixture.fails("call", json!({})).await;
    assert_eq!((error.kind.as_str(), &error.fields["output"]), ("execution", &json!([1])));
}

#[tokio::test(flavor = "multi_thread")]
async fn another_status_is_an_error_with_the_status_and_the_bounded_body() {
    let long = "漢".repeat(60_000);
    let cases = [
        (
            answer("404 Not Found", &[], r#"{"reason":"gone"}"#),
            404,
            json!({"reason": "gone"}),
            false,
        ),
        (answer("400 Bad Request", &[], "no"), 400, json!({"raw_output": "no"}), false),
        (answer("503 Busy", &["retry-after: 7"], ""), 503, Value::Null, true),
        (answer("429 Slow", &["retry-after: soon"], ""), 429, Value::Null, true),
        (answer("304 Not Modified", &[], ""), 304, Value::Null, false),
        (answer("302 Found", &[], ""), 302, Value::Null, false),
        (
            b"HTTP/1.1 500 Error\r\ncontent-length: 9\r\n\r\npart".to_vec(),
            500,
            json!({"raw_output": "part", "truncated": true}),
            true,
        ),
    ];
    let mut answers: Vec<_> = cases.iter().map(|(answer, ..)| answer.clone()).collect();
    answers.push(answer("500 Error", &[], &long));
    let peer = Peer::start(move |number, _seen| Act::Last(answers[number].clone())).await;
    let fixture = calling(&peer, "/", |definition| {
        definition["retryable"] = json!(true);
        definition["failure_classification"] = json!("transient");
    })
    .await;
    for (_, status, output, is_retryable) in cases {
        let error = fixture.fails("call", json!({})).await;
        assert_eq!(error.kind.as_str(), "execution");
        assert_eq!(error.message, format!("HTTP tool error ({status})"));
        assert_eq!((&error.fields["status"], &error.fields["output"]), (&json!(status), &output));
        assert_eq!(error.is_retryable, is_retryable, "{status}");
        let wait = error.fields.get("retry_after_ms");
        assert_eq!(wait, (status == 503).then_some(&json!(7_000)), "{status}");
    }
    let error = fixture.fails("call", json!({})).await;
    let text = error.fields["output"]["raw_output"].as_str().unwrap();
    assert!(text.len() <= 64 * 1024 && !text.contains('\u{fffd}'), "{}", text.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_never_ends_or_never_comes_is_bounded() {
    let ok = |rest: &str| format!("HTTP/1.1 200 OK\r\n{rest}").into_bytes();
    let endless = |head: Vec<u8>, more: &str| Act::Endless(head, more.as_bytes().to_vec());
    let megabyte = "x".repeat(1 << 20);
    let chunk = format!("100000\r\n{megabyte}\r\n");
    let cases = [
        (endless(ok("x: "), &megabyte), "transport", "broke at the head of the answer"),
        (endless(ok(""), "a: b\r\n"), "transport", "broke at the head of the answer"),
        (
            endless(b"HTTP/1.1 100 Continue\r\n\r\n".to_vec(), "HTTP/1.1 100 Continue\r\n\r\n"),
            "timeout",
            "time out at the head of the answer, after the tool's time_limit of 1 s",
        ),
        (
            endless(ok("content-type: text/plain\r\n\r\n"), &megabyte),
            "output_limit",
            "more than 4194304 bytes",
        ),
        (
            endless(ok("transfer-encoding: chunked\r\n\r\n"), &chunk),
            "output_limit",
            "more than 4194304 bytes",
        ),
        (
            endless(b"HTTP/1.1 500 Error\r\n\r\n".to_vec(), &megabyte),
            "execution",
            "HTTP tool error (500)",
        ),
        (
            Act::Stall(Vec::new()),
            "timeout",
            "time out at the head of the answer, after the tool's time_limit of 1 s",
        ),
        (Act::Stall(ok("x: ")), "timeout", "time out at the head of the answer"),
        (
            Act::Stall(ok("content-length: 9\r\n\r\npart")),
            "timeout",
            "time out at the body of the answer",
        ),
        (
            Act::Stall(b"HTTP/1.1 500 Error\r\ncontent-length: 9\r\n\r\npart".to_vec()),
            "execution",
            "HTTP tool error (500)",
        ),
        (
            Act::Last(b"SSH-2.0-OpenSSH\r\n".to_vec()),
            "transport",
            "broke at the head of the answer",
        ),
        (
            Act::Last(ok("content-length: 9\r\n\r\npart")),
            "transport",
            "broke at the body of the answer",
        ),
        (
            Act::Last(answer("200 OK", &["content-encoding: gzip"], "\x1f")),
            "execution",
            "content encoding \"gzip\"",
        ),
    ];
    let acts: Vec<_> = cases.iter().map(|(act, ..)| act.clone()).collect();
    let peer = Peer::start(move |number, _seen| acts[number].clone()).await;
    // What breaks is not asked again here, so that each request is one case.
    let fixture = calling(&peer, "/", |definition| {
        definition["resource_limits"]["time_limit"] = json!(1);
    })
    .await;
    for (position, (_, kind, text)) in cases.iter().enumerate() {
        let error = fixture.fails("call", json!({})).await;
        assert_eq!((position, error.kind.as_str()), (position, *kind), "{error}");
        assert!(error.message.contains(text), "{position}: {error}");
    }
}
