//! One immutable set of rules, and how it decides.
//!
//! An ask is a denial that an approval would lift: the same policies are evaluated without and
//! with the approval, so that no other code than Cedar's combines rules.
//! INVARIANT: an error in any evaluation makes the decision a denial.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use cedar_policy::{Authorizer, Context, Decision as CedarDecision, PolicyId, PolicySet};
use gateway_model::{Decision, Digest, Effect, SafetyTier};

use crate::cache::DecisionCache;
use crate::lint::NO_RULE;
use crate::request::{Action, ActionKind, PolicyRequest};
use crate::rule::{Rule, RuleSummary};
use crate::slices::{Slice, Slices};
use crate::source::Source;
use crate::world::{Question, SCHEMA_TEXT, World};

/// Rules that passed every check, with the decisions they made so far.
#[derive(Debug)]
pub(crate) struct RuleSet {
    world: World,
    rules: Vec<Rule>,
    by_id: HashMap<String, usize>,
    execute: Slices,
    list: Slices,
    register: Slices,
    remove: Slices,
    digest: Digest,
    cache: DecisionCache,
}

/// What one evaluation gave.
struct Verdict<'a> {
    is_allowed: bool,
    /// The rules that determined it: the operator's own first, each group by name.
    rules: Vec<&'a Rule>,
    /// The rules that failed to evaluate and why, by name.
    errors: Vec<(String, String)>,
}

impl RuleSet {
    pub(crate) fn new(world: World, rules: Vec<Rule>, sources: &[Source]) -> Self {
        let by_id = rules
            .iter()
            .enumerate()
            .map(|(index, rule)| (rule.summary.id.clone(), index))
            .collect();
        Self {
            by_id,
            execute: Slices::new(ActionKind::Execute, &rules, &world),
            list: Slices::new(ActionKind::List, &rules, &world),
            register: Slices::new(ActionKind::Register, &rules, &world),
            remove: Slices::new(ActionKind::Remove, &rules, &world),
            digest: digest_of(sources),
            cache: DecisionCache::default(),
            world,
            rules,
        }
    }

    pub(crate) fn digest(&self) -> Digest {
        self.digest
    }

    /// Returns the shortest time that a gate of an ask gives a person to answer.
    ///
    /// `None` where none of them names one, or where another set of rules decided.
    pub(crate) fn answer_time(&self, decision: &Decision) -> Option<Duration> {
        if decision.policy_set != self.digest {
            return None;
        }
        let gates = decision.reasons.iter().filter_map(|id| self.rules.get(*self.by_id.get(id)?));
        gates.filter_map(Rule::answer_time).min()
    }

    pub(crate) fn rules(&self) -> Vec<RuleSummary> {
        self.rules.iter().map(|rule| rule.summary.clone()).collect()
    }

    /// Decides; where no input could change the decision, from memory.
    pub(crate) fn decide(&self, request: &PolicyRequest<'_>) -> Arc<Decision> {
        let slices = match request.action {
            Action::Execute(_) => &self.execute,
            Action::List => &self.list,
            Action::Register(_) => &self.register,
            Action::Remove => &self.remove,
        };
        let id = request.tool.id.as_str();
        let found = slices.of_tool(id, &self.rules).and_then(|slice| {
            self.execute.of_tool(id, &self.rules).map(|execute| (slice, execute))
        });
        let (slice, execute) = match found {
            Ok(slices) => slices,
            Err(fault) => return Arc::new(self.failed(vec![(NO_RULE.to_owned(), fault)])),
        };
        let is_repeatable = match request.action {
            Action::Execute(_) => slice.is_fixed(),
            Action::List => true,
            Action::Register(_) | Action::Remove => false,
        };
        if !is_repeatable {
            return Arc::new(self.judge(request, slice, execute));
        }
        if let Some(decision) = self.cache.get(request) {
            return decision;
        }
        let decision = Arc::new(self.judge(request, slice, execute));
        self.cache.put(request, Arc::clone(&decision));
        decision
    }

    fn judge(&self, request: &PolicyRequest<'_>, slice: &Slice, execute: &Slice) -> Decision {
        self.evaluate(request, slice, execute)
            .unwrap_or_else(|fault| self.failed(vec![(NO_RULE.to_owned(), fault)]))
    }

    fn evaluate(
        &self,
        request: &PolicyRequest<'_>,
        slice: &Slice,
        execute: &Slice,
    ) -> Result<Decision, String> {
        let question = self.world.question(request, request.action.kind())?;
        let is_approved = request.is_approved();
        let context = self.world.context(&request.action, is_approved)?;
        let now = self.authorize(&question, context, &slice.all)?;
        if !now.errors.is_empty() {
            return Ok(self.failed(now.errors));
        }
        if now.is_allowed {
            let hidden = match request.action {
                Action::List => self.hide(request, execute)?,
                Action::Execute(_) | Action::Register(_) | Action::Remove => None,
            };
            return Ok(hidden.unwrap_or_else(|| self.decided(Effect::Allow, &now.rules)));
        }
        if let Action::List = request.action {
            return Ok(self.denied(request, ActionKind::List, &now.rules));
        }
        if is_approved {
            return Ok(self.denied(request, request.action.kind(), &now.rules));
        }
        let approved =
            self.authorize(&question, self.world.context(&request.action, true)?, &slice.all)?;
        Ok(if !approved.errors.is_empty() {
            self.failed(approved.errors)
        } else if approved.is_allowed {
            self.decided(Effect::Ask, &now.rules)
        } else {
            self.denied(request, request.action.kind(), &approved.rules)
        })
    }

