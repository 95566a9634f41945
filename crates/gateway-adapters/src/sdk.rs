//! SdkAdapter: runs tools within this process, by the name of their executor.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use gateway_engine::{Adapter, Completion, Job};
use gateway_model::{ErrorKind, ToolBinding, ToolError, ToolOutput};

use crate::builtin_registry::BUILTIN_TOOL_DEFINITIONS;
use crate::process;

/// A call that is being run.
pub type Running = Pin<Box<dyn Future<Output = Completion> + Send>>;

/// Runs the calls of one Sdk tool.
///
/// A closure `Fn(Job) -> impl Future<Output = Result<ToolOutput, ToolError>>` is an executor. A
/// tool that starts processes implements the trait, to say in the [`Completion`] what they did.
pub trait Executor: Send + Sync + 'static {
    /// Runs one call. Must end soon after [`Job::cancel`] is cancelled.
    fn execute(&self, job: Job) -> Running;
}

impl<F, R> Executor for F
where
    F: Fn(Job) -> R + Send + Sync + 'static,
    R: Future<Output = Result<ToolOutput, ToolError>> + Send + 'static,
{
    fn execute(&self, job: Job) -> Running {
        let result = self(job);
        Box::pin(async move { Completion::in_process(result.await) })
    }
}

/// Runs Sdk tools: each is bound to the executor that has the tool's id as its name.
#[derive(Default, Clone)]
pub struct SdkAdapter {
    executors: BTreeMap<String, Arc<dyn Executor>>,
}

impl SdkAdapter {
    /// Returns an adapter without executors.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns an adapter with the executors of the built-in tools.
    pub fn with_builtins() -> Self {
        let executors =
            BUILTIN_TOOL_DEFINITIONS.iter().map(|tool| (tool.id.to_owned(), (tool.build)()));
        Self { executors: executors.collect() }
    }

    /// Returns the adapter with one more executor; one of the same name is replaced.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, executor: impl Executor) -> Self {
        self.executors.insert(name.into(), Arc::new(executor));
        self
    }

    fn executor(&self, binding: &ToolBinding) -> Result<&Arc<dyn Executor>, String> {
        let ToolBinding::Sdk { executor } = binding else {
            return Err("only an Sdk tool has an executor".to_owned());
        };
        self.executors.get(executor).ok_or_else(|| {
            format!(
                "this gateway has no Sdk executor named {executor:?}; the program that embeds it \
                 adds one under the tool's id"
            )
        })
    }
}

impl Adapter for SdkAdapter {
    fn check(&self, binding: &ToolBinding) -> Result<(), String> {
        self.executor(binding).map(drop).map_err(|reason| format!("/tool_type: {reason}"))
    }

    fn run(&self, job: Job) -> Running {
        match self.executor(&job.tool().binding) {
            Ok(executor) => executor.execute(job),
            Err(reason) => {
                let error = ToolError::new(ErrorKind::Unavailable, reason).retryable(false);
                Box::pin(std::future::ready(process::refused(error)))
            }
        }
    }
}

impl fmt::Debug for SdkAdapter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.executors.keys()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_binding_needs_the_executor_of_its_name() {
        let adapter = SdkAdapter::new().with("greet", |_job| async {
            Ok(ToolOutput::from_value(json!({"greeting": "hello"})))
        });
        let sdk = |executor: &str| ToolBinding::Sdk { executor: executor.to_owned() };
        assert_eq!(adapter.check(&sdk("greet")), Ok(()));
        assert!(
            adapter.check(&sdk("Greet")).unwrap_err().contains("no Sdk executor named \"Greet\"")
        );
        assert!(SdkAdapter::with_builtins().check(&sdk("bash")).is_ok());
    }
}
