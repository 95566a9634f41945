//! A program that embeds the gateway, with a tool of its own beside the built-in ones.
//!
//! `cargo run -p gateway-adapters --example embed` prints the answers of two calls.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use gateway_adapters::{SdkAdapter, WorkerRegistry};
use gateway_engine::{
    GatewayOptions, GatewayParts, Job, RequestContext, RequestIds, SecretSource, ToolGateway,
};
use gateway_ledger::{Ledger, LedgerOptions};
use gateway_model::wire::RegisterTool;
use gateway_model::{Face, Principal, SystemClock, ToolError, ToolOutput};
use gateway_policy::{Policy, PolicyOptions};
use gateway_sandbox::{
    Egress, EgressOptions, HELPER_ARGUMENT, Sandbox, SandboxOptions, helper_main,
};
use serde_json::{Value, json};

type Failure = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    // The sandbox starts this very program again; that must be seen to before anything else.
    if std::env::args_os().nth(1).is_some_and(|argument| argument == HELPER_ARGUMENT) {
        return helper_main();
    }
    let home = std::env::temp_dir().join(format!("embed-{}", std::process::id()));
    let done = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(Failure::from)
        .and_then(|runtime| runtime.block_on(embed(&home)));
    if let Err(error) = std::fs::remove_dir_all(&home) {
        say(&format!("{} was not removed: {error}", home.display()));
    }
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&error.to_string());
            ExitCode::FAILURE
        }
    }
}

/// The tool: an async function from a call to its output.
async fn greet(job: Job) -> Result<ToolOutput, ToolError> {
    let name = job.input().get("name").and_then(Value::as_str).unwrap_or("world");
    Ok(ToolOutput::from_value(json!({ "greeting": format!("hello, {name}") })))
}

async fn embed(home: &Path) -> Result<(), Failure> {
    std::fs::create_dir_all(home.join("artifacts"))?;
    let gateway = open(home).await?;
    gateway.register(Principal::Operator, RegisterTool::read(greet_definition())?).await?;
    for (tool, input) in
        [("greet", json!({ "name": "Ada" })), ("bash", json!({ "cmd": "echo \"in $PWD\"" }))]
    {
        let ids = RequestIds {
            run: "run_1".into(),
            wih: "wih_1".into(),
            key: Some(format!("first_{tool}")),
        };
        let context = RequestContext::parse(Principal::Local, Face::Embedded, &ids)?;
        let report = gateway.execute(context, tool, input).await;
        say(&format!("{tool}: {}", report.result?.to_rest()));
    }
    gateway.close().await;
    Ok(())
}

async fn open(home: &Path) -> Result<ToolGateway, Failure> {
    let clock = Arc::new(SystemClock);
    let ledger_clock = Arc::<SystemClock>::clone(&clock);
    let (ledger, _found) = Ledger::open(LedgerOptions::in_home(home), ledger_clock)?;
    let sandbox = SandboxOptions {
        enforce: true,
        helper: PathBuf::from("/proc/self/exe"),
        readable: Vec::new(),
        home: home.to_owned(),
    };
    let egress = Arc::new(Egress::open(EgressOptions::public_internet())?);
    let parts = GatewayParts {
        ledger,
        policy: Arc::new(Policy::load(PolicyOptions { directory: None })?),
        sandbox: Sandbox::probe(sandbox).await.with_egress(Arc::clone(&egress)),
        clock,
        secrets: SecretSource::none(),
        local: gateway_adapters::local(),
        http: gateway_adapters::http(egress),
        sdk: Arc::new(SdkAdapter::with_builtins().with("greet", greet)),
        subprocess: gateway_adapters::subprocess(WorkerRegistry::default()),
    };
    let options = GatewayOptions {
        home: home.to_owned(),
        search_path: vec!["/usr/bin".into(), "/bin".into()],
        workspaces: Vec::new(),
        grace: Duration::from_secs(5),
        builtins: gateway_adapters::builtins()?,
    };
    Ok(ToolGateway::open(parts, options).await?)
}

/// The definition that callers see; its id is the name of the executor.
fn greet_definition() -> Value {
    json!({
        "id": "greet",
        "name": "Greet",
        "description": "Greets a person by name",
        "tool_type": "Sdk",
        "input_schema": {
            "type": "object",
            "properties": { "name": { "type": "string" } },
            "additionalProperties": false,
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

#[expect(clippy::print_stdout, reason = "a program for a terminal")]
fn say(line: &str) {
    println!("{line}");
}
