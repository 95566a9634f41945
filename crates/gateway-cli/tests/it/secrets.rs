//! A sentinel secret through the binary: in no file of the home, no answer and no line of the log.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use serde_json::{Value, json};

use crate::gateway::{Gateway, command};

/// Holds what JSON, URLs and base64 each spell in a way of their own.
const SENTINEL: &str = "SENTINEL+\"Qz-in-quotes-Wx\"/漢 value";

/// Everything that would give the sentinel away, and that no salt and no hash can hold by chance.
fn spellings() -> Vec<Vec<u8>> {
    let hexadecimal: String = SENTINEL.bytes().map(|byte| format!("{byte:02x}")).collect();
    let mut spellings = vec![
        "SENTINEL".to_owned(),
        "Qz-in-quotes-Wx".to_owned(),
        // base64 of "SENTINEL+" at each of the three places that it can start at.
        "U0VOVElORUwr".to_owned(),
        "NFTlRJTkVMK".to_owned(),
        "TRU5USU5FTC".to_owned(),
        hexadecimal.get(..16).unwrap().to_owned(),
    ];
    spellings.push(spellings[5].to_uppercase());
    spellings.into_iter().map(String::into_bytes).collect()
}

#[track_caller]
fn check_absent(bytes: &[u8], place: &str) {
    for spelling in spellings() {
        let found = bytes.windows(spelling.len()).any(|window| window == spelling);
        assert!(!found, "{place} holds {:?}", String::from_utf8_lossy(&spelling));
    }
}

/// Looks at every byte of every file and at every name; returns how many files there were.
fn check_home(home: &Path) -> usize {
    let mut directories = vec![home.to_owned()];
    let mut files = 0;
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path: PathBuf = entry.unwrap().path();
            let place = path.display().to_string();
            check_absent(place.as_bytes(), "a name");
            if path.is_dir() {
                directories.push(path);
            } else {
                check_absent(&fs::read(&path).unwrap(), &place);
                files += 1;
            }
        }
    }
    files
}

fn secrets(home: &Path, arguments: &[&str], stdin: &[u8]) -> Output {
    let mut child = command(home)
        .arg("secrets")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(stdin).unwrap();
    child.wait_with_output().unwrap()
}

fn tool(id: &str, change: impl FnOnce(&mut Value)) -> Value {
    let mut definition = json!({
        "id": id, "name": id, "description": "", "tool_type": "Local", "command": "bash",
        "args": ["-c", "{{script}}"], "env": { "TOKEN": "secret:CRM_TOKEN" },
        "input_schema": { "type": "object", "properties": { "script": {} } }, "output_schema": {},
        "side_effects": ["process"], "idempotency_behavior": "not_idempotent",
        "retryable": false, "failure_classification": "permanent", "safety_tier": "T2",
        "resource_limits": {
            "cpu": null, "memory": null, "network": "None", "filesystem": "None", "time_limit": 30,
        },
    });
    change(&mut definition);
    definition
}

fn install_worker(directory: &Path, home: &Path) {
    let program = directory.join("worker");
    let text = "#!/bin/bash\nread -r line\nprintf '{\"token\": \"%s\"}' \"${TOKEN//\\\"/\\\\\\\"}\"\necho \"$TOKEN\" >&2\n";
    fs::write(&program, text).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    fs::create_dir_all(home.join("workers")).unwrap();
    let registry = json!({ "version": 1, "workers": [{
        "worker_id": "w", "command": program, "env": { "TOKEN": "secret:CRM_TOKEN" },
    }]});
    fs::write(home.join("workers/worker_registry.json"), registry.to_string()).unwrap();
}

/// What a tool does with its secret: arguments, streams, an error, bytes that are no text.
const SCRIPTS: [&str; 8] = [
    "printf %s \"$TOKEN\"",
    "printf %s \"$TOKEN\" >&2; exit 3",
    "bash -c 'no-such-program \"$0\"; \"$0\"' \"$TOKEN\"",
    "printf %s \"$TOKEN\" | base64 -w0",
    "printf %s \"$TOKEN\" | od -An -tx1 | tr -d ' \\n'",
    "printf '\\xff\\xfe%s' \"$TOKEN\" >&2; printf '\\xff%s' \"$TOKEN\"; kill -9 $$",
    "yes \"$TOKEN\" | head -c 1300000; yes \"$TOKEN\" | head -c 300000 >&2",
    "env; cat /proc/self/environ",
];

