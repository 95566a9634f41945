//! grep and find over a workspace with ignore files, links and what is no text.

use std::fs;
use std::os::unix::fs::symlink;

use serde_json::{Value, json};

use crate::fixture::{Fixture, put};

const PROJECT: &[(&str, &str)] = &[
    (".gitignore", "target/\n*.log\n!keep.log\n[\n"),
    (".git/config", "needle\n"),
    ("README.md", "needle one\nnothing\nNeedle two\n"),
    ("src/main.rs", "fn main() {\n    needle();\n}\r\n"),
    ("src/lib.rs", "// none\n"),
    ("src/.gitignore", "/generated.rs\n"),
    ("src/generated.rs", "needle\n"),
    ("deep/src/generated.rs", "x\n"),
    ("target/debug/out.rs", "needle\n"),
    ("debug.log", "needle\n"),
    ("keep.log", "needle\n"),
];

async fn project() -> Fixture {
    let fixture = Fixture::with(PROJECT).await;
    symlink(&fixture.outside, fixture.workspace.join("out")).unwrap();
    symlink("README.md", fixture.workspace.join("link.md")).unwrap();
    symlink(".", fixture.workspace.join("loop")).unwrap();
    fs::write(fixture.workspace.join("binary"), b"\0needle\n").unwrap();
    fixture
}

async fn found(fixture: &Fixture, input: Value) -> Vec<String> {
    let output = fixture.succeeds("find", input).await;
    output["paths"]
        .as_array()
        .unwrap()
        .iter()
        .map(|path| path.as_str().unwrap().to_owned())
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn find_leaves_out_what_the_project_ignores() {
    let fixture = project().await;
    for (input, expected) in [
        (json!({"glob": "*.rs"}), &["deep/src/generated.rs", "src/lib.rs", "src/main.rs"][..]),
        (json!({"glob": "src/*.rs"}), &["src/lib.rs", "src/main.rs"]),
        (json!({"glob": "**/generated.rs"}), &["deep/src/generated.rs"]),
        (json!({"path": "src", "glob": "m*"}), &["src/main.rs"]),
        (json!({"path": "target", "glob": "*.rs"}), &["target/debug/out.rs"]),
        (json!({"glob": "*.log"}), &["keep.log"]),
        (json!({"glob": "*.log", "include_ignored": true}), &["debug.log", "keep.log"]),
        (json!({"kind": "directory"}), &["deep/", "deep/src/", "src/"]),
        (json!({"kind": "link"}), &["link.md", "loop", "out"]),
        (json!({"min_bytes": 30, "glob": "*.md"}), &["README.md"]),
        (json!({"max_bytes": 2}), &["deep/src/generated.rs"]),
        (json!({"glob": "config", "include_ignored": true}), &[]),
        (json!({"path": ".git"}), &[".git/config"]),
    ] {
        assert_eq!(found(&fixture, input.clone()).await, expected, "{input}");
    }
    let output = fixture.succeeds("find", json!({"limit": 1})).await;
    assert_eq!(
        (&output["is_truncated"], output["paths"].as_array().unwrap().len()),
        (&json!(true), 1)
    );
    fixture
        .check_refused(
            "find",
            json!({"glob": "a[", "path": "."}),
            "validation_failed",
            "/glob: is no glob",
        )
        .await;
    fixture.check_refused("find", json!({"path": "README.md"}), "execution", "README.md").await;
    fixture
        .check_refused(
            "find",
            json!({"path": "gone"}),
            "execution",
            "/workspace/app/gone: does not exist",
        )
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn grep_answers_lines_by_file() {
    let fixture = project().await;
    assert_eq!(
        fixture.succeeds("grep", json!({"pattern": "needle"})).await,
        json!({
            "files": [
                {"path": "README.md", "lines": ["1:needle one"]},
                {"path": "keep.log", "lines": ["1:needle"]},
                {"path": "src/main.rs", "lines": ["2:    needle();"]},
            ],
            "matches": 3, "searched": 8, "skipped": 0, "is_truncated": false,
        })
    );
    for (input, expected) in [
        (
            json!({"pattern": "^needle t", "ignore_case": true}),
            json!([{"path": "README.md", "lines": ["3:Needle two"]}]),
        ),
        (
            json!({"pattern": "needle()", "is_literal": true}),
            json!([{"path": "src/main.rs", "lines": ["2:    needle();"]}]),
        ),
        (
            json!({"pattern": "nothing", "path": "README.md", "context": 1}),
            json!([{"path": "README.md", "lines": ["1-needle one", "2:nothing", "3-Needle two"]}]),
        ),
        (
            json!({"pattern": "}$", "glob": "*.rs"}),
            json!([{"path": "src/main.rs", "lines": ["3:}"]}]),
        ),
        (
            json!({"pattern": "needle", "path": "target"}),
            json!([{"path": "target/debug/out.rs", "lines": ["1:needle"]}]),
        ),
        (
            json!({"pattern": "needle", "path": "link.md"}),
            json!([{"path": "link.md", "lines": ["1:needle one"]}]),
        ),
        (json!({"pattern": "SENTINEL"}), json!([])),
    ] {
        assert_eq!(fixture.succeeds("grep", input.clone()).await["files"], expected, "{input}");
    }
    fixture
        .check_refused(
            "grep",
            json!({"pattern": "("}),
            "validation_failed",
            "/pattern: is no regular expression",
        )
        .await;
    fixture
        .check_refused(
            "grep",
            json!({"pattern": "x", "path": "gone"}),
            "execution",
            "does not exist",
        )
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn grep_is_bounded_in_matches_and_between_characters() {
    let fixture = Fixture::with(&[]).await;
    for shift in 0..3 {
        let line = format!("{}{}\n", "x".repeat(shift), "漢".repeat(400));
        put(&fixture.workspace, &format!("wide{shift}"), &line.repeat(3));
    }
    let output = fixture.succeeds("grep", json!({"pattern": "漢", "limit": 4})).await;
    assert_eq!((&output["matches"], &output["is_truncated"]), (&json!(4), &json!(true)));
    let line = output["files"][0]["lines"][0].as_str().unwrap();
    assert!(line.ends_with("bytes in all]") && line.len() < 520, "{line}");
    let exact = fixture.succeeds("grep", json!({"pattern": "漢", "limit": 9})).await;
    assert_eq!((&exact["matches"], &exact["is_truncated"]), (&json!(9), &json!(false)));
}
