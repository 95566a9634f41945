//! The rules that can matter for one action on one tool.
//!
//! Cedar evaluates every policy it is given. A policy whose scope cannot match neither permits nor
//! forbids, so that leaving it out changes no decision.

use std::collections::HashMap;
use std::sync::OnceLock;

use cedar_policy::{ActionConstraint, PolicySet, ResourceConstraint};
use gateway_model::Effect;

use crate::request::ActionKind;
use crate::rule::Rule;
use crate::world::World;

/// The slices of one action.
#[derive(Debug)]
pub(crate) struct Slices {
    /// For every tool that no rule of the action names in its scope.
    generic: Lazy,
    /// For the tools that are named.
    named: HashMap<String, Lazy>,
}

#[derive(Debug)]
struct Lazy {
    rules: Vec<usize>,
    slice: OnceLock<Result<Slice, String>>,
}

/// Some rules of a set, ready to be evaluated.
#[derive(Debug)]
pub(crate) struct Slice {
    /// All rules of the slice.
    pub(crate) all: PolicySet,
    /// Those that read nothing which differs from call to call; `None` where that is all of them.
    fixed: Option<PolicySet>,
    /// Says whether a permit reads something that differs from call to call.
    pub(crate) has_varying_permit: bool,
}

impl Slices {
    pub(crate) fn new(kind: ActionKind, rules: &[Rule], world: &World) -> Self {
        let mut generic = Vec::new();
        let mut named: HashMap<String, Vec<usize>> = HashMap::new();
        for (index, rule) in rules.iter().enumerate() {
            if !can_match_action(rule, kind, world) {
                continue;
            }
            match scope_of(rule, world) {
                Scope::EveryTool => generic.push(index),
                Scope::Tool(id) => named.entry(id).or_default().push(index),
            }
        }
        let named = named
            .into_iter()
            .map(|(id, own)| (id, Lazy::new([generic.as_slice(), &own].concat())))
            .collect();
        Self { generic: Lazy::new(generic), named }
    }

    /// Returns the rules that can matter for a tool.
    pub(crate) fn of_tool(&self, tool_id: &str, rules: &[Rule]) -> Result<&Slice, String> {
        self.named.get(tool_id).unwrap_or(&self.generic).get(rules)
    }
}

impl Lazy {
    fn new(rules: Vec<usize>) -> Self {
        Self { rules, slice: OnceLock::new() }
    }

    fn get(&self, rules: &[Rule]) -> Result<&Slice, String> {
        let slice = self.slice.get_or_init(|| {
            let rules: Vec<&Rule> =
                self.rules.iter().filter_map(|index| rules.get(*index)).collect();
            Slice::new(&rules)
        });
        slice.as_ref().map_err(Clone::clone)
    }
}

impl Slice {
    pub(crate) fn new(rules: &[&Rule]) -> Result<Self, String> {
        let policies = |rules: &[&Rule]| {
            PolicySet::from_policies(rules.iter().map(|rule| rule.policy.clone()))
                .map_err(|error| error.to_string())
        };
        let (varying, fixed): (Vec<&Rule>, Vec<&Rule>) =
            rules.iter().partition(|rule| rule.reads.reads_call());
        Ok(Self {
            all: policies(rules)?,
            fixed: if varying.is_empty() { None } else { Some(policies(&fixed)?) },
            has_varying_permit: varying.iter().any(|rule| rule.summary.effect == Effect::Allow),
        })
    }

    /// Says whether the slice decides alike for all calls of one principal, tool and tier.
    pub(crate) fn is_fixed(&self) -> bool {
        self.fixed.is_none()
    }

    /// Returns the rules that read nothing which differs from call to call.
    pub(crate) fn fixed_rules(&self) -> &PolicySet {
        self.fixed.as_ref().unwrap_or(&self.all)
    }
}

enum Scope {
    EveryTool,
    Tool(String),
}

/// Returns the one tool that a rule's scope names. Tools have no parents, so `in` is `==`.
fn scope_of(rule: &Rule, world: &World) -> Scope {
    match rule.policy.resource_constraint() {
        ResourceConstraint::Any | ResourceConstraint::Is(_) => Scope::EveryTool,
        ResourceConstraint::Eq(uid)
        | ResourceConstraint::In(uid)
        | ResourceConstraint::IsIn(_, uid) => match world.tool_id(&uid) {
            Some(id) => Scope::Tool(id.to_owned()),
            None => Scope::EveryTool,
        },
    }
}

/// Says whether a rule's scope can match an action. Actions have no groups, so `in` is `==`.
fn can_match_action(rule: &Rule, kind: ActionKind, world: &World) -> bool {
    let action = world.action(kind);
    match rule.policy.action_constraint() {
        ActionConstraint::Any => true,
        ActionConstraint::Eq(named) => named == action,
        ActionConstraint::In(named) => named.contains(&action),
    }
}
