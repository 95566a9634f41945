//! The leaves of approvals: asked, answered, expired, used.

use gateway_model::{ApprovalId, Principal, Timestamp, bounded_text};

use super::{CallFacts, Decision, Leaf, Members, Origin, json, members, policy, with_facts};
use crate::approvals::GrantedApproval;
use crate::sealing::Commitment;

/// The longest reason of a gate or of an answer, in bytes.
const MAX_REASON_BYTES: usize = 500;

fn of(kind: &str, id: ApprovalId, origin: Origin) -> Members {
    let mut members = members(kind, origin);
    members.set("approval", id.to_string());
    members
}

/// A question to a person about one exact call.
pub(crate) fn requested(
    id: ApprovalId,
    (facts, decision): (&CallFacts, &Decision),
    input: &Commitment,
    expires: Timestamp,
    origin: Origin,
) -> Leaf {
    let mut members = of("approval.requested", id, origin);
    with_facts(&mut members, facts);
    members.set("policy", policy(decision, None));
    members.set("reason", bounded_text(&decision.reason, MAX_REASON_BYTES));
    members.set("input", input.to_json());
    members.set("expires", expires.to_string());
    members.set("scope", "once");
    Leaf::new(members)
}

/// A person's answer, or that an operator took one back.
pub(crate) fn answered(
    id: ApprovalId,
    answer: &'static str,
    (by, reason): (Principal, Option<&str>),
    origin: Origin,
) -> Leaf {
    let mut members = of("approval.decided", id, origin);
    members.set("decision", answer);
    members.set("principal", by.as_str());
    if let Some(reason) = reason {
        members.set("reason", bounded_text(reason, MAX_REASON_BYTES));
    }
    Leaf::new(members)
}

/// Nobody answered, or the yes was not used, in time.
pub(crate) fn expired(id: ApprovalId, origin: Origin) -> Leaf {
    Leaf::new(of("approval.expired", id, origin))
}

/// A yes was used by a call that has no intent of its own.
pub(crate) fn used(granted: &GrantedApproval, facts: &CallFacts, origin: Origin) -> Leaf {
    let mut members = of("approval.used", granted.id, origin);
    with_facts(&mut members, facts);
    Leaf::new(members)
}

/// What the records of an approved call say of its approval.
pub(super) fn told(granted: &GrantedApproval) -> serde_json::Value {
    json!({
        "id": granted.id.to_string(),
        "by": granted.by.as_str(),
        "at": granted.at.to_string(),
        "scope": "once",
    })
}