    /// Returns a denial where no call of the tool could run, whatever its input and approval.
    ///
    /// So a rule about executing a tool also decides whether it is seen, and nothing is listed
    /// that always refuses.
    fn hide(
        &self,
        request: &PolicyRequest<'_>,
        execute: &Slice,
    ) -> Result<Option<Decision>, String> {
        let question = self.world.question(request, ActionKind::Execute)?;
        let context = self.world.context_of_any_call(request.tool.tier)?;
        let verdict = self.authorize(&question, context, execute.fixed_rules())?;
        let is_unpermitted = verdict.rules.is_empty() && !execute.has_varying_permit;
        Ok(if !verdict.errors.is_empty() {
            Some(self.failed(verdict.errors))
        } else if !verdict.is_allowed && (is_unpermitted || !verdict.rules.is_empty()) {
            Some(self.denied(request, ActionKind::Execute, &verdict.rules))
        } else {
            None
        })
    }

    fn authorize(
        &self,
        question: &Question,
        context: Context,
        policies: &PolicySet,
    ) -> Result<Verdict<'_>, String> {
        let cedar_request = question.with(context)?;
        let response =
            Authorizer::new().is_authorized(&cedar_request, policies, &question.entities);
        let mut rules: Vec<&Rule> =
            response.diagnostics().reason().filter_map(|id| self.rule(id)).collect();
        rules.sort_by_key(|rule| (rule.is_default, &rule.summary.id));
        let mut errors: Vec<(String, String)> = response
            .diagnostics()
            .errors()
            .map(|error| {
                let cedar_policy::AuthorizationError::PolicyEvaluationError(failure) = error;
                (failure.policy_id().to_string(), error.to_string())
            })
            .collect();
        errors.sort();
        Ok(Verdict { is_allowed: response.decision() == CedarDecision::Allow, rules, errors })
    }

    fn rule(&self, id: &PolicyId) -> Option<&Rule> {
        let id: &str = id.as_ref();
        self.by_id.get(id).and_then(|index| self.rules.get(*index))
    }

    /// Composes a decision that the first of the rules is named for.
    fn decided(&self, effect: Effect, rules: &[&Rule]) -> Decision {
        let (rule, reason) = match rules.first() {
            Some(rule) => (rule.summary.id.clone(), rule.reason()),
            None => (NO_RULE.to_owned(), "no single rule decided".to_owned()),
        };
        let mut reasons: Vec<String> = rules.iter().map(|rule| rule.summary.id.clone()).collect();
        reasons.sort();
        Decision { effect, rule, reason, reasons, errors: Vec::new(), policy_set: self.digest }
    }

    fn denied(
        &self,
        request: &PolicyRequest<'_>,
        action: ActionKind,
        forbids: &[&Rule],
    ) -> Decision {
        let decision = self.decided(Effect::Deny, forbids);
        if !forbids.is_empty() {
            return decision;
        }
        let tier = request.requested_tier();
        let mut reason = format!(
            "no rule permits {} to {} {} (tier {})",
            request.principal,
            action.as_str(),
            request.tool.id,
            tier.as_str()
        );
        if tier == SafetyTier::T4 && action == ActionKind::Execute {
            reason.push_str("; T4 needs a policy that names the tool");
        }
        Decision { reason, ..decision }
    }

    fn failed(&self, errors: Vec<(String, String)>) -> Decision {
        let rule = errors.first().map_or_else(|| NO_RULE.to_owned(), |(id, _error)| id.clone());
        let culprit =
            if rule == NO_RULE { "the request".to_owned() } else { format!("rule {rule}") };
        let mut reasons: Vec<String> = errors.iter().map(|(id, _error)| id.clone()).collect();
        reasons.retain(|id| id != NO_RULE);
        Decision {
            effect: Effect::Deny,
            reason: format!("{culprit} could not be evaluated, so nothing is permitted"),
            rule,
            reasons,
            errors: errors.into_iter().map(|(_id, error)| error).collect(),
            policy_set: self.digest,
        }
    }
}

/// Hashes the schema and every policy text, each with its name and length before it.
fn digest_of(sources: &[Source]) -> Digest {
    let schema = ("schema/gateway.cedarschema", SCHEMA_TEXT);
    let texts = sources.iter().map(|source| (source.name.as_str(), source.text.as_str()));
    let mut bytes = Vec::new();
    for (name, text) in std::iter::once(schema).chain(texts) {
        bytes.extend_from_slice(format!("{name}\0{}\0", text.len()).as_bytes());
        bytes.extend_from_slice(text.as_bytes());
    }
    Digest::of(&bytes)
}

#[cfg(test)]
mod tests;
