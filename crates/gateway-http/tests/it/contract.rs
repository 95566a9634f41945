//! The wire contract's own examples: same keys, types and values.

use serde_json::{Value, json};

use crate::fixture::{Fixture, JSON, TOKEN, builtin, registration, request};

fn keys(value: &Value) -> Vec<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

#[tokio::test]
async fn health_has_the_four_keys_first() {
    let fixture = Fixture::open().await;
    let answer = fixture.get("/health").await;
    assert_eq!(answer.status, 200);
    assert_eq!(answer.header("content-type"), "application/json");
    let health = answer.json();
    assert_eq!(keys(&health)[..4], ["status", "service", "version", "ontology_compliance"]);
    assert_eq!(health["service"], "allternit-io-service");
    assert_eq!(health["version"], "0.1.0");
    // This gateway's sandbox is off, so the boundary does not hold.
    assert_eq!(
        (&health["status"], &health["ontology_compliance"]),
        (&json!("degraded"), &json!(false))
    );
    assert_eq!(health["sandbox"], json!({"state": "off", "tier": null, "reason": null}));
}

#[tokio::test]
async fn an_unknown_tool_has_the_error_shape() {
    let fixture = Fixture::open().await;
    let answer = fixture.post("/v1/tools/execute", &request()).await;
    assert_eq!(answer.status, 200);
    let mut body = answer.json();
    let details = body["error"]["details"].take();
    let expected = json!({
        "success": false,
        "output": null,
        "error": {
            "code": "TOOL_EXECUTION_FAILED",
            "message": "Tool not found: echo.test",
            "details": null
        },
        "io_captured": false,
        "policy_enforced": false
    });
    assert_eq!(body.to_string(), expected.to_string());
    assert_eq!(details["kind"], "not_found");
    assert_eq!(details["retryable"], false);
    assert_eq!(details["call_id"], answer.header("x-call-id"));
    assert_eq!(details["receipt_id"], Value::Null);
}

#[tokio::test]
async fn a_registered_tool_is_listed_shown_executed_and_removed() {
    let fixture = Fixture::open().await;
    for _once_more in 0..2 {
        let registered = fixture.register(&registration()).await;
        assert_eq!(
            (registered.status, registered.body.as_str()),
            (201, "Tool registered: echo.test")
        );
        assert_eq!(registered.header("content-type"), "text/plain; charset=utf-8");
        assert_eq!(registered.header("location"), "/v1/tools/echo.test");
    }
    let tools = fixture.get("/v1/tools").await.json();
    let ids: Vec<&Value> = tools.as_array().unwrap().iter().map(|tool| &tool["id"]).collect();
    assert_eq!(ids, ["echo.test", "note.add", "note.read"]);
    let shown = fixture.get("/v1/tools/echo.test").await.json();
    assert_eq!(shown, tools[0]);
    for (key, value) in registration().as_object().unwrap() {
        assert_eq!(&shown[key], value, "{key}");
    }

    let answer = fixture.post("/v1/tools/execute", &request()).await;
    assert_eq!(answer.status, 200);
    let expected = json!({
        "success": true,
        "output": { "raw_output": "hello\n" },
        "error": null,
        "io_captured": true,
        "policy_enforced": true
    });
    assert_eq!(answer.body, expected.to_string());
    assert_eq!(answer.header("x-receipt-id"), answer.header("x-call-id"));
    assert!(answer.header("server-timing").starts_with("call;dur="));
    assert!(answer.headers.get("idempotent-replayed").is_none());

    let operator = [("authorization", &*format!("Bearer {TOKEN}"))];
    assert_eq!(fixture.send("DELETE", "/v1/tools/echo.test", &[], "").await.status, 403);
    assert_eq!(fixture.send("DELETE", "/v1/tools/echo.test", &operator, "").await.status, 204);
    assert_eq!(fixture.get("/v1/tools/echo.test").await.status, 404);
    assert_eq!(fixture.send("DELETE", "/v1/tools/echo.test", &operator, "").await.status, 404);
    assert_eq!(fixture.send("DELETE", "/v1/tools/note.read", &operator, "").await.status, 403);
}

#[tokio::test]
async fn another_definition_under_the_same_id_is_a_conflict() {
    let fixture = Fixture::open().await;
    fixture.register(&registration()).await;
    let mut other = registration();
    other["description"] = json!("Something else");
    let answer = fixture.register(&other).await;
    assert_eq!(answer.status, 409);
    assert!(answer.body.starts_with("Failed to register tool: "), "{answer:?}");
    assert!(answer.body.contains("echo.test"), "{answer:?}");
}

#[tokio::test]
async fn a_registered_tool_never_stands_in_for_a_built_in_one() {
    let fixture = Fixture::open().await;
    let mut shadow = registration();
    shadow["id"] = json!("note-list");
    assert_eq!(fixture.register(&shadow).await.status, 201);
    assert_eq!(fixture.register(&registration()).await.status, 201);
    let fixture = fixture.reopen_with(vec![builtin("note.list", &[])]).await;
    let tools = fixture.get("/v1/tools").await.json();
    let ids: Vec<&Value> = tools.as_array().unwrap().iter().map(|tool| &tool["id"]).collect();
    assert_eq!(ids, ["echo.test", "note.list"]);
}

