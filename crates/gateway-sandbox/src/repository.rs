//! The parts of a workspace's git repository that make git run programs: a call may not change them.
//!
//! Whoever works in the workspace runs git outside of the sandbox, so a hook or a setting such as
//! `core.fsmonitor` that a tool wrote would run there. What exists of these parts is shown
//! read-only; what does not exist cannot be made read-only without changing the workspace, so it
//! is set aside when the call ends.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags, RenameFlags};

use crate::confinement::Confinement;
use crate::spec::Binding;

/// Where git keeps its state: a directory, or a file that names one elsewhere.
const GIT: &str = ".git";
/// What of it makes git run programs, itself or by naming another place to look.
const PARTS: [&str; 4] = ["config", "config.worktree", "commondir", "hooks"];

/// Returns what is shown over a writable workspace.
///
/// INVARIANT: the repository's directory is a mount of its own, so that it cannot be moved away
/// together with what is mounted in it.
pub(crate) fn bindings(workspace: &Binding) -> Vec<Binding> {
    let owner =
        |path: &Path| path.symlink_metadata().map(|metadata| (metadata.uid(), metadata.gid())).ok();
    let owner_of_workspace = owner(&workspace.host);
    let shown = |relative: &Path, is_writable| Binding {
        host: workspace.host.join(relative),
        seen_as: workspace.seen_as.join(relative),
        is_writable,
        // Another's part stays another's.
        is_owned: workspace.is_owned && owner(&workspace.host.join(relative)) == owner_of_workspace,
    };
    let git = Path::new(GIT);
    let Ok(metadata) = workspace.host.join(git).symlink_metadata() else { return Vec::new() };
    if metadata.is_file() {
        return vec![shown(git, false)];
    }
    if !metadata.is_dir() {
        return Vec::new();
    }
    let parts = PARTS.map(|part| git.join(part)).into_iter().filter(|part| {
        let metadata = workspace.host.join(part).symlink_metadata();
        metadata.is_ok_and(|metadata| metadata.is_dir() || metadata.is_file())
    });
    std::iter::once(shown(git, true)).chain(parts.map(|part| shown(&part, false))).collect()
}

/// The parts that were absent when a call began; those that are there when this is dropped are
/// set aside.
pub(crate) struct AbsentParts(Vec<(PathBuf, &'static str)>);

impl AbsentParts {
    /// Notes what the repositories of a call's writable workspaces lack.
    pub(crate) fn of(confinement: &Confinement) -> Self {
        let writable = confinement.workspaces.iter().filter(|workspace| workspace.writable);
        let repositories = writable
            .map(|workspace| workspace.host.join(GIT))
            .filter(|git| fs::symlink_metadata(git).is_ok_and(|metadata| metadata.is_dir()));
        let absent = repositories.flat_map(|git| {
            PARTS
                .map(|part| (git.clone(), part))
                .into_iter()
                .filter(|(git, part)| fs::symlink_metadata(git.join(part)).is_err())
        });
        Self(absent.collect())
    }
}

impl Drop for AbsentParts {
    fn drop(&mut self) {
        for (git, part) in &self.0 {
            match set_aside(git, part) {
                Ok(None) => {}
                Ok(Some(name)) => tracing::warn!(
                    repository = %git.display(), part, name,
                    "a call made a part of a git repository that makes git run programs; it has another name now"
                ),
                Err(error) => tracing::error!(
                    repository = %git.display(), part, %error,
                    "a call made a part of a git repository that makes git run programs, and it cannot be set aside"
                ),
            }
        }
    }
}

/// Gives a part a name that git does not know; `None` where it is not there.
fn set_aside(git: &Path, part: &str) -> std::io::Result<Option<String>> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = match rustix::fs::open(git, flags, Mode::empty()) {
        Ok(directory) => directory,
        Err(rustix::io::Errno::NOENT) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    match rustix::fs::statat(&directory, part, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(_there) => {}
        Err(rustix::io::Errno::NOENT) => return Ok(None),
        Err(error) => return Err(error.into()),
    }
    let mut random = [0; 8];
    getrandom::fill(&mut random).map_err(std::io::Error::other)?;
    let name = format!("{part}.set-aside-{}", hex::encode(random));
    let no_replace = RenameFlags::NOREPLACE;
    rustix::fs::renameat_with(&directory, part, &directory, &name, no_replace)?;
    Ok(Some(name))
}
