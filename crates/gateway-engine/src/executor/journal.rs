//! The line's words to the ledger: what is journaled at which step, and what callers are told.

use std::sync::Arc;
use std::time::Duration;

use gateway_ledger::{
    Admission, CallFacts, Event, KeyScope, KeyState, LedgerError, Rerun, Settlement, Status,
    StoredOutcome, ToolReference,
};
use gateway_model::{
    CallId, Decision, ErrorKind, Face, FailureClass, Principal, RegisteredTool, Timestamp,
    ToolError, ToolOutput, canonical_json,
};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::adapter::{Completion, Evidence};
use super::approvals::{self, Confirmed};
use super::pipeline::{Arrived, Call, Checked, Executor, Footprint, Refused};
use crate::context::RefusedCall;

pub(crate) use gateway_ledger::Lease;

/// How long a call waits for a running one with the same key, beyond the tool's own time.
const JOIN_GRACE: Duration = Duration::from_secs(10);
/// The longest wait for a running call with the same key.
const MAX_JOIN: Duration = Duration::from_secs(300);

/// What the journal keeps of an attempt that is refused.
pub(crate) struct Attempt {
    call: CallId,
    principal: Principal,
    face: Face,
    ids: [String; 4],
    input: Arc<[u8]>,
}

/// The outcome of an earlier call, given again.
pub(crate) struct Stored {
    pub(crate) receipt: CallId,
    pub(crate) result: Result<ToolOutput, ToolError>,
}

/// What a key has seen, once nobody runs under it any more.
pub(crate) enum Seen {
    /// Nothing stands in the way, after this ended attempt if there was one.
    Fresh(Option<CallId>),
    Stored(Stored),
}

/// The answer to an admission.
pub(crate) enum Admitted {
    Fresh(Lease),
    Seen(Stored),
}

impl Attempt {
    pub(crate) fn of(arrived: &Arrived) -> Self {
        let context = &arrived.context;
        let key = context.key.as_ref().map_or("", |key| key.as_str());
        Self {
            call: arrived.call,
            principal: context.principal,
            face: context.caller,
            ids: [context.run.as_str(), context.wih.as_str(), key, &arrived.tool]
                .map(str::to_owned),
            input: Arc::clone(&arrived.input_bytes),
        }
    }

    pub(crate) fn of_refused(call: CallId, refused: &RefusedCall) -> Self {
        let ids = &refused.ids;
        let key = ids.key.as_deref().unwrap_or_default();
        Self {
            call,
            principal: refused.principal,
            face: refused.caller,
            ids: [&ids.run, &ids.wih, key, &refused.tool].map(str::to_owned),
            input: canonical_json(&refused.input).into(),
        }
    }
}

/// Returns the id of a new attempt.
pub(crate) fn new_call(executor: &Executor) -> CallId {
    CallId::generate(executor.clock.now())
}

/// Journals the start: the service's identity, what confines processes, which policies hold.
pub(crate) async fn started(executor: &Executor) -> Result<(), LedgerError> {
    executor.ledger.append(Event::IdentityRegistered).await?;
    let sandbox = json!({ "tier": executor.sandbox.state().as_str() });
    let policy_set = executor.policy.digest();
    executor.ledger.append(Event::GatewayStarted { sandbox, policy_set }).await.map(drop)
}

/// Journals that another policy set is in force.
pub(crate) async fn policy_activated(executor: &Executor) -> Result<(), LedgerError> {
    let policy_set = executor.policy.digest();
    executor.ledger.append(Event::PolicyActivated { policy_set }).await.map(drop)
}

/// Journals a call that ended before it was admitted.
///
/// # Errors
/// Returns what the caller is told instead when even the refusal cannot be journaled.
pub(crate) async fn refuse(
    executor: &Executor,
    attempt: &Attempt,
    error: &ToolError,
    decision: Option<Arc<Decision>>,
) -> Result<(), ToolError> {
    let Attempt { call, principal, face, ids, input } = attempt;
    let event = Event::Refused {
        call: *call,
        principal: *principal,
        face: *face,
        ids: ids.clone(),
        input: input.to_vec(),
        decision,
        error: error.kind,
    };
    executor.ledger.append(event).await.map(drop).map_err(unwritable)
}

/// Journals a registration or a removal that policy denied.
pub(crate) async fn registration_denied(
    executor: &Executor,
    principal: Principal,
    (tool, input): (String, Vec<u8>),
    decision: Arc<Decision>,
) {
    let event = Event::Refused {
        call: new_call(executor),
        principal,
        face: Face::Rest,
        ids: [String::new(), String::new(), String::new(), tool],
        input,
        decision: Some(decision),
        error: ErrorKind::PermissionDenied,
    };
    if let Err(error) = executor.ledger.append(event).await {
        tracing::error!(error = %chain(&error), "denied registration not journaled");
    }
}

