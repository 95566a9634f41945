//! Effects happen once: retries, races, time-outs, restarts, other inputs.

use std::path::Path;

use serde_json::{Value, json};

use crate::gateway::{Gateway, execute_body, send};

struct Scene {
    _directory: tempfile::TempDir,
    home: std::path::PathBuf,
    workspace: std::path::PathBuf,
}

impl Scene {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let workspace = directory.path().join("work");
        std::fs::create_dir(&workspace).unwrap();
        Self { home: directory.path().join("home"), workspace, _directory: directory }
    }

    fn start(&self) -> Gateway {
        Gateway::start_at(&self.home, &["--workspace", self.workspace.to_str().unwrap()], &[])
    }

    fn count(&self, name: &str) -> usize {
        lines(&self.workspace.join(name))
    }
}

fn lines(path: &Path) -> usize {
    std::fs::read_to_string(path).map_or(0, |text| text.lines().count())
}

fn kind(answer: &Value) -> &str {
    answer["error"]["details"]["kind"].as_str().unwrap_or("none")
}

fn act(name: &str) -> Value {
    json!({ "cmd": format!("echo acted >> {name}; sleep 0.2; date +%N") })
}

#[test]
fn a_retry_gets_the_first_outcome_and_another_input_is_a_conflict() {
    let scene = Scene::new();
    let mut gateway = scene.start();
    let first = gateway.execute("bash", &act("a"), "key_1");
    assert_eq!(gateway.execute("bash", &act("a"), "key_1"), first);
    assert_eq!(kind(&gateway.execute("bash", &act("b"), "key_1")), "conflict");
    assert!(gateway.stop().success());

    let gateway = scene.start();
    assert_eq!(gateway.execute("bash", &act("a"), "key_1"), first);
    assert_eq!((scene.count("a"), scene.count("b")), (1, 0));
}

#[test]
fn two_calls_with_one_key_at_once_act_once_and_answer_alike() {
    let scene = Scene::new();
    let gateway = scene.start();
    let address = gateway.address;
    let callers: Vec<_> = (0..8)
        .map(|_| {
            std::thread::spawn(move || {
                let headers = [("content-type", "application/json")];
                let body = execute_body("bash", &act("once"), "key_1");
                send(address, "POST", "/v1/tools/execute", &headers, &body).unwrap().json()
            })
        })
        .collect();
    let answers: Vec<Value> = callers.into_iter().map(|caller| caller.join().unwrap()).collect();
    assert_eq!(scene.count("once"), 1);
    let outputs: Vec<&Value> = answers
        .iter()
        .filter(|answer| answer["success"] == true)
        .map(|answer| &answer["output"])
        .collect();
    assert!(
        !outputs.is_empty() && outputs.windows(2).all(|pair| pair[0] == pair[1]),
        "{answers:?}"
    );
    for refused in answers.iter().filter(|answer| answer["success"] == false) {
        assert_eq!(kind(refused), "in_progress");
    }
}

#[test]
fn a_call_that_timed_out_after_its_effect_is_not_run_again() {
    let scene = Scene::new();
    let gateway = scene.start();
    let tool = json!({
        "id": "commit.then.hang", "name": "Hang", "description": "", "tool_type": "Local", "command": "bash",
        "args": ["-c", "echo acted >> /workspace/work/hang; sleep 600"], "endpoint": "",
        "input_schema": {"type": "object"}, "output_schema": {}, "side_effects": ["filesystem"],
        "idempotency_behavior": "not_idempotent", "retryable": false, "failure_classification": "none",
        "safety_tier": "T2", "subprocess": null,
        "resource_limits": {
            "cpu": null, "memory": null, "network": "None", "filesystem": {"ReadWrite": ["/workspace/work/**"]},
            "time_limit": 1,
        },
    });
    let registered = gateway.post("/v1/tools", &tool.to_string());
    assert_eq!(registered.status, 201, "{registered:?}");
    let first = gateway.execute("commit.then.hang", &json!({}), "key_1");
    assert_eq!(kind(&first), "timeout", "{first}");
    let second = gateway.execute("commit.then.hang", &json!({}), "key_1");
    assert_eq!(kind(&second), "indeterminate", "{second}");
    assert_eq!(scene.count("hang"), 1);
}

