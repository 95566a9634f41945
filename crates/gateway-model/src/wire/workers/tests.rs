use super::*;

fn registry(worker: &Value) -> Vec<u8> {
    json!({ "version": 1, "workers": [worker] }).to_string().into_bytes()
}

fn whole() -> Value {
    json!({
        "worker_id": "report.writer",
        "description": "Writes reports",
        "command": "/opt/report",
        "args_template": ["--title", "{{title}}"],
        "cwd_policy": "run_artifacts_dir",
        "env_allowlist": ["TZ"],
        "env": { "TOKEN": "secret:REPORT_TOKEN" },
        "fs_policy": {
            "must_be_run_scoped": true,
            "allowed_output_roots": ["/.allternit/artifacts/{run_id}/**"],
        },
        "timeouts": { "wall_ms": 1500, "cpu_ms": 1000 },
        "output_limits": { "max_stdout_bytes": 4096, "max_stderr_bytes": 1024 },
    })
}

#[test]
fn the_contracts_worker_is_read_and_written_back_in_full() {
    let workers = WorkerDefinition::read_registry(&registry(&whole())).unwrap();
    let [worker] = &workers[..] else { panic!("{workers:?}") };
    assert_eq!(worker.normalised, whole());
    assert_eq!(worker.limits.wall, Duration::from_millis(1500));
    assert_eq!(worker.directory, Some(WorkerDirectory::Run));
    let again = WorkerDefinition::read_registry(&registry(&worker.normalised)).unwrap();
    assert_eq!(again, workers);
}

#[test]
fn a_name_and_a_command_are_enough() {
    let short = json!({ "worker_id": "w", "command": "jq" });
    let workers = WorkerDefinition::read_registry(&registry(&short)).unwrap();
    let worker = workers.first().unwrap();
    assert_eq!(worker.directory, None);
    assert!(worker.args.is_empty() && worker.environment.is_empty());
    assert!(worker.files.may_write("/.allternit/artifacts/{run_id}/**"));
    assert!(!worker.files.may_write("/workspace/docs/**"));
    let again = WorkerDefinition::read_registry(&registry(&worker.normalised)).unwrap();
    assert_eq!(again, workers);
}

#[test]
fn each_fault_of_a_registry_names_its_field() {
    let check = |pointer: &str, value: Value, expected: &str| {
        let mut worker = whole();
        match worker.pointer_mut(pointer) {
            Some(field) => *field = value,
            None => worker[pointer.trim_start_matches('/')] = value,
        }
        let error = WorkerDefinition::read_registry(&registry(&worker)).unwrap_err().to_string();
        assert!(error.contains(expected), "{pointer} gave {error}");
    };
    check("/worker_id", json!("a/b"), "/workers/0/worker_id: worker_id holds '/'");
    check("/command", json!(" "), "/workers/0/command: expected one program");
    check("/command", json!(["a"]), "/workers/0/command: expected a string");
    check("/cwd_policy", json!("anywhere"), "expected repo_root, run_artifacts_dir or path:REL");
    check("/cwd_policy", json!("path:../x"), "none of them . or ..");
    check("/cwd_policy", json!("path:/etc"), "none of them . or ..");
    check("/cwd_policy", json!("repo_root"), "/cwd_policy: starts in a workspace");
    check("/env_allowlist", json!(["A=B"]), "/env_allowlist/0: expected the name of a variable");
    check("/env_allowlist", json!(["ALLTERNIT_RUN_ID"]), "the gateway sets by itself");
    check("/env", json!({ "A B": "x" }), "/workers/0/env/A B: expected the name of a variable");
    check("/env", json!({ "A": "secret:" }), "/workers/0/env/A: secret is empty");
    check("/args_template", json!(["secret:A"]), "/args_template/0: names a secret, but arguments");
    check("/fs_policy/allowed_output_roots", json!(["/etc"]), "allowed_output_roots/0: expected");
    check(
        "/fs_policy/allowed_output_roots",
        json!(["/.allternit/artifacts/{run_id}/out"]),
        "or to none of it",
    );
    check("/fs_policy/allowed_output_roots", json!(["/workspace/docs"]), "lies outside of the run");
    check("/timeouts/wall_ms", json!(0), "/timeouts/wall_ms: expected a whole number from 1");
    check("/output_limits/max_stdout_bytes", json!(9_999_999), "from 1 to 1048576");
    check("/color", json!(1), "/workers/0/color: unknown key");

    for (text, expected) in [
        ("{", "JSON"),
        ("[]", "(root): expected an object"),
        ("{\"workers\": []}", "/version: is required"),
        ("{\"version\": 2, \"workers\": []}", "/version: expected 1"),
        ("{\"version\": 1, \"version\": 1, \"workers\": []}", "version"),
    ] {
        let error = WorkerDefinition::read_registry(text.as_bytes()).unwrap_err().to_string();
        assert!(error.contains(expected), "{text} gave {error}");
    }
    let twice = json!({ "version": 1, "workers": [whole(), whole()] }).to_string();
    let error = WorkerDefinition::read_registry(twice.as_bytes()).unwrap_err().to_string();
    assert_eq!(error, "/workers/1/worker_id: report.writer names a second worker");
}

#[test]
fn a_workspace_is_written_to_only_where_it_is_a_root() {
    let mut worker = whole();
    worker["cwd_policy"] = json!("path:a/b");
    worker["fs_policy"] = json!({
        "must_be_run_scoped": false, "allowed_output_roots": ["/workspace/docs/**"],
    });
    let workers = WorkerDefinition::read_registry(&registry(&worker)).unwrap();
    let worker = workers.first().unwrap();
    assert_eq!(worker.directory, Some(WorkerDirectory::Beneath("a/b".to_owned())));
    assert!(worker.files.may_write("/workspace/docs"));
    assert!(!worker.files.may_write("/workspace/**"));
    assert!(!worker.files.may_write("/.allternit/artifacts/{run_id}"));
}