/// Returns the outcome of an earlier call with the same key, waiting for it if it still runs.
pub(crate) async fn look_up(executor: &Executor, call: &Call) -> Result<Seen, Refused> {
    let Some((scope, mut rerun)) = key_of(call) else { return Ok(Seen::Fresh(None)) };
    let deadline = Instant::now() + join_patience(&call.tool);
    loop {
        let principal = call.context.principal;
        let state = executor.ledger.look_up(&scope, rerun, principal, &call.input_bytes).await;
        let joiner = match settled(state.map_err(|error| Refused::from(unwritable(error)))?) {
            Settled::Act(after) => return Ok(Seen::Fresh(after)),
            Settled::Stored(outcome) => {
                return replayed(executor, call, outcome).await.map(Seen::Stored);
            }
            Settled::Refused(error) => return Err(error.into()),
            Settled::Running(joiner) => joiner,
        };
        join(&joiner, call, deadline).await?;
        // Whoever waited for a call gets its outcome, and does not act again after its failure.
        rerun = Rerun { after_failure: false, after_unknown: false };
    }
}

/// Waits until a running call with the same key has ended.
async fn join(
    joiner: &gateway_ledger::Joiner,
    call: &Call,
    deadline: Instant,
) -> Result<(), Refused> {
    let patience = deadline.saturating_duration_since(Instant::now());
    let has_ended = tokio::select! {
        has_ended = joiner.wait(patience) => has_ended,
        () = call.context.cancel.cancelled() => {
            let error = ToolError::new(ErrorKind::Cancelled, "cancelled while waiting for the running call with this key");
            return Err(error.with("running_call_id", joiner.call.to_string()).into());
        }
    };
    if has_ended && !patience.is_zero() {
        return Ok(());
    }
    let error = ToolError::new(ErrorKind::InProgress, "a call with this key is still running");
    let error = error.with("running_call_id", joiner.call.to_string());
    Err(error.retry_after(JOIN_GRACE).into())
}

/// Makes key and intent durable, or says what stands in the way.
pub(crate) async fn admit(
    executor: &Executor,
    call: &Call,
    footprint: &Footprint,
    (confirmed, after): (Confirmed, Option<CallId>),
) -> Result<Admitted, Refused> {
    let Confirmed { decision, approval } = confirmed;
    let refuse = |error| Refused { error, decision: Some(Arc::clone(&decision)) };
    let admission = Admission {
        facts: facts(call),
        key: key_of(call),
        after,
        input: call.input_bytes.to_vec(),
        decision: Arc::clone(&decision),
        approval,
        claim: claim(footprint),
    };
    let state =
        match executor.ledger.admit(admission).await.map_err(|error| refuse(unwritable(error)))? {
            gateway_ledger::Admitted::Fresh(lease) => return Ok(Admitted::Fresh(lease)),
            gateway_ledger::Admitted::Seen(state) => state,
            gateway_ledger::Admitted::Unapproved => return Err(refuse(approvals::no_longer())),
        };
    match settled(state) {
        Settled::Stored(outcome) => replayed(executor, call, outcome).await.map(Admitted::Seen),
        Settled::Refused(error) => Err(refuse(error)),
        // Someone else was admitted between the look and the admission. The claim is given up
        // by this refusal, so that the other can run; the caller's retry joins it.
        Settled::Act(_) | Settled::Running(_) => {
            let error =
                ToolError::new(ErrorKind::InProgress, "a call with this key has just started");
            Err(refuse(error.retry_after(Duration::from_millis(100))))
        }
    }
}

/// Makes the outcome durable; returns the call that names the receipt.
///
/// # Errors
/// Returns what the caller is told when the outcome is not durable.
pub(crate) async fn seal(
    executor: &Executor,
    call: &Call,
    lease: Lease,
    footprint: &Footprint,
    checked: Checked,
) -> Result<CallId, ToolError> {
    let Checked { completion, output, is_output_invalid, duration } = checked;
    let Completion { result, has_started, evidence } = completion;
    let Evidence { sandbox, exit, stdout, stderr, artifacts, cpu, max_rss_bytes } = evidence;
    let settlement = Settlement {
        status: match result.as_ref().err() {
            _ if is_output_invalid => Status::OutputInvalid,
            error => status(has_started, error),
        },
        output: output.filter(|_| result.is_ok()),
        error: result.err(),
        stdout,
        stderr,
        artifacts,
        sandbox,
        claim: claim(footprint),
        started: Timestamp(
            executor.clock.now().0.saturating_sub(u64::try_from(duration.as_millis()).unwrap_or(0)),
        ),
        duration,
        exit,
        cpu,
        max_rss_bytes,
    };
    executor.ledger.settle(lease, settlement).await.map(|_seq| call.id).map_err(|error| {
        let error = unwritable(error);
        if call.tool.has_side_effects() {
            let message =
                format!("the tool ran, but its outcome is not durable: {}", error.message);
            return ToolError::new(ErrorKind::Indeterminate, message);
        }
        error
    })
}

/// Writes an error with all its sources.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        text.push_str(": ");
        text.push_str(&inner.to_string());
        source = inner.source();
    }
    text
}

