//! The registry of workers: the programs that Subprocess tools run, as the operator's file names
//! them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::{Value, json};

use super::environment::{check_variable, environment_to_wire, read_environment, refuse_secret};
use super::fields::{FieldError, Fields};
use crate::id::WorkerId;
use crate::json::{JsonError, parse_json};
use crate::secret::SecretText;

/// The version of the registry's form.
const VERSION: u64 = 1;
/// Workers of one registry.
const MAX_WORKERS: usize = 256;
/// The longest a worker may run, in milliseconds.
const MAX_WALL_MILLISECONDS: u64 = 3_600_000;
/// Bytes kept of a worker's standard output at most, and where nothing is said.
const MAX_STDOUT_BYTES: u64 = 1 << 20;
/// Bytes kept of a worker's standard error at most, and where nothing is said.
const MAX_STDERR_BYTES: u64 = 256 << 10;
/// The run's directory, as a worker's output root.
const RUN_ROOT: &str = "/.allternit/artifacts/{run_id}";

/// One worker, as its operator describes it.
#[derive(Debug, Clone, PartialEq)]
pub struct WorkerDefinition {
    /// The name that tools bind to.
    pub id: WorkerId,
    /// What the worker does.
    pub description: String,
    /// The program: an absolute path, or a name on the gateway's search path.
    pub command: String,
    /// The template of its arguments, over the properties of a tool's input.
    pub args: Vec<String>,
    /// Where it starts; `None` for wherever its call starts.
    pub directory: Option<WorkerDirectory>,
    /// Variables of the gateway's own environment that it also gets.
    pub inherited: Vec<String>,
    /// Variables of its own, whose texts may name secrets.
    pub environment: BTreeMap<String, SecretText>,
    /// Which files its tools may declare.
    pub files: WorkerFiles,
    /// What it may use; a tool's own limits hold beside these.
    pub limits: WorkerLimits,
    /// The whole definition with defaults filled in, in the file's shape.
    pub normalised: Value,
}

/// The directory that a worker starts in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WorkerDirectory {
    /// The first workspace of its call.
    Workspace,
    /// The directory of its run.
    Run,
    /// A path beneath the first workspace of its call.
    Beneath(String),
}

/// Which files the tools of a worker may declare.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerFiles {
    /// Nothing but the run's directory.
    pub is_run_scoped: bool,
    /// Trees that may be declared writable, without a trailing `/**`.
    pub output_roots: Vec<String>,
}

/// What a worker may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkerLimits {
    /// Wall-clock time.
    pub wall: Duration,
    /// Processor time.
    pub cpu: Option<Duration>,
    /// Bytes of standard output; an answer that is longer fails its call.
    pub stdout_bytes: u64,
    /// Bytes kept of standard error.
    pub stderr_bytes: u64,
}

/// A registry that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WorkersError {
    /// The text is not a JSON document with one meaning.
    #[error("{0}")]
    Json(JsonError),
    /// A field is not what it must be.
    #[error(transparent)]
    Field(#[from] FieldError),
}

impl WorkerDefinition {
    /// Reads every worker of a registry, in the file's order.
    ///
    /// # Errors
    /// Names the first field that is absent, wrong, unknown, or contradicts another.
    pub fn read_registry(bytes: &[u8]) -> Result<Vec<Self>, WorkersError> {
        let mut fields = Fields::of(parse_json(bytes).map_err(WorkersError::Json)?, "")?;
        if fields.required("version")?.as_u64() != Some(VERSION) {
            return Err(fields.error("version", format!("expected {VERSION}")).into());
        }
        let Value::Array(entries) = fields.required("workers")? else {
            return Err(fields.error("workers", "expected a list of workers").into());
        };
        if entries.len() > MAX_WORKERS {
            let reason = format!("has {} items, expected at most {MAX_WORKERS}", entries.len());
            return Err(fields.error("workers", reason).into());
        }
        fields.finish()?;
        let mut ids = BTreeSet::new();
        let mut workers = Vec::with_capacity(entries.len());
        for (position, entry) in entries.into_iter().enumerate() {
            let path = format!("/workers/{position}");
            let worker = Self::read(entry, &path)?;
            if !ids.insert(worker.id.clone()) {
                let reason = format!("{} names a second worker", worker.id);
                return Err(FieldError { path: format!("{path}/worker_id"), reason }.into());
            }
            workers.push(worker);
        }
        Ok(workers)
    }

