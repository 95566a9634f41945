//! Bad input gets one clear error, panics nothing, and loses nothing.

use serde_json::{Value, json};

use crate::gateway::Gateway;

const JSON: [(&str, &str); 1] = [("content-type", "application/json")];

/// Sends a body to execute; expects a status, the five keys, and words in the message.
#[track_caller]
fn check_execute(gateway: &Gateway, body: &str, status: u16, expected: &str) {
    let answer = gateway.request("POST", "/v1/tools/execute", &JSON, body);
    assert_eq!(answer.status, status, "{answer:?}");
    let answer = answer.json();
    let keys: Vec<&str> = answer.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(keys, ["success", "output", "error", "io_captured", "policy_enforced"]);
    assert_eq!(answer["success"], false);
    assert_eq!(answer["output"], Value::Null);
    assert_eq!(answer["error"]["code"], "TOOL_EXECUTION_FAILED");
    let message = answer["error"]["message"].as_str().unwrap();
    assert!(message.contains(expected), "{message}");
}

fn body(change: impl FnOnce(&mut Value)) -> String {
    let mut body = json!({
        "tool_id": "file_read", "input": {"path": "x"}, "correlation_id": "c_1", "run_id": "run_1", "wih_id": "w_1",
    });
    change(&mut body);
    body.to_string()
}

#[test]
fn execute_answers_every_malformed_body_with_one_clear_error() {
    let gateway = Gateway::start(&[]);
    let check =
        |body: &str, status, expected: &str| check_execute(&gateway, body, status, expected);
    check("", 400, "not valid JSON");
    check("{", 400, "not valid JSON");
    check("{\"tool_id\": \"a\", \"tool_id\": \"b\"}", 400, "duplicate key");
    check(&"[".repeat(200_000), 400, "deeper than 64");
    check(
        &body(|body| body["input"] = json!({"n": 1})).replace(":1}", ":99999999999999999999}"),
        400,
        "64-bit range",
    );
    check(
        &body(|body| body["input"] = json!({"n": 1})).replace(":1}", ":1e999}"),
        400,
        "number out of range",
    );
    check("{\"tool_id\":\"\\ud800\"}", 400, "not valid JSON");
    check("[]", 422, "expected an object");
    check("null", 422, "expected an object");
    check(&body(|body| body["input"] = json!([1])), 422, "/input: expected an object");
    check(&body(|body| body["input"] = json!("x")), 422, "/input: expected an object");
    check(&body(|body| body["run_id"] = json!(7)), 422, "/run_id: expected a string");
    check(&body(|body| body["runid"] = json!("x")), 422, "/runid: unknown key");
    for (id, message) in [
        ("tool_id", "Tool not found"),
        ("correlation_id", "Idempotency key required for tools with side effects"),
        ("run_id", "write_scope root must be under /.allternit/"),
        ("wih_id", "WIH context required for tool execution"),
    ] {
        let absent = body(|body| {
            body.as_object_mut().unwrap().remove(id);
        });
        check(&absent, 422, message);
        for unusable in ["", "../run_2", "a/b", "nul\0", &"x".repeat(129), "é"] {
            let unusable = body(|body| body[id] = json!(unusable));
            check(&unusable, 200, message);
        }
    }
    check(&body(|body| body["input"]["path"] = json!(7)), 200, "/path");
    check(&body(|body| body["input"]["extra"] = json!(7)), 200, "extra");
    check(&body(|body| body["input"] = json!({})), 200, "path");
}

#[test]
fn the_body_must_be_json_of_a_bounded_size() {
    let gateway = Gateway::start(&[]);
    let huge = body(|body| body["input"]["path"] = json!("x".repeat(3 << 20)));
    check_execute(&gateway, &huge, 413, "2097152");
    for headers in
        [&[][..], &[("content-type", "text/plain")], &[("content-type", "application/jsonx")]]
    {
        let answer = gateway.request("POST", "/v1/tools/execute", headers, &body(|_| {}));
        assert_eq!(answer.status, 415, "{answer:?}");
    }
    let charset = [("content-type", "application/json; charset=utf-8")];
    assert_eq!(gateway.request("POST", "/v1/tools/execute", &charset, &body(|_| {})).status, 200);
}

#[test]
fn a_browser_and_a_foreign_host_are_refused() {
    let gateway = Gateway::start(&[]);
    for (header, value) in [
        ("host", "evil.example"),
        ("origin", "https://evil.example"),
        ("authorization", "Bearer x"),
    ] {
        let answer = gateway.request("GET", "/v1/tools", &[(header, value)], "");
        assert!((400..500).contains(&answer.status), "{header}: {answer:?}");
    }
    assert_eq!(gateway.request("GET", "/v1/tools", &[("host", "127.0.0.1:1")], "").status, 200);
}

#[test]
fn paths_that_name_nothing_are_answered_clearly() {
    let gateway = Gateway::start(&[]);
    for path in [
        "/v1/tools/%2e%2e",
        "/v1/tools/a%00b",
        "/v1/tools/../../etc",
        "/nothing",
        "/v1/receipts/x",
        "/v1/tools/%ff",
    ] {
        let answer = gateway.get(path);
        assert!((400..500).contains(&answer.status), "{path}: {answer:?}");
        let problem = answer.json();
        assert!(
            problem["title"].is_string() && problem["status"] == answer.status,
            "{path}: {problem}"
        );
    }
    let answer = gateway.request("PUT", "/v1/tools", &JSON, "{}");
    assert_eq!(answer.status, 405);
    assert!(answer.header("allow").unwrap().contains("POST"), "{answer:?}");
}

