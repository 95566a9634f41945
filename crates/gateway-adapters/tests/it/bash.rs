//! bash: what it answers, and what stops it.

use std::os::unix::fs::symlink;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::fixture::{Fixture, RUN};

#[tokio::test(flavor = "multi_thread")]
async fn a_command_answers_streams_and_exit_code() {
    let fixture = Fixture::with(&[("sub/x", "")]).await;
    symlink("sub", fixture.workspace.join("link")).unwrap();
    for (input, stdout, stderr, code) in [
        (json!({"cmd": "echo out; echo err >&2; exit 3"}), "out\n", "err\n", 3),
        (json!({"cmd": "pwd"}), "/workspace/app\n", "", 0),
        (json!({"cmd": "pwd", "cwd": "sub"}), "/workspace/app/sub\n", "", 0),
        (json!({"cmd": "ls", "cwd": "link"}), "x\n", "", 0),
        (json!({"cmd": "pwd", "cwd": RUN}), &format!("{RUN}\n"), "", 0),
        (json!({"cmd": "pwd", "cwd": "/tmp"}), "/tmp\n", "", 0),
        (json!({"cmd": "cat", "stdin": "é\n"}), "é\n", "", 0),
        (json!({"cmd": "cat"}), "", "", 0),
        (json!({"cmd": "-n() { echo dash; }; -n"}), "dash\n", "", 0),
        (json!({"cmd": "printf 'a\\xffb'"}), "a\u{fffd}b", "", 0),
    ] {
        let expected =
            json!({"stdout": stdout, "stderr": stderr, "is_truncated": false, "exit_code": code});
        assert_eq!(fixture.succeeds("bash", input.clone()).await, expected, "{input}");
    }
    let killed = fixture.succeeds("bash", json!({"cmd": "kill -SEGV $$"})).await;
    assert_eq!((&killed["exit_code"], &killed["signal"]), (&json!(null), &json!(11)));
    fixture.succeeds("bash", json!({"cmd": "echo made > by_bash"})).await;
    assert_eq!(fixture.read("by_bash"), "made\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_that_is_not_there_is_refused_before_anything_starts() {
    let fixture = Fixture::with(&[("file", "")]).await;
    symlink(&fixture.outside, fixture.workspace.join("out")).unwrap();
    for (cwd, kind, text) in [
        ("gone", "validation_failed", "/workspace/app/gone is no directory"),
        ("file", "validation_failed", "/workspace/app/file is no directory"),
        ("../other", "validation_failed", "outside of what this call reaches"),
        ("/etc", "validation_failed", "outside of what this call reaches"),
        ("out", "execution", "leads outside"),
    ] {
        fixture.check_refused("bash", json!({"cmd": "true", "cwd": cwd}), kind, text).await;
    }
    fixture
        .check_refused(
            "bash",
            json!({"cmd": "echo a\0b"}),
            "validation_failed",
            "/cmd: holds a NUL",
        )
        .await;
    let long = "é".repeat(70_000);
    fixture
        .check_refused("bash", json!({"cmd": long}), "validation_failed", "has 140000 bytes")
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_takes_too_long_is_stopped_with_all_it_started() {
    let fixture = Fixture::with(&[]).await;
    let cmd = "trap '' TERM; (trap '' TERM; sleep 600) & echo begun; echo warned >&2; sleep 600";
    let started = Instant::now();
    let error = fixture.fails("bash", json!({"cmd": cmd, "timeout_s": 1})).await;
    assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
    assert_eq!(
        (error.kind.as_str(), error.message.as_str()),
        ("timeout", "bash timed out after 1 s")
    );
    assert_eq!(error.fields["output"], json!({"stdout": "begun\n", "stderr": "warned\n"}));
    assert!(!error.is_retryable);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_command_keeps_what_it_printed() {
    let fixture = Fixture::with(&[]).await;
    let context = fixture.context();
    let cancel = context.cancel.clone();
    let begun = fixture.workspace.join("begun");
    rustix::fs::mknodat(rustix::fs::CWD, &begun, rustix::fs::FileType::Fifo, 0o600.into(), 0)
        .unwrap();
    let call = fixture.gateway.execute(
        context,
        "bash",
        json!({"cmd": "echo out; echo begun > begun; sleep 600"}),
    );
    let cancelling = async {
        // Reading the pipe waits until the command writes to it.
        assert_eq!(tokio::fs::read(&begun).await.unwrap(), b"begun\n");
        cancel.cancel();
    };
    let (report, ()) = tokio::join!(call, cancelling);
    let error = report.result.unwrap_err();
    assert_eq!(error.kind.as_str(), "cancelled");
    assert_eq!(error.fields["output"]["stdout"], "out\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_is_cut_and_an_endless_one_is_stopped() {
    let fixture = Fixture::with(&[]).await;
    let cut = fixture.succeeds("bash", json!({"cmd": "yes 漢字 | head -c 2000000"})).await;
    let stdout = cut["stdout"].as_str().unwrap();
    assert_eq!(cut["is_truncated"], true);
    assert!(
        stdout.len() <= 1 << 20 && stdout.len() > (1 << 20) - 4 && !stdout.contains('\u{fffd}')
    );
    let error = fixture.fails("bash", json!({"cmd": "yes"})).await;
    assert_eq!(error.kind.as_str(), "output_limit");
    assert!(error.fields["output"]["stdout"].as_str().unwrap().starts_with("y\ny\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_is_bounded() {
    let fixture = Fixture::with(&[]).await;
    fixture
        .register("eat", "python3", |definition| {
            definition["args"] =
                json!(["-c", "import time; x = bytearray(900 << 20); time.sleep(60)"]);
            definition["resource_limits"]["memory"] = json!("256Mi");
        })
        .await
        .unwrap();
    let error = fixture.fails("eat", json!({})).await;
    assert!(matches!(error.kind.as_str(), "memory_limit" | "execution"), "{error}");
}
