//! A gateway on a home of its own, with the workspaces `app` (writable) and `docs`, and the run
//! `run_1`.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use gateway_adapters::{SdkAdapter, WorkerRegistry};
use gateway_engine::{
    CallReport, GatewayOptions, GatewayParts, RequestContext, RequestIds, SecretError,
    SecretSource, ToolGateway, Workspace,
};
use gateway_ledger::{Ledger, LedgerOptions};
use gateway_model::wire::RegisterTool;
use gateway_model::{Face, Principal, SecretName, SystemClock, ToolError};
use gateway_policy::{Policy, PolicyOptions};
use gateway_sandbox::{Egress, EgressOptions, Sandbox, SandboxOptions};
use serde_json::{Value, json};
use tempfile::TempDir;

/// The run's directory, as calls see it.
pub(crate) const RUN: &str = "/.allternit/artifacts/run_1";

/// The value of the secret `TOKEN`.
pub(crate) const TOKEN: &str = "s3ntinel \"quoted\"/value+漢";

/// A gateway and its directories on this machine.
pub(crate) struct Fixture {
    pub(crate) gateway: ToolGateway,
    pub(crate) workspace: PathBuf,
    pub(crate) artifacts: PathBuf,
    /// Lies beside the workspace; nothing may reach it.
    pub(crate) outside: PathBuf,
    calls: AtomicU32,
    directory: TempDir,
}

impl Fixture {
    /// Opens a gateway whose workspace `app` holds these files.
    pub(crate) async fn with(files: &[(&str, &str)]) -> Self {
        let parts = (EgressOptions::public_internet(), |_outside: &Path| Vec::new());
        Self::with_parts(files, parts).await
    }

    /// Opens a gateway whose requests go out as these options say.
    pub(crate) async fn with_egress(files: &[(&str, &str)], egress: EgressOptions) -> Self {
        Self::with_parts(files, (egress, |_outside: &Path| Vec::new())).await
    }

    /// Opens the same with a registry of workers, whose programs may lie outside of everything.
    pub(crate) async fn with_workers(
        files: &[(&str, &str)],
        workers: impl FnOnce(&Path) -> Vec<Value>,
    ) -> Self {
        Self::with_parts(files, (EgressOptions::public_internet(), workers)).await
    }

    async fn with_parts(
        files: &[(&str, &str)],
        (egress, workers): (EgressOptions, impl FnOnce(&Path) -> Vec<Value>),
    ) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().canonicalize().unwrap();
        let (home, workspace, outside) =
            (root.join("home"), root.join("app"), root.join("outside"));
        let artifacts = home.join("artifacts");
        let documents = root.join("docs");
        for made in [&artifacts, &workspace, &outside, &documents] {
            fs::create_dir_all(made).unwrap();
        }
        put(&documents, "guide", "read me\n");
        put(&outside, "secret", "SENTINEL\n");
        for (path, content) in files {
            put(&workspace, path, content);
        }
        let registry = json!({ "version": 1, "workers": workers(&outside) });
        put(&home, "workers.json", &registry.to_string());
        let gateway =
            open(&home, &[("app", &workspace, true), ("docs", &documents, false)], egress).await;
        Self { gateway, workspace, artifacts, outside, calls: AtomicU32::new(0), directory }
    }

    /// Puts a file into the directory of the run.
    pub(crate) fn put_in_run(&self, path: &str, content: &str) {
        put(&self.artifacts.join("run_1"), path, content);
    }

    /// Reads a file of the workspace.
    pub(crate) fn read(&self, path: &str) -> String {
        String::from_utf8(fs::read(self.workspace.join(path)).unwrap()).unwrap()
    }

    /// Calls a tool under a fresh key.
    pub(crate) async fn report(&self, tool: &str, input: Value) -> CallReport {
        self.gateway.execute(self.context(), tool, input).await
    }

    pub(crate) fn context(&self) -> RequestContext {
        let number = self.calls.fetch_add(1, Ordering::Relaxed);
        let ids = RequestIds {
            run: "run_1".into(),
            wih: "wih_1".into(),
            key: Some(format!("key_{number}")),
        };
        RequestContext::parse(Principal::Local, Face::Embedded, &ids).unwrap()
    }

    /// Calls a tool that must succeed, and returns its output.
    #[track_caller]
    pub(crate) fn succeeds(&self, tool: &str, input: Value) -> impl Future<Output = Value> {
        let place = std::panic::Location::caller();
        async move {
            let output = self.report(tool, input).await.result;
            let output = output.unwrap_or_else(|error| panic!("{place}: {}", error.to_json()));
            let shown = output.to_rest();
            self.check_no_host_path(&shown);
            shown
        }
    }

    /// Calls a tool that must fail, and returns its error.
    #[track_caller]
    pub(crate) fn fails(&self, tool: &str, input: Value) -> impl Future<Output = ToolError> {
        let place = std::panic::Location::caller();
        async move {
            let error = match self.report(tool, input).await.result {
                Ok(output) => panic!("{place}: {}", output.to_rest()),
                Err(error) => error,
            };
            self.check_no_host_path(&error.to_json());
            assert!(!error.to_json().to_string().contains("SENTINEL"), "{place}: {error}");
            error
        }
    }

    fn check_no_host_path(&self, shown: &Value) {
        let root = self.directory.path().to_str().unwrap();
        assert!(!shown.to_string().contains(root), "a path of the host is shown: {shown}");
    }

    /// Calls a tool that must fail with this kind, and with this text in its message.
    #[track_caller]
    pub(crate) fn check_refused(
        &self,
        tool: &str,
        input: Value,
        kind: &str,
        text: &str,
    ) -> impl Future<Output = ()> {
        let place = std::panic::Location::caller();
        let failing = self.fails(tool, input);
        async move {
            let error = failing.await;
            assert_eq!(error.kind.as_str(), kind, "{place}: {error}");
            assert!(error.message.contains(text), "{place}: {error}");
        }
    }

    /// Returns what a receipt holds beside its records: the content of one part of its bundle.
    pub(crate) async fn content(&self, report: &CallReport, part: &str) -> Option<String> {
        let receipt = self.gateway.receipt(report.receipt?).await.unwrap().unwrap();
        receipt["bundle"][part]["content"].as_str().map(ToOwned::to_owned)
    }

    /// Registers a Local tool: the smallest definition, changed.
    pub(crate) async fn register(
        &self,
        id: &str,
        command: &str,
        change: impl FnOnce(&mut Value),
    ) -> Result<(), String> {
        let mut definition = json!({
            "id": id, "name": id, "description": "a tool of the tests", "tool_type": "Local", "command": command,
            "input_schema": {"type": "object", "properties": {"value": {}, "more": {}}},
            "output_schema": {},
            "side_effects": [], "idempotency_behavior": "idempotent", "retryable": false,
            "failure_classification": "none", "safety_tier": "T1",
            "resource_limits": {"cpu": null, "memory": null, "network": "None", "filesystem": "None", "time_limit": 30},
        });
        change(&mut definition);
        let registration = RegisterTool::read(definition).map_err(|error| error.to_string())?;
        self.gateway
            .register(Principal::Operator, registration)
            .await
            .map(drop)
            .map_err(|error| error.to_string())
    }
}

