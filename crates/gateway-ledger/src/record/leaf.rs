//! The leaf: a record as the canonical JSON that is stored and hashed.
//!
//! INVARIANT: a leaf holds no content. It holds commitments to content, whose salts are stored
//! beside the content and can be erased with it.
//!
//! INVARIANT: a leaf has at most [`MAX_LEAF_BYTES`], because every member that a caller, a tool
//! or a policy file chooses is bounded here.

use std::sync::Arc;
use std::time::Duration;

use gateway_model::{
    CallId, Decision, Digest, ErrorKind, Principal, Timestamp, ToolId, bounded_text, canonical_json,
};
use serde_json::{Map, Value, json};

use super::{CallFacts, Event, Settlement, Status};
use crate::sealing::{Bundle, Commitment};

/// The version of the record format.
pub(crate) const RECORD_VERSION: u64 = 1;
/// The name of the log in its records.
pub(crate) const LOG_NAME: &str = "allternit/ledger";
/// The longest leaf. An entry of a transparency log's bundle has a 16-bit length.
pub(crate) const MAX_LEAF_BYTES: usize = 16 << 10;

/// The longest text of a leaf that somebody outside chose, in bytes.
const MAX_TEXT_BYTES: usize = 160;
/// The longest nested value of a leaf, in bytes of its canonical form.
const MAX_VALUE_BYTES: usize = 2 << 10;
/// The longest description of what confined a run, with the hosts that it reached.
const MAX_SANDBOX_BYTES: usize = 4 << 10;

/// A leaf without its position: the members before `seq` and after it, both canonical.
#[derive(Debug)]
pub(crate) struct Leaf {
    before: Vec<u8>,
    after: Vec<u8>,
}

impl Leaf {
    /// Splits the members around `seq`, so that the writer only adds digits.
    fn new(members: Map<String, Value>) -> Self {
        let (before, after) = members.into_iter().partition(|(name, _)| name.as_str() < "seq");
        let leaf = Self {
            before: canonical_json(&Value::Object(before)),
            after: canonical_json(&Value::Object(after)),
        };
        debug_assert!(leaf.len() <= MAX_LEAF_BYTES - 32, "an unbounded member in a leaf");
        leaf
    }

    /// Returns the canonical leaf at a position.
    pub(crate) fn at(&self, seq: u64) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.len() + 32);
        bytes.extend_from_slice(self.before.strip_suffix(b"}").unwrap_or(&self.before));
        bytes.extend_from_slice(format!(",\"seq\":{seq},").as_bytes());
        bytes.extend_from_slice(self.after.strip_prefix(b"{").unwrap_or(&self.after));
        bytes
    }

    pub(crate) fn len(&self) -> usize {
        self.before.len() + self.after.len()
    }
}

/// What every record of this opening of the log shares.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Origin {
    pub(crate) epoch: u64,
    pub(crate) at: Timestamp,
}

/// What the two records of an admitted call repeat.
#[derive(Debug, Clone)]
pub(crate) struct AdmittedCall {
    pub(crate) facts: CallFacts,
    pub(crate) attempt: u32,
    pub(crate) first_call: CallId,
    pub(crate) decision: Arc<Decision>,
    pub(crate) input: Commitment,
    pub(crate) key: Option<String>,
}

fn members(kind: &str, origin: Origin) -> Map<String, Value> {
    let mut members = Map::new();
    members.insert("v".to_owned(), RECORD_VERSION.into());
    members.insert("kind".to_owned(), kind.into());
    members.insert("log".to_owned(), LOG_NAME.into());
    members.insert("epoch".to_owned(), origin.epoch.into());
    members.insert("ts".to_owned(), origin.at.to_string().into());
    members.insert("via".to_owned(), "io-service".into());
    members
}

fn with_facts(members: &mut Map<String, Value>, facts: &CallFacts) {
    let CallFacts { call, principal, face, run, wih, correlation, tool } = facts;
    members.insert("call".to_owned(), call.to_string().into());
    members.insert("principal".to_owned(), principal.as_str().into());
    members.insert("face".to_owned(), face.as_str().into());
    members.insert("run_id".to_owned(), run.as_str().into());
    members.insert("wih_id".to_owned(), wih.as_str().into());
    if let Some(correlation) = correlation {
        members.insert("correlation_id".to_owned(), correlation.as_str().into());
    }
    let tool = json!({
        "id": tool.id.as_str(), "ver": tool.version, "def": tool.digest.to_string(),
        "tier": tool.tier.as_str(), "adapter": tool.adapter,
    });
    members.insert("tool".to_owned(), tool);
}

