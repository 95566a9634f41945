//! ToolGateway: the catalogue, the line of a call, and the ports that adapters implement.
//!
//! Start reading at [`ToolGateway::execute`] and `executor/pipeline.rs`. Inside this crate the
//! arrows point from `gateway` to `executor` to `tool_metadata`, never back.

mod context;
mod executor;
mod gateway;
mod tool_metadata;

pub use context::{RefusedCall, RequestContext, RequestIds, ViewName};
pub use executor::adapter::{Adapter, Completion, Evidence, Job};
pub use executor::report::CallReport;
pub use executor::secrets::{SecretError, SecretSource};
pub use gateway::approval::ApprovalError;
pub use gateway::explain::Explanation;
pub use gateway::resolution::ResolutionError;
pub use gateway::{BuildError, GatewayOptions, GatewayParts, Health, ToolGateway};
pub use gateway_ledger::{Approval, Stage as ApprovalStage};
pub use tool_metadata::{Registered, RegistrationError, Workspace};
