//! What a call reaches: its run's directory and granted workspaces, as its tool declares.

use std::path::Path;
use std::time::Duration;

use gateway_model::{
    ConcurrencyClaim, ErrorKind, FilesystemLimit, HostRules, NetworkLimit, RegisteredTool, RunId,
    ToolError, WorkspaceName, canonical_json,
};
use gateway_sandbox::{
    Confinement, Limits, RunDirectory, WorkspaceMount, WriteScope, prepare_run_directory,
};
use serde_json::{Value, json};

use super::scheduler::Domain;
use crate::tool_metadata::Workspace;

/// Where a call that reaches no directory starts.
const EMPTY_DIRECTORY: &str = "/tmp";

/// A path that a tool may declare.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Declared {
    Run,
    Workspace(WorkspaceName),
    EveryWorkspace,
}

/// Refuses a declaration that the sandbox could not hold a tool to.
///
/// # Errors
/// Returns the reason for the registrant, in the wire contract's words.
pub(crate) fn check_declared(limit: &FilesystemLimit) -> Result<(), String> {
    limit.paths().0.iter().try_for_each(|path| parse(path).map(drop))
}

fn parse(path: &str) -> Result<Declared, String> {
    let tree = path.strip_suffix("/**").unwrap_or(path).trim_end_matches('/');
    match tree {
        "/.allternit/artifacts/{run_id}" => Ok(Declared::Run),
        "/workspace" => Ok(Declared::EveryWorkspace),
        _ => match tree.strip_prefix("/workspace/").map(str::parse) {
            Some(Ok(name)) => Ok(Declared::Workspace(name)),
            Some(Err(_)) | None => Err(refusal(path)),
        },
    }
}

/// Says why a path cannot be declared, in the wire contract's words.
fn refusal(path: &str) -> String {
    let outside = "write_scope root must be under /.allternit/".to_owned();
    let reason = match "-".parse::<RunId>() {
        // Whatever the run, the path leads out of it or only into a part of it.
        Ok(any_run) => match WriteScope::parse(&[path], &any_run, &[] as &[&str]) {
            Err(error) => error.to_string(),
            Ok(_part) => "a tool reaches all of its run or none".to_owned(),
        },
        Err(_) => outside,
    };
    format!(
        "/resource_limits/filesystem: {reason}: {:?} is neither \"/.allternit/artifacts/{{run_id}}/**\" nor \
         \"/workspace/NAME/**\"",
        gateway_model::bounded_text(path, 200)
    )
}

/// What one call reaches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reach {
    has_run: bool,
    is_writable: bool,
    workspaces: Vec<Workspace>,
    /// Workspaces in which this call can meet a writer: those that are granted for writing.
    shared: Vec<WorkspaceName>,
    working_directory: String,
}

/// Reads what a call of this tool reaches.
///
/// # Errors
/// Refuses a declared workspace that is not granted.
pub(crate) fn reach(
    tool: &RegisteredTool,
    run: &RunId,
    granted: &[Workspace],
) -> Result<Reach, ToolError> {
    let (paths, is_writable) = tool.limits.filesystem.paths();
    let mut has_run = false;
    let mut workspaces: Vec<Workspace> = Vec::new();
    for path in paths {
        let refuse = |reason: String| ToolError::new(ErrorKind::ValidationFailed, reason);
        match parse(path).map_err(refuse)? {
            Declared::Run => has_run = true,
            Declared::EveryWorkspace => workspaces = granted.to_vec(),
            Declared::Workspace(name) => {
                let workspace = granted.iter().find(|workspace| workspace.name == name).ok_or_else(|| {
                    refuse(format!("workspace {name} is not granted; an operator grants it with --workspace or [workspaces.{name}]"))
                })?;
                if !workspaces.contains(workspace) {
                    workspaces.push(workspace.clone());
                }
            }
        }
    }
    let shared = workspaces.iter().filter(|workspace| workspace.is_writable);
    let shared = shared.map(|workspace| workspace.name.clone()).collect();
    for workspace in &mut workspaces {
        workspace.is_writable &= is_writable;
    }
    let working_directory = match workspaces.first() {
        Some(workspace) => format!("/workspace/{}", workspace.name),
        None if has_run => format!("/.allternit/artifacts/{run}"),
        None => EMPTY_DIRECTORY.to_owned(),
    };
    Ok(Reach { has_run, is_writable, workspaces, shared, working_directory })
}

impl Reach {
    pub(crate) fn working_directory(&self) -> &str {
        &self.working_directory
    }

