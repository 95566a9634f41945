//! The wire contract's own session, as curl sends it: same keys, types and values.

use serde_json::{Value, json};

use crate::gateway::Gateway;

/// Runs a shell line against the gateway; the contract's port is replaced by the gateway's own.
fn shell(gateway: &Gateway, line: &str) -> String {
    let line = line.replace("127.0.0.1:3510", &gateway.address.to_string());
    let output = std::process::Command::new("bash").args(["-c", &line]).output().unwrap();
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn shell_json(gateway: &Gateway, line: &str) -> Value {
    let text = shell(gateway, line);
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

const EXECUTE: &str = r#"curl -s -X POST http://127.0.0.1:3510/v1/tools/execute \
  -H "Content-Type: application/json" \
  -d '{
    "tool_id": "echo.test",
    "input": { "message": "hello" },
    "correlation_id": "corr_abc123",
    "run_id": "run_xyz789",
    "wih_id": "wih_456"
  }'"#;

const REGISTER: &str = r#"curl -s -w '\n%{http_code}' -X POST http://127.0.0.1:3510/v1/tools \
  -H "Content-Type: application/json" \
  -d '{
    "id": "echo.test",
    "name": "Echo Test Tool",
    "description": "Returns the input unchanged",
    "tool_type": "Local",
    "command": "echo",
    "endpoint": "",
    "input_schema": {
      "type": "object",
      "properties": { "message": { "type": "string" } },
      "required": ["message"]
    },
    "output_schema": { "type": "object" },
    "side_effects": [],
    "idempotency_behavior": "idempotent",
    "retryable": false,
    "failure_classification": "transient",
    "safety_tier": "T0",
    "resource_limits": {
      "cpu": null,
      "memory": null,
      "network": "None",
      "filesystem": "None",
      "time_limit": 30
    },
    "subprocess": null
  }'"#;

#[test]
fn the_contracts_session_works_as_written() {
    let gateway = Gateway::start(&[]);

    let health = shell_json(&gateway, "curl -s -X GET http://127.0.0.1:3510/health");
    let keys: Vec<&str> = health.as_object().unwrap().keys().take(4).map(String::as_str).collect();
    assert_eq!(keys, ["status", "service", "version", "ontology_compliance"]);
    assert_eq!(health["status"], "ok");
    assert_eq!(health["service"], "allternit-io-service");
    assert_eq!(health["version"], "0.1.0");
    assert_eq!(health["ontology_compliance"], true);

    let mut unknown = shell_json(&gateway, EXECUTE);
    let details = unknown["error"]["details"].take();
    assert_eq!(
        unknown,
        json!({
            "success": false,
            "output": null,
            "error": {
                "code": "TOOL_EXECUTION_FAILED",
                "message": "Tool not found: echo.test",
                "details": null,
            },
            "io_captured": false,
            "policy_enforced": false,
        })
    );
    assert_eq!(details["kind"], "not_found");

    assert_eq!(shell(&gateway, REGISTER), "Tool registered: echo.test\n201");
    assert_eq!(shell(&gateway, REGISTER), "Tool registered: echo.test\n201");

    assert_eq!(
        shell_json(&gateway, EXECUTE),
        json!({
            "success": true,
            "output": { "raw_output": "hello\n" },
            "error": null,
            "io_captured": true,
            "policy_enforced": true,
        })
    );

    let tools = shell_json(&gateway, "curl -s -X GET http://127.0.0.1:3510/v1/tools");
    let echo = tools.as_array().unwrap().iter().find(|tool| tool["id"] == "echo.test").unwrap();
    let registered: Value = {
        let body = REGISTER.split("-d '").nth(1).unwrap().trim_end_matches('\'');
        serde_json::from_str(body).unwrap()
    };
    for (key, value) in registered.as_object().unwrap() {
        assert_eq!(&echo[key], value, "{key}");
    }
    let ids: Vec<&str> =
        tools.as_array().unwrap().iter().map(|tool| tool["id"].as_str().unwrap()).collect();
    assert!(ids.is_sorted(), "{ids:?}");
}

#[test]
fn a_registration_outlives_the_process_and_is_not_overwritten() {
    let directory = tempfile::tempdir().unwrap();
    let home = directory.path().join("home");
    let mut gateway = Gateway::start_at(&home, &[], &[]);
    assert_eq!(shell(&gateway, REGISTER), "Tool registered: echo.test\n201");
    assert!(gateway.stop().success());

    let gateway = Gateway::start_at(&home, &[], &[]);
    assert_eq!(shell_json(&gateway, EXECUTE)["output"], json!({"raw_output": "hello\n"}));
    let other = shell(&gateway, &REGISTER.replace("Returns the input unchanged", "Something else"));
    let (reason, status) = other.rsplit_once('\n').unwrap();
    assert_eq!(status, "409");
    assert!(reason.starts_with("Failed to register tool: "), "{reason}");
    let spelled = shell(&gateway, &REGISTER.replace("\"echo.test\"", "\"Echo-Test\""));
    assert!(spelled.ends_with("409"), "{spelled}");
}
