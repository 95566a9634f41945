//! The words of the gateway: ids, tools, calls, decisions, outcomes. No I/O, no tokio.
//!
//! Every other crate speaks in these types. They are parsed once, at the edge, and nothing inside
//! validates them again. The JSON form of each lives in [`wire`], shared by all faces.

mod binding;
mod call;
mod claim;
mod clock;
mod decision;
mod endpoint;
mod error;
mod host;
mod id;
mod json;
mod limits;
mod outcome;
mod schema;
mod secret;
mod tool;
mod url;
pub mod wire;

pub use binding::{
    ArgumentTemplate, ExpandError, StdinMode, TemplateError, ToolBinding, property_order,
};
pub use call::{Face, Principal, SandboxTier};
pub use claim::{ClaimRule, ConcurrencyClaim, ExclusiveScope};
pub use clock::{Clock, SystemClock, Timestamp};
pub use decision::{Decision, Effect};
pub use endpoint::{EndpointTemplate, HttpBinding, HttpBody, HttpMethod};
pub use error::{ErrorKind, ToolError, Violation, bounded_text};
pub use host::{Host, HostPattern, HostRules, InvalidHost};
pub use id::{
    ApprovalId, CallId, CorrelationId, InvalidId, RunId, SecretName, ToolId, WihId, WorkerId,
    WorkspaceName,
};
pub use json::{
    Digest, JsonError, MAX_JSON_DEPTH, canonical_json, parse_json, write_canonical_json,
};
pub use limits::{FilesystemLimit, NetworkLimit, ResourceLimits};
pub use outcome::{Content, ToolOutput};
pub use schema::{CompiledSchema, SchemaError};
pub use secret::{SecretText, SecretTextError};
pub use tool::{
    FailureClass, Idempotency, RegisteredTool, SafetyTier, ToolDefinition, ToolMetadata,
    ToolSchemas, ToolSource,
};
pub use url::{HttpUrl, InvalidUrl};
