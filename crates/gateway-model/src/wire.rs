//! The one JSON form of requests, definitions and answers, shared by all faces.
//!
//! Bodies are read field by field, so that every fault names its field, what was expected and
//! what was found, and so that an unknown key is refused with the nearest known one.

mod approval;
mod environment;
mod execute;
mod fields;
mod http;
mod limits;
mod register;
mod workers;

pub use approval::{AnswerApproval, ResolveCall};
pub use execute::{ExecuteRequest, RequiredId, execute_response};
pub use fields::{FieldError, Fields};
pub use register::{ProcessInput, RegisterError, RegisterTool, ToolType};
pub use workers::{WorkerDefinition, WorkerDirectory, WorkerFiles, WorkerLimits, WorkersError};
