//! Redactor: puts `[secret:NAME]` in the place of values, in the spellings that tools print.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use gateway_model::{SecretName, ToolError, ToolOutput};
use memchr::memmem;
use serde_json::{Map, Value};

use super::adapter::{Completion, Evidence};

/// Of a value that a stream was cut in, this many first bytes are taken out as well.
const LEAST_PREFIX_BYTES: usize = 4;
/// A shorter line of a value is not looked for by itself.
const LEAST_LINE_BYTES: usize = 8;

/// The values of one call, each in every spelling that is looked for, longest first.
#[derive(Default)]
pub(super) struct Redactor {
    patterns: Vec<Pattern>,
}

struct Pattern {
    spelling: Vec<u8>,
    replacement: String,
}

impl Redactor {
    /// Adds a value: as it is, as in JSON, percent-encoded, in base64 and in hexadecimal digits.
    ///
    /// Of a value of several lines, each long one is a value too: programs print by line.
    pub(super) fn add(&mut self, name: &SecretName, value: &str) {
        self.add_spellings(name, value);
        let lines = value.lines().map(str::trim).filter(|line| line.len() >= LEAST_LINE_BYTES);
        lines.for_each(|line| self.add_spellings(name, line));
        self.patterns.sort_by_key(|pattern| std::cmp::Reverse(pattern.spelling.len()));
    }

    fn add_spellings(&mut self, name: &SecretName, value: &str) {
        let quoted = Value::from(value).to_string();
        let quoted = quoted.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
        let hexadecimal: String = value.bytes().map(|byte| format!("{byte:02x}")).collect();
        let spellings = [
            value.to_owned(),
            quoted.unwrap_or_default().to_owned(),
            percent_encoded(value),
            STANDARD_NO_PAD.encode(value),
            URL_SAFE_NO_PAD.encode(value),
            hexadecimal.to_uppercase(),
            hexadecimal,
        ];
        for spelling in spellings.map(String::into_bytes) {
            let is_known = self.patterns.iter().any(|pattern| pattern.spelling == spelling);
            if !spelling.is_empty() && !is_known {
                let replacement = format!("[secret:{name}]");
                self.patterns.push(Pattern { spelling, replacement });
            }
        }
    }

    pub(super) fn completion(&self, completion: Completion) -> Completion {
        if self.patterns.is_empty() {
            return completion;
        }
        let Completion { result, has_started, evidence } = completion;
        let Evidence { stdout, stderr, artifacts, sandbox, .. } = &evidence;
        let part = |part: &Option<Vec<u8>>| part.clone().map(|bytes| self.stream(bytes, false));
        let evidence = Evidence {
            stdout: part(stdout),
            stderr: part(stderr),
            artifacts: part(artifacts),
            sandbox: self.value(sandbox.clone()),
            ..evidence
        };
        let result = match result {
            Ok(output) => Ok(self.output(output)),
            Err(error) => Err(self.error(error)),
        };
        Completion { result, has_started, evidence }
    }

    /// Redacts bytes; where the stream went on, also the beginning of a value at its end.
    pub(super) fn stream(&self, bytes: Vec<u8>, is_cut: bool) -> Vec<u8> {
        let mut bytes = self.bytes(bytes);
        let cuts = self.patterns.iter().filter(|_| is_cut).filter_map(|pattern| {
            let longest = pattern.spelling.len().min(bytes.len());
            let mut lengths = (LEAST_PREFIX_BYTES..=longest).rev();
            let length = lengths.find(|length| {
                pattern.spelling.get(..*length).is_some_and(|prefix| bytes.ends_with(prefix))
            })?;
            Some((length, &pattern.replacement))
        });
        if let Some((length, replacement)) = cuts.max_by_key(|(length, _)| *length) {
            bytes.truncate(bytes.len() - length);
            bytes.extend_from_slice(replacement.as_bytes());
        }
        bytes
    }

    fn bytes(&self, mut bytes: Vec<u8>) -> Vec<u8> {
        for Pattern { spelling, replacement } in &self.patterns {
            let mut rest: &[u8] = &bytes;
            let mut redacted = Vec::new();
            while let Some(at) = memmem::find(rest, spelling) {
                let (before, found) = rest.split_at(at);
                redacted.extend_from_slice(before);
                redacted.extend_from_slice(replacement.as_bytes());
                rest = found.get(spelling.len()..).unwrap_or_default();
            }
            if !redacted.is_empty() {
                redacted.extend_from_slice(rest);
                bytes = redacted;
            }
        }
        bytes
    }

    fn text(&self, text: String) -> String {
        // Spellings are UTF-8, so what is left between them is whole characters.
        let redacted = self.bytes(text.into_bytes());
        String::from_utf8_lossy(&redacted).into_owned()
    }

