//! No path of an input leads out of the run and its workspaces, whatever it is made of.

use std::fs;
use std::os::unix::fs::symlink;

use serde_json::{Value, json};

use crate::fixture::{Fixture, put};

/// Every way in which an input of a file tool can name a path.
fn inputs(path: &str) -> [(&'static str, Value); 11] {
    [
        ("file_read", json!({ "path": path })),
        ("file_write", json!({ "path": path, "content": "x" })),
        (
            "file_edit",
            json!({ "path": path, "edits": [{"old_text": "SENTINEL", "new_text": "x"}] }),
        ),
        ("file_ops", json!({ "op": "list", "path": path })),
        ("file_ops", json!({ "op": "mkdir", "path": format!("{path}/made") })),
        ("file_ops", json!({ "op": "move", "path": path, "to": "stolen" })),
        ("file_ops", json!({ "op": "copy", "path": path, "to": "stolen" })),
        ("file_ops", json!({ "op": "copy", "path": "mine", "to": format!("{path}/new") })),
        ("file_ops", json!({ "op": "delete", "path": path, "recursive": true })),
        ("grep", json!({ "pattern": "SENTINEL", "path": path })),
        ("find", json!({ "path": path })),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn paths_that_lead_out_are_refused() {
    let fixture = Fixture::with(&[("mine", "mine\n")]).await;
    put(&fixture.artifacts, "run_12/secret", "SENTINEL\n");
    put(&fixture.artifacts, "run_2/secret", "SENTINEL\n");
    let (outside, workspace) = (
        fixture.outside.to_str().unwrap().to_owned(),
        fixture.workspace.to_str().unwrap().to_owned(),
    );
    for path in [
        "..",
        "../outside",
        "../outside/secret",
        "src/../../outside/secret",
        "/etc/passwd",
        "/",
        "/workspace",
        "/workspace/app2",
        "/workspace/other/x",
        "/.allternit",
        "/.allternit/artifacts",
        "/.allternit/artifacts/run_12/secret",
        "/.allternit/artifacts/run_1/../run_2/secret",
        "/.allternit/ledger",
        "/.allternit/receipts/run_1",
        "/proc/self/root/etc/passwd",
    ] {
        for (tool, input) in inputs(path) {
            let error = fixture.fails(tool, input.clone()).await;
            assert_eq!(error.kind.as_str(), "validation_failed", "{tool} {input}: {error}");
        }
    }
    for host in [&outside, &workspace] {
        for (tool, input) in inputs(host) {
            // The caller's own words are all that an answer repeats of a path of the host.
            let error = fixture.report(tool, input).await.result.unwrap_err();
            assert_eq!(error.kind.as_str(), "validation_failed", "{tool}: {error}");
        }
    }
    check_untouched(&fixture);
}

#[tokio::test(flavor = "multi_thread")]
async fn links_that_lead_out_are_refused() {
    let fixture = Fixture::with(&[("mine", "mine\n")]).await;
    put(&fixture.artifacts, "run_2/secret", "SENTINEL\n");
    for (link, target) in [
        ("to_directory", fixture.outside.clone()),
        ("to_file", fixture.outside.join("secret")),
        ("relative", "../outside".into()),
        ("to_run", fixture.artifacts.join("run_2")),
        ("to_proc", "/proc/self/root".into()),
        ("dangling", fixture.outside.join("new")),
    ] {
        symlink(target, fixture.workspace.join(link)).unwrap();
    }
    for link in ["to_directory", "to_file", "relative", "to_run", "to_proc", "dangling"] {
        for path in [link.to_owned(), format!("{link}/secret"), format!("{link}/new/deep")] {
            // Moving a link moves the link itself, which then leads nowhere else.
            let is_harmless = |input: &Value| input["op"] == "move" && path == link;
            for (tool, input) in inputs(&path).into_iter().filter(|(_, input)| !is_harmless(input))
            {
                let kind = fixture.fails(tool, input.clone()).await.kind;
                assert!(
                    matches!(kind.as_str(), "execution" | "validation_failed"),
                    "{tool} {input}: {kind}"
                );
            }
        }
    }
    check_untouched(&fixture);
}

/// What lies outside is as it was, and nothing of it was brought in.
#[track_caller]
fn check_untouched(fixture: &Fixture) {
    assert_eq!(fs::read_dir(&fixture.outside).unwrap().count(), 1);
    assert_eq!(fs::read_to_string(fixture.outside.join("secret")).unwrap(), "SENTINEL\n");
    assert_eq!(fs::read_to_string(fixture.artifacts.join("run_2/secret")).unwrap(), "SENTINEL\n");
    assert!(!fixture.workspace.join("stolen").exists());
    assert_eq!(fixture.read("mine"), "mine\n");
}