#[test]
fn a_sentinel_is_found_nowhere() {
    let directory = tempfile::tempdir().unwrap();
    let home = directory.path().join("home");
    install_worker(directory.path(), &home);
    fs::set_permissions(&home, fs::Permissions::from_mode(0o700)).unwrap();
    let set = secrets(&home, &["set", "CRM_TOKEN"], format!("{SENTINEL}\n").as_bytes());
    assert_eq!(set.status.code(), Some(0), "{}", String::from_utf8_lossy(&set.stderr));
    check_absent(&set.stderr, "the answer of secrets set");

    let mut gateway = Gateway::start_at(&home, &[], &[("ALLTERNIT_LOG", "trace")]);
    let worker = tool("by.worker", |definition| {
        definition["tool_type"] = json!("Subprocess");
        definition["subprocess"] = json!({ "worker_id": "w" });
        for local in ["command", "args", "env"] {
            definition.as_object_mut().unwrap().remove(local);
        }
    });
    for definition in [tool("by.shell", |_definition| {}), worker] {
        let answer = gateway.register(&definition);
        assert_eq!(answer.status, 201, "{answer:?}");
    }
    let mut answers = String::new();
    for (number, script) in SCRIPTS.iter().enumerate() {
        let answer =
            gateway.execute("by.shell", &json!({ "script": script }), &format!("k{number}"));
        assert!(answer.to_string().contains("[secret:CRM_TOKEN]"), "{script}: {answer}");
        answers.push_str(&answer.to_string());
    }
    let answer = gateway.execute("by.worker", &json!({}), "worker");
    assert_eq!(answer["output"], json!({ "token": "[secret:CRM_TOKEN]" }), "{answer}");
    for path in ["/v1/tools", "/v1/tools/by.shell", "/v1/runs/run_1/receipts?limit=100", "/health"]
    {
        let answer = gateway.get(path);
        assert_eq!(answer.status, 200, "{answer:?}");
        answers.push_str(&answer.body);
    }
    check_absent(answers.as_bytes(), "an answer");
    assert!(home.join("ledger").read_dir().unwrap().count() > 1, "the write-ahead log is there");
    assert!(check_home(&home) > 4);

    let removed = secrets(&home, &["rm", "CRM_TOKEN"], b"");
    assert_eq!(removed.status.code(), Some(0));
    let answer = gateway.execute("by.shell", &json!({ "script": "true" }), "removed");
    let error = &answer["error"];
    assert_eq!(error["details"]["kind"], "unavailable", "{answer}");
    assert!(error["message"].as_str().unwrap().contains("`secrets set CRM_TOKEN`"), "{answer}");
    assert!(gateway.stop().success());
    let log: Vec<String> = gateway.log().try_iter().collect();
    assert!(log.iter().any(|line| line.contains("step=\"run\"")), "{log:?}");
    check_absent(log.join("\n").as_bytes(), "the log");
    assert!(check_home(&home) > 4);
}

#[test]
fn secrets_are_set_from_standard_input_listed_by_name_and_removed() {
    let directory = tempfile::tempdir().unwrap();
    let home = directory.path().join("home");
    let check = |arguments: &[&str], stdin: &[u8], code: i32, expected: &str| {
        let output = secrets(&home, arguments, stdin);
        let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
        assert!(said.contains(expected), "{arguments:?}: {said}");
    };
    check(&["set", "B"], b"a long enough value\n", 0, "secret B is set; bindings name it secret:B");
    check(&["set", "A"], b"another long value", 0, "secret A is set");
    check(&["set", "A"], b"short\n", 1, "the value has 5 bytes; expected 8 to 65536 bytes");
    check(&["set", "a/b"], b"", 2, "secret holds '/'");
    check(&["set", "A", "on the command line"], b"", 2, "unexpected argument");
    check(&["list"], b"", 0, "A\nB\n");
    check(&["list", "-o", "json"], b"", 0, "\"name\": \"A\"");
    check(&["rm", "A"], b"", 0, "secret A is removed");
    check(&["rm", "A"], b"", 1, "secret A is not set");
    check(&["list"], b"", 0, "B\n");
}
