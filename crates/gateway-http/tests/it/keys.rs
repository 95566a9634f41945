//! Idempotency keys: in the body answered with 200, in the header answered by status.

use serde_json::{Value, json};

use crate::fixture::{Fixture, JSON, TOKEN, registration};

#[tokio::test]
async fn a_repeated_call_is_replayed_with_the_first_ones_receipt() {
    let fixture = Fixture::open().await;
    let first = fixture.execute("note.add", json!({"message": "a"}), "k_1").await;
    let again = fixture.execute("note.add", json!({"message": "a"}), "k_1").await;
    assert_eq!((first.status, again.status), (200, 200));
    assert_eq!(first.body, again.body);
    assert_eq!(again.header("idempotent-replayed"), "true");
    assert_eq!(again.header("x-receipt-id"), first.header("x-receipt-id"));
    assert_ne!(again.header("x-call-id"), first.header("x-call-id"));
    assert_eq!(fixture.fake.runs("note.add"), 1);
}

#[tokio::test]
async fn a_key_used_with_another_input_is_a_conflict_in_the_body_and_422_by_header() {
    let fixture = Fixture::open().await;
    fixture.execute("note.add", json!({"message": "a"}), "k_1").await;
    let in_body = fixture.execute("note.add", json!({"message": "b"}), "k_1").await;
    assert_eq!(
        (in_body.status, &in_body.json()["error"]["details"]["kind"]),
        (200, &json!("conflict"))
    );
    let headers = [JSON, ("x-run-id", "run_xyz789"), ("idempotency-key", "k_1")];
    let by_header =
        fixture.send("POST", "/v1/tools/note.add/call", &headers, "{\"message\":\"b\"}").await;
    assert_eq!(
        (by_header.status, &by_header.json()["error"]["details"]["kind"]),
        (422, &json!("conflict"))
    );
    let replayed =
        fixture.send("POST", "/v1/tools/note.add/call", &headers, "{\"message\":\"a\"}").await;
    assert_eq!((replayed.status, replayed.header("idempotent-replayed")), (200, "true"));
    assert_eq!(fixture.fake.runs("note.add"), 1);
}

#[tokio::test]
async fn two_at_once_run_once() {
    let fixture = Fixture::open().await;
    let input = || json!({"message": "a", "wait": true});
    let started = async {
        fixture.fake.has_started.notified().await;
        fixture.fake.go_on.notify_one();
    };
    let (first, second, ()) = tokio::join!(
        fixture.execute("note.add", input(), "k_1"),
        fixture.execute("note.add", input(), "k_1"),
        started
    );
    assert_eq!(first.json(), second.json());
    assert_eq!(first.header("x-receipt-id"), second.header("x-receipt-id"));
    assert_eq!(fixture.fake.runs("note.add"), 1);
}

/// A tool whose failures pass, and whose effect can be repeated.
fn flaky() -> Value {
    let mut flaky = registration();
    for (field, value) in [
        ("id", json!("flaky")),
        ("side_effects", json!(["filesystem"])),
        ("safety_tier", json!("T2")),
        ("retryable", json!(true)),
        ("input_schema", json!({"type": "object"})),
    ] {
        flaky[field] = value;
    }
    flaky
}

#[tokio::test]
async fn who_waited_for_a_call_gets_its_failure_and_does_not_run_it_again() {
    let fixture = Fixture::open().await;
    assert_eq!(fixture.register(&flaky()).await.status, 201);
    let input = || json!({"end": "fail", "wait": true});
    let started = async {
        fixture.fake.has_started.notified().await;
        while fixture.gateway.health().calls_waiting == 0 {
            tokio::task::yield_now().await;
        }
        fixture.fake.go_on.notify_one();
    };
    let (first, second, ()) = tokio::join!(
        fixture.execute("flaky", input(), "k_1"),
        fixture.execute("flaky", input(), "k_1"),
        started
    );
    for answer in [&first, &second] {
        assert_eq!(answer.json()["error"]["message"], "the peer is down");
    }
    assert_eq!(first.header("x-receipt-id"), second.header("x-receipt-id"));
    assert_eq!(fixture.fake.runs("flaky"), 1);
    // A retry that comes later is another attempt.
    fixture.fake.go_on.notify_one();
    fixture.execute("flaky", input(), "k_1").await;
    assert_eq!(fixture.fake.runs("flaky"), 2);
}

#[tokio::test]
async fn nobody_knows_what_an_adapter_did_that_panicked() {
    let fixture = Fixture::open().await;
    let input = || json!({"message": "a", "end": "panic"});
    for _once_more in 0..2 {
        let answer = fixture.execute("note.add", input(), "k_1").await.json();
        assert_eq!(answer["error"]["details"]["kind"], "indeterminate", "{answer}");
    }
    assert_eq!(fixture.fake.runs("note.add"), 1);
}

#[tokio::test]
async fn an_operator_settles_a_call_whose_outcome_is_unknown() {
    let fixture = Fixture::open().await;
    let token = format!("Bearer {TOKEN}");
    for (key, resolution, kind) in
        [("k_1", "done", "conflict"), ("k_2", "not_done", "indeterminate")]
    {
        let input = || json!({"message": "a", "end": "panic"});
        let unknown = fixture.execute("note.add", input(), key).await;
        let call = unknown.header("x-call-id").to_owned();
        let path = format!("/v1/calls/{call}/resolution");
        let body = json!({"resolution": resolution, "reason": "looked"}).to_string();
        assert_eq!(fixture.send("POST", &path, &[JSON], body.clone()).await.status, 403);
        let operator = [JSON, ("authorization", &*token)];
        assert_eq!(fixture.send("POST", &path, &operator, body.clone()).await.status, 204);
        assert_eq!(fixture.send("POST", &path, &operator, body).await.status, 409);
        assert_eq!(fixture.send("POST", &path, &operator, "{}").await.status, 422);
        let again = fixture.execute("note.add", input(), key).await;
        assert_eq!(again.json()["error"]["details"]["kind"], kind, "{again:?}");
    }
    assert_eq!(fixture.fake.runs("note.add"), 3, "what was not done ran anew");
    let path = "/v1/calls/0190f5fe-7c00-7a00-8000-000000000000/resolution";
    let operator = [JSON, ("authorization", &*token)];
    assert_eq!(
        fixture.send("POST", path, &operator, "{\"resolution\":\"done\"}").await.status,
        404
    );
}

#[tokio::test]
async fn a_tool_without_side_effects_runs_anew() {
    let fixture = Fixture::open().await;
    for _run in 0..2 {
        let answer = fixture.execute("note.read", json!({}), "k_1").await;
        assert!(answer.headers.get("idempotent-replayed").is_none());
    }
    assert_eq!(fixture.fake.runs("note.read"), 2);
}
