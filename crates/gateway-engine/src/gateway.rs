//! ToolGateway: the one way in, for every face and for embedders.

pub(crate) mod approval;
pub(crate) mod explain;
mod registration;
pub(crate) mod resolution;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use gateway_ledger::Ledger;
use gateway_model::wire::RegisterTool;
use gateway_model::{
    CallId, Clock, Effect, ErrorKind, Principal, RegisteredTool, RunId, ToolError, ToolSource,
};
use gateway_policy::{Action, Policy, PolicyRequest, ToolFacts};
use gateway_sandbox::{Sandbox, SandboxState};
use serde_json::Value;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::context::{RefusedCall, RequestContext};
use crate::executor::adapter::Adapter;
use crate::executor::journal;
use crate::executor::pipeline::{Adapters, Arrived, Executor};
use crate::executor::report::CallReport;
use crate::executor::secrets::SecretSource;
use crate::tool_metadata::{StoredRegistration, ToolCatalog, Workspace};

/// Calls that may be under way at once; more are told to come back.
const MAX_CALLS: usize = 4_096;

/// What a gateway is made of; each part is opened by its own crate.
pub struct GatewayParts {
    /// What happened.
    pub ledger: Ledger,
    /// What may run.
    pub policy: Arc<Policy>,
    /// What a run may touch.
    pub sandbox: Sandbox,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// Where the values of secrets come from.
    pub secrets: SecretSource,
    /// Runs Local tools.
    pub local: Arc<dyn Adapter>,
    /// Runs Http tools.
    pub http: Arc<dyn Adapter>,
    /// Runs Sdk tools.
    pub sdk: Arc<dyn Adapter>,
    /// Runs Subprocess tools.
    pub subprocess: Arc<dyn Adapter>,
}

/// How a gateway behaves.
#[derive(Debug, Clone)]
pub struct GatewayOptions {
    /// The directory that holds `artifacts/`; on the wire it is `/.allternit/`.
    pub home: PathBuf,
    /// Directories in which the bare name of a Local command is looked up, in order.
    pub search_path: Vec<PathBuf>,
    /// Directories that calls may reach besides their run.
    pub workspaces: Vec<Workspace>,
    /// How long [`ToolGateway::close`] waits for running calls.
    pub grace: Duration,
    /// Tools that are part of the gateway; their executors are Sdk executors.
    pub builtins: Vec<RegisterTool>,
}

