//! How a call is run: local commands, HTTP requests, workers, in-process executors, built-in tools.
//!
//! A Local tool is a confined process ([`LocalAdapter`]), a Subprocess tool a confined worker of
//! the operator's registry ([`SubprocessAdapter`]), an Http tool a request ([`HttpAdapter`]); an
//! Sdk tool is an [`Executor`] within this process ([`SdkAdapter`]), and the built-in tools are
//! Sdk tools
//! (`builtin_registry/definitions.rs`).

mod builtin_registry;
mod http;
mod local;
mod process;
mod sdk;
mod subprocess;
mod text;

use std::sync::Arc;

use gateway_engine::Adapter;
use gateway_sandbox::Egress;

pub use builtin_registry::{BUILTIN_TOOL_DEFINITIONS, BuiltinTool, Claim, Facts, Reach, builtins};
pub use http::HttpAdapter;
pub use local::LocalAdapter;
pub use sdk::{Executor, Running, SdkAdapter};
pub use subprocess::{SubprocessAdapter, Worker, WorkerRegistry, WorkerRegistryError};

/// Returns the adapter of Local tools.
pub fn local() -> Arc<dyn Adapter> {
    Arc::new(LocalAdapter)
}

/// Returns the adapter of Http tools, whose requests go out by this way.
pub fn http(egress: impl Into<Arc<Egress>>) -> Arc<dyn Adapter> {
    Arc::new(HttpAdapter::new(egress.into()))
}

/// Returns the adapter of Sdk tools, with the executors of the built-in ones.
pub fn sdk() -> Arc<dyn Adapter> {
    Arc::new(SdkAdapter::with_builtins())
}

/// Returns the adapter of Subprocess tools, with the operator's workers.
pub fn subprocess(workers: WorkerRegistry) -> Arc<dyn Adapter> {
    Arc::new(SubprocessAdapter::new(workers))
}
