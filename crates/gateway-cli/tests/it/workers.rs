//! A worker of the operator's registry, through the binary: registered, called, called again, lost.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::{Value, json};

use crate::gateway::{Gateway, command};

/// Writes a line for each time it acts; `crash` ends it in the middle.
const WORKER: &str = "#!/bin/bash\n\
    read -r input\n\
    echo acted >> log\n\
    case \"$input\" in *crash*) kill -KILL $$;; esac\n\
    printf '{\"input\": %s, \"token\": \"%s\"}\\n' \"$input\" \"$WORKER_MODE\"\n";

fn write_registry(home: &Path, workers: &Value) {
    fs::create_dir_all(home.join("workers")).unwrap();
    let registry = json!({ "version": 1, "workers": workers });
    fs::write(home.join("workers/worker_registry.json"), registry.to_string()).unwrap();
}

fn install(directory: &Path) -> Value {
    let program = directory.join("worker");
    fs::write(&program, WORKER).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    json!([{
        "worker_id": "journal.writer",
        "description": "Writes a line",
        "command": program,
        "args_template": [],
        "cwd_policy": "run_artifacts_dir",
        "env_allowlist": ["WORKER_MODE"],
        "fs_policy": {
            "must_be_run_scoped": true,
            "allowed_output_roots": ["/.allternit/artifacts/{run_id}/**"],
        },
        "timeouts": { "wall_ms": 20000 },
        "output_limits": { "max_stdout_bytes": 4096, "max_stderr_bytes": 4096 },
    }])
}

fn tool() -> Value {
    json!({
        "id": "journal.write", "name": "Write a line", "description": "Writes a line",
        "tool_type": "Subprocess", "command": "", "endpoint": "",
        "subprocess": { "worker_id": "journal.writer" },
        "input_schema": { "type": "object" }, "output_schema": {},
        "side_effects": ["filesystem"], "idempotency_behavior": "not_idempotent",
        "retryable": false, "failure_classification": "permanent", "safety_tier": "T2",
        "resource_limits": {
            "cpu": null, "memory": null, "network": "None",
            "filesystem": { "ReadWrite": ["/.allternit/artifacts/{run_id}/**"] }, "time_limit": 30,
        },
    })
}

fn start(home: &Path) -> Gateway {
    Gateway::start_at(home, &[], &[("WORKER_MODE", "quiet"), ("NOT_ALLOWED", "loud")])
}

fn lines(home: &Path) -> usize {
    fs::read_to_string(home.join("artifacts/run_1/log")).unwrap().lines().count()
}

#[test]
fn a_worker_acts_once_under_its_key_and_its_crash_is_an_outcome() {
    let directory = tempfile::tempdir().unwrap();
    let home = directory.path().join("home");
    write_registry(&home, &install(directory.path()));
    let mut gateway = start(&home);
    let registered = gateway.register(&tool());
    assert_eq!(
        (registered.status, registered.body.as_str()),
        (201, "Tool registered: journal.write")
    );

    let input = json!({ "message": "hello" });
    let answer = gateway.execute("journal.write", &input, "key_1");
    assert_eq!(answer["output"], json!({ "input": input, "token": "quiet" }), "{answer}");
    assert_eq!(gateway.execute("journal.write", &input, "key_1"), answer);
    assert_eq!(lines(&home), 1);

    let crashed = gateway.execute("journal.write", &json!({ "message": "crash" }), "key_2");
    let error = &crashed["error"];
    assert_eq!(error["message"], "worker journal.writer was ended by signal 9", "{crashed}");
    assert_eq!(
        (&error["details"]["kind"], &error["details"]["signal"]),
        (&json!("execution"), &json!(9))
    );
    let again = gateway.execute("journal.write", &json!({ "message": "crash" }), "key_2");
    assert_eq!((&again["error"]["message"], lines(&home)), (&error["message"], 2));

    let receipt = error["details"]["receipt_id"].as_str().unwrap();
    let receipt = gateway.get(&format!("/v1/receipts/{receipt}")).json();
    let manifest = receipt["bundle"]["artifacts"]["content"].as_str().unwrap();
    let manifest: Value = serde_json::from_str(manifest).unwrap();
    assert_eq!(manifest["files"][0]["path"], "/.allternit/artifacts/run_1/log", "{manifest}");
    assert_eq!(manifest["files"][0]["size_bytes"], 12);

    gateway.kill();
    let gateway = start(&home);
    assert_eq!(gateway.execute("journal.write", &input, "key_1"), answer);
    let answer = gateway.execute("journal.write", &input, "key_3");
    assert_eq!((&answer["success"], lines(&home)), (&json!(true), 3));
}

#[test]
fn the_registry_is_listed_and_a_broken_one_stops_the_start() {
    let directory = tempfile::tempdir().unwrap();
    let home = directory.path().join("home");
    let list = |arguments: &[&str]| {
        command(&home).args(["workers", "list"]).args(arguments).output().unwrap()
    };
    let none = list(&["-o", "json"]);
    assert_eq!((none.status.code(), none.stdout.as_slice()), (Some(0), b"[]\n".as_slice()));

    write_registry(&home, &install(directory.path()));
    let listed: Value = serde_json::from_slice(&list(&["-o", "json"]).stdout).unwrap();
    assert_eq!(listed[0]["worker"]["worker_id"], "journal.writer");
    assert_eq!(listed[0]["worker"]["timeouts"], json!({ "wall_ms": 20000, "cpu_ms": null }));
    let table = String::from_utf8(list(&[]).stdout).unwrap();
    assert!(table.starts_with("WORKER") && table.contains("Writes a line"), "{table}");

    write_registry(&home, &json!([{ "worker_id": "w", "command": "/no/such/program" }]));
    for arguments in [&["workers", "list"][..], &["serve", "--port", "0"]] {
        let refused = command(&home).args(arguments).output().unwrap();
        let said = String::from_utf8(refused.stderr).unwrap();
        assert_eq!(refused.status.code(), Some(5), "{said}");
        assert!(
            said.contains("worker_registry.json: worker w") && said.contains("/no/such/program"),
            "{said}"
        );
    }
    let elsewhere = command(&home)
        .args(["workers", "list"])
        .env("ALLTERNIT_WORKER_REGISTRY_PATH", directory.path().join("none.json"))
        .output()
        .unwrap();
    assert_eq!(elsewhere.status.code(), Some(5));
}
