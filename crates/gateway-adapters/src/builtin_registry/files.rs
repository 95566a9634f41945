//! The file tools, which run in this process: each is a function over a call's open directories.

pub(super) mod edit;
pub(super) mod operations;
pub(super) mod read;
pub(super) mod write;

use std::sync::Arc;

use gateway_engine::{Completion, Job};
use gateway_model::{ErrorKind, ToolError, ToolOutput};

use super::input::Input;
use super::reach::{Directories, GrantedDirectories, Place, Stop};
use super::threads::THREADS;
use crate::process;
use crate::sdk::{Executor, Running};

/// One call of an in-process tool.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) input: Input,
    pub(super) directories: Directories,
    pub(super) stop: Stop,
}

impl Call {
    /// Writes a whole file, unless the call must stop.
    ///
    /// INVARIANT: what a call has computed for too long is not written any more, because its
    /// outcome is told by then and another call may have the file.
    fn write(&self, place: &Place<'_>, content: &[u8]) -> Result<(), ToolError> {
        self.stop.check()?;
        let scoped = &place.directory.scoped;
        scoped.write(&place.relative, content).map_err(|error| place.failed(&error))
    }
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
            let stop = Stop::of(&job);
            let thread = match THREADS.take(&stop).await {
                Ok(thread) => thread,
                Err(error) => return process::refused(error),
            };
            // What cannot be stopped keeps the thread and the job until it has returned.
            let work = move || {
                let result = work(tool, &job, stop);
                drop((job, thread));
                result
            };
            match tokio::task::spawn_blocking(work).await {
                Ok(Err(error)) if error.kind == ErrorKind::ValidationFailed => {
                    process::refused(error)
                }
                Ok(result) => Completion::in_process(result),
                Err(lost) => match lost.try_into_panic() {
                    // The line judges what that means, as for every adapter.
                    Ok(panic) => std::panic::resume_unwind(panic),
                    Err(_stopped) => {
                        let error =
                            ToolError::new(ErrorKind::Unavailable, "the gateway is stopping");
                        process::refused(error)
                    }
                },
            }
        })
    }
}

fn work(tool: InProcessTool, job: &Job, stop: Stop) -> Result<ToolOutput, ToolError> {
    stop.check()?;
    let directories = GrantedDirectories::of(job).open()?;
    tool(&Call { input: Input(job.input().clone()), directories, stop })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn a_call_that_must_stop_changes_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("a.txt");
        std::fs::File::create(&file).unwrap();
        let check = |tool: InProcessTool, input: Value| {
            let Value::Object(input) = input else { panic!("an input is an object") };
            let granted = GrantedDirectories::workspace(directory.path().to_owned());
            let directories = granted.open().unwrap();
            let call = Call { input: Input(input), directories, stop: Stop::at_once() };
            assert_eq!(tool(&call).unwrap_err().kind, ErrorKind::Cancelled);
            let names: Vec<_> = std::fs::read_dir(&directory).unwrap().collect();
            assert_eq!((names.len(), file.metadata().unwrap().len()), (1, 0));
        };
        check(write::run, json!({"path": "a.txt", "content": "late"}));
        check(write::run, json!({"path": "new/b.txt", "content": "late"}));
        // Without an edit nothing but the write itself is left to be stopped.
        check(edit::run, json!({"path": "a.txt", "edits": []}));
        check(operations::run, json!({"op": "mkdir", "path": "new"}));
        check(operations::run, json!({"op": "move", "path": "a.txt", "to": "b.txt"}));
        check(operations::run, json!({"op": "copy", "path": "a.txt", "to": "b.txt"}));
    }
}
