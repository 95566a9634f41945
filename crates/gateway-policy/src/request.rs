//! What policy is asked: who wants to do what with which tool, as borrowed facts.

use gateway_model::{
    ConcurrencyClaim, Digest, FilesystemLimit, Idempotency, NetworkLimit, Principal,
    RegisteredTool, RunId, SafetyTier, ToolId, ToolSource, WihId,
};

/// One question to policy.
#[derive(Debug, Clone, Copy)]
pub struct PolicyRequest<'a> {
    /// Who asks.
    pub principal: Principal,
    /// What they want to do.
    pub action: Action<'a>,
    /// With which tool.
    pub tool: ToolFacts<'a>,
}

/// What a principal wants to do with a tool.
#[derive(Debug, Clone, Copy)]
pub enum Action<'a> {
    /// Run the tool once.
    Execute(ExecuteContext<'a>),
    /// See the tool in a list, a search or a description.
    List,
    /// Register the tool.
    Register(RegisterContext),
    /// Remove the tool.
    Remove,
}

/// What policy may know of one call.
#[derive(Debug, Clone, Copy)]
pub struct ExecuteContext<'a> {
    /// The run the call belongs to.
    pub run_id: &'a RunId,
    /// The workflow invocation handle the call is made under.
    pub wih_id: &'a WihId,
    /// The tier of this very call; a call below its tool's tier is denied.
    pub requested_tier: SafetyTier,
    /// What the call touches, as scheduling and confinement read it.
    pub claim: &'a ConcurrencyClaim,
    /// Size of the canonical input.
    pub args_bytes: u64,
    /// A person approved exactly this call.
    pub is_approved: bool,
}

/// What policy may know of a registration besides the tool itself.
#[derive(Debug, Clone, Copy)]
pub struct RegisterContext {
    /// The id was registered before.
    pub replaces: bool,
    /// The sandbox can enforce the limits that the tool declares.
    pub is_enforceable: bool,
    /// Calls of the tool are given secrets of the operator.
    pub names_secrets: bool,
}

/// What policy may know of a tool.
///
/// INVARIANT: two values with the same id and digest are equal. A [`RegisteredTool`]'s digest
/// covers every field named here.
#[derive(Debug, Clone, Copy)]
pub struct ToolFacts<'a> {
    /// The tool's id, by which policies name it.
    pub id: &'a ToolId,
    /// Hash of the definition.
    pub digest: Digest,
    /// How much harm the tool can do.
    pub tier: SafetyTier,
    /// How the tool is reached: its `tool_type` on the wire.
    pub kind: &'static str,
    /// Where the tool comes from.
    pub source: ToolSource,
    /// What a repeated call means.
    pub idempotency: Idempotency,
    /// Declared categories of side effects.
    pub effects: &'a [String],
    /// The network the tool declares.
    pub network: &'a NetworkLimit,
    /// The files the tool declares.
    pub filesystem: &'a FilesystemLimit,
}

impl<'a> From<&'a RegisteredTool> for ToolFacts<'a> {
    fn from(tool: &'a RegisteredTool) -> Self {
        Self {
            id: &tool.id,
            digest: tool.digest,
            tier: tool.tier,
            kind: tool.binding.tool_type(),
            source: tool.definition.source,
            idempotency: tool.idempotency,
            effects: &tool.side_effects,
            network: &tool.limits.network,
            filesystem: &tool.limits.filesystem,
        }
    }
}

/// The actions that policies name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum ActionKind {
    Execute,
    List,
    Register,
    Remove,
}

impl ActionKind {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Execute => "execute",
            Self::List => "list",
            Self::Register => "register",
            Self::Remove => "remove",
        }
    }
}

impl Action<'_> {
    pub(crate) fn kind(&self) -> ActionKind {
        match self {
            Self::Execute(_) => ActionKind::Execute,
            Self::List => ActionKind::List,
            Self::Register(_) => ActionKind::Register,
            Self::Remove => ActionKind::Remove,
        }
    }
}

impl PolicyRequest<'_> {
    /// Says whether a person approved exactly what is asked for.
    pub(crate) fn is_approved(&self) -> bool {
        matches!(self.action, Action::Execute(ExecuteContext { is_approved: true, .. }))
    }

    /// Returns the tier that is asked for: the call's own, else the tool's.
    pub(crate) fn requested_tier(&self) -> SafetyTier {
        match self.action {
            Action::Execute(context) => context.requested_tier,
            Action::List | Action::Register(_) | Action::Remove => self.tool.tier,
        }
    }
}
