use super::*;
use gateway_model::CompiledSchema;

fn captured(bytes: &[u8]) -> Captured {
    Captured { bytes: bytes.to_vec(), total_bytes: bytes.len() as u64 }
}

fn cut(bytes: &[u8]) -> Captured {
    Captured { bytes: bytes.to_vec(), total_bytes: bytes.len() as u64 + 1 }
}

#[track_caller]
fn check_output(stdout: Captured, schema: Value, expected: Value) {
    let schema = CompiledSchema::compile(&schema).unwrap();
    let output = output(&stdout, &|value| schema.violations(value).is_empty());
    assert_eq!(output.to_rest(), expected, "{stdout:?}");
}

#[test]
fn json_is_that_value_and_other_text_is_raw_output() {
    let any = || json!({});
    check_output(captured(b"hello\n"), any(), json!({"raw_output": "hello\n"}));
    check_output(
        captured(b"{\"n\": 9007199254740993}\n"),
        any(),
        json!({"n": 9_007_199_254_740_993_u64}),
    );
    check_output(captured(b"[1, 2]"), any(), json!([1, 2]));
    check_output(captured(b""), any(), Value::Null);
    check_output(captured(b"\n"), any(), json!({"raw_output": "\n"}));
    check_output(captured(b"null\n"), any(), Value::Null);
    check_output(captured(b"{} {}"), any(), json!({"raw_output": "{} {}"}));
    check_output(captured(b"a\xffb"), any(), json!({"raw_output": "a\u{fffd}b"}));
}

#[test]
fn a_document_that_is_no_object_is_a_value_only_to_a_schema_that_accepts_it() {
    let object = || json!({"type": "object"});
    check_output(captured(b"42\n"), object(), json!({"raw_output": "42\n"}));
    check_output(captured(b"true"), object(), json!({"raw_output": "true"}));
    check_output(captured(b"[1]"), object(), json!({"raw_output": "[1]"}));
    check_output(captured(b"42\n"), json!({"type": "integer"}), json!(42));
    // Neither form fits, so the value is shown to the check that reports the mismatch.
    check_output(captured(b"\"x\""), json!({"type": "integer"}), json!("x"));
    // An object is never hidden from its schema.
    let strict = json!({"type": "object", "properties": {"n": {"type": "integer"}}});
    check_output(captured(b"{\"n\": \"x\"}"), strict, json!({"n": "x"}));
}

#[test]
fn json_without_an_exact_form_keeps_every_digit_as_text() {
    check_output(captured(b"[1e400]"), json!({}), json!({"raw_output": "[1e400]"}));
    for text in ["{\"n\": 123456789012345678901}", "{\"a\": 1, \"a\": 2}"] {
        let output = output(&captured(text.as_bytes()), &|_value| true);
        assert_eq!(output.to_rest(), json!({ "raw_output": text }));
        assert!(output.meta["warning"].as_str().unwrap().contains("passed on as text"), "{text}");
    }
}

#[test]
fn what_was_cut_is_never_read_as_json() {
    let expected = json!({"raw_output": "123", "truncated": true, "total_bytes": 4});
    check_output(cut(b"123"), json!({}), expected);
}

#[test]
fn texts_are_cut_between_characters() {
    let line = "é漢👩‍👩‍👧e\u{301}".repeat(8);
    for end in 0..line.len() {
        let kept = raw_output(&cut(&line.as_bytes()[..end]));
        assert!(line.starts_with(kept["raw_output"].as_str().unwrap()), "cut at {end}");
    }
    let message = failure_text("x", Exit::Code(1), &cut(line.repeat(200).as_bytes()));
    assert!(message.len() <= MAX_MESSAGE, "{}", message.len());
}

#[track_caller]
fn check_failure(exit: Exit, stderr: &[u8], expected: &str) {
    assert_eq!(failure_text("make", exit, &captured(stderr)), expected);
}

#[test]
fn a_failure_says_what_the_command_said() {
    check_failure(Exit::Code(2), b"\x1b[1;31merror\x1b[0m: no rule\n", "error: no rule");
    check_failure(
        Exit::Code(2),
        b"",
        "make ended with exit code 2 and wrote nothing to standard error",
    );
    check_failure(Exit::Signal(9), b" \n", "make was ended by signal 9");
}

#[test]
fn a_failed_commands_output_is_bounded() {
    assert_eq!(printed(&captured(b"{\"partial\": true}")), json!({"partial": true}));
    assert_eq!(printed(&captured(b"12")), json!({"raw_output": "12"}));
    assert_eq!(printed(&captured(b"")), Value::Null);
    let long = printed(&captured(&b"x".repeat(MAX_OUTPUT_OF_ERROR + 1)));
    assert_eq!(long["raw_output"].as_str().unwrap().len(), MAX_OUTPUT_OF_ERROR);
}
