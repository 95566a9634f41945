//! What is registered: the catalogue, and how a registration becomes a tool.

mod registry;

pub use registry::{Registered, RegistrationError};
pub(crate) use registry::{StoredRegistration, ToolCatalog};

use std::path::PathBuf;

use gateway_model::WorkspaceName;

/// A directory outside the gateway's home that an operator grants to calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Workspace {
    /// The name; calls see the directory as `/workspace/NAME`.
    pub name: WorkspaceName,
    /// The directory on this machine.
    pub host: PathBuf,
    /// Whether calls may change it.
    pub is_writable: bool,
}