    fn value(&self, value: Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.text(text)),
            Value::Array(items) => items.into_iter().map(|item| self.value(item)).collect(),
            Value::Object(members) => Value::Object(self.members(members)),
            // A value of digits alone can be printed as a number.
            Value::Number(number) => {
                let text = number.to_string();
                let redacted = self.text(text.clone());
                if redacted == text { Value::Number(number) } else { Value::String(redacted) }
            }
            plain @ (Value::Null | Value::Bool(_)) => plain,
        }
    }

    fn members(&self, members: Map<String, Value>) -> Map<String, Value> {
        members.into_iter().map(|(name, value)| (self.text(name), self.value(value))).collect()
    }

    fn output(&self, output: ToolOutput) -> ToolOutput {
        // Content has many shapes and one JSON form, which is redacted as a whole.
        ToolOutput::from_json(self.value(output.to_json())).unwrap_or_default()
    }

    fn error(&self, error: ToolError) -> ToolError {
        ToolError {
            message: self.text(error.message),
            fields: self.members(error.fields),
            kind: error.kind,
            is_retryable: error.is_retryable,
        }
    }
}

/// Percent-encodes all but the unreserved characters of RFC 3986.
fn percent_encoded(value: &str) -> String {
    let mut encoded = String::with_capacity(value.len());
    for byte in value.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                encoded.push(char::from(byte));
            }
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use gateway_model::ErrorKind;
    use serde_json::json;

    use super::*;

    fn redactor(value: &str) -> Redactor {
        let mut redactor = Redactor::default();
        redactor.add(&"TOKEN".parse().unwrap(), value);
        redactor
    }

    #[test]
    fn every_spelling_of_a_value_is_taken_out() {
        let value = "s3cr\"t/va lue+漢";
        let redactor = redactor(value);
        let spelled = [
            value.to_owned(),
            Value::from(value).to_string().trim_matches('"').to_owned(),
            "s3cr%22t%2Fva%20lue%2B%E6%BC%A2".to_owned(),
            STANDARD_NO_PAD.encode(value),
            "7333637222742f7661206c75652be6bca2".to_owned(),
            "7333637222742F7661206C75652BE6BCA2".to_owned(),
        ];
        for spelling in spelled {
            let text = format!("a{spelling}{spelling}b");
            let redacted = redactor.stream(text.into_bytes(), false);
            assert_eq!(redacted, b"a[secret:TOKEN][secret:TOKEN]b", "{spelling}");
        }
        let quotes = Value::from("a \"quoted\"");
        let redacted =
            self::redactor("a \"quoted\"").stream(quotes.to_string().into_bytes(), false);
        assert_eq!(redacted, b"\"[secret:TOKEN]\"", "what is left is still JSON");
        let kept = b"nothing \xff of the kind".to_vec();
        assert_eq!(redactor.stream(kept.clone(), true), kept);
    }

    #[test]
    fn the_lines_of_a_value_are_taken_out_one_by_one() {
        let redactor = redactor("-----BEGIN-----\nfirst line of it\nend\n");
        let redacted = redactor.stream(b"1:first line of it\n2:end".to_vec(), false);
        assert_eq!(redacted, b"1:[secret:TOKEN]\n2:end");
    }

    #[test]
    fn a_value_that_a_cut_went_through_is_taken_out_as_well() {
        let redactor = redactor("sentinel");
        for length in 4..8 {
            let cut = format!("x{}", "sentinel".get(..length).unwrap()).into_bytes();
            assert_eq!(redactor.stream(cut.clone(), true), b"x[secret:TOKEN]");
            assert_eq!(redactor.stream(cut.clone(), false), cut);
        }
    }

    #[test]
    fn all_that_a_call_gives_back_is_redacted() {
        let redactor = redactor("12345678");
        let evidence = Evidence {
            stderr: Some(b"12345678".to_vec()),
            artifacts: Some(b"{\"path\":\"a/12345678\"}".to_vec()),
            ..Evidence::in_process()
        };
        let completion =
            |result| Completion { result, has_started: true, evidence: evidence.clone() };
        let output = ToolOutput::from_value(json!({ "12345678": ["x 12345678 y", 12_345_678] }));
        let redacted = redactor.completion(completion(Ok(output)));
        assert_eq!(
            redacted.result.unwrap().to_rest(),
            json!({ "[secret:TOKEN]": ["x [secret:TOKEN] y", "[secret:TOKEN]"] })
        );
        assert_eq!(redacted.evidence.stderr.unwrap(), b"[secret:TOKEN]");
        assert_eq!(redacted.evidence.artifacts.unwrap(), b"{\"path\":\"a/[secret:TOKEN]\"}");
        let error = ToolError::new(ErrorKind::Execution, "no 12345678")
            .with("output", json!({ "stderr": "12345678" }));
        let error = redactor.completion(completion(Err(error))).result.unwrap_err();
        assert!(!error.to_json().to_string().contains("12345678"), "{error}");
    }
}