#[test]
fn a_caller_that_leaves_does_not_stop_its_call() {
    let scene = Scene::new();
    let gateway = scene.start();
    let body = execute_body("bash", &act("left"), "key_1");
    let mut stream = std::net::TcpStream::connect(gateway.address).unwrap();
    let head = format!(
        "POST /v1/tools/execute HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    std::io::Write::write_all(&mut stream, head.as_bytes()).unwrap();
    drop(stream);
    // The retry joins the call that still runs, or gets its outcome; it never acts.
    let answer = gateway.execute("bash", &act("left"), "key_1");
    assert_eq!(answer["success"], true, "{answer}");
    assert_eq!(scene.count("left"), 1);
}

#[test]
fn a_tool_with_side_effects_needs_a_key_and_a_dangerous_one_asks() {
    let scene = Scene::new();
    let gateway = scene.start();
    let headers = [("content-type", "application/json")];
    let answer =
        gateway.request("POST", "/v1/tools/bash/call", &headers, r#"{"cmd":"true"}"#).json();
    assert_eq!(answer["error"]["message"], "Idempotency key required for tools with side effects");
    assert_eq!((&answer["io_captured"], &answer["policy_enforced"]), (&json!(true), &json!(false)));

    let mut tool = json!({
        "id": "danger", "name": "Danger", "description": "", "tool_type": "Local", "command": "true", "endpoint": "",
        "input_schema": {"type": "object"}, "output_schema": {}, "side_effects": ["world"],
        "idempotency_behavior": "not_idempotent", "retryable": false, "failure_classification": "none",
        "safety_tier": "T3", "subprocess": null,
        "resource_limits": {"cpu": null, "memory": null, "network": "None", "filesystem": "None", "time_limit": 5},
    });
    assert_eq!(gateway.post("/v1/tools", &tool.to_string()).status, 403);
    assert_eq!(gateway.register(&tool).status, 201);
    let asked = gateway.execute("danger", &json!({}), "key_1");
    assert_eq!(kind(&asked), "approval_required", "{asked}");
    assert_eq!((&asked["io_captured"], &asked["policy_enforced"]), (&json!(true), &json!(true)));
    tool["id"] = json!("doom");
    tool["safety_tier"] = json!("T4");
    assert_eq!(gateway.register(&tool).status, 201);
    let denied = gateway.execute("doom", &json!({}), "key_1");
    assert_eq!(kind(&denied), "permission_denied", "{denied}");
    assert!(denied["error"]["message"].as_str().unwrap().starts_with("Policy denied execution: "));
    assert!(
        gateway.cli(&["tools", "rm", "doom"]).status.success(),
        "nobody can call it, and yet it goes"
    );
}

#[test]
fn arguments_keep_their_order_over_a_restart() {
    let scene = Scene::new();
    let mut gateway = scene.start();
    let tool = json!({
        "id": "in.order", "name": "In order", "description": "", "tool_type": "Local", "command": "echo", "endpoint": "",
        "input_schema": {"type": "object", "properties": {"to": {}, "from": {}, "count": {}}},
        "output_schema": {}, "side_effects": [], "idempotency_behavior": "idempotent", "retryable": false,
        "failure_classification": "none", "safety_tier": "T0", "subprocess": null,
        "resource_limits": {"cpu": null, "memory": null, "network": "None", "filesystem": "None", "time_limit": 5},
    });
    assert_eq!(gateway.register(&tool).status, 201);
    let input = json!({"count": 1.0, "from": "a", "to": "b"});
    let expected = json!({"raw_output": "b a 1\n"});
    assert_eq!(gateway.execute("in.order", &input, "k_1")["output"], expected);
    assert!(gateway.stop().success());
    let gateway = scene.start();
    assert_eq!(gateway.execute("in.order", &input, "k_2")["output"], expected);
    let other = tool.to_string().replace(r#""to":{},"from":{}"#, r#""from":{},"to":{}"#);
    let headers = [("content-type", "application/json")];
    assert_ne!(other, tool.to_string());
    assert_eq!(gateway.request("POST", "/v1/tools", &headers, &other).status, 409);
}

#[test]
fn without_a_sandbox_nothing_runs_unless_an_operator_says_so() {
    let scene = Scene::new();
    let gateway = Gateway::start_at(&scene.home, &["--sandbox", "off"], &[]);
    let health = gateway.get("/health").json();
    assert_eq!(
        (&health["ontology_compliance"], &health["sandbox"]["state"]),
        (&json!(false), &json!("off"))
    );
    let answer = gateway.execute("bash", &json!({"cmd": "echo hello"}), "key_1");
    assert_eq!(answer["output"]["stdout"], "hello\n");
    let receipts = gateway.get("/v1/runs/run_1/receipts").json();
    let leaf = receipts["receipts"][0]["outcome"]["leaf"].to_string();
    assert!(leaf.contains("off"), "{receipts}");
}

#[test]
fn a_machine_without_a_sandbox_refuses_and_prints_both_remedies() {
    let scene = Scene::new();
    let gateway = Gateway::start_without_namespaces(&scene.home);
    let health = gateway.get("/health").json();
    assert_eq!(
        (&health["status"], &health["ontology_compliance"]),
        (&json!("degraded"), &json!(false))
    );
    let answer = gateway.execute("bash", &json!({"cmd": "echo hello"}), "key_1");
    assert_eq!(kind(&answer), "sandbox_unavailable", "{answer}");
    let remedies = answer["error"]["details"]["remedies"].to_string();
    assert!(remedies.contains("user.max_user_namespaces"), "{remedies}");
    assert!(remedies.contains("--sandbox off"), "{remedies}");
    // Nothing was started, so the key is free once there is a sandbox.
    drop(gateway);
    let gateway = Gateway::start_at(&scene.home, &[], &[]);
    assert_eq!(
        gateway.execute("bash", &json!({"cmd": "echo hello"}), "key_1")["output"]["stdout"],
        "hello\n"
    );
}

#[test]
fn one_home_has_one_gateway() {
    let scene = Scene::new();
    let gateway = scene.start();
    let second = crate::gateway::command(&scene.home).args(["--port", "0"]).output().unwrap();
    let said = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(!second.status.success());
    assert!(said.contains(&gateway.process().to_string()), "{said}");
    let tools = gateway.cli(&["tools", "list", "-o", "json"]);
    assert!(tools.status.success(), "{tools:?}");
}
