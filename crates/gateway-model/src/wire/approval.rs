//! An operator's word: `POST /v1/approvals/{id}`, `POST /v1/calls/{id}/resolution`.

use serde_json::Value;

use super::fields::{FieldError, Fields};

/// The longest reason of an answer, in bytes.
const MAX_REASON_BYTES: usize = 500;

/// A person's answer to the question whether a call may act.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AnswerApproval {
    /// The call may act.
    pub is_approved: bool,
    /// Why, for whoever made the call; one line.
    pub reason: Option<String>,
}

impl AnswerApproval {
    /// Reads the body.
    ///
    /// # Errors
    /// Names the first field that is absent, of the wrong type, unusable, or unknown.
    pub fn read(body: Value) -> Result<Self, FieldError> {
        let mut fields = Fields::of(body, "")?;
        let word = |is_approved| if is_approved { "approve" } else { "deny" };
        let is_approved = fields.choice("decision", &[true, false], word)?;
        let scope = fields.optional_text("scope")?;
        if scope.is_some_and(|scope| scope != "once") {
            let reason = "expected once: an answer is to one call";
            return Err(fields.error("scope", reason));
        }
        let reason = reason(&mut fields)?;
        fields.finish()?;
        Ok(Self { is_approved, reason })
    }
}

/// An operator's word about a call whose outcome is unknown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResolveCall {
    /// The effect happened.
    pub has_acted: bool,
    /// How it was found out; one line.
    pub reason: Option<String>,
}

impl ResolveCall {
    /// Reads the body.
    ///
    /// # Errors
    /// Names the first field that is absent, of the wrong type, unusable, or unknown.
    pub fn read(body: Value) -> Result<Self, FieldError> {
        let mut fields = Fields::of(body, "")?;
        let word = |has_acted| if has_acted { "done" } else { "not_done" };
        let has_acted = fields.choice("resolution", &[true, false], word)?;
        let reason = reason(&mut fields)?;
        fields.finish()?;
        Ok(Self { has_acted, reason })
    }
}

/// Reads a reason: one line, so that it cannot pass for more than one where it is shown.
fn reason(fields: &mut Fields) -> Result<Option<String>, FieldError> {
    let reason = fields.optional_text("reason")?;
    let is_line =
        |reason: &String| reason.len() <= MAX_REASON_BYTES && !reason.chars().any(char::is_control);
    if !reason.as_ref().is_none_or(is_line) {
        let expected = format!("expected one line of at most {MAX_REASON_BYTES} bytes");
        return Err(fields.error("reason", expected));
    }
    Ok(reason)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(body: Value, expected: Result<bool, &str>) {
        let read = AnswerApproval::read(body).map(|answer| answer.is_approved);
        assert_eq!(read.map_err(|error| error.path), expected.map_err(str::to_owned));
    }

    #[test]
    fn an_answer_is_a_decision_with_one_scope_and_one_line_of_reason() {
        check(json!({"decision": "approve"}), Ok(true));
        check(json!({"decision": "deny", "scope": "once", "reason": "not today"}), Ok(false));
        check(json!({"decision": "deny", "scope": null, "reason": null}), Ok(false));
        check(json!({"decision": "yes"}), Err("/decision"));
        check(json!({}), Err("/decision"));
        check(json!({"decision": "approve", "scope": "always"}), Err("/scope"));
        check(json!({"decision": "approve", "reason": "a\nb"}), Err("/reason"));
        check(json!({"decision": "approve", "reason": "x".repeat(501)}), Err("/reason"));
        check(json!({"decision": "approve", "by": "operator"}), Err("/by"));
    }
}
