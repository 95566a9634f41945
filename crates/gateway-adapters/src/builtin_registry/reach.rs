//! What an in-process tool reaches: a call's directories, by the paths that the call sees.
//!
//! INVARIANT: a path of an input becomes a place in one of the call's directories or is refused,
//! and a place is only ever opened beneath that directory's descriptor. No path of this machine
//! stands in a result or an error.

use std::path::PathBuf;
use std::time::Duration;

use gateway_engine::Job;
use gateway_model::{ErrorKind, ToolError};
use gateway_sandbox::{FileError, FileKind, Metadata, ScopedDir};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::input::refuse;

/// Where git keeps a repository's state, which is no part of a project's files.
pub(super) const GIT_DIRECTORY: &str = ".git";

/// The directories of a call, not yet opened.
#[derive(Debug, Clone)]
pub(super) struct GrantedDirectories {
    working_directory: String,
    directories: Vec<(String, PathBuf, bool)>,
}

impl GrantedDirectories {
    pub(super) fn of(job: &Job) -> Self {
        let directories = job.confinement().directories();
        Self {
            working_directory: job.working_directory().to_owned(),
            directories: directories
                .map(|(seen_as, host, is_writable)| (seen_as, host.clone(), is_writable))
                .collect(),
        }
    }

    /// Returns one writable workspace, `/workspace/app`.
    #[cfg(test)]
    pub(super) fn workspace(host: PathBuf) -> Self {
        let seen_as = "/workspace/app".to_owned();
        Self { working_directory: seen_as.clone(), directories: vec![(seen_as, host, true)] }
    }

    /// Opens the directories.
    ///
    /// # Errors
    /// Names the first that cannot be opened, as the call sees it.
    pub(super) fn open(self) -> Result<Directories, ToolError> {
        let mut opened = Vec::with_capacity(self.directories.len());
        for (seen_as, host, is_writable) in self.directories {
            let scoped = ScopedDir::open(&host, is_writable).map_err(|error| {
                ToolError::new(
                    ErrorKind::Unavailable,
                    format!("{seen_as} cannot be opened: {error}"),
                )
            })?;
            opened.push(Directory { seen_as, scoped });
        }
        Ok(Directories { working_directory: self.working_directory, opened })
    }
}

/// The open directories of a call.
#[derive(Debug)]
pub(super) struct Directories {
    working_directory: String,
    opened: Vec<Directory>,
}

/// One open directory of a call.
#[derive(Debug)]
pub(super) struct Directory {
    /// The path that the call sees.
    pub(super) seen_as: String,
    /// The files beneath it.
    pub(super) scoped: ScopedDir,
}

/// A path in one of the call's directories.
#[derive(Debug, Clone)]
pub(super) struct Place<'a> {
    pub(super) directory: &'a Directory,
    /// The path beneath the directory; empty for the directory itself.
    pub(super) relative: String,
}

impl Directories {
    /// Finds the place that a path of the input names.
    ///
    /// # Errors
    /// Refuses a path that leads outside of every directory, and says which there are.
    pub(super) fn place(&self, field: &str, path: &str) -> Result<Place<'_>, ToolError> {
        let whole =
            absolute(&self.working_directory, path).map_err(|reason| refuse(field, reason))?;
        let found = self.opened.iter().find_map(|directory| {
            let relative = beneath(&whole, &directory.seen_as)?;
            Some(Place { directory, relative: relative.to_owned() })
        });
        found.ok_or_else(|| {
            let known: Vec<&str> =
                self.opened.iter().map(|directory| directory.seen_as.as_str()).collect();
            let shown = gateway_model::bounded_text(&whole, 300);
            refuse(
                field,
                format!(
                    "{shown:?} is outside of what this call reaches; expected a path in {}",
                    known.join(", ")
                ),
            )
        })
    }

    /// Returns a place's path in its shortest form that this call's tools read back.
    pub(super) fn shown(&self, place: &Place<'_>) -> String {
        let whole = place.whole();
        match beneath(&whole, &self.working_directory) {
            Some("") => ".".to_owned(),
            Some(relative) => relative.to_owned(),
            None => whole,
        }
    }
}

impl Place<'_> {
    /// Returns the whole path, as the call sees it.
    pub(super) fn whole(&self) -> String {
        join(&self.directory.seen_as, &self.relative)
    }

    /// Says whether the place is in the run's own directory.
    pub(super) fn is_in_run(&self) -> bool {
        beneath(&self.directory.seen_as, "/.allternit/artifacts").is_some()
    }

    /// Returns the place of a name in this directory.
    pub(super) fn child(&self, name: &str) -> Self {
        Self { directory: self.directory, relative: join(&self.relative, name) }
    }

    /// Returns what is known of the place; `None` where nothing is.
    ///
    /// # Errors
    /// Returns what the file system said.
    pub(super) fn metadata(&self) -> Result<Option<Metadata>, ToolError> {
        match self.directory.scoped.metadata(&self.relative) {
            Ok(metadata) => Ok(Some(metadata)),
            Err(error) if error.kind == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(self.failed(&error)),
        }
    }

    /// Refuses a place that a whole file cannot be written to. Returns whether a file is there.
    ///
    /// # Errors
    /// Refuses links, because the write would replace the link itself, and what is no file.
    pub(super) fn check_replaceable(&self) -> Result<bool, ToolError> {
        let refused = match self.metadata()?.map(|metadata| metadata.kind) {
            None => return Ok(false),
            Some(FileKind::File) => return Ok(true),
            Some(FileKind::Directory) => "is a directory",
            Some(FileKind::Link) => "is a symbolic link; name the file that it leads to",
            Some(FileKind::Other) => "is not a regular file",
        };
        Err(ToolError::new(ErrorKind::Execution, format!("{}: {refused}", self.whole())))
    }

    /// Says whether the place belongs to a git repository's own state in a workspace.
    ///
    /// Hooks and settings in it make git run programs, for whoever works in the workspace next.
    pub(super) fn is_in_repository(&self) -> bool {
        let mut components = self.relative.split('/');
        !self.is_in_run() && components.any(|name| name.eq_ignore_ascii_case(GIT_DIRECTORY))
    }

    /// Refuses to change a git repository's own state in a workspace.
    ///
    /// # Errors
    /// Refuses the field of the input that named the place.
    pub(super) fn check_may_change(&self, field: &str) -> Result<(), ToolError> {
        if !self.is_in_repository() {
            return Ok(());
        }
        let reason = format!(
            "{} is of a git repository, whose hooks and settings run programs; change it with git, in bash",
            self.whole()
        );
        Err(refuse(field, reason))
    }

    /// Returns the error for a file operation here that failed.
    pub(super) fn failed(&self, error: &FileError) -> ToolError {
        ToolError::new(ErrorKind::Execution, format!("{}: {}", self.whole(), error.fault))
    }

    /// Returns the error for a fault that was found here.
    pub(super) fn fault(&self, fault: impl std::fmt::Display) -> ToolError {
        ToolError::new(ErrorKind::Execution, format!("{}: {fault}", self.whole()))
    }
}