/// What a key's state means for the caller.
enum Settled {
    Act(Option<CallId>),
    Stored(StoredOutcome),
    Running(gateway_ledger::Joiner),
    Refused(ToolError),
}

fn settled(state: KeyState) -> Settled {
    Settled::Refused(match state {
        KeyState::Free { after } => return Settled::Act(after),
        KeyState::Replay(outcome) => return Settled::Stored(outcome),
        KeyState::InFlight(joiner) => return Settled::Running(joiner),
        KeyState::Mismatch { first } => {
            ToolError::new(ErrorKind::Conflict, "the idempotency key was used with another input in this run")
                .with("first_call_id", first.to_string())
        }
        KeyState::Foreign => ToolError::new(ErrorKind::Conflict, "the idempotency key belongs to another principal"),
        KeyState::Indeterminate { call } => ToolError::new(
            ErrorKind::Indeterminate,
            "it is unknown whether this call's effect happened; it is not run again. Look at what the tool acts on, \
             then use a new key if the effect is missing, or let an operator settle this one with \
             `atg calls resolve CALL --done` or `--not-done`",
        )
        .with("unknown_call_id", call.to_string()),
        KeyState::Resolved { call } => ToolError::new(
            ErrorKind::Conflict,
            "an operator found that this call's effect happened; its output is not known",
        )
        .with("resolved", true)
        .with("resolved_call_id", call.to_string()),
        KeyState::Expired { call } => {
            ToolError::new(ErrorKind::Conflict, "the idempotency key was used so long ago that its outcome is not kept")
                .with("expired", true)
                .with("first_call_id", call.to_string())
        }
    })
}

async fn replayed(
    executor: &Executor,
    call: &Call,
    outcome: StoredOutcome,
) -> Result<Stored, Refused> {
    let event = Event::Replayed { facts: facts(call), of: outcome.call };
    executor.ledger.append(event).await.map_err(|error| Refused::from(unwritable(error)))?;
    Ok(Stored { receipt: outcome.call, result: outcome.result })
}

fn key_of(call: &Call) -> Option<(KeyScope, Rerun)> {
    let key = call.context.key.clone().filter(|_| call.tool.has_side_effects())?;
    let scope = KeyScope { run: call.context.run.clone(), tool: call.tool.id.clone(), key };
    let is_rerun_safe = call.tool.is_rerun_safe();
    let rerun = Rerun {
        after_failure: is_rerun_safe && call.tool.failure == FailureClass::Transient,
        after_unknown: is_rerun_safe,
    };
    Some((scope, rerun))
}

pub(crate) fn facts(call: &Call) -> CallFacts {
    CallFacts {
        call: call.id,
        principal: call.context.principal,
        face: call.context.caller,
        run: call.context.run.clone(),
        wih: call.context.wih.clone(),
        correlation: call.context.key.clone(),
        tool: ToolReference {
            id: call.tool.id.clone(),
            version: call.tool.version,
            digest: call.tool.digest,
            tier: call.tool.tier,
            adapter: call.tool.binding.tool_type(),
        },
    }
}

fn claim(footprint: &Footprint) -> Value {
    let claim = &footprint.claim;
    let paths: Vec<&str> = claim.paths().collect();
    if paths.is_empty() {
        json!({ "scope": claim.scope() })
    } else {
        json!({ "scope": claim.scope(), "paths": paths })
    }
}

fn join_patience(tool: &RegisteredTool) -> Duration {
    (tool.limits.time_limit + JOIN_GRACE).min(MAX_JOIN)
}

fn status(has_started: bool, error: Option<&ToolError>) -> Status {
    let Some(error) = error else { return Status::Ok };
    if !has_started {
        return Status::NotStarted;
    }
    match error.kind {
        ErrorKind::Timeout => Status::Timeout,
        ErrorKind::Cancelled => Status::Cancelled,
        ErrorKind::Indeterminate | ErrorKind::Transport => Status::Indeterminate,
        ErrorKind::NotFound
        | ErrorKind::PermissionDenied
        | ErrorKind::Declined
        | ErrorKind::ApprovalRequired
        | ErrorKind::ApprovalExpired
        | ErrorKind::ValidationFailed
        | ErrorKind::Execution
        | ErrorKind::Duplicate
        | ErrorKind::Conflict
        | ErrorKind::InProgress
        | ErrorKind::Unavailable
        | ErrorKind::RateLimited
        | ErrorKind::SandboxUnavailable
        | ErrorKind::OutputLimit
        | ErrorKind::MemoryLimit => Status::ToolError,
    }
}

/// What a caller is told when the journal does not take an entry.
pub(crate) fn unwritable(error: LedgerError) -> ToolError {
    tracing::error!(error = %chain(&error), "journal entry not written");
    let message = match error {
        LedgerError::Full { .. } | LedgerError::Poisoned => error.to_string(),
        LedgerError::Read(_) | LedgerError::Random(_) | LedgerError::Interrupted => {
            "the journal cannot be used".to_owned()
        }
    };
    ToolError::new(ErrorKind::Unavailable, message)
}
