//! Secrets: given to a process when its call runs, and taken out of everything it gives back.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use gateway_engine::CallReport;
use gateway_model::wire::RegisterTool;
use gateway_model::{Digest, Principal, ToolOutput};
use serde_json::{Value, json};

use crate::fixture::{Fixture, TOKEN, put};

async fn with_shell(environment: Value) -> Fixture {
    let fixture = Fixture::with(&[]).await;
    fixture
        .register("sh", "/bin/bash", |definition| {
            definition["args"] = json!(["-c", "{{value}}"]);
            definition["env"] = environment;
            definition["side_effects"] = json!(["process"]);
        })
        .await
        .unwrap();
    fixture
}

/// Returns all that is told of a call: its answer and its whole receipt.
async fn told(fixture: &Fixture, report: &CallReport) -> String {
    let answer = match &report.result {
        Ok(output) => ToolOutput::to_json(output),
        Err(error) => error.to_json(),
    };
    let receipt = fixture.gateway.receipt(report.receipt.unwrap()).await.unwrap().unwrap();
    format!("{answer}\n{receipt}")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_gets_the_value_and_what_it_prints_does_not_hold_it() {
    let fixture =
        with_shell(json!({ "T": "secret:TOKEN", "H": "Bearer secret:TOKEN", "LANG": "C" })).await;
    let digest = |text: &str| Digest::of(text.as_bytes()).to_string().replace("sha256:", "");
    let script = json!({ "value": "for v in \"$T\" \"$H\" \"$LANG\"; do printf %s \"$v\" | sha256sum | cut -d' ' -f1; done" });
    let output = fixture.succeeds("sh", script).await;
    let expected = [TOKEN, &format!("Bearer {TOKEN}"), "C"].map(digest).join("\n");
    assert_eq!(output, json!({ "raw_output": format!("{expected}\n") }));

    for (script, expected) in [
        ("printf %s \"$T\"", "[secret:TOKEN]"),
        ("printf %s \"$T\" | base64 -w0", "[secret:TOKEN]"),
        ("printf %s \"$T\" | od -An -tx1 | tr -d ' \\n'", "[secret:TOKEN]"),
        ("echo \"$H\" >&2; exit 1", "Bearer [secret:TOKEN]"),
        ("\"$T\"", "[secret:TOKEN]: No such file or directory"),
        ("yes \"$T\" | head -c 1500000", "[secret:TOKEN]"),
        ("printf '\\xff%s' \"$T\"; kill -9 $$", "[secret:TOKEN]"),
    ] {
        let report = fixture.report("sh", json!({ "value": script })).await;
        let told = told(&fixture, &report).await;
        assert!(told.contains(expected), "{script}: {told}");
        for spelling in ["s3ntinel", "czNudGluZWw", "73336e74696e656c"] {
            assert!(!told.contains(spelling), "{script}: {told}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_that_is_not_set_starts_nothing_and_uses_no_key() {
    let fixture = with_shell(json!({ "T": "secret:NEVER_SET" })).await;
    let context = fixture.context();
    for _again in 0..2 {
        let call = fixture.gateway.execute(context.clone(), "sh", json!({ "value": "touch x" }));
        let error = call.await.result.unwrap_err();
        assert_eq!(
            (error.kind.as_str(), error.message.as_str(), error.is_retryable),
            (
                "unavailable",
                "secret NEVER_SET is not set; the operator sets it with `secrets set NEVER_SET`",
                false
            )
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_gets_the_secrets_of_its_registry() {
    let fixture = Fixture::with_workers(&[], |outside| {
        put(
            outside,
            "worker",
            "#!/bin/bash\nprintf '[\"%s\"]' \"${#T}\"; echo \"$T\" >&2; exit ${1:-0}\n",
        );
        let program = outside.join("worker");
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        vec![json!({
            "worker_id": "w", "command": program, "args_template": ["{{code}}"],
            "env": { "T": "secret:TOKEN" },
        })]
    })
    .await;
    fixture
        .register("worker.tool", "", |definition| {
            definition["tool_type"] = json!("Subprocess");
            definition["subprocess"] = json!({ "worker_id": "w" });
            definition["input_schema"]["properties"] = json!({ "code": {} });
        })
        .await
        .unwrap();
    let length = TOKEN.chars().count().to_string();
    assert_eq!(fixture.succeeds("worker.tool", json!({})).await, json!([length]));
    let report = fixture.report("worker.tool", json!({ "code": 2 })).await;
    let told = told(&fixture, &report).await;
    assert!(told.contains("[secret:TOKEN]") && !told.contains("s3ntinel"), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn only_an_operator_gives_a_secret_to_a_tool() {
    let fixture = Fixture::with(&[]).await;
    let definition = json!({
        "id": "printenv", "name": "printenv", "description": "", "tool_type": "Local",
        "command": "printenv", "env": { "T": "secret:TOKEN" },
        "input_schema": { "type": "object" }, "output_schema": {},
        "side_effects": [], "idempotency_behavior": "idempotent", "retryable": false,
        "failure_classification": "none", "safety_tier": "T1",
        "resource_limits": {
            "cpu": null, "memory": null, "network": "None", "filesystem": "None", "time_limit": 30,
        },
    });
    let registration = RegisterTool::read(definition).unwrap();
    let denied = fixture.gateway.register(Principal::Local, registration.clone()).await;
    let denied = denied.unwrap_err().to_string();
    assert!(denied.starts_with("policy denies it: "), "{denied}");
    let registered = fixture.gateway.register(Principal::Operator, registration).await.unwrap();
    assert_eq!(registered.tool.registration["env"], json!({ "T": "secret:TOKEN" }));
}