    fn read(entry: Value, path: &str) -> Result<Self, FieldError> {
        let mut fields = Fields::of(entry, path)?;
        let id = fields.text("worker_id")?;
        let id = id
            .parse()
            .map_err(|error: crate::InvalidId| fields.error("worker_id", error.to_string()))?;
        let command = fields.text("command")?;
        if command.trim().is_empty() || command.contains('\0') {
            return Err(fields.error(
                "command",
                "expected one program: an absolute path, or a name on the gateway's search path",
            ));
        }
        let directory = match fields.optional_text("cwd_policy")? {
            None => None,
            Some(text) => {
                Some(read_directory(&text).map_err(|reason| fields.error("cwd_policy", reason))?)
            }
        };
        let inherited = fields.optional_texts("env_allowlist", 64, 128)?.unwrap_or_default();
        for (position, name) in inherited.iter().enumerate() {
            check_variable(name)
                .map_err(|reason| fields.error(&format!("env_allowlist/{position}"), reason))?;
        }
        let args = fields.optional_texts("args_template", 256, 8_192)?.unwrap_or_default();
        for (position, text) in args.iter().enumerate() {
            let refused = refuse_secret(text);
            refused.map_err(|reason| fields.error(&format!("args_template/{position}"), reason))?;
        }
        let mut worker = Self {
            id,
            command,
            description: fields.optional_text("description")?.unwrap_or_default(),
            args,
            files: read_files(fields.take_non_null("fs_policy"), path, directory.as_ref())?,
            directory,
            inherited,
            environment: read_environment(&mut fields)?,
            limits: read_limits(&mut fields, path)?,
            normalised: Value::Null,
        };
        fields.finish()?;
        worker.normalised = worker.to_wire();
        Ok(worker)
    }

    fn to_wire(&self) -> Value {
        let WorkerLimits { wall, cpu, stdout_bytes, stderr_bytes } = self.limits;
        let roots = self.files.output_roots.iter().map(|root| format!("{root}/**"));
        json!({
            "worker_id": self.id.as_str(),
            "description": self.description,
            "command": self.command,
            "args_template": self.args,
            "cwd_policy": self.directory.as_ref().map(WorkerDirectory::to_wire),
            "env_allowlist": self.inherited,
            "env": environment_to_wire(&self.environment),
            "fs_policy": {
                "must_be_run_scoped": self.files.is_run_scoped,
                "allowed_output_roots": roots.collect::<Vec<_>>(),
            },
            "timeouts": { "wall_ms": milliseconds(wall), "cpu_ms": cpu.map(milliseconds) },
            "output_limits": { "max_stdout_bytes": stdout_bytes, "max_stderr_bytes": stderr_bytes },
        })
    }
}

impl WorkerDirectory {
    fn to_wire(&self) -> String {
        match self {
            Self::Workspace => "repo_root".to_owned(),
            Self::Run => "run_artifacts_dir".to_owned(),
            Self::Beneath(path) => format!("path:{path}"),
        }
    }
}

impl WorkerFiles {
    /// Says whether a tree that a tool declares writable lies within the output roots.
    pub fn may_write(&self, declared: &str) -> bool {
        let tree = tree_of(declared);
        self.output_roots
            .iter()
            .any(|root| tree == root || (root == "/workspace" && tree.starts_with("/workspace/")))
    }
}

