//! A gateway on a home of its own, its tools' adapter faked, everything else real.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, Request};
use gateway_engine::{
    Adapter, Completion, GatewayOptions, GatewayParts, Job, SecretSource, ToolGateway,
};
use gateway_http::{HttpOptions, Peer, router};
use gateway_ledger::{Ledger, LedgerOptions};
use gateway_model::wire::RegisterTool;
use gateway_model::{Clock, ErrorKind, SystemClock, Timestamp, ToolBinding, ToolError, ToolOutput};
use gateway_policy::{Policy, PolicyOptions};
use gateway_sandbox::{Sandbox, SandboxOptions};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tower::ServiceExt;

pub(crate) const TOKEN: &str = "0123456789abcdef0123456789abcdef";
pub(crate) const JSON: (&str, &str) = ("content-type", "application/json");

/// Runs calls in this process, by the id of their tool.
#[derive(Default)]
pub(crate) struct FakeAdapter {
    runs: Mutex<BTreeMap<String, u32>>,
    pub(crate) has_started: Notify,
    /// Lets one call that waits go on.
    pub(crate) go_on: Notify,
}

impl FakeAdapter {
    /// Returns how often a tool ran.
    pub(crate) fn runs(&self, tool: &str) -> u32 {
        self.runs.lock().unwrap().get(tool).copied().unwrap_or(0)
    }
}

struct Fake(Arc<FakeAdapter>);

impl Adapter for Fake {
    fn check(&self, _binding: &ToolBinding) -> Result<(), String> {
        Ok(())
    }

    fn run(&self, job: Job) -> Pin<Box<dyn Future<Output = Completion> + Send>> {
        let fake = Arc::clone(&self.0);
        Box::pin(async move {
            *fake.runs.lock().unwrap().entry(job.tool().id.to_string()).or_default() += 1;
            if job.input().get("wait") == Some(&Value::Bool(true)) {
                fake.has_started.notify_one();
                fake.go_on.notified().await;
            }
            match job.input().get("end").and_then(Value::as_str) {
                Some("fail") => {
                    let error = ToolError::new(ErrorKind::Execution, "the peer is down");
                    return Completion::in_process(Err(error));
                }
                Some(_panic) => panic!("an adapter with a fault"),
                None => {}
            }
            let output = match job.input().get("message") {
                Some(Value::String(message)) => json!({ "raw_output": format!("{message}\n") }),
                Some(other) => other.clone(),
                None => Value::Null,
            };
            Completion::in_process(Ok(ToolOutput::from_value(output)))
        })
    }
}

/// The machine's clock, moved on when a test says so.
#[derive(Default)]
pub(crate) struct MovedClock(AtomicU64);

impl MovedClock {
    pub(crate) fn advance(&self, duration: Duration) {
        self.0.fetch_add(u64::try_from(duration.as_millis()).unwrap(), Ordering::Relaxed);
    }
}

impl Clock for MovedClock {
    fn now(&self) -> Timestamp {
        SystemClock.now().plus(Duration::from_millis(self.0.load(Ordering::Relaxed)))
    }
}

/// The gateway and what a test needs beside it.
pub(crate) struct Fixture {
    pub(crate) router: Router,
    pub(crate) gateway: ToolGateway,
    pub(crate) fake: Arc<FakeAdapter>,
    pub(crate) policy: Arc<Policy>,
    pub(crate) clock: Arc<MovedClock>,
    document: Value,
    pub(crate) home: tempfile::TempDir,
}

/// An answer, read to its end.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).unwrap_or_else(|| panic!("no {name}: {self:?}")).to_str().unwrap()
    }
}

impl Fixture {
    pub(crate) async fn open() -> Self {
        Self::open_with(
            tempfile::tempdir().unwrap(),
            vec![builtin("note.read", &[]), builtin("note.add", &["filesystem_write"])],
        )
        .await
    }

    /// Closes the gateway and opens it again, with other tools built in.
    pub(crate) async fn reopen_with(self, builtins: Vec<RegisterTool>) -> Self {
        self.gateway.close().await;
        let Self { home, router, gateway, .. } = self;
        drop((router, gateway));
        Self::open_with(home, builtins).await
    }

