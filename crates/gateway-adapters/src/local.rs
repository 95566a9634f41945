//! LocalAdapter: runs the command of a Local tool as one confined process, never through a shell.

use std::ffi::OsString;
use std::future::Future;
use std::path::Path;
use std::pin::Pin;

use gateway_engine::{Adapter, Completion, Job};
use gateway_model::{
    ErrorKind, ExpandError, FailureClass, JsonError, RegisteredTool, StdinMode, ToolBinding,
    ToolError, ToolOutput, Violation, bounded_text, canonical_json, parse_json,
};
use gateway_sandbox::{Captured, Exit, Finished, Limits, Program};
use serde_json::{Map, Value, json};

use crate::process;
use crate::text::{lossy, plain};

/// Bytes of a failed command's output that its error carries.
const MAX_OUTPUT_OF_ERROR: usize = 64 * 1024;
/// Bytes of a failed command's standard error that become its message.
const MAX_MESSAGE: usize = 4_000;

/// What a tool of another kind is told.
const NO_COMMAND: &str = "only a Local tool has a command to run";

/// Runs Local tools.
#[derive(Debug, Clone, Copy)]
pub struct LocalAdapter;

impl Adapter for LocalAdapter {
    fn check(&self, binding: &ToolBinding) -> Result<(), String> {
        match binding {
            ToolBinding::Local { .. } => Ok(()),
            ToolBinding::Http(_) | ToolBinding::Sdk { .. } | ToolBinding::Subprocess { .. } => {
                Err(NO_COMMAND.to_owned())
            }
        }
    }

    fn run(&self, job: Job) -> Pin<Box<dyn Future<Output = Completion> + Send>> {
        Box::pin(run(job))
    }
}

async fn run(job: Job) -> Completion {
    let program = match program(&job).await {
        Ok(program) => program,
        Err(error) => return process::refused(error),
    };
    match job.start(&program).await {
        Ok(finished) => {
            let name = program.path.file_name().unwrap_or(program.path.as_os_str());
            let result = outcome(
                job.tool(),
                &Path::new(name).to_string_lossy(),
                &job.confinement().limits,
                &finished,
            );
            process::ended(result, finished)
        }
        Err(error) => process::not_launched(&error, &program),
    }
}

/// Makes the command line of a call: one program, one argument for each value.
async fn program(job: &Job) -> Result<Program, ToolError> {
    let ToolBinding::Local { program, program_digest, arguments, stdin, environment } =
        &job.tool().binding
    else {
        return Err(ToolError::new(ErrorKind::Unavailable, NO_COMMAND));
    };
    let args = arguments.expand(job.input()).map_err(|ExpandError { path, reason }| {
        ToolError::invalid("input", &[Violation { path, reason }])
    })?;
    let stdin = match stdin {
        StdinMode::None => Vec::new(),
        StdinMode::Json => {
            let mut line = canonical_json(&Value::Object(job.input().clone()));
            line.push(b'\n');
            line
        }
    };
    let mut env = job.environment();
    env.extend(job.resolve_all(environment).await?);
    Ok(Program {
        path: program.clone(),
        digest: Some(program_digest.0),
        args: args.into_iter().map(OsString::from).collect(),
        stdin,
        env,
        cwd: job.working_directory().into(),
    })
}

/// Reads how a command ended as the outcome of its call.
fn outcome(
    tool: &RegisteredTool,
    name: &str,
    limits: &Limits,
    finished: &Finished,
) -> Result<ToolOutput, ToolError> {
    let Finished { exit, stopped_by, stdout, stderr, .. } = finished;
    if let (None, Exit::Code(0)) = (stopped_by, exit) {
        return Ok(output(stdout, &|value| tool.schemas.output.violations(value).is_empty()));
    }
    let error = match stopped_by {
        Some(by) => {
            let error = process::stopped(*by, name, limits);
            let is_retryable = error.is_retryable && tool.is_rerun_safe();
            error.retryable(is_retryable)
        }
        None => {
            let is_transient = tool.failure == FailureClass::Transient && tool.is_rerun_safe();
            ToolError::new(ErrorKind::Execution, failure_text(name, *exit, stderr))
                .retryable(is_transient)
        }
    };
    Err(process::with_exit(error, *exit).with("output", printed(stdout)))
}

/// Reads standard output as the tool's output.
///
/// A JSON document is that value and other text is `{"raw_output": text}`. A document that is no
/// object, such as the `42` that `echo 42` prints, is a value only to an output schema that
/// accepts it. JSON that has no exact form here stays text, so that no digit is lost.
fn output(stdout: &Captured, is_accepted: &dyn Fn(&Value) -> bool) -> ToolOutput {
    if stdout.bytes.is_empty() {
        return ToolOutput::from_value(Value::Null);
    }
    if stdout.is_truncated() {
        return ToolOutput::from_value(raw_output(stdout));
    }
    match parse_json(&stdout.bytes) {
        Ok(value) => {
            let is_value = value.is_object() || value.is_null() || is_accepted(&value);
            let raw = raw_output(stdout);
            ToolOutput::from_value(if !is_value && is_accepted(&raw) { raw } else { value })
        }
        Err(JsonError::Syntax { .. }) => ToolOutput::from_value(raw_output(stdout)),
        Err(error @ JsonError::NotCanonical { .. }) => {
            let warning = format!("the JSON that was printed is passed on as text: {error}");
            let meta = Map::from_iter([("warning".to_owned(), warning.into())]);
            ToolOutput { meta, ..ToolOutput::from_value(raw_output(stdout)) }
        }
    }
}

fn raw_output(stdout: &Captured) -> Value {
    let text = lossy(&stdout.bytes, stdout.is_truncated());
    if stdout.is_truncated() {
        return json!({ "raw_output": text, "truncated": true, "total_bytes": stdout.total_bytes });
    }
    json!({ "raw_output": text })
}

/// Returns what a failed command printed, bounded; never parsed into parts of itself.
pub(crate) fn printed(stdout: &Captured) -> Value {
    if stdout.bytes.is_empty() {
        return Value::Null;
    }
    if stdout.bytes.len() <= MAX_OUTPUT_OF_ERROR
        && !stdout.is_truncated()
        && let Ok(value @ Value::Object(_)) = parse_json(&stdout.bytes)
    {
        return value;
    }
    let text = lossy(&stdout.bytes, stdout.is_truncated());
    json!({ "raw_output": bounded_text(&text, MAX_OUTPUT_OF_ERROR) })
}

/// Returns what a failed command said on standard error, else how it ended.
pub(crate) fn failure_text(name: &str, exit: Exit, stderr: &Captured) -> String {
    let said = plain(&lossy(&stderr.bytes, stderr.is_truncated()));
    let said = said.trim();
    if !said.is_empty() {
        return bounded_text(said, MAX_MESSAGE).into_owned();
    }
    match exit {
        Exit::Code(code) => {
            format!("{name} ended with exit code {code} and wrote nothing to standard error")
        }
        Exit::Signal(signal) => format!("{name} was ended by signal {signal}"),
    }
}

#[cfg(test)]
mod tests;