/// Sends a registration with one field changed; expects a status and words in the reason.
#[track_caller]
fn check_register(gateway: &Gateway, pointer: &str, value: Value, status: u16, expected: &str) {
    let mut definition = definition("bad.tool");
    match definition.pointer_mut(pointer) {
        Some(field) => *field = value,
        None => definition[pointer.trim_start_matches('/')] = value,
    }
    let answer = gateway.post("/v1/tools", &definition.to_string());
    assert_eq!(answer.status, status, "{answer:?}");
    assert!(answer.body.starts_with("Failed to register tool: "), "{}", answer.body);
    assert!(answer.body.contains(expected), "{}", answer.body);
}

fn definition(id: &str) -> Value {
    json!({
        "id": id, "name": "Bad", "description": "", "tool_type": "Local", "command": "echo", "endpoint": "",
        "input_schema": {"type": "object"}, "output_schema": {"type": "object"}, "side_effects": [],
        "idempotency_behavior": "idempotent", "retryable": false, "failure_classification": "none",
        "safety_tier": "T0", "subprocess": null,
        "resource_limits": {"cpu": null, "memory": null, "network": "None", "filesystem": "None", "time_limit": 5},
    })
}

#[test]
fn a_registration_that_cannot_work_is_refused_with_its_field() {
    let gateway = Gateway::start(&[]);
    let check = |pointer: &str, value, status, expected: &str| {
        check_register(&gateway, pointer, value, status, expected)
    };
    check("/id", json!("../x"), 422, "/id");
    check("/tool_type", json!("Mcp"), 422, "attaching their server");
    check("/tool_type", json!("Http"), 422, "/command");
    check("/tool_type", json!("Sdk"), 422, "/command");
    check("/safety_tier", json!("T7"), 422, "expected one of T0, T1, T2, T3, T4");
    check("/unknown", json!(1), 422, "/unknown: unknown key");
    check("/command", json!("no-such-program-here"), 422, "no-such-program-here");
    check("/command", json!("/etc"), 422, "/etc");
    check("/command", json!("/etc/passwd"), 422, "/etc/passwd");
    check("/command", json!("echo hello"), 422, "echo hello");
    for entry in ["*.org", "https://a.example"] {
        let value = json!({ "DomainAllowlist": [entry] });
        check("/resource_limits/network", value, 422, "/resource_limits/network: the entry");
    }
    check(
        "/resource_limits/filesystem",
        json!({"Allowlist": ["/etc"]}),
        422,
        "write_scope root must be under /.allternit/",
    );
    check(
        "/resource_limits/filesystem",
        json!({"Allowlist": ["/.allternit/artifacts/{run_id}/../run_2"]}),
        422,
        "holds \"..\"",
    );
    check("/args", json!(["{{missing}}"]), 422, "no property of input_schema");
    check("/input_schema", json!({"$ref": "http://127.0.0.1:9/s.json"}), 422, "/input_schema");
    check(
        "/input_schema",
        json!({"properties": {"a": {"pattern": "((a{1000}){1000}){1000}"}}}),
        422,
        "/input_schema",
    );
    let mut deep = json!({"type": "object"});
    for _ in 0..40 {
        deep = json!({"properties": {"x": deep}});
    }
    check("/input_schema", deep, 400, "deeper than 64");
}

#[test]
fn a_recursive_schema_is_bounded_not_fatal() {
    let gateway = Gateway::start(&[]);
    let mut tool = definition("recursive.tool");
    tool["input_schema"] = json!({
        "$ref": "#/$defs/A",
        "$defs": {"A": {"allOf": [{"$ref": "#/$defs/B"}]}, "B": {"allOf": [{"$ref": "#/$defs/A"}]}},
    });
    assert_eq!(gateway.post("/v1/tools", &tool.to_string()).status, 201);
    assert_eq!(gateway.execute("recursive.tool", &json!({}), "c_1")["success"], true);
}

#[test]
fn integers_keep_every_digit_from_input_to_output() {
    let gateway = Gateway::start(&[]);
    let mut tool = definition("digits.tool");
    tool["args"] = json!(["{{n}}"]);
    tool["input_schema"] = json!({"type": "object", "properties": {"n": {"type": "integer"}}});
    tool["output_schema"] = json!({});
    assert_eq!(gateway.post("/v1/tools", &tool.to_string()).status, 201);
    for digits in ["9007199254740993", "18446744073709551615", "-9223372036854775808"] {
        let body = body(|body| {
            body["tool_id"] = json!("digits.tool");
            body["input"] = json!({"n": "DIGITS"});
        });
        let answer = gateway.post("/v1/tools/execute", &body.replace("\"DIGITS\"", digits));
        assert!(answer.body.contains(&format!("\"output\":{digits},")), "{}", answer.body);
    }
}
