//! One rule: a Cedar policy with a name, a place and what it is for.

use std::collections::BTreeMap;
use std::time::Duration;

use cedar_policy::Policy;
use gateway_model::Effect;

use crate::reads::Reads;

/// One rule in force, for people to look at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleSummary {
    /// The rule's name, its `@id`.
    pub id: String,
    /// The file the rule stands in; `defaults/…` for the rules that come with the gateway.
    pub file: String,
    /// The line the rule starts on.
    pub line: usize,
    /// What the rule does where it matches: a permit allows, a forbid denies, a gate asks.
    pub effect: Effect,
    /// The rule's annotations by name.
    pub annotations: BTreeMap<String, String>,
}

/// A rule as the rest of the crate sees it.
#[derive(Debug)]
pub(crate) struct Rule {
    pub(crate) summary: RuleSummary,
    pub(crate) is_default: bool,
    /// The policy under the id of the summary.
    pub(crate) policy: Policy,
    pub(crate) reads: Reads,
}

impl Rule {
    /// Returns the rule's `@ttl`.
    pub(crate) fn answer_time(&self) -> Option<Duration> {
        let seconds = self.summary.annotations.get("ttl")?.parse().ok()?;
        Some(Duration::from_secs(seconds))
    }

    /// Returns the rule's `@reason`, else a sentence that names the rule.
    pub(crate) fn reason(&self) -> String {
        match self.summary.annotations.get("reason") {
            Some(reason) => reason.clone(),
            None => {
                let verb = match self.summary.effect {
                    Effect::Allow => "permits it",
                    Effect::Ask => "asks an operator first",
                    Effect::Deny => "forbids it",
                };
                format!("rule {} {verb}", self.summary.id)
            }
        }
    }
}