/// A gateway that cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// A built-in's definition cannot be used; a fault of this build.
    #[error("built-in tool {id}: {reason}")]
    Builtin {
        /// The tool.
        id: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The ledger could not be read or written.
    #[error("the ledger could not be used")]
    Ledger(#[source] gateway_ledger::LedgerError),
}

/// The gateway. Clones share one gateway.
#[derive(Clone)]
pub struct ToolGateway {
    inner: Arc<Inner>,
}

struct Inner {
    executor: Executor,
    calls: TaskTracker,
    calls_running: AtomicUsize,
    grace: Duration,
    search_path: Vec<PathBuf>,
    /// Held while a registration or a removal is made durable and visible.
    registering: tokio::sync::Mutex<()>,
}

/// The state of the side-effect boundary.
#[derive(Debug, Clone)]
pub struct Health {
    /// The journal accepts entries.
    pub is_journal_writable: bool,
    /// What confines processes.
    pub sandbox: SandboxState,
    /// New calls are accepted.
    pub is_accepting: bool,
    /// Calls that are under way.
    pub calls_running: usize,
    /// Those of them that wait for another call: one with their key, or one they conflict with.
    pub calls_waiting: usize,
    /// Tools that are registered, built-ins included.
    pub tools: usize,
}

impl Health {
    /// Says whether the boundary holds: every call is journaled and every process confined.
    pub fn is_compliant(&self) -> bool {
        self.is_journal_writable && matches!(self.sandbox, SandboxState::Enforced(_))
    }
}

impl ToolGateway {
    /// Opens a gateway over its parts: loads what is registered and journals the start.
    ///
    /// # Errors
    /// Returns what of the parts cannot be used.
    pub async fn open(parts: GatewayParts, options: GatewayOptions) -> Result<Self, BuildError> {
        let GatewayOptions { home, search_path, workspaces, grace, builtins } = options;
        let catalog = ToolCatalog::default();
        for registration in builtins {
            let id = registration.id.to_string();
            let tool = StoredRegistration::resolve(registration, &parts.sandbox, &[])
                .and_then(|stored| stored.compile(1, ToolSource::Builtin))
                .map_err(|error| BuildError::Builtin { id, reason: error.to_string() })?;
            catalog.insert(Arc::new(tool));
        }
        registration::load(&parts.ledger, &catalog).await?;
        let executor = Executor {
            catalog,
            policy: parts.policy,
            ledger: parts.ledger,
            sandbox: Arc::new(parts.sandbox),
            scheduler: Arc::default(),
            clock: parts.clock,
            adapters: Adapters {
                local: parts.local,
                http: parts.http,
                sdk: parts.sdk,
                subprocess: parts.subprocess,
            },
            artifacts: home.join("artifacts"),
            workspaces,
            secrets: parts.secrets,
            waiting_for_answers: AtomicUsize::new(0),
            closing: CancellationToken::new(),
            shutdown: CancellationToken::new(),
        };
        journal::started(&executor).await.map_err(BuildError::Ledger)?;
        Ok(Self {
            inner: Arc::new(Inner {
                executor,
                calls: TaskTracker::new(),
                calls_running: AtomicUsize::new(0),
                grace,
                search_path,
                registering: tokio::sync::Mutex::new(()),
            }),
        })
    }

    /// Executes one call: the only way to a side effect.
    ///
    /// The call runs in a task of its own. Dropping this future leaves the call running to its
    /// sealed outcome; the token in the context stops it.
    pub async fn execute(&self, context: RequestContext, tool: &str, input: Value) -> CallReport {
        let executor = &self.inner.executor;
        let arrived = Arrived::new(journal::new_call(executor), context, tool, input);
        let Some(place) = Place::take(&self.inner) else {
            let error =
                ToolError::new(ErrorKind::RateLimited, format!("{MAX_CALLS} calls are under way"));
            return turned_away(&arrived, error.retry_after(Duration::from_secs(1)));
        };
        if self.inner.executor.closing.is_cancelled() {
            return turned_away(
                &arrived,
                ToolError::new(ErrorKind::Unavailable, "the gateway is shutting down"),
            );
        }
        let (call, at) = (arrived.call, arrived.at);
        let inner = Arc::clone(&self.inner);
        let line = self.inner.calls.spawn(async move {
            let report = inner.executor.execute(arrived).await;
            drop(place);
            report
        });
        line.await.unwrap_or_else(|_panic| CallReport {
            call,
            receipt: None,
            result: Err(ToolError::new(ErrorKind::Execution, "the gateway failed unexpectedly")),
            is_captured: false,
            is_policy_enforced: false,
            is_replayed: false,
            duration: at.elapsed(),
        })
    }

    /// Journals and answers a call that a face could not even bring to the line.
    pub async fn refuse(&self, refused: RefusedCall) -> CallReport {
        let executor = &self.inner.executor;
        let call = journal::new_call(executor);
        let at = Instant::now();
        let attempt = journal::Attempt::of_refused(call, &refused);
        let (is_captured, error) =
            match journal::refuse(executor, &attempt, &refused.error, None).await {
                Ok(()) => (true, refused.error),
                Err(unwritable) => (false, unwritable),
            };
        CallReport {
            call,
            receipt: None,
            result: Err(error),
            is_captured,
            is_policy_enforced: false,
            is_replayed: false,
            duration: at.elapsed(),
        }
    }

    /// Returns the tools that a principal may see, sorted by id.
    pub fn tools(&self, principal: Principal) -> Vec<Arc<RegisteredTool>> {
        let mut tools = self.inner.executor.catalog.all();
        tools.retain(|tool| self.is_visible(principal, tool));
        tools
    }

    /// Returns one tool that a principal may see.
    pub fn tool(&self, principal: Principal, id: &str) -> Option<Arc<RegisteredTool>> {
        self.inner.executor.catalog.get(id).filter(|tool| self.is_visible(principal, tool))
    }

    fn is_visible(&self, principal: Principal, tool: &RegisteredTool) -> bool {
        let request =
            PolicyRequest { principal, action: Action::List, tool: ToolFacts::from(tool) };
        self.inner.executor.policy.decide(&request).effect == Effect::Allow
    }

    /// Returns the receipt of a call; `None` where the call left none.
    ///
    /// # Errors
    /// Returns why the ledger could not be read.
    pub async fn receipt(
        &self,
        call: CallId,
    ) -> Result<Option<Value>, gateway_ledger::LedgerError> {
        let receipt = self.inner.executor.ledger.receipt(call).await?;
        Ok(receipt.map(|receipt| receipt.to_json()))
    }

    /// Returns a run's receipts in the order of the ledger, from after a position.
    ///
    /// # Errors
    /// Returns why the ledger could not be read.
    pub async fn receipts(
        &self,
        run: &RunId,
        after: Option<u64>,
        limit: u32,
    ) -> Result<Vec<Value>, gateway_ledger::LedgerError> {
        let receipts = self.inner.executor.ledger.receipts(run, after.unwrap_or(0), limit).await?;
        Ok(receipts.into_iter().map(|receipt| receipt.to_json()).collect())
    }

    /// Journals that another policy set is in force.
    ///
    /// # Errors
    /// Returns why the ledger could not be written.
    pub async fn policy_activated(&self) -> Result<(), gateway_ledger::LedgerError> {
        journal::policy_activated(&self.inner.executor).await
    }

    /// Returns the state of the side-effect boundary.
    pub fn health(&self) -> Health {
        let executor = &self.inner.executor;
        Health {
            is_journal_writable: executor.ledger.is_writable(),
            sandbox: executor.sandbox.state().clone(),
            is_accepting: !self.inner.executor.closing.is_cancelled(),
            calls_running: self.inner.calls_running.load(Ordering::Relaxed),
            calls_waiting: executor.ledger.joiners() + executor.scheduler.waiting(),
            tools: executor.catalog.len(),
        }
    }

    /// Stops accepting calls, waits the grace period for those under way, then stops them.
    ///
    /// Every admitted call is sealed before this returns, within its bounds.
    pub async fn close(&self) {
        self.inner.executor.closing.cancel();
        self.inner.calls.close();
        let waited = tokio::time::timeout(self.inner.grace, self.inner.calls.wait()).await;
        self.inner.executor.shutdown.cancel();
        if waited.is_err() {
            self.inner.calls.wait().await;
        }
        self.inner.executor.ledger.close().await;
    }
}

/// One of the bounded places for calls under way; given back when dropped.
struct Place(Arc<Inner>);

impl Place {
    fn take(inner: &Arc<Inner>) -> Option<Self> {
        let before = inner.calls_running.fetch_add(1, Ordering::Relaxed);
        let place = Self(Arc::clone(inner));
        (before < MAX_CALLS).then_some(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.calls_running.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The answer to a call that was not taken in; it is not journaled, so that a flood costs nothing.
fn turned_away(arrived: &Arrived, error: ToolError) -> CallReport {
    CallReport {
        call: arrived.call,
        receipt: None,
        result: Err(error),
        is_captured: false,
        is_policy_enforced: false,
        is_replayed: false,
        duration: arrived.at.elapsed(),
    }
}
