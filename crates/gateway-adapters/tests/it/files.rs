//! file_read, file_write, file_edit and file_ops on a workspace and the run's directory.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use gateway_model::{Content, Digest};
use serde_json::{Value, json};

use crate::fixture::{Fixture, RUN};

#[tokio::test(flavor = "multi_thread")]
async fn a_file_is_read_in_numbered_windows() {
    let fixture = Fixture::with(&[("src/a.txt", "one\ntwo\r\nthree"), ("empty", "")]).await;
    let read = |input: Value| fixture.succeeds("file_read", input);
    assert_eq!(
        read(json!({"path": "src/a.txt"})).await,
        json!({
            "path": "src/a.txt", "content": "1\tone\n2\ttwo\n3\tthree\n", "size_bytes": 14,
            "next_offset": null, "is_lossy": false,
        })
    );
    let window =
        read(json!({"path": "/workspace/app/src/../src/a.txt", "offset": 2, "limit": 1.0})).await;
    assert_eq!((&window["content"], &window["next_offset"]), (&json!("2\ttwo\n"), &json!(3)));
    assert_eq!(read(json!({"path": "empty"})).await["content"], "");
    let beyond = json!({"path": "src/a.txt", "offset": 9});
    fixture.check_refused("file_read", beyond, "validation_failed", "has 3 lines").await;
    fixture
        .check_refused(
            "file_read",
            json!({"path": "src"}),
            "execution",
            "/workspace/app/src: is a directory",
        )
        .await;
    fixture
        .check_refused(
            "file_read",
            json!({"path": "no"}),
            "execution",
            "/workspace/app/no: does not exist",
        )
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_text_is_told_apart() {
    let fixture = Fixture::with(&[]).await;
    let workspace = &fixture.workspace;
    fs::write(workspace.join("latin"), b"caf\xe9\n").unwrap();
    fs::write(workspace.join("binary"), b"\x7fELF\0\0").unwrap();
    fs::write(workspace.join("dot.png"), b"\x89PNG\r\n\x1a\nrest").unwrap();
    let sparse = fs::File::create(workspace.join("sparse")).unwrap();
    sparse.set_len(1 << 40).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        workspace.join("fifo"),
        rustix::fs::FileType::Fifo,
        0o600.into(),
        0,
    )
    .unwrap();

    let latin = fixture.succeeds("file_read", json!({"path": "latin"})).await;
    assert_eq!((&latin["content"], &latin["is_lossy"]), (&json!("1\tcaf\u{fffd}\n"), &json!(true)));
    fixture
        .check_refused("file_read", json!({"path": "binary"}), "execution", "is binary (6 bytes)")
        .await;
    fixture
        .check_refused(
            "file_read",
            json!({"path": "sparse"}),
            "execution",
            "is binary (1099511627776 bytes)",
        )
        .await;
    fixture
        .check_refused("file_read", json!({"path": "fifo"}), "execution", "is not a regular file")
        .await;
    fixture
        .check_refused(
            "file_edit",
            edit("fifo", &[("a", "b")]),
            "execution",
            "is not a regular file",
        )
        .await;
    let write = json!({"path": "fifo", "content": "x"});
    fixture.check_refused("file_write", write, "execution", "is not a regular file").await;
    let found = fixture.succeeds("grep", json!({"pattern": "."})).await;
    assert_eq!((&found["searched"], &found["skipped"]), (&json!(4), &json!(0)));
    fixture
        .check_refused(
            "file_edit",
            edit("sparse", &[("a", "b")]),
            "execution",
            "more than 16777216",
        )
        .await;

    let image = fixture.report("file_read", json!({"path": "dot.png"})).await.result.unwrap();
    let [Content::Text { text }, Content::Image { base64, mime_type }] = image.content.as_slice()
    else {
        panic!("{image:?}");
    };
    assert_eq!((text.as_str(), mime_type.as_str()), ("dot.png: image/png, 12 bytes", "image/png"));
    assert_eq!(base64, "iVBORw0KGgpyZXN0");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_is_written_whole_and_keeps_its_mode() {
    let fixture = Fixture::with(&[("run.sh", "old")]).await;
    let script = fixture.workspace.join("run.sh");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let write = |path: &str, content: &str| {
        fixture.succeeds("file_write", json!({"path": path, "content": content}))
    };
    assert_eq!(
        write("run.sh", "#!/bin/sh\n").await,
        json!({
            "path": "run.sh", "bytes": 10, "digest": Digest::of(b"#!/bin/sh\n").to_string(), "is_new": false,
        })
    );
    assert_eq!(fs::metadata(&script).unwrap().permissions().mode() & 0o777, 0o755);
    assert_eq!(write("new/deep/é.txt", "漢").await["is_new"], true);
    assert_eq!(fixture.read("new/deep/é.txt"), "漢");
    assert_eq!(write(&format!("{RUN}/notes"), "").await["path"], format!("{RUN}/notes"));
    fixture
        .check_refused(
            "file_write",
            json!({"path": "new", "content": ""}),
            "execution",
            "is a directory",
        )
        .await;
    fixture
        .check_refused(
            "file_write",
            json!({"path": ".", "content": ""}),
            "execution",
            "is a directory",
        )
        .await;
    let names: Vec<_> =
        fs::read_dir(&fixture.workspace).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(names.iter().all(|name| !name.to_string_lossy().contains("unfinished")), "{names:?}");
}

fn edit(path: &str, edits: &[(&str, &str)]) -> Value {
    let edits: Vec<Value> =
        edits.iter().map(|(old, new)| json!({"old_text": old, "new_text": new})).collect();
    json!({"path": path, "edits": edits})
}

#[tokio::test(flavor = "multi_thread")]
async fn edits_are_applied_all_or_none() {
    let fixture =
        Fixture::with(&[("a.rs", "let a = 1;\r\nlet b = 2;\r\n"), ("twice", "x x")]).await;
    let edited = fixture
        .succeeds("file_edit", edit("a.rs", &[("a = 1", "c = 3"), ("let c", "let mut c")]))
        .await;
    assert_eq!((&edited["replacements"], &edited["bytes"]), (&json!([1, 1]), &json!(28)));
    assert_eq!(fixture.read("a.rs"), "let mut c = 3;\r\nlet b = 2;\r\n");
    fixture
        .check_refused(
            "file_edit",
            edit("a.rs", &[("b = 2", "b = 9"), ("  let mut  c = 3;", "")]),
            "validation_failed",
            "at /edits/1/old_text: does not occur; line 1 is like its first line",
        )
        .await;
    assert_eq!(fixture.read("a.rs"), "let mut c = 3;\r\nlet b = 2;\r\n");
    fixture
        .check_refused(
            "file_edit",
            edit("twice", &[("x", "y")]),
            "validation_failed",
            "occurs 2 times (lines 1, 1)",
        )
        .await;
    fixture
        .check_refused(
            "file_edit",
            edit("no", &[("x", "y")]),
            "execution",
            "create it with file_write",
        )
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_edit_leaves_its_key_free() {
    let fixture = Fixture::with(&[("a", "x")]).await;
    let context = fixture.context();
    let wrong =
        fixture.gateway.execute(context.clone(), "file_edit", edit("a", &[("y", "z")])).await;
    assert_eq!(wrong.result.unwrap_err().kind.as_str(), "validation_failed");
    let right =
        fixture.gateway.execute(context.clone(), "file_edit", edit("a", &[("x", "z")])).await;
    assert!(right.result.is_ok() && !right.is_replayed);
    let again = fixture.gateway.execute(context, "file_edit", edit("a", &[("x", "z")])).await;
    assert!(again.result.is_ok() && again.is_replayed);
    assert_eq!(fixture.read("a"), "z");
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_edits_of_one_file_are_all_kept() {
    let lines: String = (0..20).map(|number| format!("line <{number}>\n")).collect();
    let fixture = std::sync::Arc::new(Fixture::with(&[("list", &lines)]).await);
    let mut calls = tokio::task::JoinSet::new();
    for number in 0..20 {
        let fixture = std::sync::Arc::clone(&fixture);
        calls.spawn(async move {
            let old = format!("<{number}>");
            let new = format!("[{number}]");
            fixture.succeeds("file_edit", edit("list", &[(&old, &new)])).await;
        });
    }
    while let Some(done) = calls.join_next().await {
        done.unwrap();
    }
    assert_eq!(fixture.read("list"), lines.replace('<', "[").replace('>', "]"));
}

#[tokio::test(flavor = "multi_thread")]
async fn operations_list_move_copy_and_make() {
    let fixture = Fixture::with(&[("src/a.rs", "a"), ("src/deep/b.rs", "bb"), ("c", "")]).await;
    symlink("a.rs", fixture.workspace.join("src/link")).unwrap();
    fs::set_permissions(fixture.workspace.join("src/a.rs"), fs::Permissions::from_mode(0o750))
        .unwrap();
    let ops = |input: Value| fixture.succeeds("file_ops", input);
    assert_eq!(
        ops(json!({"op": "list", "path": "src"})).await["entries"],
        json!([
            {"name": "a.rs", "kind": "file", "size_bytes": 1},
            {"name": "deep", "kind": "directory"},
            {"name": "link", "kind": "link"},
        ])
    );
    let stat = ops(json!({"op": "stat", "path": "src/deep/b.rs"})).await;
    assert_eq!((&stat["kind"], &stat["size_bytes"]), (&json!("file"), &json!(2)));
    ops(json!({"op": "mkdir", "path": "made/deep"})).await;
    ops(json!({"op": "move", "path": "c", "to": "made/deep/c2"})).await;
    assert!(
        fixture.workspace.join("made/deep/c2").is_file() && !fixture.workspace.join("c").exists()
    );
    let to = format!("{RUN}/copy");
    let copied = ops(json!({"op": "copy", "path": "src", "to": to})).await;
    assert_eq!((&copied["copied"], &copied["skipped"]), (&json!(4), &json!(1)));
    assert_eq!(fs::read(fixture.artifacts.join("run_1/copy/deep/b.rs")).unwrap(), b"bb");
    let mode =
        fs::metadata(fixture.artifacts.join("run_1/copy/a.rs")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o750);

    for (input, kind, text) in [
        (
            json!({"op": "move", "path": "src", "to": "src/a.rs"}),
            "validation_failed",
            "exists already",
        ),
        (
            json!({"op": "move", "path": "src", "to": "src/deep/x"}),
            "validation_failed",
            "is inside /workspace/app/src",
        ),
        (json!({"op": "copy", "path": "src", "to": "src/x"}), "validation_failed", "is inside"),
        (
            json!({"op": "move", "path": "src", "to": format!("{RUN}/x")}),
            "validation_failed",
            "copy it there instead",
        ),
        (json!({"op": "move", "path": "src"}), "validation_failed", "is required to move or copy"),
        (
            json!({"op": "stat", "path": "src", "to": "x"}),
            "validation_failed",
            "belongs to move and copy",
        ),
        (json!({"op": "stat", "path": "gone"}), "execution", "/workspace/app/gone: does not exist"),
        (json!({"op": "chmod", "path": "src"}), "validation_failed", "/op"),
    ] {
        fixture.check_refused("file_ops", input, kind, text).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn delete_is_for_the_runs_own_directory() {
    let fixture = Fixture::with(&[("keep", "")]).await;
    fixture.put_in_run("x", "");
    fixture.put_in_run("tree/deep/y", "");
    symlink(&fixture.outside, fixture.artifacts.join("run_1/tree/out")).unwrap();
    let delete =
        |path: &str, recursive: bool| json!({"op": "delete", "path": path, "recursive": recursive});
    let refused = [
        ("keep", "not in the run's own directory"),
        (&format!("{RUN}/tree"), "set recursive"),
        (RUN, "the run's whole directory"),
    ];
    for (path, text) in refused {
        fixture.check_refused("file_ops", delete(path, false), "validation_failed", text).await;
    }
    fixture.succeeds("file_ops", delete(&format!("{RUN}/x"), false)).await;
    fixture.succeeds("file_ops", delete(&format!("{RUN}/tree"), true)).await;
    assert_eq!(fs::read_dir(fixture.artifacts.join("run_1")).unwrap().count(), 0);
    assert!(fixture.workspace.join("keep").exists() && fixture.outside.join("secret").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_workspace_that_is_granted_read_only_is_only_read() {
    let fixture = Fixture::with(&[]).await;
    let guide = "/workspace/docs/guide";
    let read = fixture.succeeds("file_read", json!({"path": guide})).await;
    assert_eq!((&read["path"], &read["content"]), (&json!(guide), &json!("1\tread me\n")));
    fixture.succeeds("file_ops", json!({"op": "copy", "path": guide, "to": "guide"})).await;
    for (tool, input) in [
        ("file_write", json!({"path": guide, "content": "x"})),
        ("file_edit", edit(guide, &[("read", "write")])),
        ("file_ops", json!({"op": "mkdir", "path": "/workspace/docs/new"})),
        ("file_ops", json!({"op": "move", "path": guide, "to": "/workspace/docs/moved"})),
        ("file_ops", json!({"op": "copy", "path": "guide", "to": "/workspace/docs/copied"})),
    ] {
        fixture.check_refused(tool, input, "execution", "granted read-only").await;
    }
    let written = fixture.succeeds("bash", json!({"cmd": format!("echo x > {guide}")})).await;
    assert_ne!(written["exit_code"], 0);
    assert_eq!(fixture.succeeds("file_read", json!({"path": guide})).await, read);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_edit_that_would_make_a_huge_file_changes_nothing() {
    let before = "a".repeat(8_000);
    let fixture = Fixture::with(&[("a.txt", &before)]).await;
    let edits = json!([
        {"old_text": "a", "new_text": "ab", "replace_all": true},
        {"old_text": "a", "new_text": "x".repeat(1 << 20), "replace_all": true},
    ]);
    let input = json!({"path": "a.txt", "edits": edits});
    fixture
        .check_refused("file_edit", input, "validation_failed", "larger than 16777216 bytes")
        .await;
    assert_eq!(fixture.read("a.txt"), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_git_repositorys_own_state_is_not_changed_in_a_workspace() {
    let fixture = Fixture::with(&[
        (".git/config", "[core]\n"),
        (".git/hooks/pre-push", "#!/bin/sh\n"),
        ("sub/.git/config", "[core]\n"),
        ("evil/.git/hooks/post-commit", "#!/bin/sh\n"),
        ("evil/a.txt", "a\n"),
    ])
    .await;
    let hook = "sub/.git/hooks/post-commit";
    for (tool, input) in [
        ("file_write", json!({"path": ".git/hooks/post-commit", "content": "x"})),
        ("file_write", json!({"path": hook, "content": "x"})),
        ("file_write", json!({"path": "new/.git/config", "content": "x"})),
        ("file_write", json!({"path": "new/.GIT/config", "content": "x"})),
        ("file_write", json!({"path": "new/.git", "content": "gitdir: ../evil"})),
        (
            "file_edit",
            json!({"path": ".git/config", "edits": [{"old_text": "[core]", "new_text": "x"}]}),
        ),
        ("file_ops", json!({"op": "mkdir", "path": "new/.git/hooks"})),
        ("file_ops", json!({"op": "move", "path": "evil/a.txt", "to": hook})),
        ("file_ops", json!({"op": "copy", "path": "evil/a.txt", "to": hook})),
        ("file_ops", json!({"op": "move", "path": ".git", "to": "old"})),
    ] {
        fixture.check_refused(tool, input, "validation_failed", "of a git repository").await;
    }
    let copied =
        fixture.succeeds("file_ops", json!({"op": "copy", "path": "evil", "to": "copied"})).await;
    assert_eq!((&copied["copied"], &copied["skipped"]), (&json!(2), &json!(1)));
    assert!(!fixture.workspace.join("copied/.git").exists());
    assert_eq!(fixture.read(".git/config"), "[core]\n");

    fixture.succeeds("file_read", json!({"path": ".git/config"})).await;
    fixture.succeeds("file_write", json!({"path": ".gitignore", "content": "x\n"})).await;
    let in_run = format!("{RUN}/repository/.git/hooks/post-commit");
    fixture.succeeds("file_write", json!({"path": in_run, "content": "x"})).await;
}
