//! What is registered, and the part of it that a model may see.

use std::sync::Arc;

use serde_json::Value;

use crate::binding::ToolBinding;
use crate::claim::ClaimRule;
use crate::id::ToolId;
use crate::json::Digest;
use crate::limits::ResourceLimits;
use crate::schema::CompiledSchema;

/// How much harm a tool can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SafetyTier {
    /// Reads only.
    T0,
    /// Computes; no effect outside the call.
    T1,
    /// Writes.
    T2,
    /// Destroys.
    T3,
    /// Acts on the world.
    T4,
}

impl SafetyTier {
    /// Every tier, from harmless to harmful.
    pub const ALL: [Self; 5] = [Self::T0, Self::T1, Self::T2, Self::T3, Self::T4];

    /// Returns the tier's name on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::T0 => "T0",
            Self::T1 => "T1",
            Self::T2 => "T2",
            Self::T3 => "T3",
            Self::T4 => "T4",
        }
    }

    /// Returns the tier's number, 0 to 4.
    pub fn level(self) -> u8 {
        self as u8
    }
}

/// What a repeated call means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Idempotency {
    /// A repetition has no further effect.
    Idempotent,
    /// A repetition acts again.
    NotIdempotent,
    /// The peer recognises the gateway's key and acts once.
    Keyed,
}

impl Idempotency {
    /// Every behaviour, in the order of the wire contract.
    pub const ALL: [Self; 3] = [Self::Idempotent, Self::NotIdempotent, Self::Keyed];

    /// Returns the behaviour's name on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Idempotent => "idempotent",
            Self::NotIdempotent => "not_idempotent",
            Self::Keyed => "keyed",
        }
    }
}

/// What a failure of the tool means for another try.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FailureClass {
    /// Another try may succeed.
    Transient,
    /// Another try fails again.
    Permanent,
    /// Nothing is known.
    None,
}

impl FailureClass {
    /// Every class, in the order of the wire contract.
    pub const ALL: [Self; 3] = [Self::Transient, Self::Permanent, Self::None];

    /// Returns the class's name on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Transient => "transient",
            Self::Permanent => "permanent",
            Self::None => "none",
        }
    }
}

/// Where a tool comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ToolSource {
    /// Part of the gateway.
    Builtin,
    /// Registered by a person or an agent.
    Registered,
}

impl ToolSource {
    /// Returns the source's name on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Builtin => "builtin",
            Self::Registered => "registered",
        }
    }
}

/// Facts and tags that a model may see beside a tool's schemas.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ToolMetadata {
    /// Words to find the tool by.
    pub tags: Vec<String>,
    /// The tool changes nothing.
    pub is_read_only: bool,
    /// A repeated call has no further effect.
    pub is_idempotent: bool,
    /// The tool may destroy what exists.
    pub is_destructive: bool,
}

/// What a model may see of a tool. Holds no command line and no endpoint.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolDefinition {
    /// The name to call the tool by.
    pub name: String,
    /// What the tool does, in words.
    pub description: String,
    /// JSON Schema of the input.
    pub input_schema: Value,
    /// JSON Schema of the structured output.
    pub output_schema: Value,
    /// Where the tool comes from.
    pub source: ToolSource,
    /// Facts and tags.
    pub metadata: ToolMetadata,
}

/// The gateway's whole record of a tool: definition, binding, limits and facts.
#[derive(Debug, Clone)]
pub struct RegisteredTool {
    /// The id, unique without regard to case.
    pub id: ToolId,
    /// Counts registrations under this id, from 1.
    pub version: u32,
    /// Hash over every field that a model sees or that changes behaviour.
    pub digest: Digest,
    /// What a model may see.
    pub definition: ToolDefinition,
    /// How the tool is run.
    pub binding: ToolBinding,
    /// Declared categories of side effects; empty for a tool without effects.
    pub side_effects: Vec<String>,
    /// What a repeated call means.
    pub idempotency: Idempotency,
    /// What a failure means for another try; `Transient` only where the tool is retryable.
    pub failure: FailureClass,
    /// How much harm the tool can do.
    pub tier: SafetyTier,
    /// What the sandbox enforces.
    pub limits: ResourceLimits,
    /// How a call's claim is read from its input.
    pub claim: ClaimRule,
    /// Validators compiled from the two schemas.
    pub schemas: Arc<ToolSchemas>,
    /// The registration as it came, in the wire's full shape.
    pub registration: Arc<Value>,
}

/// The compiled validators of a tool.
#[derive(Debug)]
pub struct ToolSchemas {
    /// Checks inputs before policy.
    pub input: CompiledSchema,
    /// Checks structured outputs after the run.
    pub output: CompiledSchema,
}

impl RegisteredTool {
    /// Says whether calls of this tool have effects, and so need a key and an intent.
    pub fn has_side_effects(&self) -> bool {
        !self.side_effects.is_empty()
    }

    /// Says whether a failed or lost call may be run again under the same key.
    pub fn is_rerun_safe(&self) -> bool {
        match self.idempotency {
            Idempotency::Idempotent | Idempotency::Keyed => true,
            Idempotency::NotIdempotent => !self.has_side_effects(),
        }
    }
}
