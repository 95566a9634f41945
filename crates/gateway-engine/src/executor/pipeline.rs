//! The whole line of one call, step by step. Nothing reaches an adapter past it.
//!
//! From step 8 on nothing is dropped because a caller left; a stop is a token, and its outcome
//! is sealed too.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use gateway_ledger::Ledger;
use gateway_model::wire::RequiredId;
use gateway_model::{
    CallId, Clock, ConcurrencyClaim, Decision, ErrorKind, RegisteredTool, ToolBinding, ToolError,
    ToolOutput, Violation, canonical_json,
};
use gateway_policy::{Action, ExecuteContext, Policy, PolicyRequest, ToolFacts};
use gateway_sandbox::Sandbox;
use serde_json::{Map, Value};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::adapter::{Adapter, Completion, Evidence, Job};
use super::approvals::Confirmed;
use super::journal::{Admitted, Seen};
use super::report::CallReport;
use super::scheduler::{ClaimError, HeldClaim, Scheduler};
use super::secrets::{CallSecrets, SecretSource};
use super::{approvals, confine, journal};
use crate::context::RequestContext;
use crate::tool_metadata::{ToolCatalog, Workspace};

/// Time an adapter has to end after its call was stopped.
const GRACE: Duration = Duration::from_secs(5);
/// The largest result of one call, in bytes of its JSON.
const MAX_OUTPUT_BYTES: usize = 8 << 20;

/// Everything the line needs; one for the whole gateway.
pub(crate) struct Executor {
    pub(crate) catalog: ToolCatalog,
    pub(crate) policy: Arc<Policy>,
    pub(crate) ledger: Ledger,
    pub(crate) sandbox: Arc<Sandbox>,
    pub(crate) scheduler: Arc<Scheduler>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) adapters: Adapters,
    /// The host directory that holds one directory for each run.
    pub(crate) artifacts: PathBuf,
    pub(crate) workspaces: Vec<Workspace>,
    pub(crate) secrets: SecretSource,
    /// Calls that wait for a person's answer.
    pub(crate) waiting_for_answers: AtomicUsize,
    /// Cancelled when no new call is taken in any more.
    pub(crate) closing: CancellationToken,
    /// Cancelled when the gateway shuts down.
    pub(crate) shutdown: CancellationToken,
}

/// What runs a call, by the kind of its binding.
pub(crate) struct Adapters {
    pub(crate) local: Arc<dyn Adapter>,
    pub(crate) http: Arc<dyn Adapter>,
    pub(crate) sdk: Arc<dyn Adapter>,
    pub(crate) subprocess: Arc<dyn Adapter>,
}

impl Adapters {
    pub(crate) fn of(&self, binding: &ToolBinding) -> &Arc<dyn Adapter> {
        match binding {
            ToolBinding::Local { .. } => &self.local,
            ToolBinding::Http(_) => &self.http,
            ToolBinding::Sdk { .. } => &self.sdk,
            ToolBinding::Subprocess { .. } => &self.subprocess,
        }
    }
}

/// A call as it came in, with the id and the clock of this attempt.
pub(crate) struct Arrived {
    pub(crate) call: CallId,
    pub(crate) at: Instant,
    pub(crate) context: RequestContext,
    pub(crate) tool: String,
    pub(crate) input: Value,
    /// The canonical form of the input: what is hashed, compared and committed to.
    pub(crate) input_bytes: Arc<[u8]>,
}

impl Arrived {
    /// Starts the clock of an attempt.
    pub(crate) fn new(call: CallId, context: RequestContext, tool: &str, input: Value) -> Self {
        let input_bytes = canonical_json(&input).into();
        Self { call, at: Instant::now(), context, tool: tool.to_owned(), input, input_bytes }
    }
}

/// A call whose tool is known and whose input is valid.
pub(crate) struct Call {
    pub(crate) id: CallId,
    pub(crate) context: RequestContext,
    pub(crate) tool: Arc<RegisteredTool>,
    pub(crate) input: Value,
    /// As it arrived in [`Arrived`].
    pub(crate) input_bytes: Arc<[u8]>,
}

/// What a call touches, read from its final input.
pub(crate) struct Footprint {
    pub(crate) claim: ConcurrencyClaim,
    pub(crate) reach: confine::Reach,
}

/// A call that ends before it is admitted: nothing was done, and its key stays free.
pub(crate) struct Refused {
    pub(crate) error: ToolError,
    /// The decision, once policy was asked.
    pub(crate) decision: Option<Arc<Decision>>,
}

impl From<ToolError> for Refused {
    fn from(error: ToolError) -> Self {
        Self { error, decision: None }
    }
}

