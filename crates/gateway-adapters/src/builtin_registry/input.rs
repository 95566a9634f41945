//! Reads the fields of an input that its schema has accepted, and refuses what a schema cannot say.

use gateway_model::{ToolError, Violation};
use serde_json::{Map, Value};

/// An input that its tool's schema has accepted.
#[derive(Debug)]
pub(super) struct Input(pub(super) Map<String, Value>);

impl Input {
    /// Returns a text; an absent one is empty.
    pub(super) fn text(&self, name: &str) -> &str {
        self.optional_text(name).unwrap_or_default()
    }

    /// Returns a text that may be absent.
    pub(super) fn optional_text(&self, name: &str) -> Option<&str> {
        self.0.get(name).and_then(Value::as_str)
    }

    /// Returns a whole number, with what an absent one stands for.
    pub(super) fn number(&self, name: &str, default: u64) -> u64 {
        self.optional_number(name).unwrap_or(default)
    }

    /// Returns a whole number that may be absent.
    pub(super) fn optional_number(&self, name: &str) -> Option<u64> {
        whole_number(self.0.get(name)?)
    }

    /// Returns a flag; an absent one is false.
    pub(super) fn flag(&self, name: &str) -> bool {
        self.0.get(name).and_then(Value::as_bool).unwrap_or_default()
    }

    /// Returns a list; an absent one is empty.
    pub(super) fn list(&self, name: &str) -> &[Value] {
        self.0.get(name).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
    }
}

/// Reads `7` and `7.0`, which JSON Schema both calls integers.
fn whole_number(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| value.to_string().strip_suffix(".0")?.parse().ok())
}

/// Returns the error for a field that is not what it must be; nothing was changed then.
pub(super) fn refuse(path: impl Into<String>, reason: impl Into<String>) -> ToolError {
    ToolError::invalid("input", &[Violation { path: path.into(), reason: reason.into() }])
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn absent_fields_have_their_defaults() {
        let Value::Object(fields) = json!({"a": "x", "n": 7, "m": 7.0, "f": true}) else {
            panic!()
        };
        let input = Input(fields);
        assert_eq!((input.text("a"), input.text("b"), input.optional_text("b")), ("x", "", None));
        assert_eq!((input.number("n", 1), input.number("m", 1), input.number("k", 1)), (7, 7, 1));
        assert_eq!((input.flag("f"), input.flag("g"), input.list("l").len()), (true, false, 0));
    }
}
