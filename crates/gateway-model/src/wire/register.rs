//! The body of `POST /v1/tools`: one registration, read and checked for contradictions.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::environment::{environment_to_wire, read_environment, refuse_secret};
use super::fields::{FieldError, Fields};
use super::http::{check_reach, read_http};
use super::limits::{limits_to_wire, read_limits};
use crate::binding::StdinMode;
use crate::claim::ClaimRule;
use crate::endpoint::HttpBinding;
use crate::id::{ToolId, WorkerId};
use crate::limits::{FilesystemLimit, NetworkLimit, ResourceLimits};
use crate::secret::SecretText;
use crate::tool::{FailureClass, Idempotency, SafetyTier};

/// The adapter a registration asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToolType {
    /// A local command.
    Local,
    /// An HTTP endpoint.
    Http,
    /// An executor within the gateway.
    Sdk,
    /// A registered worker.
    Subprocess,
    /// A tool of an MCP server.
    Mcp,
}

impl ToolType {
    const ALL: [Self; 5] = [Self::Local, Self::Http, Self::Sdk, Self::Subprocess, Self::Mcp];

    /// Returns the type's name on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Local => "Local",
            Self::Http => "Http",
            Self::Sdk => "Sdk",
            Self::Subprocess => "Subprocess",
            Self::Mcp => "Mcp",
        }
    }
}

/// What the process of a Local tool is given besides its arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessInput {
    /// What it reads on its standard input.
    pub stdin: StdinMode,
    /// Variables besides the gateway's own; a text may name a secret.
    pub environment: BTreeMap<String, SecretText>,
}

/// A registration whose fields are each what they must be and agree with each other.
#[derive(Debug, Clone, PartialEq)]
pub struct RegisterTool {
    /// The id to register under.
    pub id: ToolId,
    /// The name for people.
    pub name: String,
    /// What the tool does.
    pub description: String,
    /// The adapter.
    pub tool_type: ToolType,
    /// The command of a Local tool; empty for others.
    pub command: String,
    /// The argument template of a Local tool.
    pub args: Option<Vec<String>>,
    /// What a Local tool's process is given besides its arguments.
    pub process: ProcessInput,
    /// How an Http tool is reached.
    pub http: Option<HttpBinding>,
    /// The worker of a Subprocess tool.
    pub worker: Option<WorkerId>,
    /// JSON Schema of the input.
    pub input_schema: Value,
    /// JSON Schema of the output.
    pub output_schema: Value,
    /// Declared categories of side effects.
    pub side_effects: Vec<String>,
    /// What a repeated call means.
    pub idempotency: Idempotency,
    /// Whether a failure may be tried again.
    pub is_retryable: bool,
    /// What a failure means.
    pub failure: FailureClass,
    /// How much harm the tool can do.
    pub tier: SafetyTier,
    /// What the sandbox enforces.
    pub limits: ResourceLimits,
    /// How a call's claim is read.
    pub claim: ClaimRule,
    /// Words to find the tool by.
    pub tags: Vec<String>,
    /// The whole registration with defaults filled in, in the wire's shape and order.
    pub normalised: Value,
}

/// Ids that no tool can have, because the REST face has other routes at their paths.
const RESERVED_IDS: [&str; 2] = ["execute", "explain"];

/// A registration that is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RegisterError {
    /// A field is not what it must be.
    #[error(transparent)]
    Field(#[from] FieldError),
    /// Two fields contradict each other.
    #[error("{path}: {reason}")]
    Contradiction {
        /// JSON Pointer to the field that would have to change.
        path: &'static str,
        /// What contradicts what.
        reason: String,
    },
}

impl RegisterTool {
    /// Reads and checks the body.
    ///
    /// # Errors
    /// Names the first field that is absent, wrong, unknown, or contradicts another.
    pub fn read(body: Value) -> Result<Self, RegisterError> {
        let mut fields = Fields::of(body, "")?;
        let registration = Self::read_fields(&mut fields)?;
        fields.finish()?;
        registration.check_consistency()?;
        Ok(registration)
    }