    /// Returns what an approval is bound to: a yes for one directory is none for another that
    /// came to bear its name.
    pub(crate) fn identity(&self, claim: &ConcurrencyClaim) -> Vec<u8> {
        let workspaces = self.workspaces.iter().map(|workspace| {
            let Workspace { name, host, is_writable } = workspace;
            json!([name.as_str(), host.to_string_lossy(), is_writable])
        });
        canonical_json(&json!({
            "run": self.has_run,
            "writable": self.is_writable,
            "workspaces": workspaces.collect::<Vec<_>>(),
            "working_directory": self.working_directory,
            "scope": claim.scope(),
            "paths": claim.paths().collect::<Vec<_>>(),
        }))
    }

    /// Where this call can meet others: its run, and the workspaces that somebody can write to.
    pub(crate) fn domain(&self, run: &RunId) -> Domain {
        let shared = self.shared.iter().map(|name| format!("workspace:{name}"));
        std::iter::once(format!("run:{run}")).chain(shared).collect()
    }

    /// Returns the confinement, with the run's directory created where it is missing.
    ///
    /// # Errors
    /// Returns why the directory cannot be had; then nothing has happened.
    pub(crate) fn confinement(
        &self,
        tool: &RegisteredTool,
        run: &RunId,
        artifacts: &Path,
    ) -> Result<Confinement, ToolError> {
        let run = if self.has_run {
            let host = prepare_run_directory(artifacts, run).map_err(|error| {
                tracing::error!(error = %super::journal::chain(&error), "run directory not usable");
                ToolError::new(
                    ErrorKind::Unavailable,
                    format!("the directory of run {run} cannot be used"),
                )
            })?;
            Some(RunDirectory { host, run_id: run.clone(), writable: self.is_writable })
        } else {
            None
        };
        let workspaces = self
            .workspaces
            .iter()
            .map(|workspace| WorkspaceMount {
                name: workspace.name.to_string(),
                host: workspace.host.clone(),
                writable: workspace.is_writable,
            })
            .collect();
        let network = HostRules::of(&tool.limits.network).map_err(|error| {
            let message = format!("the tool's network declaration {error}");
            ToolError::new(ErrorKind::PermissionDenied, message)
        })?;
        Ok(Confinement { run, workspaces, network, limits: limits(tool) })
    }

    /// Returns what is reached: paths that a call sees, and hosts.
    pub(crate) fn to_json(&self, run: &RunId, network: &NetworkLimit) -> Value {
        let mode = |is_writable| if is_writable { "rw" } else { "ro" };
        let run = self.has_run.then(|| json!({"path": format!("/.allternit/artifacts/{run}"), "mode": mode(self.is_writable)}));
        let workspaces = self.workspaces.iter().map(|workspace| {
            json!({"path": format!("/workspace/{}", workspace.name), "mode": mode(workspace.is_writable)})
        });
        json!({
            "directories": run.into_iter().chain(workspaces).collect::<Vec<_>>(),
            "working_directory": self.working_directory,
            "network": match network {
                NetworkLimit::None => json!("none"),
                NetworkLimit::DomainAllowlist(hosts) => json!(hosts),
                NetworkLimit::Unrestricted => json!("any public host"),
            },
        })
    }
}

fn limits(tool: &RegisteredTool) -> Limits {
    Limits {
        wall: tool.limits.time_limit,
        cpu: tool.limits.cpu_time().map(|time| time.max(Duration::from_secs(1))),
        memory_bytes: tool.limits.memory_bytes,
        ..Limits::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(path: &str, expected: Option<Declared>) {
        assert_eq!(parse(path).ok(), expected, "{path}");
    }

    #[test]
    fn only_whole_runs_and_workspaces_can_be_declared() {
        let docs = Declared::Workspace("docs".parse().unwrap());
        check("/.allternit/artifacts/{run_id}/**", Some(Declared::Run));
        check("/.allternit/artifacts/{run_id}", Some(Declared::Run));
        check("/.allternit/artifacts/{run_id}/", Some(Declared::Run));
        check("/workspace/docs/**", Some(docs.clone()));
        check("/workspace/docs", Some(docs));
        check("/workspace/**", Some(Declared::EveryWorkspace));
        for refused in [
            "",
            "/",
            "/etc",
            "/.allternit",
            "/.allternit/artifacts",
            "/.allternit/artifacts/run_12",
            "/.allternit/artifacts/{run_id}/../run_2",
            "/.allternit/artifacts/{run_id}x",
            "/.allternit/receipts/{run_id}/**",
            "/.allternit/ledger",
            "/.allternit/keys/**",
            "/workspace/..",
            "/workspace/a/b",
            "artifacts/{run_id}",
        ] {
            check(refused, None);
        }
    }
}
