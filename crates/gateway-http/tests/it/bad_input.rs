//! Bad input gets one clear error in its route's own shape, and nothing is lost.

use serde_json::{Value, json};

use crate::fixture::{Answer, Fixture, JSON, registration, request};

fn changed(change: impl FnOnce(&mut Value)) -> String {
    let mut body = request();
    body["tool_id"] = json!("note.read");
    change(&mut body);
    body.to_string()
}

#[track_caller]
fn check_call(answer: &Answer, status: u16, is_captured: bool, expected: &str) {
    assert_eq!(answer.status, status, "{answer:?}");
    let body = answer.json();
    assert_eq!(body["error"]["code"], "TOOL_EXECUTION_FAILED");
    let message = body["error"]["message"].as_str().unwrap();
    assert!(message.contains(expected), "{message}");
    assert_eq!(body["io_captured"], is_captured, "{body}");
    assert_eq!(body["policy_enforced"], false, "{body}");
    assert_eq!(
        body["error"]["details"]["call_id"].is_string(),
        is_captured || answer.headers.contains_key("x-call-id")
    );
}

#[tokio::test]
async fn a_body_that_names_no_call_is_not_captured() {
    let fixture = Fixture::open().await;
    let long_number =
        changed(|body| body["input"] = json!({"n": 1})).replace(":1}", ":99999999999999999999}");
    for (body, status, expected) in [
        (String::new(), 400, "not valid JSON"),
        ("{".to_owned(), 400, "not valid JSON"),
        ("{\"tool_id\":\"a\",\"tool_id\":\"b\"}".to_owned(), 400, "duplicate key at /tool_id"),
        ("[".repeat(200_000), 400, "deeper than 64"),
        (long_number, 400, "64-bit range at /input/n"),
        ("{\"tool_id\":\"\\ud800\"}".to_owned(), 400, "not valid JSON"),
        ("\u{feff}{}".to_owned(), 400, "not valid JSON"),
        ("[]".to_owned(), 422, "expected an object, got a list"),
        ("null".to_owned(), 422, "expected an object, got null"),
        (
            changed(|body| body["input"]["text"] = json!("x".repeat(3 << 20))),
            413,
            "more than 2097152 bytes",
        ),
    ] {
        for path in ["/v1/tools/execute", "/v1/tools/explain"] {
            let answer = fixture.send("POST", path, &[JSON], body.clone()).await;
            if path == "/v1/tools/execute" {
                check_call(&answer, status, false, expected);
            } else {
                assert_eq!(answer.status, status, "{answer:?}");
                assert!(answer.json()["detail"].as_str().unwrap().contains(expected), "{answer:?}");
            }
        }
    }
    let not_utf8 =
        fixture.send("POST", "/v1/tools/execute", &[JSON], &b"{\"tool_id\":\"\xff\"}"[..]).await;
    check_call(&not_utf8, 400, false, "not valid JSON");
    for headers in
        [&[][..], &[("content-type", "text/plain")], &[JSON, ("content-encoding", "gzip")]]
    {
        let answer = fixture.send("POST", "/v1/tools/execute", headers, changed(|_| {})).await;
        check_call(&answer, 415, false, "expected");
    }
    assert_eq!(fixture.fake.runs("note.read"), 0);
}

#[tokio::test]
async fn a_field_that_is_not_what_it_must_be_is_captured() {
    let fixture = Fixture::open().await;
    let check = async |body: String, expected: &str| {
        check_call(
            &fixture.send("POST", "/v1/tools/execute", &[JSON], body).await,
            422,
            true,
            expected,
        );
    };
    check(changed(|body| body["input"] = json!([1])), "/input: expected an object, got a list")
        .await;
    check(changed(|body| body["input"] = Value::Null), "/input: expected an object, got null")
        .await;
    check(changed(|body| body["run_id"] = json!(7)), "/run_id: expected a string, got 7").await;
    check(
        changed(|body| body["runid"] = json!("x")),
        "/runid: unknown key; known are tool_id, input",
    )
    .await;
    let absent = |id: &'static str| {
        changed(move |body| {
            body.as_object_mut().unwrap().remove(id);
        })
    };
    check(absent("tool_id"), "Tool not found: ").await;
    check(absent("input"), "/input: is required").await;
    check(absent("correlation_id"), "Idempotency key required for tools with side effects").await;
    check(absent("run_id"), "write_scope root must be under /.allternit/").await;
    check(absent("wih_id"), "WIH context required for tool execution").await;
    assert_eq!(fixture.fake.runs("note.read"), 0);
}