    async fn open_with(home: tempfile::TempDir, builtins: Vec<RegisterTool>) -> Self {
        let clock = Arc::new(MovedClock::default());
        let (ledger, _report) =
            Ledger::open(LedgerOptions::in_home(home.path()), Arc::<MovedClock>::clone(&clock))
                .unwrap();
        let sandbox = SandboxOptions {
            enforce: false,
            helper: "/proc/self/exe".into(),
            readable: Vec::new(),
            home: home.path().to_owned(),
        };
        let fake = Arc::new(FakeAdapter::default());
        let directory = Some(home.path().join("policies"));
        let policy = Arc::new(Policy::load(PolicyOptions { directory }).unwrap());
        let parts = GatewayParts {
            ledger,
            policy: Arc::clone(&policy),
            sandbox: Sandbox::probe(sandbox).await,
            clock: Arc::<MovedClock>::clone(&clock),
            secrets: SecretSource::none(),
            local: Arc::new(Fake(Arc::clone(&fake))),
            http: Arc::new(Fake(Arc::clone(&fake))),
            sdk: Arc::new(Fake(Arc::clone(&fake))),
            subprocess: Arc::new(Fake(Arc::clone(&fake))),
        };
        let options = GatewayOptions {
            home: home.path().to_owned(),
            search_path: vec!["/usr/bin".into(), "/bin".into()],
            workspaces: Vec::new(),
            grace: Duration::from_secs(5),
            builtins,
        };
        let gateway = ToolGateway::open(parts, options).await.unwrap();
        let router = router(
            gateway.clone(),
            HttpOptions {
                operator_token: Some(TOKEN.to_owned()),
                needs_token: false,
                allowed_hosts: Vec::new(),
                allowed_origins: Vec::new(),
            },
        );
        let document = Value::Null;
        let mut fixture = Self { router, gateway, fake, policy, clock, document, home };
        fixture.document = fixture.get("/openapi.json").await.json();
        fixture
    }

    /// Sends a request from this machine; the answer must be one that the document declares.
    pub(crate) async fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Body>,
    ) -> Answer {
        let mut request = Request::builder().method(method).uri(path);
        if !headers.iter().any(|(name, _)| *name == "host") {
            request = request.header("host", "127.0.0.1:3510");
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let mut request = request.body(body.into()).unwrap();
        request.extensions_mut().insert(Peer("127.0.0.1:40000".parse().unwrap()));
        let response = self.router.clone().oneshot(request).await.unwrap();
        let (parts, body) = response.into_parts();
        let body = String::from_utf8(body.collect().await.unwrap().to_bytes().to_vec()).unwrap();
        let answer = Answer { status: parts.status.as_u16(), headers: parts.headers, body };
        if !self.document.is_null() {
            crate::document::check_declared(&self.document, method, path, &answer);
        }
        answer
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.send("GET", path, &[], "").await
    }

    /// Registers a tool as the operator.
    pub(crate) async fn register(&self, definition: &Value) -> Answer {
        let headers = [JSON, ("authorization", &*format!("Bearer {TOKEN}"))];
        self.send("POST", "/v1/tools", &headers, definition.to_string()).await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Answer {
        self.send("POST", path, &[JSON], body.to_string()).await
    }

    /// Executes a tool under a key and returns the answer.
    pub(crate) async fn execute(&self, tool: &str, input: Value, key: &str) -> Answer {
        let mut body = request();
        body["tool_id"] = json!(tool);
        body["input"] = input;
        body["correlation_id"] = json!(key);
        self.post("/v1/tools/execute", &body).await
    }
}

/// The wire contract's execute request.
pub(crate) fn request() -> Value {
    json!({
        "tool_id": "echo.test",
        "input": { "message": "hello" },
        "correlation_id": "corr_abc123",
        "run_id": "run_xyz789",
        "wih_id": "wih_456"
    })
}

/// The wire contract's registration.
pub(crate) fn registration() -> Value {
    json!({
        "id": "echo.test",
        "name": "Echo Test Tool",
        "description": "Returns the input unchanged",
        "tool_type": "Local",
        "command": "echo",
        "endpoint": "",
        "input_schema": {
            "type": "object",
            "properties": { "message": { "type": "string" } },
            "required": ["message"]
        },
        "output_schema": { "type": "object" },
        "side_effects": [],
        "idempotency_behavior": "idempotent",
        "retryable": false,
        "failure_classification": "transient",
        "safety_tier": "T0",
        "resource_limits": {
            "cpu": null,
            "memory": null,
            "network": "None",
            "filesystem": "None",
            "time_limit": 30
        },
        "subprocess": null
    })
}

pub(crate) fn builtin(id: &str, side_effects: &[&str]) -> RegisterTool {
    let mut definition = registration();
    definition["id"] = json!(id);
    definition["tool_type"] = json!("Sdk");
    definition["command"] = json!("");
    definition["input_schema"] = json!({ "type": "object" });
    definition["output_schema"] = json!({});
    definition["side_effects"] = json!(side_effects);
    definition["idempotency_behavior"] = json!("not_idempotent");
    definition["safety_tier"] = json!(if side_effects.is_empty() { "T0" } else { "T2" });
    RegisterTool::read(definition).unwrap()
}
