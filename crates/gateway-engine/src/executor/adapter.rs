//! The port to what runs a call, and the job that only the executor can make.
//!
//! INVARIANT: no side effect without a decision, a durable journal entry and a confinement. An
//! adapter acts on a [`Job`]; its fields are private to the executor, which fills them after all
//! three exist.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use gateway_model::{CallId, RegisteredTool, SecretText, ToolBinding, ToolError, ToolOutput};
use gateway_sandbox::{Confinement, Finished, LaunchError, Limits, Program, Sandbox};
use serde_json::{Map, Value, json};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::scheduler::HeldClaim;
use super::secrets::CallSecrets;
use crate::context::RequestContext;

/// Runs calls of one kind of tool.
pub trait Adapter: Send + Sync + 'static {
    /// Says whether this adapter can run the binding; called when a tool is registered.
    ///
    /// # Errors
    /// Returns the reason for the registrant.
    fn check(&self, binding: &ToolBinding) -> Result<(), String>;

    /// Says whether this adapter can run the tool as a whole; called when it is registered.
    ///
    /// For adapters that run only some combinations of binding, schemas and limits.
    ///
    /// # Errors
    /// Returns the reason for the registrant.
    fn check_tool(&self, tool: &RegisteredTool) -> Result<(), String> {
        self.check(&tool.binding)
    }

    /// Runs one call.
    ///
    /// The future runs in a task of its own, so a panic is an outcome too. It must end soon
    /// after [`Job::cancel`] is cancelled; after a grace period it is dropped.
    fn run(&self, job: Job) -> Pin<Box<dyn Future<Output = Completion> + Send>>;
}

/// One admitted, confined call, ready to be run.
///
/// Its claim is held until it is dropped. Work that cannot be stopped, such as a blocking
/// thread, keeps the job with it, so that nothing that conflicts runs beside it.
#[derive(Debug)]
pub struct Job {
    pub(super) call: CallId,
    pub(super) tool: Arc<RegisteredTool>,
    pub(super) context: RequestContext,
    pub(super) input: Map<String, Value>,
    pub(super) confinement: Confinement,
    pub(super) working_directory: String,
    pub(super) sandbox: Arc<Sandbox>,
    pub(super) secrets: CallSecrets,
    pub(super) cancel: CancellationToken,
    #[expect(dead_code, reason = "held until the job is dropped")]
    pub(super) claim: Arc<HeldClaim>,
    pub(super) deadline: Instant,
}

impl Job {
    /// Returns the id of the attempt.
    pub fn call(&self) -> CallId {
        self.call
    }

    /// Returns the tool that is called.
    pub fn tool(&self) -> &RegisteredTool {
        &self.tool
    }

    /// Returns who calls, for which run.
    pub fn context(&self) -> &RequestContext {
        &self.context
    }

    /// Returns the validated input.
    pub fn input(&self) -> &Map<String, Value> {
        &self.input
    }

    /// Returns the token that stops this call: the caller's, the tool's clock, or shutdown.
    pub fn cancel(&self) -> &CancellationToken {
        &self.cancel
    }

    /// Returns what is left of the tool's time.
    pub fn time_left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    /// Returns what the call may touch.
    pub fn confinement(&self) -> &Confinement {
        &self.confinement
    }

    /// Returns the virtual path that relative paths start from.
    ///
    /// That is the first granted workspace, else the run directory, else an empty directory.
    pub fn working_directory(&self) -> &str {
        &self.working_directory
    }

    /// Returns the whole environment of a process of this call; nothing is inherited.
    pub fn environment(&self) -> BTreeMap<String, String> {
        let home =
            if self.confinement.run.is_some() { self.run_directory() } else { "/tmp".to_owned() };
        let mut environment = BTreeMap::from([
            (
                "PATH".to_owned(),
                "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin".to_owned(),
            ),
            ("HOME".to_owned(), home),
            ("TMPDIR".to_owned(), "/tmp".to_owned()),
            ("LANG".to_owned(), "C.UTF-8".to_owned()),
            ("ALLTERNIT_CALL_ID".to_owned(), self.call.to_string()),
            ("ALLTERNIT_RUN_ID".to_owned(), self.context.run.to_string()),
            ("ALLTERNIT_TOOL_ID".to_owned(), self.tool.id.to_string()),
        ]);
        if let Some(key) = &self.context.key {
            environment.insert("ALLTERNIT_IDEMPOTENCY_KEY".to_owned(), key.to_string());
        }
        environment
    }

