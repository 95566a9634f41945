//! bash: one command line, in a confined process.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use gateway_engine::{Completion, Job};
use gateway_model::{ErrorKind, ToolError, ToolOutput};
use gateway_sandbox::{Captured, FileKind, Finished, LaunchError, Program, StoppedBy};
use serde_json::{Map, Value, json};

use super::input::{Input, refuse};
use super::reach::{GrantedDirectories, absolute, beneath};
use crate::process;
use crate::sdk::{Executor, Running};
use crate::text::lossy;

/// The shell. It is looked up in the call's confinement.
const SHELL: &str = "/bin/bash";
/// The one place besides the granted directories that a command may start in.
const TEMPORARY: &str = "/tmp";
/// Seconds that a command may take where the input names none.
const DEFAULT_SECONDS: u64 = 120;
/// Seconds that a command may take; the tool's own limit.
pub(super) const MAX_SECONDS: u64 = 600;
/// The kernel's bound on one argument, less its terminator.
const MAX_COMMAND_BYTES: usize = 128 * 1024 - 1;
/// Bytes of a stopped command's streams that its error carries, each.
const MAX_PRINTED: usize = 64 * 1024;

pub(super) fn input_schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "cmd": { "type": "string", "minLength": 1, "maxLength": MAX_COMMAND_BYTES, "description": "the command line, for bash -c" },
            "cwd": { "type": "string", "minLength": 1, "maxLength": 4096, "default": ".", "description": "the directory to start in" },
            "timeout_s": { "type": "integer", "minimum": 1, "maximum": MAX_SECONDS, "default": DEFAULT_SECONDS, "description": "seconds until the command and all it started are stopped" },
            "stdin": { "type": "string", "description": "what the command reads on its standard input; nothing where absent" },
        },
        "required": ["cmd"],
        "additionalProperties": false,
    })
}

pub(super) fn output_schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "stdout": { "type": "string" },
            "stderr": { "type": "string" },
            "exit_code": { "type": ["integer", "null"], "description": "null where a signal ended bash itself" },
            "signal": { "type": "integer" },
            "is_truncated": { "type": "boolean", "description": "true where more was printed than is kept (1 MiB, and 256 KiB of errors)" },
        },
        "required": ["stdout", "stderr", "exit_code", "is_truncated"],
    })
}

/// Returns the executor of bash.
pub(super) fn build() -> Arc<dyn Executor> {
    Arc::new(Bash)
}

struct Bash;

impl Executor for Bash {
    fn execute(&self, job: Job) -> Running {
        Box::pin(run(job))
    }
}

async fn run(job: Job) -> Completion {
    let input = Input(job.input().clone());
    let program = match program(&job, &input).await {
        Ok(program) => program,
        Err(error) => return process::refused(error),
    };
    let limit =
        Duration::from_secs(input.number("timeout_s", DEFAULT_SECONDS)).min(job.time_left());
    match run_for(&job, &program, limit).await {
        Ok((finished, has_timed_out)) => {
            process::ended(outcome(&job, limit, has_timed_out, &finished), finished)
        }
        Err(error) => process::not_launched(&error, &program),
    }
}

async fn program(job: &Job, input: &Input) -> Result<Program, ToolError> {
    let command = input.text("cmd");
    if command.contains('\0') {
        return Err(refuse("/cmd", "holds a NUL"));
    }
    if command.len() > MAX_COMMAND_BYTES {
        let reason = format!(
            "has {} bytes, expected at most {MAX_COMMAND_BYTES}; pass the rest as stdin or in a file",
            command.len()
        );
        return Err(refuse("/cmd", reason));
    }
    Ok(Program {
        path: PathBuf::from(SHELL),
        digest: None,
        // The separator keeps a command line that starts with a dash from being an option of bash.
        args: ["-c", "--", command].map(Into::into).to_vec(),
        stdin: input.text("stdin").as_bytes().to_vec(),
        env: job.environment(),
        cwd: starting_directory(job, input).await?.into(),
    })
}

