//! What the end of a confined process means for its call, for Local tools and the shell alike.

use gateway_engine::{Completion, Evidence};
use gateway_model::{ErrorKind, ToolError, ToolOutput};
use gateway_sandbox::{Exit, Finished, LaunchError, Limits, Program, StoppedBy};
use serde_json::{Map, Value};

/// Returns a call that was refused before anything was started.
pub(crate) fn refused(error: ToolError) -> Completion {
    Completion { has_started: false, ..Completion::in_process(Err(error)) }
}

/// Returns a call whose process was not started, or was lost.
pub(crate) fn not_launched(error: &LaunchError, program: &Program) -> Completion {
    let described = match error {
        LaunchError::Lost(_) => {
            let lost = ToolError::new(ErrorKind::Indeterminate, error.to_string());
            let evidence = Evidence::lost();
            return Completion { result: Err(lost), has_started: true, evidence };
        }
        LaunchError::Unavailable(unavailable) => {
            let remedies = unavailable.remedies.clone();
            ToolError::new(ErrorKind::SandboxUnavailable, unavailable.to_string())
                .with("remedies", remedies)
        }
        LaunchError::ProgramChanged { .. } | LaunchError::ProgramUnreadable { .. } => {
            ToolError::new(ErrorKind::Transport, error.to_string()).retryable(false)
        }
        LaunchError::Step { .. } | LaunchError::Helper(_) => {
            let message = format!(
                "{error}; program {}, working directory {}",
                program.path.display(),
                program.cwd.display()
            );
            ToolError::new(ErrorKind::Transport, message)
        }
    };
    refused(described)
}

/// Returns a call whose process ran and ended.
pub(crate) fn ended(result: Result<ToolOutput, ToolError>, finished: Finished) -> Completion {
    let Finished { exit, stopped_by: _, stdout, stderr, usage, profile } = finished;
    let evidence = Evidence {
        sandbox: profile.to_json(),
        exit: exit_code(exit),
        stdout: Some(stdout.bytes),
        stderr: Some(stderr.bytes),
        artifacts: None,
        cpu: usage.cpu,
        max_rss_bytes: usage.max_rss_bytes,
    };
    Completion { result, has_started: true, evidence }
}

/// Returns the exit code; `None` for a process that a signal ended.
pub(crate) fn exit_code(exit: Exit) -> Option<i32> {
    match exit {
        Exit::Code(code) => Some(code),
        Exit::Signal(_) => None,
    }
}

/// Returns why a process that did not end by itself was stopped, without what it printed.
pub(crate) fn stopped(by: StoppedBy, name: &str, limits: &Limits) -> ToolError {
    match by {
        StoppedBy::WallClock => {
            let message = format!("{name} timed out after {} s", limits.wall.as_secs());
            ToolError::new(ErrorKind::Timeout, message)
        }
        StoppedBy::Cancelled => {
            ToolError::new(ErrorKind::Cancelled, format!("{name} was cancelled"))
        }
        StoppedBy::OutputLimit => {
            let message = format!(
                "{name} was stopped because it wrote far more than is kept ({} bytes of output, {} of errors)",
                limits.stdout_bytes, limits.stderr_bytes
            );
            ToolError::new(ErrorKind::OutputLimit, message)
        }
        StoppedBy::MemoryLimit => {
            let limit =
                limits.memory_bytes.map_or_else(String::new, |bytes| format!(" of {bytes} bytes"));
            ToolError::new(
                ErrorKind::MemoryLimit,
                format!("{name} used more than its memory limit{limit}"),
            )
        }
        StoppedBy::DiskFull => {
            let message = format!(
                "{name} was stopped because a disk that it may write to has too little left (256 MiB are left free); free some"
            );
            ToolError::new(ErrorKind::Execution, message)
        }
        // The same call would use as much again, so this is the one time-out not worth repeating.
        StoppedBy::CpuLimit => {
            let limit =
                limits.cpu.map_or_else(String::new, |cpu| format!(" of {} s", cpu.as_secs()));
            let message = format!("{name} timed out: it used up its processor time{limit}");
            ToolError::new(ErrorKind::Timeout, message).retryable(false)
        }
    }
}

/// Adds how a process ended to an error.
pub(crate) fn with_exit(mut error: ToolError, exit: Exit) -> ToolError {
    error.fields.extend(exit_fields(exit));
    error
}

/// Returns how a process ended, as fields of an output or an error.
pub(crate) fn exit_fields(exit: Exit) -> Map<String, Value> {
    let (code, signal) = match exit {
        Exit::Code(code) => (code.into(), None),
        Exit::Signal(signal) => (Value::Null, Some(signal)),
    };
    let mut fields = Map::from_iter([("exit_code".to_owned(), code)]);
    fields.extend(signal.map(|signal| ("signal".to_owned(), signal.into())));
    fields
}