#[tokio::test]
async fn an_unusable_id_is_a_refused_call() {
    let fixture = Fixture::open().await;
    for (id, message) in [
        ("correlation_id", "Idempotency key required for tools with side effects"),
        ("run_id", "write_scope root must be under /.allternit/"),
        ("wih_id", "WIH context required for tool execution"),
    ] {
        for unusable in ["", "../run_2", "a/b", "nul\0", &"x".repeat(129), "é", &"漢".repeat(2_000)]
        {
            let answer = fixture
                .send(
                    "POST",
                    "/v1/tools/execute",
                    &[JSON],
                    changed(|body| body[id] = json!(unusable)),
                )
                .await;
            check_call(&answer, 200, true, message);
        }
    }
    for unusable in ["", "../run_2", "nul\0", &"漢".repeat(2_000)] {
        let answer = fixture.execute(unusable, json!({}), "k").await;
        check_call(&answer, 200, false, "Tool not found: ");
    }
    assert_eq!(fixture.fake.runs("note.read"), 0);
}

#[tokio::test]
async fn a_call_with_its_input_alone_is_refused_in_the_same_shape() {
    let fixture = Fixture::open().await;
    let check = async |path: &str,
                       headers: &[(&str, &str)],
                       body: &str,
                       status,
                       is_captured,
                       expected: &str| {
        check_call(
            &fixture.send("POST", path, headers, body.to_owned()).await,
            status,
            is_captured,
            expected,
        );
    };
    let path = "/v1/tools/note.read/call";
    check(path, &[JSON], "{", 400, false, "not valid JSON").await;
    check(path, &[], "{}", 415, false, "content-type is absent").await;
    check(path, &[JSON], "[]", 422, true, "expected the tool's input, an object").await;
    check(path, &[JSON], "\"x\"", 422, true, "expected the tool's input, an object").await;
    check(
        path,
        &[("x-run-id", "../x")],
        "",
        200,
        true,
        "write_scope root must be under /.allternit/",
    )
    .await;
    check(path, &[("x-wih-id", "")], "", 200, true, "WIH context required").await;
    check(path, &[("x-run-id", "a"), ("x-run-id", "b")], "", 422, true, "more than once").await;
    check(
        "/v1/tools/note.add/call",
        &[],
        "",
        200,
        true,
        "Idempotency key required for tools with side effects",
    )
    .await;
    check("/v1/tools/%2e%2e/call", &[], "", 200, false, "Tool not found: ..").await;
    check("/v1/tools/%ff/call", &[], "", 400, false, "UTF-8").await;
}

#[tokio::test]
async fn a_registration_is_refused_as_text() {
    let fixture = Fixture::open().await;
    let check = async |headers: &[(&str, &str)], body: String, status: u16, expected: &str| {
        let answer = fixture.send("POST", "/v1/tools", headers, body).await;
        assert_eq!(answer.status, status, "{answer:?}");
        assert!(answer.body.starts_with("Failed to register tool: "), "{answer:?}");
        assert!(answer.body.contains(expected), "{answer:?}");
    };
    let with = |pointer: &str, value: Value| {
        let mut definition = registration();
        match definition.pointer_mut(pointer) {
            Some(field) => *field = value,
            None => definition[pointer.trim_start_matches('/')] = value,
        }
        definition.to_string()
    };
    check(&[JSON], "{".to_owned(), 400, "not valid JSON").await;
    check(&[], registration().to_string(), 415, "content-type").await;
    check(&[JSON], format!("\"{}\"", "x".repeat(3 << 20)), 413, "2097152").await;
    for (pointer, value, expected) in [
        ("/id", json!("../x"), "/id"),
        ("/unknown", json!(1), "/unknown: unknown key"),
        ("/safety_tier", json!("T7"), "expected one of T0, T1, T2, T3, T4"),
        ("/tool_type", json!("Mcp"), "attaching their server"),
        ("/command", json!("no-such-program-here"), "no-such-program-here"),
        ("/input_schema", json!({"$ref": "http://127.0.0.1:9/s.json"}), "/input_schema"),
    ] {
        check(&[JSON], with(pointer, value), 422, expected).await;
    }
}