/// Returns the directory to start in, which must be one of the call's and must exist.
async fn starting_directory(job: &Job, input: &Input) -> Result<String, ToolError> {
    let Some(wanted) = input.optional_text("cwd") else {
        return Ok(job.working_directory().to_owned());
    };
    let whole =
        absolute(job.working_directory(), wanted).map_err(|reason| refuse("/cwd", reason))?;
    if beneath(&whole, TEMPORARY).is_some() {
        return Ok(whole);
    }
    let granted = GrantedDirectories::of(job);
    let path = whole.clone();
    let look = tokio::task::spawn_blocking(move || {
        let directories = granted.open()?;
        let place = directories.place("/cwd", &path)?;
        // Only listing follows a link, as changing into it does.
        match place.metadata()?.map(|metadata| metadata.kind) {
            Some(FileKind::Directory) => Ok(()),
            Some(FileKind::Link) => place
                .directory
                .scoped
                .read_dir(&place.relative)
                .map(drop)
                .map_err(|error| place.failed(&error)),
            None | Some(FileKind::File | FileKind::Other) => {
                Err(refuse("/cwd", format!("{path} is no directory")))
            }
        }
    });
    match look.await {
        Ok(looked) => looked.map(|()| whole),
        Err(_panic) => Err(ToolError::new(ErrorKind::Execution, "the tool failed unexpectedly")),
    }
}

/// Runs the command for as long as this call may take, which is at most as long as the tool may.
///
/// Returns whether its time was up before it ended by itself.
async fn run_for(
    job: &Job,
    program: &Program,
    limit: Duration,
) -> Result<(Finished, bool), LaunchError> {
    let mut running = std::pin::pin!(job.start(program));
    tokio::select! {
        finished = &mut running => return finished.map(|finished| (finished, false)),
        () = tokio::time::sleep(limit) => {}
    }
    let is_ours = !job.cancel().is_cancelled();
    job.cancel().cancel();
    running.await.map(|finished| (finished, is_ours))
}

/// Reads how the command ended. Whatever its exit code, the shell itself has worked.
fn outcome(
    job: &Job,
    limit: Duration,
    has_timed_out: bool,
    finished: &Finished,
) -> Result<ToolOutput, ToolError> {
    let Finished { exit, stopped_by, stdout, stderr, .. } = finished;
    let Some(by) = stopped_by else {
        let mut answer = streams(stdout, stderr);
        answer.extend(process::exit_fields(*exit));
        return Ok(ToolOutput::from_value(Value::Object(answer)));
    };
    let by = if has_timed_out && *by == StoppedBy::Cancelled { StoppedBy::WallClock } else { *by };
    let limits = gateway_sandbox::Limits { wall: limit, ..job.confinement().limits.clone() };
    // A command line may have done part of its work, so nobody is told to just send it again.
    let error = process::stopped(by, "bash", &limits).retryable(false);
    Err(process::with_exit(error, *exit).with("output", Value::Object(printed(stdout, stderr))))
}

fn streams(stdout: &Captured, stderr: &Captured) -> Map<String, Value> {
    let is_truncated = stdout.is_truncated() || stderr.is_truncated();
    Map::from_iter([
        ("stdout".to_owned(), lossy(&stdout.bytes, stdout.is_truncated()).into()),
        ("stderr".to_owned(), lossy(&stderr.bytes, stderr.is_truncated()).into()),
        ("is_truncated".to_owned(), is_truncated.into()),
    ])
}

fn printed(stdout: &Captured, stderr: &Captured) -> Map<String, Value> {
    let bounded = |stream: &Captured| {
        let text = lossy(&stream.bytes, stream.is_truncated());
        Value::from(gateway_model::bounded_text(&text, MAX_PRINTED))
    };
    Map::from_iter([("stdout".to_owned(), bounded(stdout)), ("stderr".to_owned(), bounded(stderr))])
}
