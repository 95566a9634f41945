//! `call`: one call of a tool, its input from the shell and its output to it.

use std::fs;
use std::io::{self, Read};
use std::time::Duration;

use gateway_model::{CallId, Clock, ErrorKind, SystemClock, parse_json};
use hyper::{Method, StatusCode};
use serde_json::{Map, Value, json};

use super::{As, Invocation, refused};
use crate::cli::CallArguments;
use crate::client::Ask;
use crate::exit::{Exit, Failure, Outcome};
use crate::table::printable;

/// The longest time limit a tool may have, and the time a call may wait for others.
const CALL_TIME: Duration = Duration::from_secs(2 * 3_600);
/// The largest input that is read; the gateway's own bound is lower.
const MAX_INPUT_BYTES: u64 = 64 * 1024 * 1024;

/// Calls the tool and prints what it gave back.
pub(super) fn run(invocation: &mut Invocation, arguments: &CallArguments) -> Outcome {
    let (body, key) = request(arguments)?;
    let client = invocation.client(As::Local)?;
    let path = "/v1/tools/execute".to_owned();
    let ask = Ask { method: Method::POST, path, body: Some(&body), time: CALL_TIME };
    let answer = client.send(&ask).map_err(|error| {
        let is_unknown = error.is_outcome_unknown();
        let failure = invocation.no_answer(error);
        if is_unknown {
            failure.advise(format!(
                "the call may have run: the same command with --key {key} asks for its outcome, \
                 and never runs it twice"
            ))
        } else {
            failure
        }
    })?;
    let body = match answer.json() {
        Ok(body) if body.get("success").is_some() => body,
        Ok(_) => return Err(refused(&answer)),
        Err(_) if answer.status != StatusCode::OK => return Err(refused(&answer)),
        Err(not_json) => return Err(Failure::of(Exit::Failed, not_json)),
    };
    if invocation.is_json() {
        invocation.terminal.json(&body)?;
    } else {
        print(invocation, &body, answer.header("x-receipt-id"))?;
    }
    if body.pointer("/error/details/kind") == Some(&Value::from("approval_required")) {
        let again = format!("once approved: the same command with --key {key}");
        invocation.terminal.note(&again)?;
    }
    Ok(exit_of(&body))
}

/// Returns the body of an execute request, and its key.
pub(super) fn request(arguments: &CallArguments) -> Result<(Value, String), Failure> {
    let input = read_input(&arguments.input)?;
    let key = arguments.key.clone().unwrap_or_else(fresh_key);
    let body = json!({
        "tool_id": arguments.tool,
        "input": input,
        "correlation_id": key,
        "run_id": arguments.run,
        "wih_id": arguments.wih,
    });
    Ok((body, key))
}

/// Returns a key that no call had before: a call from a shell is meant to run.
fn fresh_key() -> String {
    format!("cli-{}", CallId::generate(SystemClock.now()))
}

fn read_input(argument: &str) -> Result<Value, Failure> {
    let (origin, bytes) = match (argument, argument.strip_prefix('@')) {
        ("-", _) => ("standard input".to_owned(), read_bounded(io::stdin().lock())),
        (_, Some(path)) => (path.to_owned(), fs::File::open(path).and_then(read_bounded)),
        (text, None) => ("the input".to_owned(), Ok(text.as_bytes().to_vec())),
    };
    let bytes =
        bytes.map_err(|error| Failure::because(Exit::Usage, format!("read {origin}"), error))?;
    parse_json(&bytes)
        .map_err(|error| Failure::because(Exit::Usage, format!("{origin} is not JSON"), error))
}

/// Reads a file or standard input to its end, within bounds.
pub(super) fn read_bounded(source: impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    source.take(MAX_INPUT_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_INPUT_BYTES {
        let reason = format!("it has more than {MAX_INPUT_BYTES} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, reason));
    }
    Ok(bytes)
}

/// Returns the exit that an execute answer stands for.
///
/// A command that ends with another code than 0 has failed, though its tool has not.
pub(super) fn exit_of(body: &Value) -> Exit {
    if body.get("success") == Some(&Value::Bool(true)) {
        let is_good = command_code(body).is_none_or(|code| code == 0);
        return if is_good { Exit::Success } else { Exit::Failed };
    }
    let kind =
        body.pointer("/error/details/kind").and_then(Value::as_str).and_then(ErrorKind::from_name);
    match kind {
        Some(
            ErrorKind::PermissionDenied
            | ErrorKind::Declined
            | ErrorKind::ApprovalRequired
            | ErrorKind::ApprovalExpired,
        ) => Exit::Refused,
        _ => Exit::Failed,
    }
}

/// Returns the code with which the command of a call that succeeded ended.
fn command_code(body: &Value) -> Option<i64> {
    body.pointer("/output/exit_code")?.as_i64()
}

fn print(invocation: &mut Invocation, body: &Value, receipt: Option<&str>) -> io::Result<()> {
    if body.get("success") == Some(&Value::Bool(true)) {
        print_output(invocation, body.get("output").unwrap_or(&Value::Null))?;
        return match command_code(body) {
            None | Some(0) => Ok(()),
            Some(code) => invocation.terminal.note(&format!("the command ended with {code}")),
        };
    }
    let error = body.get("error").unwrap_or(&Value::Null);
    let details = error.get("details").and_then(Value::as_object).cloned().unwrap_or_default();
    if let Some(output) = details.get("output") {
        print_output(invocation, output)?;
    }
    let message = error.get("message").and_then(Value::as_str).unwrap_or("the call failed");
    invocation.terminal.note(&format!("error: {}", printable(message)))?;
    for line in detail_lines(&details, receipt) {
        invocation.terminal.note(&format!("  {}", printable(&line)))?;
    }
    Ok(())
}

/// Prints an output for a person: a command's own streams as they were, anything else as JSON.
fn print_output(invocation: &mut Invocation, output: &Value) -> io::Result<()> {
    match texts_of(output) {
        Some(texts) => {
            invocation.terminal.raw(texts.stdout.as_bytes())?;
            invocation.terminal.raw_note(texts.stderr.as_bytes())
        }
        None if output.is_null() => Ok(()),
        None => invocation.terminal.json(output),
    }
}

/// What a command wrote.
#[derive(Debug, PartialEq, Eq)]
struct Texts<'a> {
    stdout: &'a str,
    stderr: &'a str,
}

/// Returns the texts of an output that is nothing but what a command wrote.
fn texts_of(output: &Value) -> Option<Texts<'_>> {
    let fields = match output {
        Value::String(text) => return Some(Texts { stdout: text, stderr: "" }),
        Value::Object(fields) => fields,
        _ => return None,
    };
    if let (1, Some(Value::String(text))) = (fields.len(), fields.get("raw_output")) {
        return Some(Texts { stdout: text, stderr: "" });
    }
    let text = |name: &str| fields.get(name)?.as_str();
    Some(Texts { stdout: text("stdout")?, stderr: text("stderr")? })
}

