//! What the caller is told, and whether it was journaled and judged.

use std::time::Duration;

use gateway_model::{CallId, ToolError, ToolOutput};

/// The answer to one call.
#[derive(Debug, Clone, PartialEq)]
pub struct CallReport {
    /// The id of this attempt.
    pub call: CallId,
    /// The call whose receipt shows what was done; another call's for a replay.
    pub receipt: Option<CallId>,
    /// The output, or why there is none.
    pub result: Result<ToolOutput, ToolError>,
    /// The attempt is durably journaled.
    pub is_captured: bool,
    /// Policy was evaluated for this call, or for the one it replays.
    pub is_policy_enforced: bool,
    /// The result is a stored one; nothing ran.
    pub is_replayed: bool,
    /// Wall-clock time from arrival to answer.
    pub duration: Duration,
}