    fn read_fields(fields: &mut Fields) -> Result<Self, FieldError> {
        let id = fields.text("id")?;
        let id = id.parse::<ToolId>().map_err(|error| fields.error("id", error.to_string()))?;
        if RESERVED_IDS.contains(&id.as_str()) {
            let reason =
                format!("{id} is a path of the gateway's own, /v1/tools/{id}; expected another id");
            return Err(fields.error("id", reason));
        }
        let name = bounded(fields, "name", 1, 200)?;
        let description = bounded(fields, "description", 0, 8_000)?;
        let tool_type = fields.choice("tool_type", &ToolType::ALL, ToolType::as_str)?;
        let command = fields.optional_text("command")?.unwrap_or_default();
        let endpoint = fields.optional_text("endpoint")?.unwrap_or_default();
        let subprocess = fields.take_non_null("subprocess");
        check_target(fields, tool_type, &command, &endpoint)?;
        let worker = worker_id(fields, tool_type, subprocess)?;
        let args = fields.optional_texts("args", 256, 8_192)?;
        let stdin = stdin_mode(fields)?;
        let environment = read_environment(fields)?;
        check_no_secret(fields, &command, args.as_deref())?;
        if tool_type != ToolType::Local && !environment.is_empty() {
            let reason =
                "belongs to Local tools only; a worker's is in the operator's registry of workers";
            return Err(fields.error("env", reason));
        }
        if tool_type != ToolType::Local && args.is_some() {
            return Err(fields.error("args", "belongs to Local tools only; expected none"));
        }
        if tool_type != ToolType::Local && stdin == StdinMode::Json {
            return Err(fields.error("stdin", "belongs to Local tools only; expected none"));
        }
        let input_schema = fields.required("input_schema")?;
        let http = read_http(fields, tool_type, &endpoint, &input_schema)?;
        let side_effects = fields.texts("side_effects", 32, 64)?;
        let limits = fields.required("resource_limits")?;
        let mut registration = Self {
            id,
            name,
            description,
            tool_type,
            command,
            args,
            process: ProcessInput { stdin, environment },
            http,
            worker,
            input_schema,
            output_schema: fields.required("output_schema")?,
            idempotency: fields.choice(
                "idempotency_behavior",
                &Idempotency::ALL,
                Idempotency::as_str,
            )?,
            is_retryable: fields.boolean("retryable")?,
            failure: fields.choice(
                "failure_classification",
                &FailureClass::ALL,
                FailureClass::as_str,
            )?,
            tier: fields.choice("safety_tier", &SafetyTier::ALL, SafetyTier::as_str)?,
            limits: read_limits(limits)?,
            claim: claim_rule(fields, &side_effects)?,
            tags: fields.optional_texts("tags", 32, 64)?.unwrap_or_default(),
            side_effects,
            normalised: Value::Null,
        };
        registration.normalised = registration.to_wire(&endpoint);
        Ok(registration)
    }

