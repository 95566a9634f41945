//! Where a call may write, as arithmetic on the paths that a call sees. Touches no file.
//!
//! INVARIANT: paths are compared component by component after `.` and repeated separators are
//! dropped; a path with `..` in it is refused, never resolved.

use gateway_model::{RunId, bounded_text};

/// The root of everything the gateway lets a call write.
const ROOT: &str = ".allternit";
/// Trees of the root that hold one directory for each run. No scope may name any other tree,
/// such as `wih`, `graphs`, `spec`, `ledger`, `keys`, `policies` or `servers`.
const OF_RUNS: [&str; 2] = ["artifacts", "receipts"];
/// The placeholder for the run in a declared path.
const RUN_PLACEHOLDER: &str = "{run_id}";

/// A scope or a path that is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScopeError {
    /// It does not start beneath the root.
    #[error("write_scope root must be under /.allternit/")]
    OutsideRoot,
    /// It names a tree that no call may touch.
    #[error(
        "write_scope names /.allternit/{tree}, which no tool may touch; expected /.allternit/artifacts/{{run_id}}/**"
    )]
    Denied {
        /// The tree.
        tree: String,
    },
    /// It names another run, or all of them.
    #[error(
        "write_scope names {path}, which is not of run {run}; expected paths beneath /.allternit/{tree}/{run}"
    )]
    OtherRun {
        /// The path as given.
        path: String,
        /// The tree of runs.
        tree: String,
        /// The run of the call.
        run: RunId,
    },
    /// It names a workspace that is not granted.
    #[error("workspace {name:?} is not granted; an operator grants it with --workspace")]
    NotGranted {
        /// The workspace.
        name: String,
    },
    /// It is not a path in this form.
    #[error("write_scope path {path:?} {fault}")]
    Malformed {
        /// The path as given.
        path: String,
        /// What is wrong, and what was expected.
        fault: &'static str,
    },
}

/// The trees that one call may write, each with everything beneath it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WriteScope {
    trees: Vec<Vec<String>>,
}

impl WriteScope {
    /// Returns the scope of a run: its artifacts and its receipts.
    pub fn of_run(run: &RunId) -> Self {
        let tree = |kind: &str| vec![ROOT.to_owned(), kind.to_owned(), run.as_str().to_owned()];
        Self { trees: OF_RUNS.map(tree).to_vec() }
    }

    /// Parses a scope for a call of `run`: absolute paths that may hold `{run_id}` and may end in
    /// `/**`, beneath the run or a workspace that is `granted`.
    ///
    /// # Errors
    /// Refuses the first path that leads anywhere else.
    pub fn parse(
        globs: &[impl AsRef<str>],
        run: &RunId,
        granted: &[impl AsRef<str>],
    ) -> Result<Self, ScopeError> {
        let parse = |glob: &str| -> Result<Vec<String>, ScopeError> {
            let components = components(&glob.replace(RUN_PLACEHOLDER, run.as_str()))?;
            check_tree(glob, &components, run, granted)?;
            Ok(components)
        };
        let trees = globs.iter().map(|glob| parse(glob.as_ref())).collect::<Result<_, _>>()?;
        Ok(Self { trees })
    }

    /// Returns the scope as it is written: one `/**` path for each tree.
    pub fn globs(&self) -> impl Iterator<Item = String> {
        self.trees.iter().map(|tree| format!("/{}/**", tree.join("/")))
    }

    /// Says whether a path lies in the scope. A path that is not well formed lies in none.
    pub fn holds(&self, path: &str) -> bool {
        components(path).is_ok_and(|path| self.trees.iter().any(|tree| path.starts_with(tree)))
    }

    /// Says whether everything of another scope lies in this one.
    pub fn contains(&self, other: &Self) -> bool {
        other.trees.iter().all(|inner| self.trees.iter().any(|outer| inner.starts_with(outer)))
    }
}

/// Splits a path into its components, without a final `**`.
fn components(path: &str) -> Result<Vec<String>, ScopeError> {
    let malformed =
        |fault| Err(ScopeError::Malformed { path: bounded_text(path, 200).into_owned(), fault });
    if !path.starts_with('/') {
        return malformed("is not absolute; expected it to start with /");
    }
    let tree = path.strip_suffix("/**").unwrap_or(path);
    if tree.contains(['*', '?', '[', ']', '{', '}']) {
        return malformed("holds a pattern; expected a path, which may end in /**");
    }
    if tree.contains('\0') {
        return malformed("holds a NUL");
    }
    if tree.split('/').any(|component| component == "..") {
        return malformed("holds \"..\"; expected a path without it");
    }
    let components = tree.split('/').filter(|component| !matches!(*component, "" | "."));
    Ok(components.map(str::to_owned).collect())
}

fn check_tree(
    glob: &str,
    components: &[String],
    run: &RunId,
    granted: &[impl AsRef<str>],
) -> Result<(), ScopeError> {
    let mut components = components.iter().map(String::as_str);
    match (components.next(), components.next(), components.next()) {
        (Some("workspace"), Some(name), _) => {
            let is_granted = granted.iter().any(|granted| granted.as_ref() == name);
            if is_granted {
                Ok(())
            } else {
                Err(ScopeError::NotGranted { name: bounded_text(name, 200).into_owned() })
            }
        }
        (Some(ROOT), Some(tree), of_run) if OF_RUNS.contains(&tree) => match of_run {
            Some(name) if name == run.as_str() => Ok(()),
            Some(_) | None => Err(ScopeError::OtherRun {
                path: bounded_text(glob, 200).into_owned(),
                tree: tree.to_owned(),
                run: run.clone(),
            }),
        },
        // Only the trees of runs may be named; any other is denied, known or not.
        (Some(ROOT), Some(tree), _) => {
            Err(ScopeError::Denied { tree: bounded_text(tree, 200).into_owned() })
        }
        _ => Err(ScopeError::OutsideRoot),
    }
}

#[cfg(test)]
mod tests;
