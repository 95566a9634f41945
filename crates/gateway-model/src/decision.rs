//! What policy said about a call, and by which rule.

use crate::json::Digest;

/// The three answers policy can give.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Effect {
    /// The call may run.
    Allow,
    /// The call may run once a person has approved it.
    Ask,
    /// The call may not run.
    Deny,
}

impl Effect {
    /// Returns the effect's name in receipts and messages.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Ask => "ask",
            Self::Deny => "deny",
        }
    }
}

/// One explainable decision: what, by which rule, why, under which policies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// What was decided.
    pub effect: Effect,
    /// The one rule that decided, such as `base.t2`; `default` when no rule permits.
    pub rule: String,
    /// Why, in words for a person.
    pub reason: String,
    /// Every rule that contributed to the decision, sorted.
    pub reasons: Vec<String>,
    /// Evaluation errors, each of which made the decision a denial.
    pub errors: Vec<String>,
    /// Hash of the policy set (policies and schema) that decided.
    pub policy_set: Digest,
}
