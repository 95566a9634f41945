//! Whether a call acted: what is sent once, what may be sent again, and what nobody knows.

use std::sync::Arc;

use gateway_engine::{RequestContext, RequestIds};
use gateway_model::{Face, Principal, ToolError};
use serde_json::{Value, json};
use tokio::net::TcpSocket;

use super::{calling, register, with_effects};
use crate::fixture::Fixture;
use crate::peer::{Act, Names, Peer, answer, json, reaching};

fn context(key: &str) -> RequestContext {
    let ids = RequestIds { run: "run_1".into(), wih: "wih_1".into(), key: Some(key.to_owned()) };
    RequestContext::parse(Principal::Local, Face::Embedded, &ids).unwrap()
}

async fn call(fixture: &Fixture, key: &str) -> Result<Value, ToolError> {
    let report = fixture.gateway.execute(context(key), "call", json!({})).await;
    report.result.map(|output| output.to_rest())
}

async fn failure(fixture: &Fixture, key: &str) -> (String, bool) {
    let error = call(fixture, key).await.unwrap_err();
    (error.kind.to_string(), error.is_retryable)
}

/// One way in which a sent request stays without an answer.
async fn check_lost(act: Act, kind_if_safe: &str, kind_if_unsafe: &str) {
    for (idempotency, is_safe) in [("idempotent", true), ("keyed", true), ("not_idempotent", false)]
    {
        let lost = act.clone();
        let script = move |number, _seen: &_| match number {
            0 => lost.clone(),
            _ => Act::Answer(json("{\"done\":true}")),
        };
        let peer = Peer::start(script).await;
        let fixture = calling(&peer, "/", |definition| {
            with_effects(idempotency)(definition);
            definition["resource_limits"]["time_limit"] = json!(1);
        })
        .await;
        let kind = if is_safe { kind_if_safe } else { kind_if_unsafe };
        assert_eq!(failure(&fixture, "k").await, (kind.to_owned(), is_safe), "{idempotency}");
        let again = call(&fixture, "k").await;
        if is_safe {
            assert_eq!(again, Ok(json!({"done": true})), "{idempotency}");
            assert_eq!(peer.seen().len(), 2);
        } else {
            assert_eq!(again.unwrap_err().kind.as_str(), "indeterminate");
            assert_eq!(peer.seen().len(), 1, "what may have acted is not sent again");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_answer_is_indeterminate_where_the_tool_must_not_act_twice() {
    let part = b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\npart".to_vec();
    check_lost(Act::Last(Vec::new()), "transport", "indeterminate").await;
    check_lost(Act::Last(b"HTTP/1.1 200".to_vec()), "transport", "indeterminate").await;
    check_lost(Act::Last(part), "transport", "indeterminate").await;
    check_lost(Act::Stall(Vec::new()), "timeout", "timeout").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_was_never_sent_leaves_its_key_free() {
    // Bound but not listened on, so that the port stays closed.
    let silent = TcpSocket::new_v4().unwrap();
    silent.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = silent.local_addr().unwrap();
    let mut egress = reaching(&[], &Names::of(&[("gone.test", &[&[]])]));
    egress.allow_private = vec![address.to_string().parse().unwrap()];
    let fixture = Fixture::with_egress(&[], egress).await;
    let host = address.to_string();
    register(
        &fixture,
        ("call", &format!("http://{host}/")),
        &[&host],
        with_effects("not_idempotent"),
    )
    .await
    .unwrap();
    for name in ["gone.test", "unknown.test"] {
        let endpoint = format!("http://{name}/");
        register(&fixture, (name, &endpoint), &[name], with_effects("not_idempotent"))
            .await
            .unwrap();
    }
    // Each try is a try: a key that were taken would answer `indeterminate`.
    for _try in 0..2 {
        assert_eq!(failure(&fixture, "k").await, ("transport".to_owned(), true));
        for name in ["gone.test", "unknown.test"] {
            let report = fixture.gateway.execute(context("k"), name, json!({})).await;
            let error = report.result.unwrap_err();
            assert_eq!((error.kind.as_str(), error.is_retryable), ("transport", true));
            assert!(error.message.contains("could not be resolved"), "{error}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kept_connection_serves_again_and_its_end_is_no_failure() {
    // The peer ends each connection at its second request, as a server does whose patience has
    // just run out when the request arrives.
    let per_connection = |_number, seen: &crate::peer::Seen| match seen.connection {
        0 => Act::Answer(json("{}")),
        _ => Act::Last(json("{}")),
    };
    let peer = Peer::start(per_connection).await;
    let fixture = calling(&peer, "/", |_definition| {}).await;
    for _call in 0..3 {
        fixture.succeeds("call", json!({})).await;
    }
    let connections: Vec<_> = peer.seen().iter().map(|seen| seen.connection).collect();
    assert_eq!(connections, [0, 0, 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_on_a_connection_that_its_server_gave_up_is_sent_anew() {
    // Every second request meets a connection that closes without an answer.
    let script = |number, _seen: &_| match number % 3 {
        0 => Act::Answer(json("{}")),
        1 => Act::Last(Vec::new()),
        _ => Act::Answer(answer("200 OK", &["connection: close"], "{}")),
    };
    let peer = Peer::start(script).await;
    let fixture = calling(&peer, "/", |_definition| {}).await;
    for _call in 0..20 {
        fixture.succeeds("call", json!({})).await;
    }
    assert_eq!(peer.seen().len(), 30);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_effect_that_must_not_happen_twice_never_takes_a_kept_connection() {
    let script = |_number, seen: &crate::peer::Seen| {
        let is_first = seen.head.starts_with("POST");
        if is_first { Act::Answer(json("{}")) } else { Act::Last(Vec::new()) }
    };
    let peer = Peer::start(script).await;
    let fixture = calling(&peer, "/", with_effects("not_idempotent")).await;
    for number in 0..20 {
        assert_eq!(call(&fixture, &format!("k{number}")).await, Ok(json!({})));
    }
    let connections: Vec<_> = peer.seen().iter().map(|seen| seen.connection).collect();
    assert_eq!(connections, (0..20).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_call_closes_the_connection_to_its_peer() {
    let peer = Peer::start(|_number, _seen| Act::Stall(Vec::new())).await;
    let fixture = Arc::new(calling(&peer, "/", with_effects("not_idempotent")).await);
    let context = context("k");
    let cancel = context.cancel.clone();
    let running = {
        let fixture = Arc::clone(&fixture);
        tokio::spawn(async move { fixture.gateway.execute(context, "call", json!({})).await })
    };
    while peer.seen().is_empty() {
        tokio::task::yield_now().await;
    }
    cancel.cancel();
    peer.closed().await;
    let error = running.await.unwrap().result.unwrap_err();
    assert_eq!((error.kind.as_str(), error.is_retryable), ("cancelled", false));
    assert!(error.message.contains("unknown whether the call acted"), "{error}");
    assert_eq!(failure(&fixture, "k").await.0, "indeterminate");
    assert_eq!(peer.seen().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_receipt_names_whom_the_gateway_asked_and_no_error_holds_a_value() {
    let peer = Peer::start(|number, _seen| match number {
        0 => Act::Answer(json("{}")),
        _ => Act::Last(Vec::new()),
    })
    .await;
    let fixture = calling(&peer, "/x?token={{value}}", |_definition| {}).await;
    let report = fixture.report("call", json!({"value": "SENTINEL"})).await;
    let receipt = fixture.gateway.receipt(report.receipt.unwrap()).await.unwrap().unwrap();
    let leaf = receipt["outcome"]["leaf"].as_str().unwrap();
    let hops =
        format!(r#""hops":[{{"address":"{0}","origin":"http://{0}","status":200}}]"#, peer.address);
    assert!(leaf.contains(&hops) && !leaf.contains("SENTINEL"), "{leaf}");
    let error = fixture.fails("call", json!({"value": "SENTINEL"})).await;
    assert!(error.message.contains(&format!("the connection to http://{} broke", peer.address)));
}
