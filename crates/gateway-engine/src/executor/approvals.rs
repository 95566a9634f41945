//! Step 6: a call that policy asks about waits for a person's answer to exactly this call.
//!
//! INVARIANT: nobody waits here while holding a claim, and the wait is over before the tool's clock
//! starts. After a yes, policy decides again with the approval granted, so that a policy or a
//! definition that changed meanwhile never rides on it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use gateway_ledger::{
    ApprovalChanges, ApprovalRequest, ApprovalState, GrantedApproval, MAX_APPROVABLE_INPUT_BYTES,
    Stage,
};
use gateway_model::{ApprovalId, Decision, Effect, ErrorKind, Principal, Timestamp, ToolError};
use tokio::time::Instant;

use super::journal;
use super::pipeline::{Call, Executor, Footprint, Refused};

/// The longest wait for an answer; whoever needs longer sends the same call again.
const MAX_PATIENCE: Duration = Duration::from_secs(120);
/// Calls that may wait for answers at once; more are answered at once.
const MAX_WAITING: usize = 256;

/// A decision that lets the call run, with the approval it rests on.
pub(crate) struct Confirmed {
    pub(crate) decision: Arc<Decision>,
    pub(crate) approval: Option<GrantedApproval>,
}

/// What a person's answer came to.
enum Answer {
    Granted(GrantedApproval),
    /// None yet: until when the question stands.
    Pending(ApprovalId, Timestamp),
    Refused(ToolError),
}

/// Lets an allowed call on, refuses a denied one, and asks about the rest.
///
/// Cancel-safe: a question is durable by itself, and the next call with the same binding finds it.
pub(crate) async fn confirm(
    executor: &Executor,
    call: &Call,
    footprint: &Footprint,
    mut decision: Arc<Decision>,
) -> Result<Confirmed, Refused> {
    let deadline = Instant::now() + call.context.patience.min(MAX_PATIENCE);
    let mut asked = None;
    loop {
        match decision.effect {
            Effect::Allow => return Ok(Confirmed { decision, approval: None }),
            Effect::Deny => return Err(refused(denied(&decision), &decision)),
            Effect::Ask => check_askable(call, &decision)?,
        }
        // Made before the look, so that an answer in between is not missed.
        let changes = executor.ledger.approval_changes();
        check_standing(executor, asked, &decision).await?;
        match ask(executor, call, footprint, &decision).await? {
            Answer::Granted(approval) => {
                let decision = executor.decided(call, footprint, true);
                return permitted(Confirmed { decision, approval: Some(approval) });
            }
            Answer::Refused(error) => return Err(refused(error, &decision)),
            Answer::Pending(id, expires) => {
                asked = Some(id);
                let left = expires.since(executor.clock.now());
                let question = (changes, deadline.min(Instant::now() + left));
                if !wait(executor, call, question, deadline).await {
                    return Err(refused(required(&decision, id, expires), &decision));
                }
            }
        }
        decision = executor.decided(call, footprint, false);
    }
}

/// Waits until something about approvals changes or a question runs out.
///
/// Returns false where the caller is to be told that an answer is still needed.
async fn wait(
    executor: &Executor,
    call: &Call,
    (mut changes, until): (ApprovalChanges, Instant),
    deadline: Instant,
) -> bool {
    let place = Waiting::take(&executor.waiting_for_answers);
    if place.is_none() || deadline <= Instant::now() {
        return false;
    }
    tokio::select! {
        () = changes.next() => true,
        () = tokio::time::sleep_until(until) => until < deadline,
        () = call.context.cancel.cancelled() => false,
        () = executor.closing.cancelled() => false,
    }
}

/// Refuses to ask again at once where an operator took the question back.
async fn check_standing(
    executor: &Executor,
    asked: Option<ApprovalId>,
    decision: &Arc<Decision>,
) -> Result<(), Refused> {
    let Some(id) = asked else { return Ok(()) };
    let found = executor.ledger.approval(id).await;
    let found = found.map_err(|error| refused(journal::unwritable(error), decision))?;
    if found.is_some_and(|approval| approval.stage == Stage::Revoked) {
        let reason = Some("the question was taken back".to_owned());
        return Err(refused(declined(decision, id, (Principal::Operator, reason)), decision));
    }
    Ok(())
}

/// Judges an approved call once more, right before it is admitted.
pub(crate) fn confirm_again(
    executor: &Executor,
    call: &Call,
    footprint: &Footprint,
    confirmed: Confirmed,
) -> Result<Confirmed, Refused> {
    if confirmed.approval.is_none() {
        return Ok(confirmed);
    }
    let current = executor.catalog.get(call.tool.id.as_str());
    let is_same = current
        .is_some_and(|tool| (tool.version, tool.digest) == (call.tool.version, call.tool.digest));
    if !is_same {
        return Err(refused(changed(), &confirmed.decision));
    }
    let decision = executor.decided(call, footprint, true);
    permitted(Confirmed { decision, ..confirmed })
}

fn permitted(confirmed: Confirmed) -> Result<Confirmed, Refused> {
    let decision = &confirmed.decision;
    match decision.effect {
        Effect::Allow => Ok(confirmed),
        Effect::Ask | Effect::Deny => Err(refused(denied(decision), decision)),
    }
}

