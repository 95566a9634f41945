//! Requests to ask policy with.

use std::collections::BTreeSet;

use gateway_model::{
    ConcurrencyClaim, Digest, FilesystemLimit, Idempotency, NetworkLimit, Principal, RunId,
    SafetyTier, ToolId, ToolSource, WihId,
};

use crate::compile::compile;
use crate::problem::LoadError;
use crate::rule_set::RuleSet;
use crate::source::Source;
use crate::{Action, ExecuteContext, PolicyRequest, RegisterContext, ToolFacts};

/// A request that owns what it is made of.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub(crate) principal: Principal,
    pub(crate) verb: Verb,
    pub(crate) tool_id: ToolId,
    pub(crate) tier: SafetyTier,
    pub(crate) network: NetworkLimit,
    pub(crate) effects: Vec<String>,
    pub(crate) run_id: RunId,
    pub(crate) wih_id: WihId,
    pub(crate) claim: ConcurrencyClaim,
    pub(crate) args_bytes: u64,
    pub(crate) is_approved: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verb {
    /// At the given tier, or at the tool's own.
    Execute(Option<SafetyTier>),
    List,
    Register {
        is_enforceable: bool,
        names_secrets: bool,
    },
    Remove,
}

impl Asked {
    pub(crate) fn new(principal: Principal, verb: Verb, tool_id: &str, tier: SafetyTier) -> Self {
        Self {
            principal,
            verb,
            tool_id: tool_id.parse().unwrap(),
            tier,
            network: NetworkLimit::None,
            effects: vec!["filesystem".to_owned()],
            run_id: "run_1".parse().unwrap(),
            wih_id: "wih_1".parse().unwrap(),
            claim: ConcurrencyClaim::Shared,
            args_bytes: 20,
            is_approved: false,
        }
    }

    pub(crate) fn on_path(mut self, path: &str) -> Self {
        self.claim = ConcurrencyClaim::on_paths(BTreeSet::from([path.to_owned()]));
        self
    }

    pub(crate) fn request(&self) -> PolicyRequest<'_> {
        let facts =
            format!("{} {:?} {:?} {:?}", self.tool_id, self.tier, self.network, self.effects);
        PolicyRequest {
            principal: self.principal,
            action: match self.verb {
                Verb::Execute(tier) => Action::Execute(ExecuteContext {
                    run_id: &self.run_id,
                    wih_id: &self.wih_id,
                    requested_tier: tier.unwrap_or(self.tier),
                    claim: &self.claim,
                    args_bytes: self.args_bytes,
                    is_approved: self.is_approved,
                }),
                Verb::List => Action::List,
                Verb::Remove => Action::Remove,
                Verb::Register { is_enforceable, names_secrets } => {
                    Action::Register(RegisterContext {
                        replaces: false,
                        is_enforceable,
                        names_secrets,
                    })
                }
            },
            tool: ToolFacts {
                id: &self.tool_id,
                digest: Digest::of(facts.as_bytes()),
                tier: self.tier,
                kind: "Local",
                source: ToolSource::Registered,
                idempotency: Idempotency::NotIdempotent,
                effects: &self.effects,
                network: &self.network,
                filesystem: &FilesystemLimit::None,
            },
        }
    }
}

/// Compiles policy files of these names and texts on top of the default rules.
pub(crate) fn rule_set(home: &[(&str, &str)]) -> Result<RuleSet, LoadError> {
    let source = |(name, text): &(&str, &str)| Source {
        name: (*name).to_owned(),
        text: (*text).to_owned(),
        is_default: false,
    };
    compile(home.iter().map(source).collect()).rule_set
}