    /// Refuses declarations that could not all be true.
    fn check_consistency(&self) -> Result<(), RegisterError> {
        let contradiction = |path: &'static str, reason: &str| {
            Err(RegisterError::Contradiction { path, reason: reason.to_owned() })
        };
        if self.tier == SafetyTier::T0 && !self.side_effects.is_empty() {
            return contradiction(
                "/safety_tier",
                "T0 is read-only, but side_effects are declared; expected T1 or above, or no side_effects",
            );
        }
        if self.tier == SafetyTier::T0 && self.limits.network == NetworkLimit::Unrestricted {
            return contradiction(
                "/resource_limits/network",
                "T0 is read-only, but the network is Unrestricted; expected a DomainAllowlist or a higher tier",
            );
        }
        if self.tier == SafetyTier::T0
            && matches!(self.limits.filesystem, FilesystemLimit::ReadWrite(_))
        {
            return contradiction(
                "/resource_limits/filesystem",
                "T0 is read-only, but ReadWrite paths are declared; expected an Allowlist or a higher tier",
            );
        }
        if let Some(http) = &self.http {
            check_reach(http, &self.limits.network)?;
        }
        if self.side_effects.is_empty() && self.tier >= SafetyTier::T2 {
            return contradiction(
                "/side_effects",
                "a tool of tier T2 or above has effects, and its calls need an idempotency key; expected side_effects such as [\"filesystem\"], or a lower tier",
            );
        }
        if self.side_effects.is_empty()
            && matches!(self.limits.filesystem, FilesystemLimit::ReadWrite(_))
        {
            return contradiction(
                "/side_effects",
                "ReadWrite paths are declared, so calls have effects and need an idempotency key; expected side_effects such as [\"filesystem\"], or an Allowlist",
            );
        }
        if self.is_retryable && self.failure != FailureClass::Transient {
            return contradiction(
                "/retryable",
                "a retryable tool fails transiently; expected failure_classification \"transient\"",
            );
        }
        Ok(())
    }

    /// Returns the registration in the wire's full shape.
    fn to_wire(&self, endpoint: &str) -> Value {
        let mut whole = json!({
            "id": self.id.as_str(),
            "name": self.name,
            "description": self.description,
            "tool_type": self.tool_type.as_str(),
            "command": self.command,
            "endpoint": endpoint,
            "input_schema": self.input_schema,
            "output_schema": self.output_schema,
            "side_effects": self.side_effects,
            "idempotency_behavior": self.idempotency.as_str(),
            "retryable": self.is_retryable,
            "failure_classification": self.failure.as_str(),
            "safety_tier": self.tier.as_str(),
            "resource_limits": limits_to_wire(&self.limits),
            "subprocess": self.worker.as_ref().map(|worker| json!({ "worker_id": worker.as_str() })),
        });
        let mut set = |name: &str, value: Value| {
            whole.as_object_mut().map(|object| object.insert(name.to_owned(), value))
        };
        if !self.process.environment.is_empty() {
            set("env", environment_to_wire(&self.process.environment));
        }
        if self.tool_type == ToolType::Local {
            if let Some(args) = &self.args {
                set("args", json!(args));
            }
            set(
                "stdin",
                json!(match self.process.stdin {
                    StdinMode::None => "none",
                    StdinMode::Json => "json",
                }),
            );
        }
        if let Some(http) = &self.http {
            set("method", json!(http.method.as_str()));
            set("body", json!(http.body.as_str()));
        }
        set(
            "claim",
            match &self.claim {
                ClaimRule::Shared => json!("shared"),
                ClaimRule::Global => json!("global"),
                ClaimRule::Paths(pointers) => json!({"paths": pointers}),
            },
        );
        if !self.tags.is_empty() {
            set("tags", json!(self.tags));
        }
        whole
    }
}

fn bounded(
    fields: &mut Fields,
    name: &'static str,
    min: usize,
    max: usize,
) -> Result<String, FieldError> {
    let text = fields.text(name)?;
    if text.len() < min || text.len() > max {
        return Err(
            fields.error(name, format!("has {} bytes, expected {min} to {max}", text.len()))
        );
    }
    if text.contains('\0') {
        return Err(fields.error(name, "holds a NUL"));
    }
    Ok(text)
}