/// A completion whose output was held against its schema, with the output's bytes as stored.
pub(crate) struct Checked {
    pub(crate) completion: Completion,
    pub(crate) output: Option<Vec<u8>>,
    /// The tool succeeded, and its output was not what it promised.
    pub(crate) is_output_invalid: bool,
    /// The tool's own time, from its confinement to its end.
    pub(crate) duration: Duration,
}

/// How the line ends for a call that was not refused.
enum Ended {
    Replayed(journal::Stored),
    Sealed {
        receipt: CallId,
        result: Result<ToolOutput, ToolError>,
    },
    /// The effect may have happened, but its outcome could not be made durable.
    Unsealed(ToolError),
}

impl Executor {
    /// Takes a call through the line and answers it; refusals are journaled like outcomes.
    pub(crate) async fn execute(&self, arrived: Arrived) -> CallReport {
        let Arrived { call, at, .. } = arrived;
        let attempt = journal::Attempt::of(&arrived);
        let report = |receipt, result, is_replayed, is_captured, is_policy_enforced| CallReport {
            call,
            receipt,
            result,
            is_captured,
            is_policy_enforced,
            is_replayed,
            duration: at.elapsed(),
        };
        let ended = self.line(arrived).await;
        step("report");
        match ended {
            Ok(Ended::Replayed(stored)) => {
                report(Some(stored.receipt), stored.result, true, true, true)
            }
            Ok(Ended::Sealed { receipt, result }) => {
                report(Some(receipt), result, false, true, true)
            }
            Ok(Ended::Unsealed(error)) => report(None, Err(error), false, false, true),
            Err(Refused { error, decision }) => {
                let is_policy_enforced = decision.is_some();
                match journal::refuse(self, &attempt, &error, decision).await {
                    Ok(()) => {
                        let is_known = error.kind != ErrorKind::NotFound;
                        report(None, Err(error), false, is_known, is_policy_enforced)
                    }
                    Err(unwritable) => report(None, Err(unwritable), false, false, false),
                }
            }
        }
    }

    /// The twelve steps. A refusal leaves before step 8; from there on everything is sealed.
    async fn line(&self, arrived: Arrived) -> Result<Ended, Refused> {
        let (arrived, tool) = self.resolve(arrived)?; // 1
        let call = self.validate(arrived, tool)?; // 2
        let after = match self.replay(&call).await? {
            Seen::Fresh(after) => after, // 3
            Seen::Stored(stored) => return Ok(Ended::Replayed(stored)),
        };
        let footprint = self.prepare(&call)?; // 4
        let decision = self.decide(&call, &footprint); // 5
        let confirmed = self.confirm(&call, &footprint, decision).await?; // 6
        let claim = Arc::new(self.claim(&call, &footprint, &confirmed.decision).await?); // 7
        let lease = match self.admit(&call, &footprint, (confirmed, after)).await? {
            Admitted::Fresh(lease) => lease, // 8
            Admitted::Seen(stored) => return Ok(Ended::Replayed(stored)),
        };
        let started = Instant::now();
        let completion = match self.confine(&call, &footprint, &claim) {
            Ok(job) => {
                let secrets = job.secrets.clone();
                secrets.redact(self.run(&call, job).await) // 9, 10
            }
            Err(error) => not_started(error),
        };
        let checked = check_output(&call.tool, completion, started.elapsed());
        let ended = self.seal(&call, lease, &footprint, checked).await; // 11
        drop(claim);
        Ok(ended) // 12 is the caller's report, which names the sealed receipt
    }

    /// Takes a call through the steps that act on nothing, for explanation.
    pub(crate) fn judge(
        &self,
        arrived: Arrived,
    ) -> Result<(Call, Footprint, Arc<Decision>), ToolError> {
        let judged = || {
            let (arrived, tool) = self.resolve(arrived)?;
            let call = self.validate(arrived, tool)?;
            let footprint = self.prepare(&call)?;
            let decision = self.decide(&call, &footprint);
            Ok::<_, Refused>((call, footprint, decision))
        };
        judged().map_err(|refused| refused.error)
    }

    /// 1: the tool of exactly this name; no other spelling reaches it.
    fn resolve(&self, arrived: Arrived) -> Result<(Arrived, Arc<RegisteredTool>), Refused> {
        step("resolve");
        match self.catalog.get(&arrived.tool) {
            Some(tool) => Ok((arrived, tool)),
            None => Err(ToolError::not_found(&arrived.tool).into()),
        }
    }