fn policy(decision: &Decision) -> Value {
    let Decision { effect, rule, reason: _, reasons, errors, policy_set } = decision;
    json!({
        "decision": effect.as_str(),
        "rule": bounded_text(rule, MAX_TEXT_BYTES),
        "reasons": bounded(json!(reasons)),
        "errors": bounded(json!(errors)),
        "set": policy_set.to_string(),
    })
}

/// Puts the hash of a value in the place of a value that is too long for a leaf.
fn bounded(value: Value) -> Value {
    bounded_to(MAX_VALUE_BYTES, value)
}

fn bounded_to(most_bytes: usize, value: Value) -> Value {
    let canonical = canonical_json(&value);
    if canonical.len() <= most_bytes {
        return value;
    }
    json!({ "sha256": hex::encode(Digest::of(&canonical).0), "len": canonical.len() })
}

fn with_admitted(members: &mut Map<String, Value>, admitted: &AdmittedCall) {
    let AdmittedCall { facts, attempt, first_call, decision, input, key } = admitted;
    with_facts(members, facts);
    members.insert("attempt".to_owned(), (*attempt).into());
    if *first_call != facts.call {
        members.insert("first_call".to_owned(), first_call.to_string().into());
    }
    members.insert("policy".to_owned(), policy(decision));
    members.insert("input".to_owned(), input.to_json());
    if let Some(key) = key {
        members.insert("key".to_owned(), key.as_str().into());
    }
}

pub(crate) fn intent(admitted: &AdmittedCall, claim: &Value, origin: Origin) -> Leaf {
    let mut members = members("intent", origin);
    with_admitted(&mut members, admitted);
    members.insert("exec".to_owned(), json!({ "claim": bounded(claim.clone()) }));
    Leaf::new(members)
}

pub(crate) fn outcome(
    admitted: &AdmittedCall,
    settlement: &Settlement,
    intent_seq: Option<u64>,
    bundle: &Bundle,
    origin: Origin,
) -> Leaf {
    let mut members = members("outcome", origin);
    with_admitted(&mut members, admitted);
    members.insert("exec".to_owned(), execution(settlement));
    let error = settlement.error.as_ref().map(|error| error.kind);
    with_end(&mut members, End { status: settlement.status, error, intent_seq });
    with_produced(&mut members, bundle);
    Leaf::new(members)
}

fn execution(settlement: &Settlement) -> Value {
    let micros = |duration: Duration| u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
    let ended = settlement.started.plus(settlement.duration);
    let mut execution = Map::new();
    execution
        .insert("sandbox".to_owned(), bounded_to(MAX_SANDBOX_BYTES, settlement.sandbox.clone()));
    execution.insert("claim".to_owned(), bounded(settlement.claim.clone()));
    execution.insert("started".to_owned(), settlement.started.to_string().into());
    execution.insert("ended".to_owned(), ended.to_string().into());
    execution.insert("dur_us".to_owned(), micros(settlement.duration).into());
    let measured = [
        ("exit", settlement.exit.map(Value::from)),
        ("cpu_us", settlement.cpu.map(|cpu| micros(cpu).into())),
        ("rss_bytes", settlement.max_rss_bytes.map(Value::from)),
    ];
    let measured = measured.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
    execution.extend(measured);
    execution.into()
}

/// How an admitted call ended.
#[derive(Debug, Clone, Copy)]
pub(crate) struct End {
    pub(crate) status: Status,
    pub(crate) error: Option<ErrorKind>,
    pub(crate) intent_seq: Option<u64>,
}

fn with_end(members: &mut Map<String, Value>, end: End) {
    members.insert("status".to_owned(), end.status.as_str().into());
    if let Some(kind) = end.error {
        members.insert("error".to_owned(), json!({ "kind": kind.as_str() }));
    }
    if let Some(seq) = end.intent_seq {
        members.insert("intent_seq".to_owned(), seq.into());
    }
}