fn check_target(
    fields: &Fields,
    tool_type: ToolType,
    command: &str,
    endpoint: &str,
) -> Result<(), FieldError> {
    let is_local = tool_type == ToolType::Local;
    match tool_type {
        ToolType::Mcp => {
            return Err(fields.error(
                "tool_type",
                "Mcp tools are registered by attaching their server, never one by one",
            ));
        }
        ToolType::Local | ToolType::Http | ToolType::Sdk | ToolType::Subprocess => {}
    }
    if is_local && command.trim().is_empty() {
        return Err(fields.error(
            "command",
            "a Local tool needs a command: a path, or a name on the gateway's search path",
        ));
    }
    if !is_local && !command.is_empty() {
        return Err(fields.error("command", "belongs to Local tools only; expected \"\""));
    }
    if command.contains('\0') {
        return Err(fields.error("command", "holds a NUL"));
    }
    let is_http = tool_type == ToolType::Http;
    if is_http && endpoint.is_empty() {
        return Err(fields.error(
            "endpoint",
            "an Http tool needs an address, such as \"https://api.example.org/items/{{id}}\"",
        ));
    }
    if !is_http && !endpoint.is_empty() {
        return Err(fields.error("endpoint", "belongs to Http tools only; expected \"\""));
    }
    Ok(())
}

/// Refuses references to secrets where none is resolved.
fn check_no_secret(
    fields: &Fields,
    command: &str,
    args: Option<&[String]>,
) -> Result<(), FieldError> {
    refuse_secret(command).map_err(|reason| fields.error("command", reason))?;
    for (position, text) in args.unwrap_or_default().iter().enumerate() {
        refuse_secret(text).map_err(|reason| fields.error(&format!("args/{position}"), reason))?;
    }
    Ok(())
}

/// Reads `subprocess`, which names the worker of a Subprocess tool.
fn worker_id(
    fields: &Fields,
    tool_type: ToolType,
    subprocess: Option<Value>,
) -> Result<Option<WorkerId>, FieldError> {
    match (tool_type == ToolType::Subprocess, subprocess) {
        (false, None) => Ok(None),
        (false, Some(_)) => {
            Err(fields.error("subprocess", "belongs to Subprocess tools only; expected null"))
        }
        (true, None) => Err(fields.error(
            "subprocess",
            "a Subprocess tool names its worker; expected {\"worker_id\": NAME}",
        )),
        (true, Some(value)) => {
            let mut inner = Fields::of(value, "/subprocess")?;
            let id = inner.text("worker_id")?;
            let id = id
                .parse()
                .map_err(|error: crate::InvalidId| inner.error("worker_id", error.to_string()))?;
            inner.finish()?;
            Ok(Some(id))
        }
    }
}

fn stdin_mode(fields: &mut Fields) -> Result<StdinMode, FieldError> {
    match fields.optional_text("stdin")?.as_deref() {
        None | Some("none") => Ok(StdinMode::None),
        Some("json") => Ok(StdinMode::Json),
        Some(other) => {
            let other = crate::bounded_text(other, 60);
            Err(fields.error("stdin", format!("expected one of json, none, got {other:?}")))
        }
    }
}

fn claim_rule(fields: &mut Fields, side_effects: &[String]) -> Result<ClaimRule, FieldError> {
    match fields.take_non_null("claim") {
        None if side_effects.is_empty() => Ok(ClaimRule::Shared),
        None => Ok(ClaimRule::Global),
        Some(Value::String(word)) if word == "shared" => {
            if side_effects.is_empty() {
                return Ok(ClaimRule::Shared);
            }
            Err(fields.error(
                "claim",
                "a tool with side_effects is never shared; expected \"global\" or {\"paths\": […]}",
            ))
        }
        Some(Value::String(word)) if word == "global" => Ok(ClaimRule::Global),
        Some(value @ Value::Object(_)) => {
            let mut inner = Fields::of(value, "/claim")?;
            let pointers = inner.texts("paths", 16, 200)?;
            if pointers.is_empty() || pointers.iter().any(|pointer| !pointer.starts_with('/')) {
                return Err(inner
                    .error("paths", "expected JSON Pointers into the input, such as \"/path\""));
            }
            inner.finish()?;
            Ok(ClaimRule::Paths(pointers))
        }
        Some(_) => Err(fields
            .error("claim", "expected \"shared\", \"global\" or {\"paths\": [JSON Pointers]}")),
    }
}

#[cfg(test)]
mod tests;
