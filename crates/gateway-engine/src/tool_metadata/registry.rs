//! ToolCatalog: the tools that exist, as one immutable snapshot at a time.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use arc_swap::ArcSwap;
use gateway_model::wire::{RegisterTool, ToolType};
use gateway_model::{
    ArgumentTemplate, CompiledSchema, Digest, FailureClass, HostRules, Idempotency, NetworkLimit,
    RegisteredTool, SchemaError, ToolBinding, ToolDefinition, ToolId, ToolMetadata, ToolSchemas,
    ToolSource, canonical_json, property_order,
};
use gateway_sandbox::{Sandbox, SandboxState};
use serde_json::{Value, json};

/// The result of a registration.
#[derive(Debug, Clone)]
pub struct Registered {
    /// The tool as it is now registered.
    pub tool: Arc<RegisteredTool>,
    /// False when the very same registration existed already.
    pub is_new: bool,
    /// What the registrant should know about how the definition is read.
    pub warnings: Vec<String>,
}

/// Why a registration or a removal did not happen.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RegistrationError {
    /// The definition cannot be used.
    #[error("{0}")]
    Invalid(String),
    /// The id is taken by another definition.
    #[error("{0}")]
    Conflict(String),
    /// Policy does not permit it to this caller.
    #[error("{0}")]
    Denied(String),
    /// No such tool.
    #[error("{0}")]
    NotFound(String),
    /// The gateway could not make it durable.
    #[error("{0}")]
    Failed(String),
}

/// A registration with what was resolved when it was made; this is what is stored.
#[derive(Debug, Clone)]
pub(crate) struct StoredRegistration {
    pub(crate) registration: RegisterTool,
    program: Option<(PathBuf, Digest)>,
    /// The properties that become arguments, in order, where the tool has no template. What is
    /// stored is canonical, which has lost the schema's own order.
    property_order: Option<Vec<String>>,
}

impl StoredRegistration {
    /// Resolves and pins what the registration names.
    pub(crate) fn resolve(
        registration: RegisterTool,
        sandbox: &Sandbox,
        search: &[PathBuf],
    ) -> Result<Self, RegistrationError> {
        let program = match registration.tool_type {
            ToolType::Local => {
                check_way_out(&registration, sandbox)?;
                let resolved = sandbox
                    .resolve_program(&registration.command, search)
                    .map_err(|error| RegistrationError::Invalid(format!("/command: {error}")))?;
                Some((resolved.path, Digest(resolved.digest)))
            }
            ToolType::Sdk | ToolType::Http | ToolType::Subprocess | ToolType::Mcp => None,
        };
        let property_order = (program.is_some() && registration.args.is_none())
            .then(|| property_order(&registration.input_schema));
        Ok(Self { registration, program, property_order })
    }

    /// Returns the canonical bytes that are stored and hashed.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let program = self.program.as_ref().map(|(path, digest)| {
            json!({ "path": path.to_string_lossy(), "digest": digest.to_string() })
        });
        canonical_json(&json!({
            "registration": self.registration.normalised,
            "program": program,
            "property_order": self.property_order,
        }))
    }

    /// Reads back what [`Self::to_bytes`] wrote.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Result<Self, String> {
        let mut stored: Value = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        let registration = stored.get_mut("registration").map(Value::take).unwrap_or_default();
        let registration = RegisterTool::read(registration).map_err(|error| error.to_string())?;
        let text = |pointer: &str| stored.pointer(pointer).and_then(Value::as_str);
        let program = match text("/program/path") {
            None => None,
            Some(path) => {
                let digest = text("/program/digest").and_then(Digest::from_text);
                Some((PathBuf::from(path), digest.ok_or("program has no digest")?))
            }
        };
        let property_order = match stored.get_mut("property_order").map(Value::take) {
            None | Some(Value::Null) => None,
            Some(names) => serde_json::from_value(names).map_err(|error| error.to_string())?,
        };
        Ok(Self { registration, program, property_order })
    }

    /// Compiles the registration into the tool that calls use.
    pub(crate) fn compile(
        &self,
        version: u32,
        source: ToolSource,
    ) -> Result<RegisteredTool, RegistrationError> {
        let registration = &self.registration;
        let schemas = ToolSchemas {
            input: compile_schema("input_schema", &registration.input_schema)?,
            output: compile_schema("output_schema", &registration.output_schema)?,
        };
        check_enforceable(registration)?;
        Ok(RegisteredTool {
            id: registration.id.clone(),
            version,
            digest: Digest::of(&self.to_bytes()),
            definition: definition(registration, source),
            binding: self.binding()?,
            side_effects: registration.side_effects.clone(),
            idempotency: registration.idempotency,
            failure: if registration.is_retryable {
                registration.failure
            } else {
                FailureClass::None
            },
            tier: registration.tier,
            limits: registration.limits.clone(),
            claim: registration.claim.clone(),
            schemas: Arc::new(schemas),
            registration: Arc::new(registration.normalised.clone()),
        })
    }

    fn binding(&self) -> Result<ToolBinding, RegistrationError> {
        let registration = &self.registration;
        if let Some(http) = &registration.http {
            return Ok(ToolBinding::Http(http.clone()));
        }
        if let Some(worker) = &registration.worker {
            return Ok(ToolBinding::Subprocess { worker: worker.clone() });
        }
        let Some((program, program_digest)) = &self.program else {
            return Ok(ToolBinding::Sdk { executor: registration.id.to_string() });
        };
        let arguments = match (&registration.args, &self.property_order) {
            (Some(args), _) => ArgumentTemplate::parse(args, &registration.input_schema)
                .map_err(|error| RegistrationError::Invalid(format!("/{error}")))?,
            (None, Some(names)) => ArgumentTemplate::from_properties(names),
            (None, None) => {
                let lost = "the order of its arguments was not stored; register it again";
                return Err(RegistrationError::Invalid(lost.to_owned()));
            }
        };
        Ok(ToolBinding::Local {
            program: program.clone(),
            program_digest: *program_digest,
            arguments,
            stdin: registration.process.stdin,
            environment: registration.process.environment.clone(),
        })
    }

    /// Returns what the schemas' readers had to assume.
    pub(crate) fn warnings(tool: &RegisteredTool) -> Vec<String> {
        [("input_schema", &tool.schemas.input), ("output_schema", &tool.schemas.output)]
            .into_iter()
            .filter_map(|(field, schema)| {
                schema.warning().map(|warning| format!("/{field}: {warning}"))
            })
            .collect()
    }
}