/// Looks for the answer to a call, and asks where nobody has.
async fn ask(
    executor: &Executor,
    call: &Call,
    footprint: &Footprint,
    decision: &Arc<Decision>,
) -> Result<Answer, Refused> {
    let request = ApprovalRequest {
        facts: journal::facts(call),
        input: call.input_bytes.to_vec(),
        decision: Arc::clone(decision),
        reach: footprint.reach.identity(&footprint.claim).into(),
        answer_time: executor.policy.answer_time(decision),
    };
    let state = executor.ledger.ask(request).await;
    let state = state.map_err(|error| refused(journal::unwritable(error), decision))?;
    Ok(match state {
        ApprovalState::Granted(approval) => Answer::Granted(approval),
        ApprovalState::Pending { id, expires } => Answer::Pending(id, expires),
        ApprovalState::Declined { id, by, reason } => {
            Answer::Refused(declined(decision, id, (by, reason)))
        }
        ApprovalState::Expired { id } => Answer::Refused(
            ToolError::new(
                ErrorKind::ApprovalExpired,
                "Policy denied execution: the time to approve this call and to use the approval ran \
                 out; send it again to ask anew",
            )
            .with("rule", decision.rule.as_str())
            .with("approval_id", id.to_string()),
        ),
        ApprovalState::Paused { retry_after } => Answer::Refused(
            ToolError::new(
                ErrorKind::RateLimited,
                "Policy denied execution: the last approvals that this run asked for were denied, so \
                 nobody is asked about more of its calls yet",
            )
            .with("rule", decision.rule.as_str())
            .retry_after(retry_after),
        ),
        ApprovalState::Full { most, is_of_run } => {
            let whose = if is_of_run { "of this run" } else { "in all" };
            let message = format!(
                "Policy denied execution: {most} calls {whose} wait for approval, and no more may"
            );
            Answer::Refused(
                ToolError::new(ErrorKind::RateLimited, message)
                    .with("rule", decision.rule.as_str())
                    .retry_after(Duration::from_secs(60)),
            )
        }
    })
}

/// Refuses to ask where nobody could answer, or not knowing what they approve.
fn check_askable(call: &Call, decision: &Arc<Decision>) -> Result<(), Refused> {
    let reason = &decision.reason;
    let length = call.input_bytes.len();
    let message = if call.context.principal == Principal::Operator {
        format!(
            "Policy denied execution: {reason}. The operator, who makes this call, is the only one \
             who could approve it; make it without the operator's token"
        )
    } else if length > MAX_APPROVABLE_INPUT_BYTES {
        format!(
            "Policy denied execution: {reason}. Its input has {length} bytes, more than the \
             {MAX_APPROVABLE_INPUT_BYTES} that a person is asked to approve"
        )
    } else {
        return Ok(());
    };
    let error = ToolError::new(ErrorKind::PermissionDenied, message);
    Err(refused(error.with("rule", decision.rule.as_str()), decision))
}

fn refused(error: ToolError, decision: &Arc<Decision>) -> Refused {
    Refused { error, decision: Some(Arc::clone(decision)) }
}

fn denied(decision: &Decision) -> ToolError {
    let Decision { rule, reason, .. } = decision;
    let message = format!("Policy denied execution: {reason}");
    ToolError::new(ErrorKind::PermissionDenied, message).with("rule", rule.as_str())
}

/// Says who may approve, how, and until when.
fn required(decision: &Decision, id: ApprovalId, expires: Timestamp) -> ToolError {
    let Decision { rule, reason, .. } = decision;
    let message = format!(
        "Policy denied execution: a person must approve this call first: {reason}. An operator does \
         so until {expires} with `atg approvals approve {id}` or POST /v1/approvals/{id}; then send \
         the same call again, with the same key"
    );
    ToolError::new(ErrorKind::ApprovalRequired, message)
        .with("rule", rule.as_str())
        .with("approval_id", id.to_string())
        .with("approver", Principal::Operator.as_str())
        .with("expires_at", expires.to_string())
}

fn declined(
    decision: &Decision,
    id: ApprovalId,
    (by, reason): (Principal, Option<String>),
) -> ToolError {
    let because = reason.as_ref().map_or_else(String::new, |reason| format!(": {reason}"));
    let message = format!("Policy denied execution: the {by} declined this call{because}");
    ToolError::new(ErrorKind::Declined, message)
        .with("rule", decision.rule.as_str())
        .with("approval_id", id.to_string())
}

fn changed() -> ToolError {
    ToolError::new(
        ErrorKind::Conflict,
        "the tool's definition changed while the call waited to run; send the call again to ask \
         about the tool as it is now",
    )
    .retryable(true)
}

/// Returns what a call is told whose approval ended between the answer and the admission.
pub(crate) fn no_longer() -> ToolError {
    ToolError::new(
        ErrorKind::ApprovalExpired,
        "the approval of this call was used, revoked or ran out before the call could begin; send it \
         again to ask anew",
    )
}

/// One of the bounded places for calls that wait; given back when dropped.
struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn take(waiting: &'a AtomicUsize) -> Option<Self> {
        let before = waiting.fetch_add(1, Ordering::Relaxed);
        let place = Self(waiting);
        (before < MAX_WAITING).then_some(place)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
