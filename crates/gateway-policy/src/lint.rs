//! Rules about rules: names, annotations and the form of a gate.

use std::collections::BTreeMap;

use cedar_policy::{Effect as CedarEffect, Policy, ResourceConstraint};

use crate::reads::Reads;
use crate::request::ActionKind;
use crate::world::World;

/// The annotations a rule may carry.
const KNOWN_ANNOTATIONS: [&str; 5] = ["id", "reason", "ask", "approver", "ttl"];
/// Beginnings of names that belong to the default rules, those of later versions included.
const RESERVED_PREFIXES: [&str; 5] = ["base.", "gate.", "deny.", "list.", "register."];
/// The name a decision carries when no rule decided.
pub(crate) const NO_RULE: &str = "default";

const MAX_ID_BYTES: usize = 128;
const MAX_REASON_BYTES: usize = 500;
/// The longest time an approval may be waited for: one week.
const MAX_TTL_SECONDS: u64 = 7 * 24 * 60 * 60;

/// Returns what is wrong with a rule's name, if anything.
pub(crate) fn fault_of_id(id: Option<&str>, is_default: bool) -> Option<String> {
    let Some(id) = id else {
        return Some("the rule has no name; add @id(\"home.some-name\") in front of it".to_owned());
    };
    let is_allowed =
        |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b':' | b'-');
    if id.is_empty() || id.len() > MAX_ID_BYTES || !id.bytes().all(is_allowed) {
        return Some(format!("@id must be 1 to {MAX_ID_BYTES} of A-Z a-z 0-9 . _ : -"));
    }
    let is_reserved =
        id == NO_RULE || RESERVED_PREFIXES.iter().any(|prefix| id.starts_with(prefix));
    (is_reserved && !is_default).then(|| {
        format!(
            "@id(\"{id}\") belongs to the default rules (default, {}*); choose another beginning, such as \"home.\"",
            RESERVED_PREFIXES.join("*, ")
        )
    })
}

/// Returns every fault of a rule's annotations and of its form as a gate.
pub(crate) fn faults_of_annotations(
    annotations: &BTreeMap<String, String>,
    effect: CedarEffect,
    reads: &Reads,
) -> Vec<String> {
    let mut faults = Vec::new();
    for (name, value) in annotations {
        faults.extend(fault_of_annotation(name, value));
    }
    let is_gate = annotations.contains_key("ask");
    if is_gate && effect == CedarEffect::Permit {
        faults.push("@ask stands before a permit; an ask is a forbid … unless { context.approval.granted }, beside a permit".to_owned());
    } else if is_gate && !reads.reads_approval() {
        faults.push("@ask needs unless { context.approval.granted }, else no approval could lift the forbid".to_owned());
    }
    if reads.reads_approval() && !is_gate {
        faults.push(
            "only a rule with @ask(\"human\") may read context.approval (or the whole context)"
                .to_owned(),
        );
    }
    for name in ["approver", "ttl"] {
        if annotations.contains_key(name) && !is_gate {
            faults.push(format!("@{name} means nothing without @ask(\"human\")"));
        }
    }
    faults
}

fn fault_of_annotation(name: &str, value: &str) -> Option<String> {
    match name {
        "id" => None,
        "reason" => {
            let is_printable = !value.is_empty()
                && value.len() <= MAX_REASON_BYTES
                && !value.chars().any(char::is_control);
            (!is_printable)
                .then(|| format!("@reason must be one line of 1 to {MAX_REASON_BYTES} bytes"))
        }
        "ask" => (value != "human").then(|| "@ask must be @ask(\"human\")".to_owned()),
        "approver" => {
            (value != "operator").then(|| "@approver must be @approver(\"operator\")".to_owned())
        }
        "ttl" => {
            let is_in_range =
                value.parse::<u64>().is_ok_and(|seconds| (1..=MAX_TTL_SECONDS).contains(&seconds));
            (!is_in_range).then(|| format!("@ttl must be seconds, 1 to {MAX_TTL_SECONDS}"))
        }
        unknown => Some(format!(
            "@{unknown} is unknown; known annotations are @{}",
            KNOWN_ANNOTATIONS.join(", @")
        )),
    }
}

/// Returns what is wrong with the entities a policy names, if anything.
pub(crate) fn fault_of_entities(policy: &Policy, world: &World) -> Option<String> {
    let stranger = policy.entity_literals().into_iter().find(|uid| world.is_stranger(uid))?;
    Some(format!(
        "{stranger} does not exist, so the rule can never match; known are {}",
        world.known_names()
    ))
}

/// Returns a warning where a permit reaches further than its author may think.
pub(crate) fn warning_of_reach(policy: &Policy, reads: &Reads, world: &World) -> Option<String> {
    let execute = world.action(ActionKind::Execute);
    let is_for_execute = match policy.action_constraint() {
        cedar_policy::ActionConstraint::Any => true,
        cedar_policy::ActionConstraint::Eq(action) => action == execute,
        cedar_policy::ActionConstraint::In(actions) => actions.contains(&execute),
    };
    (policy.effect() == CedarEffect::Permit
        && is_for_execute
        && is_unscoped(policy)
        && !reads.narrows_tool())
    .then(|| {
        "the permit names no tool and no tier, so it reaches T4 tools too, once approved; name the tool or bound resource.tier".to_owned()
    })
}

/// Says whether a policy's scope fits every tool, so that every call must evaluate it.
pub(crate) fn is_unscoped(policy: &Policy) -> bool {
    matches!(policy.resource_constraint(), ResourceConstraint::Any | ResourceConstraint::Is(_))
}
