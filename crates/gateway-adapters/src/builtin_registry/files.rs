//! The file tools, which run in this process: each is a function over a call's open directories.

pub(super) mod edit;
pub(super) mod operations;
pub(super) mod read;
pub(super) mod write;

use std::sync::Arc;

use gateway_engine::{Completion, Job};
use gateway_model::{ErrorKind, ToolError, ToolOutput};

use super::input::Input;
use super::reach::{Directories, GrantedDirectories, Stop};
use crate::process;
use crate::sdk::{Executor, Running};

/// One call of an in-process tool.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) input: Input,
    pub(super) directories: Directories,
    pub(super) stop: Stop,
}

/// What an in-process tool does. It blocks, and looks at [`Call::stop`] between its steps.
///
/// INVARIANT: it fails with `validation_failed` only while it has changed nothing.
pub(super) type InProcessTool = fn(&Call) -> Result<ToolOutput, ToolError>;

/// Returns the executor of an in-process tool.
pub(super) fn in_process(tool: InProcessTool) -> Arc<dyn Executor> {
    Arc::new(InProcess(tool))
}

struct InProcess(InProcessTool);

impl Executor for InProcess {
    fn execute(&self, job: Job) -> Running {
        let tool = self.0;
        Box::pin(async move {
            let (granted, stop) = (GrantedDirectories::of(&job), Stop::of(&job));
            let input = Input(job.input().clone());
            let work = move || tool(&Call { input, directories: granted.open()?, stop });
            match tokio::task::spawn_blocking(work).await {
                Ok(Err(error)) if error.kind == ErrorKind::ValidationFailed => {
                    process::refused(error)
                }
                Ok(result) => Completion::in_process(result),
                Err(_panic) => {
                    let error =
                        ToolError::new(ErrorKind::Execution, "the tool failed unexpectedly");
                    Completion::in_process(Err(error))
                }
            }
        })
    }
}
