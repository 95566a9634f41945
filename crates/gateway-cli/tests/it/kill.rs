//! kill -9 of the real binary at every step of the line: no effect twice, nothing torn.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use crate::gateway::{Gateway, execute_body, send, signal};

/// The steps as they are logged, in the order of the line.
const STEPS: [&str; 12] = [
    "resolve", "validate", "replay", "prepare", "decide", "confirm", "claim", "admit", "confine",
    "run", "seal", "report",
];
/// Kills at each step.
const KILLS: usize = 17;

#[test]
fn a_killed_gateway_never_acts_twice_and_never_loses_an_answer() {
    let directory = tempfile::tempdir().unwrap();
    let workspace = directory.path().join("work");
    std::fs::create_dir(&workspace).unwrap();
    let home = directory.path().join("home");
    let mut found: BTreeMap<String, usize> = BTreeMap::new();
    let mut number = 0;
    for _ in 0..KILLS {
        for step in STEPS {
            number += 1;
            let key = format!("kill_{number}");
            let answer = kill_at(step, &home, &workspace, &key);
            let after = retry(&home, &workspace, &key, answer.as_ref());
            *found.entry(format!("{step}: {after}")).or_default() += 1;
        }
    }
    // The walk is only worth its name if kills landed on both sides of the effect.
    assert!(found.keys().any(|kind| kind.ends_with("indeterminate")), "{found:?}");
    assert!(found.keys().any(|kind| kind.ends_with("acted anew")), "{found:?}");
    assert!(found.keys().any(|kind| kind.ends_with("replayed")), "{found:?}");
}

fn start(home: &Path, workspace: &Path) -> Gateway {
    let workspace = workspace.to_str().unwrap();
    Gateway::start_at(home, &["--workspace", workspace], &[("ALLTERNIT_LOG", "debug")])
}

fn call(key: &str) -> (String, Value) {
    let input = json!({ "cmd": format!("echo acted >> {key}") });
    (execute_body("bash", &input, key), input)
}

/// Kills the gateway when it logs that it enters a step; returns the answer if there was one.
fn kill_at(step: &str, home: &Path, workspace: &Path, key: &str) -> Option<Value> {
    let mut gateway = start(home, workspace);
    let process = gateway.process();
    let address = gateway.address;
    let (body, _) = call(key);
    let client = std::thread::spawn(move || {
        let headers = [("content-type", "application/json")];
        send(address, "POST", "/v1/tools/execute", &headers, &body).ok().map(|answer| answer.json())
    });
    let needle = format!("step=\"{step}\"");
    while let Ok(line) = gateway.log().recv_timeout(Duration::from_secs(30)) {
        if line.contains(&needle) {
            signal(process, "KILL");
            break;
        }
    }
    gateway.kill();
    client.join().unwrap()
}

/// Sends the same call again after a restart and says what came of it.
fn retry(home: &Path, workspace: &Path, key: &str, first: Option<&Value>) -> &'static str {
    let mut gateway = start(home, workspace);
    let before = effects(workspace, key);
    let answer = gateway.post("/v1/tools/execute", &call(key).0);
    let is_replayed = answer.header("idempotent-replayed").is_some();
    let answer = answer.json();
    let after = effects(workspace, key);
    assert!(after <= 1, "{key} acted {after} times");
    let kind = match (answer["success"].as_bool(), answer["error"]["details"]["kind"].as_str()) {
        (Some(true), None) if is_replayed => {
            assert_eq!((before, after), (1, 1), "{key}: a replay acts on nothing");
            "replayed"
        }
        (Some(true), None) => {
            assert_eq!((before, after), (0, 1), "{key}: {answer}");
            "acted anew"
        }
        (Some(false), Some("indeterminate")) => {
            assert_eq!(before, after, "{key}: an unknown outcome is not tried again");
            "indeterminate"
        }
        other => panic!("{key}: {other:?} in {answer}"),
    };
    if let Some(first) = first.filter(|first| first["success"] == true) {
        assert_eq!(
            (kind, &first["output"]),
            ("replayed", &answer["output"]),
            "{key} was answered before"
        );
    }
    let receipts = gateway.get("/v1/runs/run_1/receipts?limit=100");
    assert_eq!(receipts.status, 200, "{receipts:?}");
    assert!(gateway.stop().success());
    kind
}

fn effects(workspace: &Path, key: &str) -> usize {
    std::fs::read_to_string(workspace.join(key)).map_or(0, |text| text.lines().count())
}
