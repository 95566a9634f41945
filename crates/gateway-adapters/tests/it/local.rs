//! Local tools: the argument list, the environment, and what becomes of what a command prints.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use gateway_model::ToolError;
use serde_json::{Value, json};

use crate::fixture::{Fixture, put};

/// A program that is a script.
const SCRIPT: &str = "#!/bin/bash\necho run\n";

#[tokio::test(flavor = "multi_thread")]
async fn the_seeds_echo_answers_what_it_was_told() {
    let fixture = Fixture::with(&[]).await;
    fixture
        .register("echo.test", "echo", |definition| {
            definition["output_schema"] = json!({"type": "object"});
        })
        .await
        .unwrap();
    for (value, expected) in [
        (json!("hello"), json!({"raw_output": "hello\n"})),
        (json!("42"), json!({"raw_output": "42\n"})),
        (json!(9_007_199_254_740_993_u64), json!({"raw_output": "9007199254740993\n"})),
        (json!("{\"a\": 1}"), json!({"a": 1})),
        (json!("漢字 👩‍👩‍👧"), json!({"raw_output": "漢字 👩‍👩‍👧\n"})),
    ] {
        assert_eq!(fixture.succeeds("echo.test", json!({ "value": value })).await, expected);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_value_becomes_an_option_or_a_second_command() {
    let fixture = Fixture::with(&[]).await;
    fixture.register("default", "echo", |_definition| {}).await.unwrap();
    fixture
        .register("separated", "printf", |definition| {
            definition["args"] = json!(["--", "[%s]", "{{value}}"]);
        })
        .await
        .unwrap();
    for value in [
        "$(touch x)",
        "`touch x`",
        "a;b",
        "a\nb",
        "a b",
        "*",
        "'\"",
        "{{more}}",
        "%s",
        "|| true",
        "--version",
    ] {
        let output = fixture.succeeds("separated", json!({"value": value, "more": "no"})).await;
        assert_eq!(output, json!({ "raw_output": format!("[{value}]") }));
    }
    for (value, text) in [
        (json!("--version"), "starts with '-'"),
        (json!("a\0b"), "holds a NUL"),
        (json!({}), "cannot be an argument"),
    ] {
        fixture
            .check_refused("default", json!({ "value": value }), "validation_failed", text)
            .await;
    }
    assert_eq!(fs::read_dir(&fixture.workspace).unwrap().count(), 0);
}

async fn failure(fixture: &Fixture, script: &str) -> ToolError {
    fixture.fails("sh", json!({ "value": script })).await
}

async fn with_shell(change: impl FnOnce(&mut Value)) -> Fixture {
    let fixture = Fixture::with(&[]).await;
    fixture
        .register("sh", "/bin/bash", |definition| {
            definition["args"] = json!(["-c", "{{value}}"]);
            change(definition);
        })
        .await
        .unwrap();
    fixture
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_command_says_why_and_what_it_printed() {
    let fixture = with_shell(|_definition| {}).await;
    let error =
        failure(&fixture, "echo part; printf '\\e[31mno such\\e[0m thing\\n' >&2; exit 7").await;
    assert_eq!((error.kind.as_str(), error.message.as_str()), ("execution", "no such thing"));
    assert_eq!(
        (&error.fields["exit_code"], &error.fields["output"]),
        (&json!(7), &json!({"raw_output": "part\n"}))
    );
    let silent = failure(&fixture, "exit 1").await;
    assert_eq!(silent.message, "bash ended with exit code 1 and wrote nothing to standard error");
    assert_eq!(silent.fields["output"], Value::Null);
    let killed = failure(&fixture, "kill -9 $$").await;
    assert_eq!(
        (killed.message.as_str(), &killed.fields["signal"]),
        ("bash was ended by signal 9", &json!(9))
    );
    for shift in 0..3 {
        let long = failure(
            &fixture,
            &format!("printf '{}'; yes 漢 | head -c 9000 >&2; exit 1", "x".repeat(shift)),
        )
        .await;
        assert!(
            long.message.len() <= 4_000 && !long.message.contains('\u{fffd}'),
            "{}",
            long.message.len()
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_time_out_stops_the_whole_tree_and_keeps_partial_output() {
    let fixture =
        with_shell(|definition| definition["resource_limits"]["time_limit"] = json!(1)).await;
    let started = Instant::now();
    let error =
        failure(&fixture, "echo begun; trap '' TERM; (trap '' TERM; sleep 600) & sleep 600").await;
    assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
    assert_eq!(
        (error.kind.as_str(), error.message.as_str()),
        ("timeout", "bash timed out after 1 s")
    );
    assert_eq!(error.fields["output"], json!({"raw_output": "begun\n"}));
    assert!(error.is_retryable, "the tool declares that a repetition has no further effect");
}

#[tokio::test(flavor = "multi_thread")]
async fn processor_time_is_bounded() {
    let fixture = with_shell(|definition| {
        definition["resource_limits"]["cpu"] = json!("50m");
        definition["resource_limits"]["time_limit"] = json!(20);
    })
    .await;
    let error = failure(&fixture, "while :; do :; done").await;
    assert_eq!(error.kind.as_str(), "timeout", "{}", error.to_json());
    assert!(
        error.message.contains("used up its processor time of 1 s") && !error.is_retryable,
        "{error}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_of_the_gateways_environment_is_passed_on() {
    let fixture = with_shell(|definition| definition["stdin"] = json!("json")).await;
    let output = fixture
        .succeeds("sh", json!({"value": "env -0 | cut -z -d= -f1 | sort -z | tr '\\0' ' '; cat"}))
        .await;
    let printed = output["raw_output"].as_str().unwrap();
    let names = "ALLTERNIT_CALL_ID ALLTERNIT_IDEMPOTENCY_KEY ALLTERNIT_RUN_ID ALLTERNIT_TOOL_ID HOME LANG PATH PWD SHLVL TMPDIR _ ";
    assert!(printed.starts_with(names), "{printed}");
    assert!(printed.ends_with("sort -z | tr '\\\\0' ' '; cat\"}\n"), "{printed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_cannot_be_started_says_which_and_where() {
    let fixture = Fixture::with(&[]).await;
    let script = fixture.outside.join("my tool");
    put(&fixture.outside, "my tool", SCRIPT);
    for (command, text) in [
        ("no-such-program", "/usr/bin:/bin"),
        ("echo hello", "never split at spaces"),
        ("./echo", "relative path"),
        (script.to_str().unwrap(), "is no program that can be used"),
    ] {
        let refused = fixture.register("never", command, |_definition| {}).await.unwrap_err();
        assert!(refused.contains(text) && refused.contains("/command"), "{refused}");
    }
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    fixture.register("changing", script.to_str().unwrap(), |_definition| {}).await.unwrap();
    fs::write(&script, format!("{SCRIPT}# changed\n")).unwrap();
    let error = fixture.report("changing", json!({})).await.result.unwrap_err();
    assert_eq!((error.kind.as_str(), error.is_retryable), ("transport", false));
    assert!(error.message.contains("was changed since its tool was registered"), "{error}");
}
