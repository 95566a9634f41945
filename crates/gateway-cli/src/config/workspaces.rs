//! Granted workspaces: what the flag means, and which directories may be granted at all.

use std::path::{Path, PathBuf};

use gateway_engine::Workspace;
use gateway_model::WorkspaceName;

use super::{Config, ConfigError, Layers, Problem, Source};

const FLAG: Source = Source::Flag("--workspace");

/// One workspace as configured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WorkspaceSetting {
    /// The directory; `None` only while the configuration is being read.
    pub(crate) path: Option<PathBuf>,
    /// Whether calls may change it.
    pub(crate) is_writable: bool,
}

impl WorkspaceSetting {
    pub(super) fn unset() -> Self {
        Self { path: None, is_writable: true }
    }
}

/// Adds the workspaces of the flags; one of the same name in the file gives way.
pub(super) fn apply_flags(config: &mut Config, layers: &Layers, problems: &mut Vec<Problem>) {
    let mut named: Vec<(WorkspaceName, PathBuf)> = Vec::new();
    for text in &layers.flags.workspaces {
        let (name, setting) = match parse(text, &layers.directory) {
            Ok(parsed) => parsed,
            Err(message) => {
                problems.push(Problem { source: FLAG, message });
                continue;
            }
        };
        let path = setting.path.clone().unwrap_or_default();
        if let Some((_, other)) = named.iter().find(|(other, _)| *other == name) {
            let message = format!(
                "{} and {} would both be /workspace/{name}; name one of them in the configuration \
                 file: [workspaces.OTHER] path = \"…\"",
                other.display(),
                path.display()
            );
            problems.push(Problem { source: FLAG, message });
            continue;
        }
        for key in ["path", "mode"] {
            config.sources.insert(format!("workspaces.{name}.{key}"), FLAG);
        }
        config.workspaces.insert(name.clone(), setting);
        named.push((name, path));
    }
}

/// Reads `DIR`, `DIR:ro` or `DIR:rw`.
fn parse(text: &str, directory: &Path) -> Result<(WorkspaceName, WorkspaceSetting), String> {
    let (path, is_writable) = match (text.strip_suffix(":ro"), text.strip_suffix(":rw")) {
        (Some(path), _) => (path, false),
        (None, Some(path)) => (path, true),
        (None, None) => (text, true),
    };
    if path.is_empty() {
        return Err(format!("{text:?}: expected DIR, DIR:ro or DIR:rw"));
    }
    let path = directory_at(&directory.join(path))?;
    let name = name_of(&path)?;
    Ok((name, WorkspaceSetting { path: Some(path), is_writable }))
}

/// Makes a name of the directory's own; what a name cannot hold becomes a hyphen.
fn name_of(path: &Path) -> Result<WorkspaceName, String> {
    let refuse = || {
        format!(
            "{}: no workspace name can be made of it; name it in the configuration file: \
             [workspaces.NAME] path = \"…\"",
            path.display()
        )
    };
    let base = path.file_name().ok_or_else(refuse)?.to_string_lossy();
    let name: String = base
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || matches!(c, '_' | '-') { c } else { '-' })
        .collect();
    let name = name.trim_matches('-');
    name.parse().map_err(|_invalid| refuse())
}

/// Returns the directory that a path leads to, without symbolic links.
fn directory_at(path: &Path) -> Result<PathBuf, String> {
    let real = path
        .canonicalize()
        .map_err(|error| format!("{}: cannot be used: {error}", path.display()))?;
    if real.is_dir() { Ok(real) } else { Err(format!("{}: is not a directory", path.display())) }
}

impl Config {
    /// Returns the workspaces to grant.
    ///
    /// # Errors
    /// Names each directory that is not there or may not be granted: one that shares files with
    /// the home, where tools would reach the ledger and the operator's token, or with another
    /// workspace, where two names would hide that two calls conflict.
    pub(crate) fn granted_workspaces(&self) -> Result<Vec<Workspace>, ConfigError> {
        let mut granted: Vec<Workspace> = Vec::new();
        let mut problems = Vec::new();
        // Where the home does not exist yet, its parent may still be a link.
        let home = real_path(&self.home);
        for (name, setting) in &self.workspaces {
            let key = format!("workspaces.{name}.path");
            match self.grant(name, setting, &home, &granted) {
                Ok(workspace) => granted.push(workspace),
                Err(reason) => {
                    let mode_source = self.source(&format!("workspaces.{name}.mode"));
                    let source = match self.source(&key) {
                        Source::Default => mode_source,
                        source => source,
                    };
                    problems.push(Problem { source, message: format!("{key}: {reason}") });
                }
            }
        }
        if problems.is_empty() { Ok(granted) } else { Err(ConfigError { problems }) }
    }

    fn grant(
        &self,
        name: &WorkspaceName,
        setting: &WorkspaceSetting,
        home: &Path,
        granted: &[Workspace],
    ) -> Result<Workspace, String> {
        let path = setting.path.as_ref().ok_or("is required")?;
        let host = directory_at(path)?;
        if overlap(&host, home) {
            return Err(format!(
                "{} and the gateway's home {} share files; a tool must never reach the home: grant \
                 a directory beside it, or move the home with --home",
                host.display(),
                home.display()
            ));
        }
        if let Some(other) = granted.iter().find(|other| overlap(&host, &other.host)) {
            return Err(format!(
                "{} and {} of workspace {} share files; grant one of them",
                host.display(),
                other.host.display(),
                other.name
            ));
        }
        Ok(Workspace { name: name.clone(), host, is_writable: setting.is_writable })
    }
}

/// Says whether one of the directories holds the other; paths are compared name by name.
fn overlap(one: &Path, other: &Path) -> bool {
    one.starts_with(other) || other.starts_with(one)
}

/// Returns the path with the links of its nearest existing part resolved.
fn real_path(path: &Path) -> PathBuf {
    let resolved =
        path.ancestors().find_map(|existing| Some((existing, existing.canonicalize().ok()?)));
    match resolved {
        // A rest of no names would append a slash.
        Some((existing, real)) if existing == path => real,
        Some((existing, real)) => {
            path.strip_prefix(existing).map_or(real.clone(), |rest| real.join(rest))
        }
        None => path.to_owned(),
    }
}