fn tree_of(path: &str) -> &str {
    path.strip_suffix("/**").unwrap_or(path).trim_end_matches('/')
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn read_directory(text: &str) -> Result<WorkerDirectory, String> {
    match (text, text.strip_prefix("path:")) {
        ("repo_root", _) => Ok(WorkerDirectory::Workspace),
        ("run_artifacts_dir", _) => Ok(WorkerDirectory::Run),
        (_, Some(path)) if is_path_beneath(path) => Ok(WorkerDirectory::Beneath(path.to_owned())),
        (_, Some(_)) => {
            Err("expected path:REL with names between slashes, none of them . or ..".to_owned())
        }
        (other, None) => {
            let other = crate::bounded_text(other, 60);
            Err(format!("expected repo_root, run_artifacts_dir or path:REL, got {other:?}"))
        }
    }
}

fn is_path_beneath(path: &str) -> bool {
    let is_name =
        |part: &str| !part.is_empty() && part != "." && part != ".." && !part.contains('\0');
    path.split('/').all(is_name)
}

fn read_files(
    policy: Option<Value>,
    path: &str,
    directory: Option<&WorkerDirectory>,
) -> Result<WorkerFiles, FieldError> {
    let Some(policy) = policy else {
        return Ok(WorkerFiles { is_run_scoped: false, output_roots: vec![RUN_ROOT.to_owned()] });
    };
    let mut fields = Fields::of(policy, &format!("{path}/fs_policy"))?;
    let is_run_scoped = fields.boolean("must_be_run_scoped")?;
    let roots = fields.texts("allowed_output_roots", 64, 256)?;
    let output_roots: Vec<String> = roots.iter().map(|root| tree_of(root).to_owned()).collect();
    for (position, root) in output_roots.iter().enumerate() {
        let name = format!("allowed_output_roots/{position}");
        let workspace =
            root.strip_prefix("/workspace").map(|rest| rest.strip_prefix('/').unwrap_or(rest));
        let is_workspace = workspace
            .is_some_and(|name| name.is_empty() || name.parse::<crate::WorkspaceName>().is_ok());
        if root != RUN_ROOT && !is_workspace {
            return Err(fields.error(
                &name,
                format!("expected \"{RUN_ROOT}/**\" or \"/workspace/NAME/**\": a worker writes to all of its run or workspace, or to none of it"),
            ));
        }
        if is_run_scoped && is_workspace {
            return Err(
                fields.error(&name, "lies outside of the run, and must_be_run_scoped is true")
            );
        }
    }
    fields.finish()?;
    if is_run_scoped && !matches!(directory, None | Some(WorkerDirectory::Run)) {
        let reason = "starts in a workspace, and fs_policy/must_be_run_scoped is true".to_owned();
        return Err(FieldError { path: format!("{path}/cwd_policy"), reason });
    }
    Ok(WorkerFiles { is_run_scoped, output_roots })
}

fn read_limits(fields: &mut Fields, path: &str) -> Result<WorkerLimits, FieldError> {
    let mut limits = WorkerLimits {
        wall: Duration::from_millis(MAX_WALL_MILLISECONDS),
        cpu: None,
        stdout_bytes: MAX_STDOUT_BYTES,
        stderr_bytes: MAX_STDERR_BYTES,
    };
    if let Some(timeouts) = fields.take_non_null("timeouts") {
        let mut timeouts = Fields::of(timeouts, &format!("{path}/timeouts"))?;
        let wall = number(&mut timeouts, "wall_ms", MAX_WALL_MILLISECONDS)?;
        limits.wall = wall.map_or(limits.wall, Duration::from_millis);
        limits.cpu =
            number(&mut timeouts, "cpu_ms", MAX_WALL_MILLISECONDS)?.map(Duration::from_millis);
        timeouts.finish()?;
    }
    if let Some(output) = fields.take_non_null("output_limits") {
        let mut output = Fields::of(output, &format!("{path}/output_limits"))?;
        let stdout = number(&mut output, "max_stdout_bytes", MAX_STDOUT_BYTES)?;
        let stderr = number(&mut output, "max_stderr_bytes", MAX_STDERR_BYTES)?;
        limits.stdout_bytes = stdout.unwrap_or(limits.stdout_bytes);
        limits.stderr_bytes = stderr.unwrap_or(limits.stderr_bytes);
        output.finish()?;
    }
    Ok(limits)
}

/// Takes a whole number from 1 to `most` that may be absent.
fn number(fields: &mut Fields, name: &'static str, most: u64) -> Result<Option<u64>, FieldError> {
    let Some(value) = fields.take_non_null(name) else { return Ok(None) };
    match value.as_u64().filter(|number| (1..=most).contains(number)) {
        Some(number) => Ok(Some(number)),
        None => Err(fields.error(name, format!("expected a whole number from 1 to {most}"))),
    }
}

#[cfg(test)]
mod tests;
