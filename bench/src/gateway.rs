//! The gateway under measurement: a durable journal, the default policies, one Sdk echo tool.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use gateway_adapters::{SdkAdapter, WorkerRegistry};
use gateway_engine::{GatewayOptions, GatewayParts, Job, SecretSource, ToolGateway};
use gateway_http::{HttpOptions, ServeOptions};
use gateway_ledger::{Ledger, LedgerOptions};
use gateway_model::wire::RegisterTool;
use gateway_model::{Principal, SystemClock, ToolError, ToolOutput};
use gateway_policy::{Policy, PolicyOptions};
use gateway_sandbox::{Egress, EgressOptions, Sandbox, SandboxOptions};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// Serves until the process is killed.
pub(crate) async fn serve(listener: TcpListener, home: &Path) -> anyhow::Result<()> {
    let gateway = open(home).await?;
    let http = HttpOptions {
        operator_token: None,
        needs_token: false,
        allowed_hosts: Vec::new(),
        allowed_origins: Vec::new(),
    };
    let options = ServeOptions {
        max_connections: 1_024,
        header_timeout: Duration::from_secs(30),
        drain: Duration::from_secs(1),
    };
    let router = gateway_http::router(gateway, http);
    gateway_http::serve(listener, router, options, CancellationToken::new()).await;
    Ok(())
}

async fn open(home: &Path) -> anyhow::Result<ToolGateway> {
    let clock = Arc::new(SystemClock);
    std::fs::create_dir_all(home.join("artifacts"))?;
    let (ledger, _found) =
        Ledger::open(LedgerOptions::in_home(home), Arc::<SystemClock>::clone(&clock))?;
    // The echo tool starts no process, so nothing is left unconfined here.
    let sandbox = SandboxOptions {
        enforce: false,
        helper: "/proc/self/exe".into(),
        readable: Vec::new(),
        home: home.to_owned(),
    };
    let parts = GatewayParts {
        ledger,
        policy: Arc::new(
            Policy::load(PolicyOptions { directory: None }).context("load the policies")?,
        ),
        sandbox: Sandbox::probe(sandbox).await,
        clock,
        secrets: SecretSource::none(),
        local: gateway_adapters::local(),
        http: gateway_adapters::http(Egress::open(EgressOptions::public_internet())?),
        sdk: Arc::new(SdkAdapter::new().with("bench.echo", echo)),
        subprocess: gateway_adapters::subprocess(WorkerRegistry::default()),
    };
    let options = GatewayOptions {
        home: home.to_owned(),
        search_path: Vec::new(),
        workspaces: Vec::new(),
        grace: Duration::from_secs(1),
        builtins: Vec::new(),
    };
    let gateway = ToolGateway::open(parts, options).await?;
    gateway.register(Principal::Operator, RegisterTool::read(definition())?).await?;
    Ok(gateway)
}

async fn echo(job: Job) -> Result<ToolOutput, ToolError> {
    Ok(ToolOutput::from_value(Value::Object(job.input().clone())))
}

fn definition() -> Value {
    json!({
        "id": "bench.echo",
        "name": "Echo",
        "description": "Returns the input unchanged",
        "tool_type": "Sdk",
        "input_schema": {
            "type": "object",
            "properties": { "message": { "type": "string" } },
            "required": ["message"],
        },
        "output_schema": { "type": "object" },
        "side_effects": [],
        "idempotency_behavior": "idempotent",
        "retryable": false,
        "failure_classification": "none",
        "safety_tier": "T0",
        "resource_limits": {
            "cpu": null, "memory": null, "network": "None", "filesystem": "None", "time_limit": 10,
        },
    })
}