    /// Starts a process in this call's confinement and waits for it to end.
    ///
    /// # Errors
    /// Returns why no process was started; nothing has happened then, but for
    /// [`LaunchError::Lost`].
    pub async fn start(&self, program: &Program) -> Result<Finished, LaunchError> {
        self.start_within(program, self.confinement.limits.clone()).await
    }

    /// Starts a process as [`Self::start`] does, under limits of its own.
    ///
    /// Each limit holds as far as it is tighter than the call's; none is ever widened.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub async fn start_within(
        &self,
        program: &Program,
        limits: Limits,
    ) -> Result<Finished, LaunchError> {
        let limits = limits.tightened_by(&self.confinement.limits);
        let confinement = Confinement { limits, ..self.confinement.clone() };
        let mut finished = self.sandbox.run(program, &confinement, &self.cancel).await?;
        // Before anything is made of a stream, so that no cut or encoding hides a value.
        for stream in [&mut finished.stdout, &mut finished.stderr] {
            let is_cut = stream.is_truncated();
            let redacted = self.secrets.redact_stream(std::mem::take(&mut stream.bytes), is_cut);
            // A stream that was whole stays so, whatever its length is now.
            stream.total_bytes = if is_cut {
                stream.total_bytes.max(redacted.len() as u64 + 1)
            } else {
                redacted.len() as u64
            };
            stream.bytes = redacted;
        }
        Ok(finished)
    }

    /// Returns a text of the binding with its reference to a secret replaced by the value.
    ///
    /// The value is for a process or a peer of this call alone. From here on it is taken out of
    /// the streams of [`Self::start`] and of everything in the [`Completion`].
    ///
    /// # Errors
    /// Names the secret that cannot be had; a call that ends with it has not started.
    pub async fn resolve(&self, text: &SecretText) -> Result<String, ToolError> {
        self.secrets.resolve(text).await
    }

    /// Returns several texts as [`Self::resolve`] does, each under its name.
    ///
    /// # Errors
    /// As [`Self::resolve`], for the first secret that cannot be had.
    pub async fn resolve_all(
        &self,
        texts: &BTreeMap<String, SecretText>,
    ) -> Result<BTreeMap<String, String>, ToolError> {
        let mut resolved = BTreeMap::new();
        for (name, text) in texts {
            resolved.insert(name.clone(), self.resolve(text).await?);
        }
        Ok(resolved)
    }

    fn run_directory(&self) -> String {
        format!("/.allternit/artifacts/{}", self.context.run)
    }
}

/// How a call ended, and what shows it.
#[derive(Debug)]
pub struct Completion {
    /// The output, or why there is none.
    pub result: Result<ToolOutput, ToolError>,
    /// False only when it is certain that the tool never began.
    pub has_started: bool,
    /// What the receipt says about the run.
    pub evidence: Evidence,
}

/// What an adapter measured and captured of one run.
#[derive(Debug, Clone, PartialEq)]
pub struct Evidence {
    /// What confined the run, and which limit was enforced by what.
    pub sandbox: Value,
    /// The exit code of the process, where there was one.
    pub exit: Option<i32>,
    /// What the process wrote to its standard output, as far as captured.
    pub stdout: Option<Vec<u8>>,
    /// What the process wrote to its standard error, as far as captured.
    pub stderr: Option<Vec<u8>>,
    /// Canonical JSON of what a process left behind and which worker it was, where that is told.
    pub artifacts: Option<Vec<u8>>,
    /// Processor time, where it was measured.
    pub cpu: Option<Duration>,
    /// Peak memory, where it was measured.
    pub max_rss_bytes: Option<u64>,
}

impl Evidence {
    /// Returns the evidence of a run inside this process, which started nothing.
    pub fn in_process() -> Self {
        Self::of_tier("in_process")
    }

    /// Returns the evidence of a run of which nothing is known but that it may have begun.
    pub fn lost() -> Self {
        Self::of_tier("unknown")
    }

    fn of_tier(tier: &str) -> Self {
        Self {
            sandbox: json!({ "tier": tier }),
            exit: None,
            stdout: None,
            stderr: None,
            artifacts: None,
            cpu: None,
            max_rss_bytes: None,
        }
    }
}

impl Completion {
    /// Returns the completion of a run inside this process.
    pub fn in_process(result: Result<ToolOutput, ToolError>) -> Self {
        Self { result, has_started: true, evidence: Evidence::in_process() }
    }
}
