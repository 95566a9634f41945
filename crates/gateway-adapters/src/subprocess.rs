//! SubprocessAdapter: runs the worker that a Subprocess tool names, JSON in and JSON out, confined.

mod artifacts;
mod workers;

use std::ffi::OsString;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use gateway_engine::{Adapter, Completion, Job};
use gateway_model::wire::WorkerDirectory;
use gateway_model::{
    ArgumentTemplate, ErrorKind, ExpandError, FailureClass, RegisteredTool, ToolBinding, ToolError,
    ToolOutput, Violation, canonical_json, parse_json,
};
use gateway_sandbox::{Exit, Finished, Limits, Program, StoppedBy};
use serde_json::Value;

pub use workers::{Worker, WorkerRegistry, WorkerRegistryError};

use crate::local::{failure_text, printed};
use crate::process;

/// Runs Subprocess tools.
#[derive(Debug, Clone)]
pub struct SubprocessAdapter {
    workers: Arc<WorkerRegistry>,
}

impl SubprocessAdapter {
    /// Returns the adapter of these workers.
    pub fn new(workers: WorkerRegistry) -> Self {
        Self { workers: Arc::new(workers) }
    }
}

impl Adapter for SubprocessAdapter {
    fn check(&self, binding: &ToolBinding) -> Result<(), String> {
        worker_of(&self.workers, binding).map(drop)
    }

    fn check_tool(&self, tool: &RegisteredTool) -> Result<(), String> {
        let worker = worker_of(&self.workers, &tool.binding)?;
        check_files(worker, tool)?;
        arguments(worker, tool).map(drop)
    }

    fn run(&self, job: Job) -> Pin<Box<dyn Future<Output = Completion> + Send>> {
        Box::pin(run(Arc::clone(&self.workers), job))
    }
}

fn worker_of<'w>(workers: &'w WorkerRegistry, binding: &ToolBinding) -> Result<&'w Worker, String> {
    let ToolBinding::Subprocess { worker } = binding else {
        return Err("only a Subprocess tool has a worker".to_owned());
    };
    workers.get(worker).ok_or_else(|| {
        let known: Vec<&str> = workers.all().map(|worker| worker.definition.id.as_str()).collect();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        format!(
            "/subprocess/worker_id: no worker {worker} in the registry of workers (known: {known}); the \
             operator adds it there and starts the gateway again"
        )
    })
}

/// Refuses a tool that reaches files which its worker must not, or lacks those which it needs.
fn check_files(worker: &Worker, tool: &RegisteredTool) -> Result<(), String> {
    let (paths, is_writable) = tool.limits.filesystem.paths();
    let is_of_workspace = |path: &&String| path.starts_with("/workspace");
    let definition = &worker.definition;
    let refuse = |reason: String| {
        Err(format!("/resource_limits/filesystem: worker {} {reason}", definition.id))
    };
    if definition.files.is_run_scoped
        && let Some(path) = paths.iter().find(is_of_workspace)
    {
        return refuse(format!("keeps to its run, but {path:?} is declared"));
    }
    if is_writable && let Some(path) = paths.iter().find(|path| !definition.files.may_write(path)) {
        return refuse(format!("must not write to {path:?}; it is none of its output roots"));
    }
    let is_reached = match definition.directory {
        None => true,
        Some(WorkerDirectory::Run) => paths.iter().any(|path| !is_of_workspace(&path)),
        Some(WorkerDirectory::Workspace | WorkerDirectory::Beneath(_)) => {
            paths.iter().any(|path| is_of_workspace(&path))
        }
    };
    if is_reached {
        return Ok(());
    }
    refuse("starts in a directory that is not declared; declare the run's or a workspace's, as its cwd_policy says".to_owned())
}

fn arguments(worker: &Worker, tool: &RegisteredTool) -> Result<ArgumentTemplate, String> {
    let schema = &tool.definition.input_schema;
    ArgumentTemplate::parse(&worker.definition.args, schema)
        .map_err(|error| format!("/input_schema: worker {}: {error}", worker.definition.id))
}

async fn run(workers: Arc<WorkerRegistry>, job: Job) -> Completion {
    let worker = match worker_of(&workers, &job.tool().binding) {
        Ok(worker) => worker,
        Err(reason) => {
            let error = ToolError::new(ErrorKind::Unavailable, reason);
            return process::refused(error.retryable(false));
        }
    };
    let program = match program(&job, worker).await {
        Ok(program) => program,
        Err(error) => return process::refused(error),
    };
    let limits = limits(worker, &job);
    let before = artifacts::look(&job).await;
    match job.start_within(&program, limits.clone()).await {
        Ok(finished) => {
            let left = artifacts::manifest(&job, worker, before).await;
            let result = outcome(job.tool(), worker, &limits, &finished);
            let mut completion = process::ended(result, finished);
            completion.evidence.artifacts = Some(left);
            completion
        }
        Err(error) => process::not_launched(&error, &program),
    }
}