/// Details that are printed elsewhere, or only serve programs.
const UNPRINTED: [&str; 4] = ["output", "call_id", "receipt_id", "retryable"];

fn detail_lines(details: &Map<String, Value>, receipt: Option<&str>) -> Vec<String> {
    let mut lines = Vec::new();
    for (name, value) in details {
        match value {
            Value::Null => {}
            _ if UNPRINTED.contains(&name.as_str()) => {}
            // The message holds the first one.
            Value::Array(violations) if name == "violations" => {
                lines.extend(
                    violations.iter().skip(1).map(|violation| format!("also: {violation}")),
                );
            }
            Value::String(text) => lines.push(format!("{name}: {text}")),
            other => lines.push(format!("{name}: {other}")),
        }
    }
    let receipt = receipt.or_else(|| details.get("receipt_id")?.as_str());
    lines.extend(receipt.map(|receipt| format!("receipt: {receipt}")));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_exit(body: Value, code: u8) {
        assert_eq!(exit_of(&body).code(), code, "{body}");
    }

    #[test]
    fn the_exit_code_tells_success_failure_and_refusal_apart() {
        check_exit(json!({"success": true, "output": null}), 0);
        check_exit(json!({"success": true, "output": {"exit_code": 0}}), 0);
        check_exit(json!({"success": true, "output": {"exit_code": 3}}), 1);
        for kind in ErrorKind::ALL {
            let is_refusal = matches!(
                kind.as_str(),
                "permission_denied" | "declined" | "approval_required" | "approval_expired"
            );
            let body = json!({"success": false, "error": {"details": {"kind": kind.as_str()}}});
            check_exit(body, if is_refusal { 4 } else { 1 });
        }
        check_exit(json!({"success": false, "error": {"details": null}}), 1);
        check_exit(json!([]), 1);
    }

    #[test]
    fn a_commands_streams_are_printed_as_they_were() {
        let check = |output: Value, expected: Option<(&str, &str)>| {
            let texts = texts_of(&output).map(|texts| (texts.stdout, texts.stderr));
            assert_eq!(texts, expected, "{output}");
        };
        check(json!("plain"), Some(("plain", "")));
        check(json!({"raw_output": "hello\n"}), Some(("hello\n", "")));
        check(json!({"stdout": "a", "stderr": "b", "exit_code": 0}), Some(("a", "b")));
        check(json!({"raw_output": "hello\n", "more": 1}), None);
        check(json!({"path": "x"}), None);
        check(Value::Null, None);
    }

    #[test]
    fn an_input_is_text_a_file_or_refused_with_its_origin() {
        assert_eq!(
            read_input("{\"a\": 12345678901234567890}").unwrap(),
            json!({"a": 12345678901234567890_u64})
        );
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::copy("Cargo.toml", file.path()).unwrap();
        let failure = read_input(&format!("@{}", file.path().display())).unwrap_err();
        assert_eq!(failure.exit, Exit::Usage);
        assert!(failure.to_string().contains("is not JSON"), "{failure}");
        assert!(
            read_input("@/no/such/file").unwrap_err().to_string().starts_with("read /no/such/file")
        );
        assert!(read_input("{\"a\":1,\"a\":2}").is_err());
    }

    #[test]
    fn fresh_keys_differ_and_are_valid() {
        let (one, other) = (fresh_key(), fresh_key());
        assert_ne!(one, other);
        one.parse::<gateway_model::CorrelationId>().unwrap();
    }

    #[test]
    fn details_are_shown_once_and_without_what_only_programs_need() {
        let details = json!({
            "kind": "permission_denied", "rule": "gate.t3", "call_id": "c", "receipt_id": "r",
            "output": {"raw_output": "x"}, "nothing": null, "retryable": false,
            "violations": [{"path": "/a"}, {"path": "/b"}],
        });
        let lines = detail_lines(details.as_object().unwrap(), None);
        assert_eq!(
            lines,
            ["kind: permission_denied", "rule: gate.t3", "also: {\"path\":\"/b\"}", "receipt: r"]
        );
    }
}