#[tokio::test]
async fn a_recursive_schema_is_bounded() {
    let fixture = Fixture::open().await;
    let mut recursive = registration();
    recursive["input_schema"] = json!({
        "$ref": "#/$defs/A",
        "$defs": {"A": {"allOf": [{"$ref": "#/$defs/B"}]}, "B": {"allOf": [{"$ref": "#/$defs/A"}]}},
    });
    let answer = fixture.register(&recursive).await;
    assert!([201, 422].contains(&answer.status), "{answer:?}");
    let deep = format!("{}{{}}{}", "{\"not\":".repeat(10_000), "}".repeat(10_000));
    let body = registration().to_string().replacen("{\"type\":\"object\"}", &deep, 1);
    let answer = fixture.send("POST", "/v1/tools", &[JSON], body).await;
    assert_eq!(answer.status, 400, "{answer:?}");
}

#[tokio::test]
async fn paths_that_name_nothing_are_problems() {
    let fixture = Fixture::open().await;
    for (path, status) in [
        ("/nothing", 404),
        ("/", 404),
        ("/v1/tools/", 404),
        ("/v1/tools/../../etc", 404),
        ("/v1/tools/%2e%2e", 404),
        ("/v1/tools/..%2f..%2fetc", 404),
        ("/v1/tools/a%00b", 404),
        ("/v1/tools/%ff", 400),
        ("/v1/receipts/x", 404),
        ("/v1/receipts/00000000-0000-7000-8000-000000000000", 404),
        ("/v1/receipts/%ff", 400),
        ("/v1/runs/a.b/receipts", 422),
        ("/v1/runs/%2e%2e/receipts", 422),
        ("/v1/runs/run_1/receipts?limit=0", 422),
        ("/v1/runs/run_1/receipts?lmit=1", 422),
    ] {
        let answer = fixture.get(path).await;
        assert_eq!(answer.status, status, "{path}: {answer:?}");
        assert_eq!(answer.header("content-type"), "application/problem+json");
        let problem = answer.json();
        assert_eq!(
            (&problem["type"], &problem["status"]),
            (&json!("about:blank"), &json!(status)),
            "{problem}"
        );
        assert!(problem["title"].is_string() && problem["detail"].is_string(), "{problem}");
    }
}

#[tokio::test]
async fn who_may_not_call_reaches_no_route() {
    let fixture = Fixture::open().await;
    for (header, status) in [
        (("host", "evil.example"), 421),
        (("origin", "https://evil.example"), 403),
        (("authorization", "Bearer x"), 401),
    ] {
        for (method, path) in [
            ("GET", "/health"),
            ("POST", "/v1/tools/execute"),
            ("GET", "/nothing"),
            ("PUT", "/v1/tools"),
            ("OPTIONS", "/health"),
        ] {
            let answer = fixture.send(method, path, &[header, JSON], request().to_string()).await;
            assert_eq!(answer.status, status, "{method} {path}: {answer:?}");
            assert_eq!(answer.json()["status"], status);
            assert_eq!(answer.headers.contains_key("www-authenticate"), status == 401);
            assert!(
                !answer.headers.keys().any(|name| name.as_str().starts_with("access-control-"))
            );
        }
    }
}