    /// 2: the input against its schema, and the key that a tool with side effects needs.
    fn validate(&self, arrived: Arrived, tool: Arc<RegisteredTool>) -> Result<Call, Refused> {
        step("validate");
        let Arrived { call: id, at: _, context, tool: _, input, input_bytes } = arrived;
        if !input.is_object() {
            // Whatever the schema says: what is committed to is what runs.
            let reason = "expected an object".to_owned();
            let violation = Violation { path: String::new(), reason };
            return Err(ToolError::invalid("input", &[violation]).into());
        }
        let violations = tool.schemas.input.violations(&input);
        if !violations.is_empty() {
            return Err(ToolError::invalid("input", &violations).into());
        }
        if tool.has_side_effects() && context.key.is_none() {
            let violation = Violation {
                path: format!("/{}", RequiredId::Correlation.field()),
                reason: "is absent".to_owned(),
            };
            let mut error = ToolError::invalid("request", &[violation]);
            error.message = RequiredId::Correlation.message().to_owned();
            return Err(error.into());
        }
        Ok(Call { id, context, tool, input, input_bytes })
    }

    /// 3: the outcome of an earlier call with the same key, waiting for it if it still runs.
    async fn replay(&self, call: &Call) -> Result<Seen, Refused> {
        step("replay");
        journal::look_up(self, call).await
    }

    /// 4: what the call touches: one reading for schedule, policy and confinement.
    fn prepare(&self, call: &Call) -> Result<Footprint, Refused> {
        step("prepare");
        let reach = confine::reach(&call.tool, &call.context.run, &self.workspaces)?;
        let claim = call.tool.claim.claim(&call.input, reach.working_directory());
        Ok(Footprint { claim, reach })
    }

    /// 5: one decision, naming one rule.
    fn decide(&self, call: &Call, footprint: &Footprint) -> Arc<Decision> {
        step("decide");
        self.decided(call, footprint, false)
    }

    /// Decides a call, with or without a person's approval of it.
    pub(crate) fn decided(
        &self,
        call: &Call,
        footprint: &Footprint,
        is_approved: bool,
    ) -> Arc<Decision> {
        self.policy.decide(&PolicyRequest {
            principal: call.context.principal,
            action: Action::Execute(ExecuteContext {
                run_id: &call.context.run,
                wih_id: &call.context.wih,
                requested_tier: call.tool.tier,
                claim: &footprint.claim,
                args_bytes: call.input_bytes.len() as u64,
                is_approved,
            }),
            tool: ToolFacts::from(&*call.tool),
        })
    }

    /// 6: an ask waits for a person's answer to exactly this call. No claim is held meanwhile.
    async fn confirm(
        &self,
        call: &Call,
        footprint: &Footprint,
        decision: Arc<Decision>,
    ) -> Result<Confirmed, Refused> {
        step("confirm");
        approvals::confirm(self, call, footprint, decision).await
    }

    /// 7: waits for the calls this one conflicts with. Nothing is durable yet, no clock runs.
    async fn claim(
        &self,
        call: &Call,
        footprint: &Footprint,
        decision: &Arc<Decision>,
    ) -> Result<HeldClaim, Refused> {
        step("claim");
        let domain = footprint.reach.domain(&call.context.run);
        let held = self.scheduler.hold(domain, footprint.claim.clone(), &call.context.cancel).await;
        held.map_err(|error| {
            let kind = match error {
                ClaimError::Cancelled => ErrorKind::Cancelled,
                ClaimError::Full | ClaimError::Waited { .. } => ErrorKind::Unavailable,
            };
            Refused {
                error: ToolError::new(kind, error.to_string()),
                decision: Some(Arc::clone(decision)),
            }
        })
    }

    /// 8: key and intent, durable in one transaction, before anything acts.
    async fn admit(
        &self,
        call: &Call,
        footprint: &Footprint,
        (confirmed, after): (Confirmed, Option<CallId>),
    ) -> Result<Admitted, Refused> {
        step("admit");
        let decision = Arc::clone(&confirmed.decision);
        if self.shutdown.is_cancelled() {
            let error = ToolError::new(ErrorKind::Unavailable, "the gateway is shutting down");
            return Err(Refused { error, decision: Some(decision) });
        }
        // Claims are waited for: what was approved must still be what is about to run.
        let confirmed = approvals::confirm_again(self, call, footprint, confirmed)?;
        journal::admit(self, call, footprint, (confirmed, after)).await
    }

    /// 9: the confinement of the run and its workspaces. The tool's clock starts.
    fn confine(
        &self,
        call: &Call,
        footprint: &Footprint,
        claim: &Arc<HeldClaim>,
    ) -> Result<Job, ToolError> {
        step("confine");
        let confinement =
            footprint.reach.confinement(&call.tool, &call.context.run, &self.artifacts)?;
        let cancel = call.context.cancel.child_token();
        Ok(Job {
            call: call.id,
            tool: Arc::clone(&call.tool),
            context: call.context.clone(),
            input: call.input.as_object().cloned().unwrap_or_else(Map::new),
            confinement,
            working_directory: footprint.reach.working_directory().to_owned(),
            sandbox: Arc::clone(&self.sandbox),
            secrets: CallSecrets::of(&self.secrets),
            cancel,
            claim: Arc::clone(claim),
            deadline: Instant::now() + call.tool.limits.time_limit,
        })
    }

