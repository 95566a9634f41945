//! Wiring: opens each part in order, and refuses to start with one line that says what to do.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use gateway_adapters::WorkerRegistry;
use gateway_engine::{GatewayOptions, GatewayParts, ToolGateway, Workspace};
use gateway_http::{HttpOptions, ServeOptions};
use gateway_ledger::{Ledger, LedgerOptions, OpenReport};
use gateway_model::{Principal, SystemClock, ToolSource};
use gateway_policy::{Policy, PolicyOptions, Reload};
use gateway_sandbox::{Egress, EgressOptions, Sandbox, SandboxOptions, SandboxState};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use crate::config::{Config, EgressSettings, variable_of_worker};
use crate::exit::{Exit, Failure};
use crate::home::{self, HomeLock, SecretStore};
use crate::open_files;

/// The program that the sandbox starts again: the very file that runs now, even where another
/// version has taken its name since.
const THIS_PROGRAM: &str = "/proc/self/exe";
/// How often the policy files are looked at.
const POLICY_LOOK: Duration = Duration::from_secs(1);
/// How long the head of a request may take to arrive, and how long a connection may idle.
const HEADER_TIME: Duration = Duration::from_secs(10);
/// How long answers may take to be sent once every call has ended.
const ANSWERS_SENT: Duration = Duration::from_secs(5);

/// A gateway that is open and not yet served.
pub(crate) struct Assembly {
    gateway: ToolGateway,
    policy: Arc<Policy>,
    listener: TcpListener,
    http: HttpOptions,
    grace: Duration,
    max_connections: usize,
    summary: Summary,
    /// Held until the process ends.
    lock: HomeLock,
}

/// What a start says about itself.
#[derive(Debug)]
pub(crate) struct Summary {
    /// Where it listens.
    pub(crate) address: SocketAddr,
    /// Its home, without symbolic links.
    pub(crate) home: PathBuf,
    /// Whether it runs as root.
    pub(crate) is_root: bool,
    /// What confines processes.
    pub(crate) sandbox: SandboxState,
    /// What calls reach besides their run.
    pub(crate) workspaces: Vec<Workspace>,
    /// Tools of the gateway's own, and registered ones.
    pub(crate) tools: (usize, usize),
    /// What the ledger found.
    pub(crate) ledger: OpenReport,
}

/// Opens everything that a gateway is made of.
///
/// # Errors
/// Names the first part that cannot be had, and what to do.
pub(crate) async fn open(config: &Config) -> Result<Assembly, Failure> {
    config.check_reach()?;
    let workspaces = config.granted_workspaces()?;
    let max_connections = open_files::max_connections(open_files::raise_limit());
    let home = home::prepare(&config.home).map_err(unstartable)?;
    let lock = HomeLock::take(&home).map_err(unstartable)?;
    let operator_token = home::operator_token(&home).map_err(unstartable)?;
    let listener = listen(config.address()).await?;
    let address = listener.local_addr().map_err(unstartable)?;
    let policy = load_policy(&home)?;
    let (ledger, report) = open_ledger(config, &home).await?;
    let egress = Arc::new(open_egress(config)?);
    let sandbox = Sandbox::probe(sandbox_options(config, &home)).await;
    let state = sandbox.state().clone();
    let opened = (ledger, Arc::clone(&policy), sandbox, egress);
    let gateway = open_gateway(config, &home, &workspaces, opened).await?;
    let tools = gateway.tools(Principal::Operator);
    let built_in =
        tools.iter().filter(|tool| tool.definition.source == ToolSource::Builtin).count();
    lock.publish(address).map_err(unstartable)?;
    Ok(Assembly {
        policy,
        listener,
        http: HttpOptions {
            operator_token: Some(operator_token),
            needs_token: config.is_reached_through_others(),
            allowed_hosts: config.http.allowed_hosts.clone(),
            allowed_origins: config.http.allowed_origins.clone(),
        },
        grace: config.grace,
        max_connections,
        summary: Summary {
            address,
            home,
            is_root: rustix::process::geteuid().is_root(),
            sandbox: state,
            workspaces,
            tools: (built_in, tools.len() - built_in),
            ledger: report,
        },
        gateway,
        lock,
    })
}

fn unstartable(error: impl Into<anyhow::Error>) -> Failure {
    Failure::of(Exit::Startup, error)
}

async fn listen(address: SocketAddr) -> Result<TcpListener, Failure> {
    TcpListener::bind(address).await.map_err(|error| {
        let failure = Failure::because(Exit::Startup, format!("listen on {address}"), error);
        failure.advise("stop what listens there, or choose another port with --port")
    })
}

fn load_policy(home: &Path) -> Result<Arc<Policy>, Failure> {
    let directory = home.join("policies");
    let options = PolicyOptions { directory: Some(directory.clone()) };
    let policy = Policy::load(options).map_err(|error| {
        let doing = format!("load the policy files of {}", directory.display());
        let failure = Failure::because(Exit::Startup, doing, error);
        failure.advise("`policy check` lists every fault; correct the file or move it away")
    })?;
    for warning in policy.warnings() {
        tracing::warn!(%warning, "policy file");
    }
    Ok(Arc::new(policy))
}

