//! Subprocess tools: the worker's protocol, its limits, and what it leaves behind.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use gateway_adapters::WorkerRegistry;
use serde_json::{Value, json};

use crate::fixture::{Fixture, RUN, put};

/// A worker whose answer is up to the input's `script`, which is bash.
const BY_SCRIPT: &str = "#!/bin/bash\nread -r line\neval \"$1\"\n";

fn program(directory: &Path, name: &str, text: &str) -> String {
    put(directory, name, text);
    let path = directory.join(name);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path.to_str().unwrap().to_owned()
}

/// Opens a gateway with the worker `by.script`, changed.
async fn with_worker(change: impl FnOnce(&mut Value)) -> Fixture {
    Fixture::with_workers(&[], |outside| {
        let mut worker = json!({
            "worker_id": "by.script",
            "command": program(outside, "by-script", BY_SCRIPT),
            "args_template": ["{{script}}"],
        });
        change(&mut worker);
        vec![worker]
    })
    .await
}

async fn register(fixture: &Fixture, change: impl FnOnce(&mut Value)) -> Result<(), String> {
    fixture
        .register("worker.tool", "", |definition| {
            definition["tool_type"] = json!("Subprocess");
            definition["subprocess"] = json!({ "worker_id": "by.script" });
            definition["input_schema"]["properties"] = json!({ "script": {}, "more": {} });
            definition["safety_tier"] = json!("T2");
            definition["side_effects"] = json!(["filesystem"]);
            definition["resource_limits"]["filesystem"] =
                json!({ "ReadWrite": ["/.allternit/artifacts/{run_id}/**"] });
            change(definition);
        })
        .await
}

/// Opens a gateway with the worker, and the tool that names it.
async fn with_tool() -> Fixture {
    let fixture = with_worker(|_worker| {}).await;
    register(&fixture, |_definition| {}).await.unwrap();
    fixture
}

