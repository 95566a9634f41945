//! What a face knows about a call before the line starts: who, for which run, until when.

use std::fmt;
use std::time::Duration;

use gateway_model::wire::RequiredId;
use gateway_model::{
    CorrelationId, ErrorKind, Face, InvalidId, Principal, RunId, ToolError, Violation, WihId,
};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

/// The name of the view that a call is seen through.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ViewName(String);

impl ViewName {
    /// Returns the name of the view that every caller has.
    pub fn default_view() -> Self {
        Self("default".to_owned())
    }

    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ViewName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Everything about a request that is not the tool and its input.
///
/// A face builds one for each call, from parsed ids; it is never kept for the next call.
#[derive(Debug, Clone)]
pub struct RequestContext {
    /// The authenticated actor.
    pub principal: Principal,
    /// The face the call came in by.
    pub caller: Face,
    /// The view the caller sees tools through.
    pub view: ViewName,
    /// The run that the call belongs to and is confined to.
    pub run: RunId,
    /// The workflow invocation handle.
    pub wih: WihId,
    /// Idempotency key and trace correlation; only a tool with side effects needs one.
    pub key: Option<CorrelationId>,
    /// How long the caller waits for a person's answer, at most 120 s; zero answers at once.
    pub patience: Duration,
    /// Cancelled when the caller asks to stop. A caller that merely leaves does not cancel.
    pub cancel: CancellationToken,
}

/// The ids of a request as they came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestIds {
    /// The run.
    pub run: String,
    /// The workflow invocation handle.
    pub wih: String,
    /// The idempotency key; `None` where the caller sent none.
    pub key: Option<String>,
}

/// A call that a face refuses before the line starts; it is journaled all the same.
#[derive(Debug, Clone)]
pub struct RefusedCall {
    /// The authenticated actor.
    pub principal: Principal,
    /// The face the call came in by.
    pub caller: Face,
    /// The tool as it was named.
    pub tool: String,
    /// The ids as they came.
    pub ids: RequestIds,
    /// The input as it came; null where there was none.
    pub input: Value,
    /// Why the call is refused.
    pub error: ToolError,
}

impl RequestContext {
    /// Parses the ids of a request.
    ///
    /// # Errors
    /// Returns what the caller is told about the first unusable id, with the wire contract's
    /// message.
    pub fn parse(principal: Principal, caller: Face, ids: &RequestIds) -> Result<Self, ToolError> {
        let run = ids.run.parse().map_err(|error| refuse_id(RequiredId::Run, &error))?;
        let wih = ids.wih.parse().map_err(|error| refuse_id(RequiredId::Wih, &error))?;
        let key = match &ids.key {
            None => None,
            Some(key) => {
                Some(key.parse().map_err(|error| refuse_id(RequiredId::Correlation, &error))?)
            }
        };
        let view = ViewName::default_view();
        let (patience, cancel) = (Duration::ZERO, CancellationToken::new());
        Ok(Self { principal, caller, view, run, wih, key, patience, cancel })
    }
}

/// Returns what a caller is told about an id that is absent, empty or unusable.
pub(crate) fn refuse_id(id: RequiredId, error: &InvalidId) -> ToolError {
    let violation = Violation { path: format!("/{}", id.field()), reason: error.to_string() };
    let mut refusal = ToolError::invalid("request", &[violation]);
    refusal.message = format!("{}: {error}", id.message());
    debug_assert_eq!(refusal.kind, ErrorKind::ValidationFailed, "an unusable id is bad input");
    refusal
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_refused(run: &str, wih: &str, key: Option<&str>, expected: &str) {
        let ids = RequestIds { run: run.into(), wih: wih.into(), key: key.map(ToOwned::to_owned) };
        let error = RequestContext::parse(Principal::Local, Face::Rest, &ids).unwrap_err();
        assert!(error.message.starts_with(expected), "{}", error.message);
        assert_eq!(error.kind, ErrorKind::ValidationFailed);
    }

    #[test]
    fn an_unusable_id_is_refused_in_the_contracts_words() {
        check_refused(
            "",
            "w",
            None,
            "write_scope root must be under /.allternit/: run_id is empty",
        );
        check_refused("../run_2", "w", None, "write_scope root must be under /.allternit/: run_id");
        check_refused("run", "", None, "WIH context required for tool execution: wih_id is empty");
        check_refused("run", "w", Some(""), "Idempotency key required for tools with side effects");
    }
}