    /// 10: the adapter, in a task of its own: a panic and a time-out are outcomes too.
    async fn run(&self, call: &Call, job: Job) -> Completion {
        step("run");
        let adapter = Arc::clone(self.adapters.of(&call.tool.binding));
        let (cancel, deadline) = (job.cancel.clone(), job.deadline);
        #[expect(clippy::disallowed_methods, reason = "awaited, and aborted, right here")]
        let mut task = tokio::spawn(async move { adapter.run(job).await });
        let stopped = tokio::select! {
            ended = &mut task => return completed(&call.tool, ended),
            () = cancel.cancelled() => ToolError::new(ErrorKind::Cancelled, "the call was cancelled"),
            () = self.shutdown.cancelled() => {
                ToolError::new(ErrorKind::Cancelled, "the gateway is shutting down")
            }
            // The adapter's own clock fires first and keeps partial output; this one is for an
            // adapter that does not watch its clock.
            () = tokio::time::sleep_until(deadline + GRACE / 2) => timed_out(call),
        };
        cancel.cancel();
        match tokio::time::timeout(GRACE, &mut task).await {
            Ok(ended) => completed(&call.tool, ended),
            Err(_elapsed) => {
                task.abort();
                Completion { result: Err(stopped), has_started: true, evidence: unseen(&call.tool) }
            }
        }
    }

    /// 11: outcome and receipt, durable before the caller hears of them.
    async fn seal(
        &self,
        call: &Call,
        lease: journal::Lease,
        footprint: &Footprint,
        checked: Checked,
    ) -> Ended {
        step("seal");
        let result = checked.completion.result.clone();
        match journal::seal(self, call, lease, footprint, checked).await {
            Ok(receipt) => Ended::Sealed { receipt, result },
            Err(unwritable) => Ended::Unsealed(unwritable),
        }
    }
}

/// Logs which step the call's span enters.
fn step(name: &'static str) {
    tracing::debug!(step = name, "step");
}

/// Holds an output against its schema and the bound on its size; returns the bytes to store.
///
/// The bytes keep the order of members, so that a replay answers byte for byte what the first
/// call answered. The effect is kept either way; null is not checked.
fn check_output(tool: &RegisteredTool, completion: Completion, duration: Duration) -> Checked {
    let mut checked = Checked { completion, output: None, is_output_invalid: false, duration };
    let Ok(output) = &checked.completion.result else { return checked };
    let bytes = output.to_json().to_string().into_bytes();
    if bytes.len() > MAX_OUTPUT_BYTES {
        let message = format!("the result has {} bytes, more than {MAX_OUTPUT_BYTES}", bytes.len());
        checked.completion.result = Err(ToolError::new(ErrorKind::OutputLimit, message));
        checked.is_output_invalid = true;
        return checked;
    }
    let violations = match &output.structured {
        None | Some(Value::Null) => Vec::new(),
        Some(value) => tool.schemas.output.violations(value),
    };
    if violations.is_empty() {
        checked.output = Some(bytes);
        return checked;
    }
    let mut error = ToolError::invalid("output", &violations).with("output", output.to_rest());
    error.kind = ErrorKind::Execution;
    checked.completion.result = Err(error.retryable(false));
    checked.is_output_invalid = true;
    checked
}

/// Reads how an adapter's task ended; nobody knows what one that panicked has done.
fn completed(
    tool: &RegisteredTool,
    ended: Result<Completion, tokio::task::JoinError>,
) -> Completion {
    ended.unwrap_or_else(|_panic| {
        let kind =
            if tool.has_side_effects() { ErrorKind::Indeterminate } else { ErrorKind::Execution };
        Completion {
            result: Err(ToolError::new(kind, "the tool's adapter failed unexpectedly")),
            has_started: true,
            evidence: unseen(tool),
        }
    })
}

/// What can be said of a run whose adapter did not say it.
fn unseen(tool: &RegisteredTool) -> Evidence {
    match tool.binding {
        ToolBinding::Local { .. } | ToolBinding::Subprocess { .. } => Evidence::lost(),
        ToolBinding::Http(_) | ToolBinding::Sdk { .. } => Evidence::in_process(),
    }
}

fn timed_out(call: &Call) -> ToolError {
    let seconds = call.tool.limits.time_limit.as_secs();
    ToolError::new(ErrorKind::Timeout, format!("the tool timed out after {seconds} s"))
        .retryable(call.tool.is_rerun_safe())
}

fn not_started(error: ToolError) -> Completion {
    Completion { result: Err(error), has_started: false, evidence: Evidence::in_process() }
}