/// When an in-process tool must stop.
#[derive(Debug, Clone)]
pub(super) struct Stop {
    cancel: CancellationToken,
    deadline: Instant,
    limit: Duration,
}

impl Stop {
    pub(super) fn of(job: &Job) -> Self {
        Self {
            cancel: job.cancel().clone(),
            deadline: Instant::now() + job.time_left(),
            limit: job.tool().limits.time_limit,
        }
    }

    /// Returns a stop that never comes.
    #[cfg(test)]
    pub(super) fn never() -> Self {
        let limit = Duration::from_secs(3_600);
        Self { cancel: CancellationToken::new(), deadline: Instant::now() + limit, limit }
    }

    /// Returns a stop that has come already.
    #[cfg(test)]
    pub(super) fn at_once() -> Self {
        let stop = Self::never();
        stop.cancel.cancel();
        stop
    }

    /// Waits until the call must stop, and returns the error that says so. Cancel-safe.
    pub(super) async fn come(&self) -> ToolError {
        loop {
            if let Err(error) = self.check() {
                return error;
            }
            tokio::select! {
                () = self.cancel.cancelled() => {}
                () = tokio::time::sleep_until(self.deadline) => {}
            }
        }
    }

    /// Returns `Err` once the call was cancelled or its time is up.
    pub(super) fn check(&self) -> Result<(), ToolError> {
        if self.cancel.is_cancelled() {
            return Err(ToolError::new(ErrorKind::Cancelled, "the call was cancelled"));
        }
        if Instant::now() >= self.deadline {
            let message =
                format!("the tool timed out after {} s; narrow the call", self.limit.as_secs());
            return Err(ToolError::new(ErrorKind::Timeout, message).retryable(false));
        }
        Ok(())
    }
}

/// Makes a path absolute and folds `.`, `..` and doubled separators.
///
/// # Errors
/// Returns what is wrong with a path that names nothing.
pub(super) fn absolute(working_directory: &str, path: &str) -> Result<String, String> {
    if path.is_empty() {
        return Err("is empty; expected a path, such as \".\"".to_owned());
    }
    if path.contains('\0') {
        return Err("holds a NUL".to_owned());
    }
    let whole = if path.starts_with('/') { path.to_owned() } else { join(working_directory, path) };
    let mut components: Vec<&str> = Vec::new();
    for component in whole.split('/') {
        match component {
            "" | "." => {}
            ".." if components.pop().is_none() => return Err("climbs above /".to_owned()),
            ".." => {}
            name => components.push(name),
        }
    }
    Ok(format!("/{}", components.join("/")))
}

/// Returns what follows a directory in a path, compared component by component.
pub(super) fn beneath<'path>(path: &'path str, directory: &str) -> Option<&'path str> {
    let rest = path.strip_prefix(directory)?;
    if rest.is_empty() { Some(rest) } else { rest.strip_prefix('/') }
}

fn join(directory: &str, name: &str) -> String {
    match (directory, name) {
        ("", name) => name.to_owned(),
        (directory, "") => directory.to_owned(),
        (directory, name) => format!("{}/{name}", directory.trim_end_matches('/')),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(path: &str, expected: Result<&str, &str>) {
        let got = absolute("/workspace/app", path);
        assert_eq!(got.as_deref().map_err(String::as_str), expected, "{path:?}");
    }

    #[test]
    fn paths_are_folded_before_they_are_compared() {
        check("src/./a//b.rs", Ok("/workspace/app/src/a/b.rs"));
        check(".", Ok("/workspace/app"));
        check("../other/", Ok("/workspace/other"));
        check("/.allternit/artifacts/run_1/../run_2", Ok("/.allternit/artifacts/run_2"));
        check("../../..", Err("climbs above /"));
        check("", Err("is empty; expected a path, such as \".\""));
        check("a\0b", Err("holds a NUL"));
        check("-n", Ok("/workspace/app/-n"));
    }

    #[test]
    fn a_directory_is_compared_by_components() {
        let run = "/.allternit/artifacts/run_1";
        assert_eq!(beneath("/.allternit/artifacts/run_1/x", run), Some("x"));
        assert_eq!(beneath(run, run), Some(""));
        assert_eq!(beneath("/.allternit/artifacts/run_12", run), None);
        assert_eq!(beneath("/.allternit/artifacts/run_12/x", run), None);
    }
}
