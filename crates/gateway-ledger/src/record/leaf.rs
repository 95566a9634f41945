//! The leaf: a record as the canonical JSON that is stored and hashed.
//!
//! INVARIANT: a leaf holds no content. It holds commitments to content, whose salts are stored
//! beside the content and can be erased with it.
//!
//! INVARIANT: a leaf has at most [`MAX_LEAF_BYTES`], because every member that a caller, a tool
//! or a policy file chooses is bounded here.

pub(crate) mod approval;

use std::sync::Arc;
use std::time::Duration;

use gateway_model::{
    CallId, Decision, Digest, ErrorKind, Principal, Timestamp, ToolId, bounded_text,
    canonical_json, write_canonical_json,
};
use serde_json::{Map, Value, json};

use super::{CallFacts, Event, Settlement, Status};
use crate::approvals::GrantedApproval;
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
    fn new(members: Members) -> Self {
        let mut members = members.0;
        // Each name is plain ASCII, whose order by bytes is the canonical one.
        members.sort_unstable_by_key(|(name, _)| *name);
        let (before, after) = members.split_at(members.partition_point(|(name, _)| *name < "seq"));
        let leaf = Self { before: object(before), after: object(after) };
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
    /// The approval that the call uses.
    pub(crate) approval: Option<GrantedApproval>,
    pub(crate) input: Commitment,
    pub(crate) key: Option<String>,
}