/// Loads the registry of workers; a home without one has no workers.
///
/// # Errors
/// Names the first worker that cannot be used.
pub(crate) fn load_workers(config: &Config, home: &Path) -> Result<WorkerRegistry, Failure> {
    let of_home = home.join("workers/worker_registry.json");
    let path = config.workers.as_ref().unwrap_or(&of_home);
    if config.workers.is_none() && !path.exists() {
        return Ok(WorkerRegistry::default());
    }
    WorkerRegistry::load(path, &config.search_path, home, &variable_of_worker).map_err(unstartable)
}

async fn open_ledger(config: &Config, home: &Path) -> Result<(Ledger, OpenReport), Failure> {
    let options =
        LedgerOptions { key_retention: config.key_retention, ..LedgerOptions::in_home(home) };
    let opening = tokio::task::spawn_blocking(move || Ledger::open(options, Arc::new(SystemClock)));
    opening.await.map_err(unstartable)?.map_err(unstartable)
}

/// Returns how the sandbox of a home is set up.
pub(crate) fn sandbox_options(config: &Config, home: &Path) -> SandboxOptions {
    SandboxOptions {
        enforce: config.sandbox.is_enforced,
        helper: PathBuf::from(THIS_PROGRAM),
        readable: config.sandbox.readable.clone(),
        home: home.to_owned(),
    }
}

fn open_egress(config: &Config) -> Result<Egress, Failure> {
    let EgressSettings { allow_private, ca_file } = config.egress.clone();
    let options = EgressOptions { allow_private, ca_file, ..EgressOptions::public_internet() };
    Egress::open(options).map_err(unstartable)
}

async fn open_gateway(
    config: &Config,
    home: &Path,
    workspaces: &[Workspace],
    (ledger, policy, sandbox, egress): (Ledger, Arc<Policy>, Sandbox, Arc<Egress>),
) -> Result<ToolGateway, Failure> {
    let parts = GatewayParts {
        ledger,
        policy,
        sandbox: sandbox.with_egress(Arc::clone(&egress)),
        clock: Arc::new(SystemClock),
        secrets: SecretStore::of(home).into_source(),
        local: gateway_adapters::local(),
        http: gateway_adapters::http(egress),
        sdk: gateway_adapters::sdk(),
        subprocess: gateway_adapters::subprocess(load_workers(config, home)?),
    };
    let options = GatewayOptions {
        home: home.to_owned(),
        search_path: config.search_path.clone(),
        workspaces: workspaces.to_vec(),
        grace: config.grace,
        builtins: gateway_adapters::builtins().map_err(unstartable)?,
    };
    ToolGateway::open(parts, options).await.map_err(unstartable)
}

impl Assembly {
    /// Returns what the start says about itself.
    pub(crate) fn summary(&self) -> &Summary {
        &self.summary
    }

    /// Serves until the token is cancelled, then ends every call and answers what is under way.
    ///
    /// # Errors
    /// Returns why serving ended by itself, which only a fault of the program can cause.
    pub(crate) async fn serve(self, stop: CancellationToken) -> Result<(), Failure> {
        let Self { gateway, policy, listener, http, grace, max_connections, summary: _, lock } =
            self;
        let router = gateway_http::router(gateway.clone(), http);
        let options = ServeOptions {
            max_connections,
            header_timeout: HEADER_TIME,
            drain: grace + ANSWERS_SENT,
        };
        let mut tasks = JoinSet::new();
        tasks.spawn(gateway_http::serve(listener, router, options, stop.clone()));
        tasks.spawn(watch_policy(policy, gateway.clone(), stop.clone()));
        let ended_by_itself = tokio::select! {
            // Told to stop, the tasks end as well: that is not by themselves.
            biased;
            () = stop.cancelled() => None,
            ended = tasks.join_next() => ended,
        };
        stop.cancel();
        gateway.close().await;
        while tasks.join_next().await.is_some() {}
        drop(lock);
        match ended_by_itself {
            None => Ok(()),
            Some(Ok(())) => {
                Err(Failure::new(Exit::Failed, "the gateway stopped serving by itself"))
            }
            Some(Err(error)) => Err(Failure::because(Exit::Failed, "serve", error)),
        }
    }
}

/// Puts changed policy files in force until told to stop.
async fn watch_policy(policy: Arc<Policy>, gateway: ToolGateway, stop: CancellationToken) {
    let mut looks = tokio::time::interval(POLICY_LOOK);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            _now = looks.tick() => {}
        }
        let policy = Arc::clone(&policy);
        match tokio::task::spawn_blocking(move || policy.reload_if_changed()).await {
            Ok(Reload::Unchanged) => {}
            Ok(Reload::Activated { digest, files, warnings }) => {
                for warning in warnings {
                    tracing::warn!(%warning, "policy file");
                }
                tracing::info!(policy_set = %digest, files = files.len(), "policy set is in force");
                journal_activation(&gateway).await;
            }
            Ok(Reload::Rejected(error)) => {
                tracing::error!(%error, "policy files are refused; the set before stays in force");
            }
            Err(error) => tracing::error!(%error, "policy files could not be looked at"),
        }
    }
}

async fn journal_activation(gateway: &ToolGateway) {
    if let Err(error) = gateway.policy_activated().await {
        tracing::error!(error = %format_args!("{:#}", anyhow::Error::new(error)), "the change of policy is not journaled");
    }
}