/// Adds the commitments to what a call produced; that to its input is among its facts.
fn with_produced(members: &mut Map<String, Value>, bundle: &Bundle) {
    for (name, commitment) in bundle.commitments().filter(|(name, _)| *name != "input") {
        match (members.get_mut(name), commitment) {
            // The error's kind stays readable beside the commitment to its text.
            (Some(Value::Object(told)), Value::Object(commitment)) => told.extend(commitment),
            (_, commitment) => {
                members.insert(name.to_owned(), commitment);
            }
        }
    }
}

/// The outcome of a call whose lease was given up.
pub(crate) fn abandoned(
    admitted: &AdmittedCall,
    end: End,
    bundle: &Bundle,
    origin: Origin,
) -> Leaf {
    let mut members = members("outcome", origin);
    with_admitted(&mut members, admitted);
    with_end(&mut members, end);
    with_produced(&mut members, bundle);
    Leaf::new(members)
}

/// Members of an intent that its outcome repeats.
const REPEATED: [&str; 13] = [
    "attempt",
    "call",
    "correlation_id",
    "exec",
    "face",
    "first_call",
    "input",
    "key",
    "policy",
    "principal",
    "run_id",
    "tool",
    "wih_id",
];

/// The outcome of an intent whose process ended before it was settled.
pub(crate) fn lost(intent: &Map<String, Value>, intent_seq: u64, origin: Origin) -> Leaf {
    let mut members = members("outcome", origin);
    for name in REPEATED {
        if let Some(value) = intent.get(name) {
            members.insert(name.to_owned(), value.clone());
        }
    }
    let end = End {
        status: Status::Indeterminate,
        error: Some(ErrorKind::Indeterminate),
        intent_seq: Some(intent_seq),
    };
    with_end(&mut members, end);
    Leaf::new(members)
}

pub(crate) fn event(event: &Event, bundle: &Bundle, origin: Origin) -> Leaf {
    Leaf::new(match event {
        Event::Refused { call, principal, face, ids, input: _, decision, error } => {
            let mut members = members("decision", origin);
            members.insert("call".to_owned(), call.to_string().into());
            members.insert("principal".to_owned(), principal.as_str().into());
            members.insert("face".to_owned(), face.as_str().into());
            with_ids_as_they_came(&mut members, ids);
            if let Some(decision) = decision {
                members.insert("policy".to_owned(), policy(decision));
            }
            members.insert("status".to_owned(), "refused".into());
            members.insert("error".to_owned(), json!({ "kind": error.as_str() }));
            let commitments = bundle.commitments();
            members.extend(commitments.map(|(name, commitment)| (name.to_owned(), commitment)));
            members
        }
        Event::Replayed { facts, of } => {
            let mut members = members("decision", origin);
            with_facts(&mut members, facts);
            members.insert("status".to_owned(), "replayed".into());
            members.insert("of".to_owned(), of.to_string().into());
            members
        }
        Event::IdentityRegistered => {
            let mut members = members("identity.registered", origin);
            members.insert("identity".to_owned(), "io-service".into());
            members
        }
        Event::GatewayStarted { sandbox, policy_set } => {
            let mut members = members("gateway.started", origin);
            members.insert("sandbox".to_owned(), bounded(sandbox.clone()));
            members.insert("policy".to_owned(), json!({ "set": policy_set.to_string() }));
            members
        }
        Event::PolicyActivated { policy_set } => {
            let mut members = members("policy.activated", origin);
            members.insert("policy".to_owned(), json!({ "set": policy_set.to_string() }));
            members
        }
    })
}

fn with_ids_as_they_came(members: &mut Map<String, Value>, ids: &[String; 4]) {
    let [run, wih, correlation, tool] = ids;
    let bounded = |text| bounded_text(text, MAX_TEXT_BYTES);
    members.insert("run_id".to_owned(), bounded(run).into());
    members.insert("wih_id".to_owned(), bounded(wih).into());
    members.insert("correlation_id".to_owned(), bounded(correlation).into());
    members.insert("tool".to_owned(), json!({ "id": bounded(tool) }));
}

pub(crate) fn tool_event(
    kind: &'static str,
    tool: &ToolId,
    (version, digest): (u32, Digest),
    by: Principal,
    origin: Origin,
) -> Leaf {
    let mut members = members(kind, origin);
    members.insert("principal".to_owned(), by.as_str().into());
    let tool = json!({ "id": tool.as_str(), "ver": version, "def": digest.to_string() });
    members.insert("tool".to_owned(), tool);
    Leaf::new(members)
}

#[cfg(test)]
mod tests;