/// Writes a file and the directories above it.
pub(crate) fn put(directory: &Path, path: &str, content: &str) {
    let path = directory.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
}

/// The secret `TOKEN`, which is everything that these tests keep.
fn secret(name: &SecretName) -> Result<String, SecretError> {
    match name.as_str() {
        "TOKEN" => Ok(TOKEN.to_owned()),
        _ => Err(SecretError::Absent { name: name.clone() }),
    }
}

/// The program that the sandbox starts: the example, which `cargo test` builds beside the tests.
fn helper() -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    let helper = tests.ancestors().nth(2).unwrap().join("examples/embed");
    assert!(helper.is_file(), "{} is not built; run cargo test without --test", helper.display());
    helper
}

async fn open(
    home: &Path,
    workspaces: &[(&str, &Path, bool)],
    egress: EgressOptions,
) -> ToolGateway {
    let clock = Arc::new(SystemClock);
    let ledger_clock = Arc::<SystemClock>::clone(&clock);
    let (ledger, _found) = Ledger::open(LedgerOptions::in_home(home), ledger_clock).unwrap();
    let sandbox = SandboxOptions {
        enforce: true,
        helper: helper(),
        readable: Vec::new(),
        home: home.to_owned(),
    };
    let search_path = ["/usr/bin", "/bin"].map(PathBuf::from).to_vec();
    let variable = |name: &str| (name == "ALLOWED").then(|| "passed on".to_owned());
    let workers = WorkerRegistry::load(&home.join("workers.json"), &search_path, home, &variable);
    let egress = Arc::new(Egress::open(egress).unwrap());
    let parts = GatewayParts {
        ledger,
        policy: Arc::new(Policy::load(PolicyOptions { directory: None }).unwrap()),
        sandbox: Sandbox::probe(sandbox).await.with_egress(Arc::clone(&egress)),
        clock,
        secrets: SecretSource::new(secret),
        local: gateway_adapters::local(),
        http: gateway_adapters::http(egress),
        sdk: Arc::new(SdkAdapter::with_builtins()),
        subprocess: gateway_adapters::subprocess(workers.unwrap()),
    };
    let granted = |&(name, host, is_writable): &(&str, &Path, bool)| Workspace {
        name: name.parse().unwrap(),
        host: host.to_owned(),
        is_writable,
    };
    let options = GatewayOptions {
        home: home.to_owned(),
        search_path,
        workspaces: workspaces.iter().map(granted).collect(),
        grace: Duration::from_secs(1),
        builtins: gateway_adapters::builtins().unwrap(),
    };
    ToolGateway::open(parts, options).await.unwrap()
}