/// The members of a leaf, in any order; each name is set once.
struct Members(Vec<(&'static str, Value)>);

impl Members {
    fn set(&mut self, name: &'static str, value: impl Into<Value>) {
        debug_assert!(self.0.iter().all(|(set, _)| *set != name), "{name} is set twice");
        self.0.push((name, value.into()));
    }
}

/// Writes an object whose members are sorted.
fn object(members: &[(&'static str, Value)]) -> Vec<u8> {
    let mut out = Vec::with_capacity(512);
    out.push(b'{');
    for (position, (name, value)) in members.iter().enumerate() {
        if position > 0 {
            out.push(b',');
        }
        out.push(b'"');
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(b"\":");
        write_canonical_json(value, &mut out);
    }
    out.push(b'}');
    out
}

fn members(kind: &str, origin: Origin) -> Members {
    let mut members = Members(Vec::with_capacity(24));
    members.set("v", RECORD_VERSION);
    members.set("kind", kind);
    members.set("log", LOG_NAME);
    members.set("epoch", origin.epoch);
    members.set("ts", origin.at.to_string());
    members.set("via", "io-service");
    members
}

fn with_facts(members: &mut Members, facts: &CallFacts) {
    let CallFacts { call, principal, face, run, wih, correlation, tool } = facts;
    members.set("call", call.to_string());
    members.set("principal", principal.as_str());
    members.set("face", face.as_str());
    members.set("run_id", run.as_str());
    members.set("wih_id", wih.as_str());
    if let Some(correlation) = correlation {
        members.set("correlation_id", correlation.as_str());
    }
    let tool = json!({
        "id": tool.id.as_str(), "ver": tool.version, "def": tool.digest.to_string(),
        "tier": tool.tier.as_str(), "adapter": tool.adapter,
    });
    members.set("tool", tool);
}

fn policy(decision: &Decision, approval: Option<&GrantedApproval>) -> Value {
    let Decision { effect, rule, reason: _, reasons, errors, policy_set } = decision;
    let mut policy = json!({
        "decision": effect.as_str(),
        "rule": bounded_text(rule, MAX_TEXT_BYTES),
        "reasons": bounded(json!(reasons)),
        "errors": bounded(json!(errors)),
        "set": policy_set.to_string(),
    });
    if let (Some(members), Some(granted)) = (policy.as_object_mut(), approval) {
        members.insert("approval".to_owned(), approval::told(granted));
    }
    policy
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

fn with_admitted(members: &mut Members, admitted: &AdmittedCall) {
    let AdmittedCall { facts, attempt, first_call, decision, approval, input, key } = admitted;
    with_facts(members, facts);
    members.set("attempt", *attempt);
    if *first_call != facts.call {
        members.set("first_call", first_call.to_string());
    }
    members.set("policy", policy(decision, approval.as_ref()));
    members.set("input", input.to_json());
    if let Some(key) = key {
        members.set("key", key.as_str());
    }
}

pub(crate) fn intent(admitted: &AdmittedCall, claim: &Value, origin: Origin) -> Leaf {
    let mut members = members("intent", origin);
    with_admitted(&mut members, admitted);
    members.set("exec", json!({ "claim": bounded(claim.clone()) }));
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
    members.set("exec", execution(settlement));
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

fn with_end(members: &mut Members, end: End) {
    members.set("status", end.status.as_str());
    if let Some(kind) = end.error {
        members.set("error", json!({ "kind": kind.as_str() }));
    }
    if let Some(seq) = end.intent_seq {
        members.set("intent_seq", seq);
    }
}

/// Adds the commitments to what a call produced; that to its input is among its facts.
fn with_produced(members: &mut Members, bundle: &Bundle) {
    for (name, commitment) in bundle.commitments().filter(|(name, _)| *name != "input") {
        let told = members.0.iter_mut().find(|(told, _)| *told == name);
        match (told, commitment) {
            // The error's kind stays readable beside the commitment to its text.
            (Some((_, Value::Object(told))), Value::Object(commitment)) => told.extend(commitment),
            (_, commitment) => members.set(name, commitment),
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
            members.set(name, value.clone());
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
            members.set("call", call.to_string());
            members.set("principal", principal.as_str());
            members.set("face", face.as_str());
            with_ids_as_they_came(&mut members, ids);
            if let Some(decision) = decision {
                members.set("policy", policy(decision, None));
            }
            members.set("status", "refused");
            members.set("error", json!({ "kind": error.as_str() }));
            let commitments = bundle.commitments();
            for (name, commitment) in commitments {
                members.set(name, commitment);
            }
            members
        }
        Event::Replayed { facts, of } => {
            let mut members = members("decision", origin);
            with_facts(&mut members, facts);
            members.set("status", "replayed");
            members.set("of", of.to_string());
            members
        }
        Event::IdentityRegistered => {
            let mut members = members("identity.registered", origin);
            members.set("identity", "io-service");
            members
        }
        Event::GatewayStarted { sandbox, policy_set } => {
            let mut members = members("gateway.started", origin);
            members.set("sandbox", bounded(sandbox.clone()));
            members.set("policy", json!({ "set": policy_set.to_string() }));
            members
        }
        Event::PolicyActivated { policy_set } => {
            let mut members = members("policy.activated", origin);
            members.set("policy", json!({ "set": policy_set.to_string() }));
            members
        }
    })
}

/// An operator's word about a call whose outcome is unknown.
pub(crate) fn resolution(
    call: CallId,
    has_acted: bool,
    (by, reason): (Principal, Option<&str>),
    origin: Origin,
) -> Leaf {
    let mut members = members("resolution", origin);
    members.set("call", call.to_string());
    members.set("principal", by.as_str());
    members.set("decision", if has_acted { "committed" } else { "not_executed" });
    if let Some(reason) = reason {
        members.set("reason", bounded_text(reason, 500));
    }
    Leaf::new(members)
}

fn with_ids_as_they_came(members: &mut Members, ids: &[String; 4]) {
    let [run, wih, correlation, tool] = ids;
    let bounded = |text| bounded_text(text, MAX_TEXT_BYTES);
    members.set("run_id", bounded(run));
    members.set("wih_id", bounded(wih));
    members.set("correlation_id", bounded(correlation));
    members.set("tool", json!({ "id": bounded(tool) }));
}

pub(crate) fn tool_event(
    kind: &'static str,
    tool: &ToolId,
    (version, digest): (u32, Digest),
    by: Principal,
    origin: Origin,
) -> Leaf {
    let mut members = members(kind, origin);
    members.set("principal", by.as_str());
    let tool = json!({ "id": tool.as_str(), "ver": version, "def": digest.to_string() });
    members.set("tool", tool);
    Leaf::new(members)
}

#[cfg(test)]
mod tests;
