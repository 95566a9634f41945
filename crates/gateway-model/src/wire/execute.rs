//! `POST /v1/tools/execute`: the request as it came, and the five keys of the answer.

use serde_json::{Value, json};

use super::fields::{FieldError, Fields};
use crate::error::ToolError;
use crate::outcome::ToolOutput;

/// The body of an execute request: ids as texts, not yet judged.
///
/// An id that is present but unusable is a refused call, not a malformed request, so the texts
/// are kept until the call is journaled.
#[derive(Debug, Clone, PartialEq)]
pub struct ExecuteRequest {
    /// The tool to call.
    pub tool_id: String,
    /// The tool's input, an object.
    pub input: Value,
    /// Idempotency key and trace correlation.
    pub correlation_id: String,
    /// The run that the call belongs to.
    pub run_id: String,
    /// The workflow invocation handle.
    pub wih_id: String,
}

/// The ids that an execute request must bring, with the message for a missing one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequiredId {
    /// `tool_id`
    Tool,
    /// `correlation_id`
    Correlation,
    /// `run_id`
    Run,
    /// `wih_id`
    Wih,
}

impl RequiredId {
    /// Returns the field's name.
    pub fn field(self) -> &'static str {
        match self {
            Self::Tool => "tool_id",
            Self::Correlation => "correlation_id",
            Self::Run => "run_id",
            Self::Wih => "wih_id",
        }
    }

    /// Returns the wire contract's message for an absent, empty or unusable id.
    pub fn message(self) -> &'static str {
        match self {
            Self::Tool => "Tool not found: ",
            Self::Correlation => "Idempotency key required for tools with side effects",
            Self::Run => "write_scope root must be under /.allternit/",
            Self::Wih => "WIH context required for tool execution",
        }
    }
}

impl ExecuteRequest {
    /// Reads the body.
    ///
    /// # Errors
    /// Names the first field that is absent, of the wrong type, or unknown. An absent id is
    /// reported with [`RequiredId::message`].
    pub fn read(body: Value) -> Result<Self, FieldError> {
        let mut fields = Fields::of(body, "")?;
        let tool_id = id(&mut fields, RequiredId::Tool)?;
        let input = fields.required("input")?;
        if !input.is_object() {
            let got = super::fields::describe(&input);
            return Err(fields.error("input", format!("expected an object, got {got}")));
        }
        let request = Self {
            tool_id,
            input,
            correlation_id: id(&mut fields, RequiredId::Correlation)?,
            run_id: id(&mut fields, RequiredId::Run)?,
            wih_id: id(&mut fields, RequiredId::Wih)?,
        };
        fields.finish()?;
        Ok(request)
    }
}

fn id(fields: &mut Fields, id: RequiredId) -> Result<String, FieldError> {
    let field = id.field();
    match fields.take(field) {
        None => Err(fields.error(field, format!("is required. {}", id.message()))),
        Some(Value::String(text)) => Ok(text),
        Some(other) => {
            let got = super::fields::describe(&other);
            Err(fields.error(field, format!("expected a string, got {got}")))
        }
    }
}

/// Returns the answer to an execute request: the five keys, always all of them.
///
/// `details` is the typed part of the error; its `kind` and `retryable` are filled in here.
pub fn execute_response(
    result: Result<&ToolOutput, &ToolError>,
    details: Vec<(&'static str, Value)>,
    is_captured: bool,
    is_policy_enforced: bool,
) -> Value {
    let (output, error) = match result {
        Ok(output) => (output.to_rest(), Value::Null),
        Err(error) => (Value::Null, error_object(error, details)),
    };
    json!({
        "success": result.is_ok(),
        "output": output,
        "error": error,
        "io_captured": is_captured,
        "policy_enforced": is_policy_enforced,
    })
}

fn error_object(error: &ToolError, details: Vec<(&'static str, Value)>) -> Value {
    let mut object = serde_json::Map::new();
    object.insert("kind".to_owned(), error.kind.as_str().into());
    object.insert("retryable".to_owned(), error.is_retryable.into());
    for (name, value) in details {
        object.insert(name.to_owned(), value);
    }
    for (name, value) in &error.fields {
        object.insert(name.clone(), value.clone());
    }
    json!({ "code": "TOOL_EXECUTION_FAILED", "message": error.message, "details": object })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body() -> Value {
        json!({
            "tool_id": "echo.test", "input": {"message": "hello"}, "correlation_id": "corr_abc123",
            "run_id": "run_xyz789", "wih_id": "wih_456",
        })
    }

    #[track_caller]
    fn check_refused(change: impl FnOnce(&mut Value), expected: &str) {
        let mut body = body();
        change(&mut body);
        assert_eq!(ExecuteRequest::read(body).unwrap_err().to_string(), expected);
    }

    #[test]
    fn each_fault_names_its_field() {
        assert!(ExecuteRequest::read(body()).is_ok());
        check_refused(|body| *body = json!([]), "(root): expected an object, got a list");
        check_refused(|body| body["input"] = json!("x"), "/input: expected an object, got \"x\"");
        check_refused(|body| body["run_id"] = json!(7), "/run_id: expected a string, got 7");
        check_refused(
            |body| body["runid"] = json!(7),
            "/runid: unknown key; known are tool_id, input, correlation_id, run_id, wih_id",
        );
        check_refused(
            |body| {
                body.as_object_mut().unwrap().remove("wih_id");
            },
            "/wih_id: is required. WIH context required for tool execution",
        );
    }
}