fn script(text: &str) -> Value {
    json!({ "script": text })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_reads_one_line_of_json_and_answers_one_document() {
    let fixture = with_tool().await;
    let echo = json!({ "script": "echo \"$line\"", "more": [1, "漢", { "deep": null }] });
    assert_eq!(fixture.succeeds("worker.tool", echo.clone()).await, echo);
    for (printed, expected) in [
        ("true", Value::Null),
        ("echo '  {\"a\": 1}  '", json!({ "a": 1 })),
        ("echo '[1,2]'", json!([1, 2])),
        ("echo 42; echo said >&2", json!(42)),
    ] {
        assert_eq!(fixture.succeeds("worker.tool", script(printed)).await, expected, "{printed}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_way_to_fail_has_its_kind_and_says_what_was_printed() {
    let fixture = with_worker(|worker| {
        worker["timeouts"] = json!({ "wall_ms": 700 });
        worker["output_limits"] = json!({ "max_stdout_bytes": 2000, "max_stderr_bytes": 100 });
    })
    .await;
    register(&fixture, |_definition| {}).await.unwrap();
    for (text, kind, message) in [
        ("echo part; echo 'no such order' >&2; exit 3", "execution", "no such order"),
        ("exit 3", "execution", "worker by.script ended with exit code 3"),
        ("kill -SEGV $$", "execution", "worker by.script was ended by signal 11"),
        ("echo hello", "execution", "is not one JSON document"),
        ("echo '{} {}'", "execution", "is not one JSON document"),
        ("echo '{\"a\":1,\"a\":2}'", "execution", "is not one JSON document"),
        (
            "printf '\"%03000d\"' 1",
            "output_limit",
            "wrote 3002 bytes to standard output, more than its 2000",
        ),
        ("yes", "output_limit", "wrote far more than is kept"),
        ("echo part; sleep 60", "timeout", "Subprocess timed out: worker by.script ran for 700 ms"),
    ] {
        fixture.check_refused("worker.tool", script(text), kind, message).await;
    }
    let error = fixture.fails("worker.tool", script("echo part; exit 3")).await;
    assert_eq!(
        (&error.fields["exit_code"], &error.fields["output"]),
        (&json!(3), &json!({ "raw_output": "part\n" }))
    );
    assert!(!error.is_retryable, "the tool declares nothing of its failures");
    let quiet = fixture.succeeds("worker.tool", script("yes | head -c 300 >&2; echo 1")).await;
    assert_eq!(
        quiet,
        json!(1),
        "standard error is cut, never refused, within eight times its limit"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_gets_allowed_variables_and_starts_where_its_policy_says() {
    let fixture = Fixture::with_workers(&[("sub/file", "x")], |outside| {
        let command = program(outside, "by-script", BY_SCRIPT);
        let worker = |id: &str, directory: &str| {
            json!({
                "worker_id": id, "command": command, "args_template": ["{{script}}"],
                "cwd_policy": directory, "env_allowlist": ["ALLOWED", "ABSENT"],
                "fs_policy": {
                    "must_be_run_scoped": false,
                    "allowed_output_roots": ["/workspace/**", "/.allternit/artifacts/{run_id}/**"],
                },
            })
        };
        vec![
            worker("in.run", "run_artifacts_dir"),
            worker("in.workspace", "repo_root"),
            worker("beneath", "path:sub"),
        ]
    })
    .await;
    for (id, directory) in
        [("in.run", RUN), ("in.workspace", "/workspace/app"), ("beneath", "/workspace/app/sub")]
    {
        fixture
            .register(id, "", |definition| {
                definition["tool_type"] = json!("Subprocess");
                definition["subprocess"] = json!({ "worker_id": id });
                definition["input_schema"]["properties"] = json!({ "script": {} });
                definition["safety_tier"] = json!("T2");
                definition["side_effects"] = json!(["filesystem"]);
                definition["resource_limits"]["filesystem"] = json!({
                    "ReadWrite": ["/workspace/app/**", "/.allternit/artifacts/{run_id}/**"],
                });
            })
            .await
            .unwrap();
        let text = r#"printf '["%s", "%s"]' "$PWD" "$ALLOWED|${ABSENT-unset}|$ALLTERNIT_TOOL_ID""#;
        let expected = json!([directory, format!("passed on|unset|{id}")]);
        assert_eq!(fixture.succeeds(id, script(text)).await, expected);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_receipt_names_what_a_worker_left_and_which_worker_it_was() {
    let fixture = with_tool().await;
    fixture.put_in_run("old", "unchanged");
    fixture.put_in_run("rewritten", "aaa");
    let text = "mkdir -p a/b; printf new > a/b/new; printf bbb > rewritten; ln -s old link; rm -f gone; cat old > /tmp/x";
    let report = fixture.report("worker.tool", script(text)).await;
    report.result.as_ref().unwrap();
    let manifest = fixture.content(&report, "artifacts").await.unwrap();
    let manifest: Value = serde_json::from_str(&manifest).unwrap();
    let digest = |text: &str| gateway_model::Digest::of(text.as_bytes()).to_string();
    assert_eq!(
        manifest["files"],
        json!([
            { "path": format!("{RUN}/a/b/new"), "size_bytes": 3, "digest": digest("new") },
            { "path": format!("{RUN}/rewritten"), "size_bytes": 3, "digest": digest("bbb") },
        ])
    );
    assert_eq!(
        (&manifest["worker"]["id"], &manifest["is_complete"]),
        (&json!("by.script"), &json!(true))
    );
    assert!(manifest["worker"]["digest"].as_str().unwrap().starts_with("sha256:"));

    let failed = fixture.report("worker.tool", script("printf late > late; exit 1")).await;
    let manifest = fixture.content(&failed, "artifacts").await.unwrap();
    assert!(failed.result.is_err() && manifest.contains("/late"), "{manifest}");

    let many = "for i in $(seq 1100); do : > many$i; done";
    let report = fixture.report("worker.tool", script(many)).await;
    let manifest = fixture.content(&report, "artifacts").await.unwrap();
    let manifest: Value = serde_json::from_str(&manifest).unwrap();
    assert_eq!(manifest["files"].as_array().unwrap().len(), 1_000);
    assert_eq!(manifest["is_complete"], json!(false));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_that_its_worker_cannot_serve_is_refused_when_it_is_registered() {
    let fixture = with_worker(|worker| worker["cwd_policy"] = json!("run_artifacts_dir")).await;
    let refused = |pointer: &'static str, value: Value, expected: &'static str| {
        let fixture = &fixture;
        async move {
            let change = |definition: &mut Value| {
                *definition.pointer_mut(pointer).unwrap() = value;
            };
            let reason = register(fixture, change).await.unwrap_err();
            assert!(reason.contains(expected), "{reason}");
        }
    };
    refused(
        "/subprocess/worker_id",
        json!("other"),
        "no worker other in the registry of workers (known: by.script)",
    )
    .await;
    refused(
        "/input_schema/properties",
        json!({ "more": {} }),
        "/input_schema: worker by.script: args/0: placeholder \"script\"",
    )
    .await;
    refused(
        "/resource_limits/filesystem",
        json!("None"),
        "starts in a directory that is not declared",
    )
    .await;
    refused(
        "/resource_limits/filesystem",
        json!({ "ReadWrite": ["/.allternit/artifacts/{run_id}/**", "/workspace/app/**"] }),
        "must not write to \"/workspace/app/**\"; it is none of its output roots",
    )
    .await;
    register(&fixture, |_definition| {}).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_started_has_not_happened_and_its_key_stays_free() {
    let fixture = with_worker(|_worker| {}).await;
    register(&fixture, |definition| {
        definition["side_effects"] = json!(["filesystem"]);
        definition["idempotency_behavior"] = json!("not_idempotent");
    })
    .await
    .unwrap();
    let context = fixture.context();
    let call =
        || fixture.gateway.execute(context.clone(), "worker.tool", script("echo $RANDOM$RANDOM"));
    let path = fixture.outside.join("by-script");
    fs::rename(&path, path.with_extension("away")).unwrap();
    let error = call().await.result.unwrap_err();
    assert_eq!(error.kind.as_str(), "transport", "{error}");
    fs::rename(path.with_extension("away"), &path).unwrap();
    let first = call().await;
    let again = call().await;
    assert!(!first.is_replayed && again.is_replayed, "the key was free, and is used now");
    assert_eq!(first.result.unwrap(), again.result.unwrap());

    put(&fixture.outside, "by-script", "#!/bin/bash\necho 1\n");
    let changed = fixture.report("worker.tool", script("true")).await.result.unwrap_err();
    assert!(changed.message.contains("was changed since"), "{changed}");
}

#[test]
fn a_registry_that_cannot_be_used_says_which_file_and_where() {
    let directory = tempfile::tempdir().unwrap();
    let load = |text: &str| {
        put(directory.path(), "workers.json", text);
        let error = WorkerRegistry::load(
            &directory.path().join("workers.json"),
            &[],
            Path::new("/home/none"),
            &|_name| None,
        );
        let error = error.unwrap_err();
        let source =
            std::error::Error::source(&error).map_or_else(String::new, ToString::to_string);
        format!("{error}: {source}").replace(directory.path().to_str().unwrap(), "DIR")
    };
    assert_eq!(
        load(r#"{"version":1,"workers":[{"worker_id":"w","command":"no-such"}]}"#),
        "worker registry DIR/workers.json: worker w: command \"no-such\" is not found in ; expected an absolute path or a name on the search path (a command is one program; it is never split at spaces)"
    );
    assert!(load("{").starts_with("worker registry DIR/workers.json: "));
    assert!(load(&" ".repeat(2 << 20)).contains("has more than 1048576 bytes"));
    assert!(load(r#"{"version":1,"workers":[{}]}"#).contains("/workers/0/worker_id: is required"));
    let gone = WorkerRegistry::load(
        &directory.path().join("none"),
        &[],
        Path::new("/home/none"),
        &|_name| None,
    );
    assert!(gone.unwrap_err().to_string().contains("none: cannot be read"));
}