#[tokio::test]
async fn policy_refuses_a_registration_with_the_contracts_text() {
    let fixture = Fixture::open().await;
    let mut dangerous = registration();
    dangerous["safety_tier"] = json!("T4");
    dangerous["side_effects"] = json!(["actuation"]);
    let answer = fixture.post("/v1/tools", &dangerous).await;
    assert_eq!(answer.status, 403, "{answer:?}");
    assert!(answer.body.starts_with("Failed to register tool: "), "{answer:?}");
}

#[tokio::test]
async fn a_denial_is_captured_and_policy_was_enforced() {
    let fixture = Fixture::open().await;
    let mut dangerous = registration();
    dangerous["id"] = json!("actuate");
    dangerous["safety_tier"] = json!("T4");
    dangerous["side_effects"] = json!(["actuation"]);
    let bearer = format!("Bearer {TOKEN}");
    let headers = [JSON, ("authorization", &*bearer)];
    let registered = fixture.send("POST", "/v1/tools", &headers, dangerous.to_string()).await;
    assert_eq!(registered.status, 201, "{registered:?}");
    let hidden = fixture.send("DELETE", "/v1/tools/actuate", &[], "").await;
    assert_eq!(hidden.status, 404, "who may neither call nor remove a tool sees none");
    let answer = fixture.execute("actuate", json!({"message": "x"}), "k_1").await;
    let body = answer.json();
    assert_eq!((answer.status, &body["success"]), (200, &json!(false)));
    assert_eq!((&body["io_captured"], &body["policy_enforced"]), (&json!(true), &json!(true)));
    let message = body["error"]["message"].as_str().unwrap();
    assert!(message.starts_with("Policy denied execution: "), "{message}");
    assert!(body["error"]["details"]["rule"].is_string(), "{body}");
    assert_eq!(fixture.fake.runs("actuate"), 0);
}

#[tokio::test]
async fn integers_keep_every_digit() {
    let fixture = Fixture::open().await;
    for digits in ["9007199254740993", "18446744073709551615", "-9223372036854775808"] {
        let body =
            request().to_string().replace("echo.test", "note.read").replace("\"hello\"", digits);
        let answer = fixture.send("POST", "/v1/tools/execute", &[JSON], body).await;
        assert!(answer.body.contains(&format!("\"output\":{digits},")), "{answer:?}");
    }
}

#[tokio::test]
async fn the_one_line_call_needs_no_ids() {
    let fixture = Fixture::open().await;
    for (headers, body) in
        [(&[][..], ""), (&[JSON], "null"), (&[JSON], "{}"), (&[JSON], "{\"message\":\"hi\"}")]
    {
        let answer = fixture.send("POST", "/v1/tools/note.read/call", headers, body).await;
        assert_eq!((answer.status, &answer.json()["success"]), (200, &json!(true)), "{answer:?}");
    }
    fixture.register(&registration()).await;
    let answer = fixture.send("POST", "/v1/tools/echo.test/call", &[], "").await;
    let message = answer.json()["error"]["message"].as_str().unwrap().to_owned();
    assert_eq!(answer.status, 200);
    assert!(message.contains("message"), "a required property is still required: {message}");
    let listed = fixture.get("/v1/runs/default/receipts").await.json();
    assert_eq!(listed["receipts"].as_array().unwrap().len(), 4);
}

#[tokio::test]
async fn explaining_runs_and_journals_nothing() {
    let fixture = Fixture::open().await;
    let mut asked = request();
    asked["tool_id"] = json!("note.add");
    let answer = fixture.post("/v1/tools/explain", &asked).await;
    assert_eq!(answer.status, 200);
    assert_eq!(answer.json()["policy"]["decision"], "allow");
    assert_eq!(fixture.fake.runs("note.add"), 0);
    let listed = fixture.get("/v1/runs/run_xyz789/receipts").await.json();
    assert_eq!(listed["receipts"], json!([]));

    asked["tool_id"] = json!("nothing");
    let answer = fixture.post("/v1/tools/explain", &asked).await;
    assert_eq!((answer.status, &answer.json()["success"]), (200, &json!(false)));
    assert_eq!(answer.json()["error"]["message"], "Tool not found: nothing");
    asked["run_id"] = json!("../x");
    let answer = fixture.post("/v1/tools/explain", &asked).await;
    assert_eq!(answer.json()["error"]["details"]["kind"], "validation_failed");
}

#[tokio::test]
async fn a_gateway_that_closes_is_not_ready() {
    let fixture = Fixture::open().await;
    assert_eq!(fixture.get("/ready").await.json(), json!({"ready": true}));
    fixture.gateway.close().await;
    let answer = fixture.get("/ready").await;
    assert_eq!(answer.status, 503);
    assert_eq!(answer.json()["reasons"][0], "the gateway is shutting down");
    let refused = fixture.execute("note.read", json!({}), "k").await;
    assert_eq!(
        (refused.status, &refused.json()["error"]["details"]["kind"]),
        (200, &json!("unavailable"))
    );
}
