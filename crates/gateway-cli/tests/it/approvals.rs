//! Approvals over the binary: asked, watched, answered on the command line, and used after a kill.

use std::io::{BufRead, BufReader};
use std::process::{Output, Stdio};

use serde_json::{Value, json};

use crate::gateway::{Gateway, command};

fn definition() -> Value {
    json!({
        "id": "disk_erase", "name": "Erase a disk", "description": "Erases one disk",
        "tool_type": "Local", "command": "echo",
        "input_schema": {"type": "object", "properties": {"disk": {"type": "string"}}},
        "output_schema": {"type": "object"},
        "side_effects": ["filesystem"], "idempotency_behavior": "not_idempotent", "retryable": false,
        "failure_classification": "none", "safety_tier": "T3",
        "resource_limits": {"network": "None", "filesystem": "None", "time_limit": 60},
    })
}

fn erase(gateway: &Gateway) -> Output {
    gateway.cli(&["call", "disk_erase", "{\"disk\":\"sdb\"}", "--key", "erase_7", "-o", "json"])
}

fn approvals(gateway: &Gateway, arguments: &[&str]) -> (Option<i32>, String) {
    let output = gateway.cli(&[&["approvals"], arguments].concat());
    let mut printed = String::from_utf8(output.stdout).unwrap();
    printed.push_str(&String::from_utf8_lossy(&output.stderr));
    (output.status.code(), printed)
}

/// Returns the first approval that `watch` prints.
fn watched(gateway: &Gateway) -> Value {
    let mut watching = command(&gateway.home)
        .args(["--port", &gateway.address.port().to_string(), "approvals", "watch", "-o", "json"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(watching.stdout.take().unwrap()).read_line(&mut line).unwrap();
    watching.kill().unwrap();
    watching.wait().unwrap();
    serde_json::from_str(&line).unwrap()
}

#[test]
fn an_operator_answers_on_the_command_line_and_the_call_acts_once() {
    let directory = tempfile::tempdir().unwrap();
    let home = directory.path().join("home");
    let mut gateway = Gateway::start_at(&home, &[], &[]);
    assert_eq!(gateway.register(&definition()).status, 201);
    let asked = erase(&gateway);
    assert_eq!(asked.status.code(), Some(4), "{asked:?}");
    let advice = String::from_utf8_lossy(&asked.stderr);
    assert!(advice.contains("once approved: the same command with --key erase_7"), "{advice}");
    let approval = watched(&gateway);
    assert_eq!(approval["input"], json!({"disk": "sdb"}));
    let id = approval["approval_id"].as_str().unwrap();
    let (code, listed) = approvals(&gateway, &["list"]);
    assert!(code == Some(0) && listed.contains(id) && listed.contains("gate.t3"), "{listed}");
    let (_, shown) = approvals(&gateway, &["show", id]);
    assert!(shown.contains("input      {\"disk\":\"sdb\"}"), "{shown}");

    gateway.kill();
    let mut gateway = Gateway::start_at(&home, &[], &[]);
    let (code, approved) = approvals(&gateway, &["approve", id, "--reason", "wiped before"]);
    assert_eq!((code, approved), (Some(0), format!("approved: disk_erase ({id})\n")));
    let (code, late) = approvals(&gateway, &["deny", id]);
    assert!(code == Some(1) && late.contains("was already approved by operator at"), "{late}");

    gateway.kill();
    let gateway = Gateway::start_at(&home, &[], &[]);
    for _first_and_replay in 0..2 {
        let acted = erase(&gateway);
        assert_eq!(acted.status.code(), Some(0), "{acted:?}");
        let answer: Value = serde_json::from_slice(&acted.stdout).unwrap();
        assert_eq!(answer["output"], json!({"raw_output": "sdb\n"}));
    }
    let (_, used) = approvals(&gateway, &["list", "--state", "used", "-o", "json"]);
    let used: Value = serde_json::from_str(&used).unwrap();
    assert_eq!(
        (&used[0]["approval_id"], &used[0]["answer_reason"]),
        (&json!(id), &json!("wiped before"))
    );
    let (code, ended) = approvals(&gateway, &["revoke", id]);
    assert!(code == Some(1) && ended.contains("approved and used"), "{ended}");
}
