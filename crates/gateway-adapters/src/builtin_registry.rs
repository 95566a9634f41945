//! The tools that are part of the gateway: one table, from which registrations and executors come.

mod definitions;
mod files;
mod input;
mod reach;
mod search;
mod shell;
mod threads;

use std::sync::Arc;

use gateway_model::wire::{RegisterError, RegisterTool};
use gateway_model::{Idempotency, SafetyTier};
use serde_json::{Value, json};

pub use definitions::BUILTIN_TOOL_DEFINITIONS;

use crate::sdk::Executor;

/// One built-in tool: what callers see of it, what is true of it, and what runs it.
pub struct BuiltinTool {
    /// The id, which is also the name of its executor.
    pub id: &'static str,
    /// The name for people.
    pub name: &'static str,
    /// What the tool does, in words for a model.
    pub description: &'static str,
    /// Returns the JSON Schema of the input.
    pub input_schema: fn() -> Value,
    /// Returns the JSON Schema of the output.
    pub output_schema: fn() -> Value,
    /// What is true of every call.
    pub facts: Facts,
    /// Makes the executor.
    pub build: fn() -> Arc<dyn Executor>,
}

/// What is true of every call of a built-in tool.
#[derive(Debug, Clone, Copy)]
pub struct Facts {
    /// How much harm the tool can do.
    pub tier: SafetyTier,
    /// Declared categories of side effects.
    pub side_effects: &'static [&'static str],
    /// What a repeated call means.
    pub idempotency: Idempotency,
    /// Whether the tool may change the run's directory and the granted workspaces.
    pub reach: Reach,
    /// Wall-clock time of one call, in seconds.
    pub time_limit_seconds: u64,
    /// Memory of the call's processes; `None` for tools that start none.
    pub memory: Option<&'static str>,
    /// What a call occupies while it runs.
    pub claim: Claim,
}

/// How a built-in tool reaches the run's directory and the granted workspaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// Reads them.
    Read,
    /// Reads and changes them.
    ReadWrite,
}

/// What a call of a built-in tool occupies while it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claim {
    /// Nothing: it runs beside other reads.
    Shared,
    /// The paths at these JSON Pointers of the input; everything, where one leads to none.
    Paths(&'static [&'static str]),
    /// Everything.
    Global,
}

/// Returns the registrations of the built-in tools, in the order of their table.
///
/// # Errors
/// Returns what is wrong with a row of the table, which a test rules out.
pub fn builtins() -> Result<Vec<RegisterTool>, RegisterError> {
    BUILTIN_TOOL_DEFINITIONS.iter().map(|tool| RegisterTool::read(tool.to_wire())).collect()
}

impl BuiltinTool {
    /// Returns the registration in the wire's shape.
    fn to_wire(&self) -> Value {
        let Facts { tier, side_effects, idempotency, reach, time_limit_seconds, memory, claim } =
            self.facts;
        let trees = json!(["/workspace/**", "/.allternit/artifacts/{run_id}/**"]);
        json!({
            "id": self.id,
            "name": self.name,
            "description": self.description,
            "tool_type": "Sdk",
            "command": "",
            "endpoint": "",
            "input_schema": (self.input_schema)(),
            "output_schema": (self.output_schema)(),
            "side_effects": side_effects,
            "idempotency_behavior": idempotency.as_str(),
            "retryable": false,
            "failure_classification": "none",
            "safety_tier": tier.as_str(),
            "resource_limits": {
                "cpu": null,
                "memory": memory,
                "network": "None",
                "filesystem": match reach {
                    Reach::Read => json!({ "Allowlist": trees }),
                    Reach::ReadWrite => json!({ "ReadWrite": trees }),
                },
                "time_limit": time_limit_seconds,
            },
            "subprocess": null,
            "claim": match claim {
                Claim::Shared => json!("shared"),
                Claim::Paths(pointers) => json!({ "paths": pointers }),
                Claim::Global => json!("global"),
            },
        })
    }
}

#[cfg(test)]
mod tests;