fn compile_schema(field: &str, schema: &Value) -> Result<CompiledSchema, RegistrationError> {
    CompiledSchema::compile(schema).map_err(|SchemaError { path, reason }| {
        RegistrationError::Invalid(format!("/{field}{path}: {reason}"))
    })
}

/// Refuses limits that no mechanism of this gateway enforces.
fn check_enforceable(registration: &RegisterTool) -> Result<(), RegistrationError> {
    let refuse = |reason: String| {
        Err(RegistrationError::Invalid(format!("/resource_limits/network: {reason}")))
    };
    let network = &registration.limits.network;
    match registration.tool_type {
        // The gateway itself makes an Http tool's requests, and holds them to the declaration.
        ToolType::Http => Ok(()),
        // Its sandbox has one way out, the gateway's proxy.
        ToolType::Local => {
            HostRules::of(network).map(drop).or_else(|error| refuse(format!("the entry {error}")))
        }
        ToolType::Sdk | ToolType::Subprocess | ToolType::Mcp => match network {
            NetworkLimit::None => Ok(()),
            NetworkLimit::DomainAllowlist(_) | NetworkLimit::Unrestricted => refuse(
                "only Local and Http tools are confined to hosts; expected \"None\"".to_owned(),
            ),
        },
    }
}

/// Refuses a Local tool that reaches hosts where nothing would hold it to them.
fn check_way_out(registration: &RegisterTool, sandbox: &Sandbox) -> Result<(), RegistrationError> {
    let is_enforced = matches!(sandbox.state(), SandboxState::Enforced(_));
    if is_enforced || registration.limits.network == NetworkLimit::None {
        return Ok(());
    }
    Err(RegistrationError::Invalid(format!(
        "/resource_limits/network: a Local tool reaches hosts only from within the sandbox, which is {} on this gateway; \
         expected \"None\", or a gateway whose sandbox holds (the verb `doctor` says what is missing)",
        sandbox.state().as_str()
    )))
}

fn definition(registration: &RegisterTool, source: ToolSource) -> ToolDefinition {
    ToolDefinition {
        name: registration.id.to_string(),
        description: registration.description.clone(),
        input_schema: registration.input_schema.clone(),
        output_schema: registration.output_schema.clone(),
        source,
        metadata: ToolMetadata {
            tags: registration.tags.clone(),
            is_read_only: registration.side_effects.is_empty(),
            is_idempotent: registration.idempotency != Idempotency::NotIdempotent,
            is_destructive: registration.tier >= gateway_model::SafetyTier::T3,
        },
    }
}

/// Folds what must not tell two tools apart: case, and the separators `.`, `_`, `-` and `:`.
fn fold_id(id: &str) -> String {
    id.chars()
        .map(|character| match character {
            '.' | '_' | '-' | ':' => '_',
            other => other.to_ascii_lowercase(),
        })
        .collect()
}

/// The tools that exist. Readers see one whole snapshot; writers replace it.
#[derive(Debug, Default)]
pub(crate) struct ToolCatalog {
    /// By folded id, so that the order is stable and near-equal ids cannot coexist.
    tools: ArcSwap<BTreeMap<String, Arc<RegisteredTool>>>,
}

impl ToolCatalog {
    /// Returns the tool of exactly this id.
    pub(crate) fn get(&self, id: &str) -> Option<Arc<RegisteredTool>> {
        let tools = self.tools.load();
        tools.get(&fold_id(id)).filter(|tool| tool.id.as_str() == id).map(Arc::clone)
    }

    /// Returns the tool whose id folds alike, whatever its spelling.
    pub(crate) fn get_folded(&self, id: &ToolId) -> Option<Arc<RegisteredTool>> {
        self.tools.load().get(&fold_id(id.as_str())).map(Arc::clone)
    }

    /// Returns every tool, sorted by id.
    pub(crate) fn all(&self) -> Vec<Arc<RegisteredTool>> {
        let mut all: Vec<_> = self.tools.load().values().map(Arc::clone).collect();
        all.sort_by(|a, b| a.id.cmp(&b.id));
        all
    }

    /// Returns how many tools there are.
    pub(crate) fn len(&self) -> usize {
        self.tools.load().len()
    }

    /// Adds or replaces a tool.
    pub(crate) fn insert(&self, tool: Arc<RegisteredTool>) {
        self.tools.rcu(|tools| {
            let mut tools = BTreeMap::clone(tools);
            tools.insert(fold_id(tool.id.as_str()), Arc::clone(&tool));
            tools
        });
    }

    /// Removes a tool.
    pub(crate) fn remove(&self, id: &ToolId) {
        self.tools.rcu(|tools| {
            let mut tools = BTreeMap::clone(tools);
            tools.remove(&fold_id(id.as_str()));
            tools
        });
    }
}