/// Makes the command line of a call, with its whole input as one line on standard input.
async fn program(job: &Job, worker: &Worker) -> Result<Program, ToolError> {
    let template = arguments(worker, job.tool())
        .map_err(|reason| ToolError::new(ErrorKind::Unavailable, reason).retryable(false))?;
    let args = template.expand(job.input()).map_err(|ExpandError { path, reason }| {
        ToolError::invalid("input", &[Violation { path, reason }])
    })?;
    let mut stdin = canonical_json(&Value::Object(job.input().clone()));
    stdin.push(b'\n');
    // What the gateway itself says of a call is never replaced by what it was started with.
    let mut env = worker.inherited.clone();
    env.extend(job.environment());
    env.extend(job.resolve_all(&worker.definition.environment).await?);
    Ok(Program {
        path: worker.program.clone(),
        digest: Some(worker.program_digest),
        args: args.into_iter().map(OsString::from).collect(),
        stdin,
        env,
        cwd: directory(job, worker)?.into(),
    })
}

/// Returns where the worker starts, as the call sees it.
fn directory(job: &Job, worker: &Worker) -> Result<String, ToolError> {
    let workspace = || {
        let first = job.confinement().workspaces.first();
        first.map(|workspace| format!("/workspace/{}", workspace.name)).ok_or_else(|| {
            let message = format!(
                "worker {} starts in a workspace, and this call reaches none; an operator grants one with --workspace",
                worker.definition.id
            );
            ToolError::new(ErrorKind::Unavailable, message).retryable(false)
        })
    };
    match &worker.definition.directory {
        None => Ok(job.working_directory().to_owned()),
        Some(WorkerDirectory::Run) => Ok(format!("/.allternit/artifacts/{}", job.context().run)),
        Some(WorkerDirectory::Workspace) => workspace(),
        Some(WorkerDirectory::Beneath(path)) => Ok(format!("{}/{path}", workspace()?)),
    }
}

/// Returns the worker's own limits where they are tighter than the tool's.
fn limits(worker: &Worker, job: &Job) -> Limits {
    let own = worker.definition.limits;
    let limits = Limits {
        wall: own.wall,
        cpu: own.cpu,
        stdout_bytes: own.stdout_bytes,
        stderr_bytes: own.stderr_bytes,
        ..job.confinement().limits.clone()
    };
    limits.tightened_by(&job.confinement().limits)
}

/// Reads how a worker ended as the outcome of its call.
fn outcome(
    tool: &RegisteredTool,
    worker: &Worker,
    limits: &Limits,
    finished: &Finished,
) -> Result<ToolOutput, ToolError> {
    let Finished { exit, stopped_by, stdout, stderr, .. } = finished;
    let name = format!("worker {}", worker.definition.id);
    let error = match (stopped_by, exit) {
        (None, Exit::Code(0)) => match answer(&name, limits, finished) {
            Ok(output) => return Ok(output),
            // It did its work and would answer the same again.
            Err(error) => error.retryable(false),
        },
        (None, exit) => {
            let is_transient = tool.failure == FailureClass::Transient && tool.is_rerun_safe();
            ToolError::new(ErrorKind::Execution, failure_text(&name, *exit, stderr))
                .retryable(is_transient)
        }
        (Some(by), _) => {
            let error = stopped(*by, &name, limits);
            let is_retryable = error.is_retryable && tool.is_rerun_safe();
            error.retryable(is_retryable)
        }
    };
    Err(process::with_exit(error, *exit).with("output", printed(stdout)))
}

fn stopped(by: StoppedBy, name: &str, limits: &Limits) -> ToolError {
    let mut error = process::stopped(by, name, limits);
    if by == StoppedBy::WallClock {
        let milliseconds = limits.wall.as_millis();
        error.message = format!("Subprocess timed out: {name} ran for {milliseconds} ms");
    }
    error
}

/// Reads standard output: nothing, or one JSON document.
fn answer(name: &str, limits: &Limits, finished: &Finished) -> Result<ToolOutput, ToolError> {
    let stdout = &finished.stdout;
    if stdout.is_truncated() {
        let message = format!(
            "{name} wrote {} bytes to standard output, more than its {}",
            stdout.total_bytes, limits.stdout_bytes
        );
        return Err(ToolError::new(ErrorKind::OutputLimit, message));
    }
    if stdout.bytes.trim_ascii().is_empty() {
        return Ok(ToolOutput::from_value(Value::Null));
    }
    parse_json(&stdout.bytes).map(ToolOutput::from_value).map_err(|error| {
        let message = format!(
            "{name} ended well, but its standard output is not one JSON document: {error}; a worker \
             writes its answer there and everything else to standard error"
        );
        ToolError::new(ErrorKind::Execution, message)
    })
}
