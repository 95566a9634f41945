//! What is journaled: the facts of a call, how it ended, and every other event.

pub(crate) mod leaf;

use std::sync::Arc;
use std::time::Duration;

use gateway_model::{
    CallId, CorrelationId, Decision, Digest, ErrorKind, Face, Principal, RunId, SafetyTier,
    Timestamp, ToolError, ToolId, WihId,
};
use serde_json::Value;

/// The tool a record speaks of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolReference {
    /// The tool's id.
    pub id: ToolId,
    /// The version of its registration.
    pub version: u32,
    /// Hash of its definition.
    pub digest: Digest,
    /// Its declared tier.
    pub tier: SafetyTier,
    /// The adapter that runs it.
    pub adapter: &'static str,
}

/// Who called what, for which run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallFacts {
    /// The attempt.
    pub call: CallId,
    /// The authenticated actor.
    pub principal: Principal,
    /// The face the call came in by.
    pub face: Face,
    /// The run.
    pub run: RunId,
    /// The workflow invocation handle.
    pub wih: WihId,
    /// The correlation id, where there was one.
    pub correlation: Option<CorrelationId>,
    /// The tool.
    pub tool: ToolReference,
}

/// How a call that was admitted ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// The tool succeeded.
    Ok,
    /// The tool ran and failed.
    ToolError,
    /// The tool succeeded, but its output is not what it promised; it is never run again.
    OutputInvalid,
    /// The tool was stopped by its time limit.
    Timeout,
    /// The call was stopped.
    Cancelled,
    /// It is unknown whether the effect happened.
    Indeterminate,
    /// The tool certainly never began; its key is free again.
    NotStarted,
    /// It was unknown, and an operator found that the effect happened. Only keys have it.
    Resolved,
}

/// What became of an operator's word about a call whose outcome is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resolved {
    /// It holds.
    Done,
    /// No call of this id has ended under a key.
    Unknown,
    /// The outcome is known, or another attempt has taken the call's place.
    Settled,
}

impl Status {
    /// Every status.
    pub const ALL: [Self; 8] = [
        Self::Ok,
        Self::ToolError,
        Self::OutputInvalid,
        Self::Timeout,
        Self::Cancelled,
        Self::Indeterminate,
        Self::NotStarted,
        Self::Resolved,
    ];

    /// Returns the status's name in records.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::ToolError => "tool_error",
            Self::OutputInvalid => "output_invalid",
            Self::Timeout => "timeout",
            Self::Cancelled => "cancelled",
            Self::Indeterminate => "indeterminate",
            Self::NotStarted => "not_started",
            Self::Resolved => "resolved",
        }
    }

    pub(crate) fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == name)
    }
}

/// The end of an admitted call.
#[derive(Debug, Clone)]
pub struct Settlement {
    /// How it ended.
    pub status: Status,
    /// JSON text of the output (`ToolOutput::to_json`), always present where the status is ok.
    ///
    /// These very bytes are stored, committed to, and given to callers that use the key again.
    pub output: Option<Vec<u8>>,
    /// The error, always present where the status is not ok.
    pub error: Option<ToolError>,
    /// What the process wrote to its standard output.
    pub stdout: Option<Vec<u8>>,
    /// What the process wrote to its standard error.
    pub stderr: Option<Vec<u8>>,
    /// Canonical JSON of the files that the process left behind, where that is told.
    pub artifacts: Option<Vec<u8>>,
    /// What confined the run.
    pub sandbox: Value,
    /// The claim that was held.
    pub claim: Value,
    /// When the tool's clock started.
    pub started: Timestamp,
    /// How long the tool ran.
    pub duration: Duration,
    /// The exit code, where there was a process.
    pub exit: Option<i32>,
    /// Processor time, where it was measured.
    pub cpu: Option<Duration>,
    /// Peak memory, where it was measured.
    pub max_rss_bytes: Option<u64>,
}

/// Everything that is journaled and is not an admitted call.
#[derive(Debug, Clone)]
pub enum Event {
    /// A call ended before it was admitted.
    Refused {
        /// The attempt.
        call: CallId,
        /// The authenticated actor.
        principal: Principal,
        /// The face the call came in by.
        face: Face,
        /// The ids as they came: run, WIH, correlation, tool.
        ids: [String; 4],
        /// Canonical JSON of the input. Kept with its salt up to 16 KiB, else only committed to.
        input: Vec<u8>,
        /// The decision, once policy was asked.
        decision: Option<Arc<Decision>>,
        /// Why the call ended.
        error: ErrorKind,
    },
    /// A call was answered with the outcome of an earlier one.
    Replayed {
        /// The attempt and its facts.
        facts: CallFacts,
        /// The call whose outcome was given.
        of: CallId,
    },
    /// The service's identity exists.
    IdentityRegistered,
    /// The gateway started.
    GatewayStarted {
        /// What confines processes.
        sandbox: Value,
        /// The policy set in force.
        policy_set: Digest,
    },
    /// Another policy set is in force.
    PolicyActivated {
        /// Hash of the set.
        policy_set: Digest,
    },
}
