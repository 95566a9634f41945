//! What a call touches: the claim that scheduling, policy and confinement all read.

use std::collections::BTreeSet;

use serde_json::Value;

/// The resources a call needs, for scheduling calls beside each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConcurrencyClaim {
    /// Reads only; conflicts with exclusive claims alone.
    Shared,
    /// Changes what the scope names.
    Exclusive(ExclusiveScope),
}

/// The extent of an exclusive claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExclusiveScope {
    /// Unknown or unbounded; conflicts with every claim.
    Global,
    /// Normalised absolute paths; conflicts where one equals or contains another.
    Paths(BTreeSet<String>),
}

impl ConcurrencyClaim {
    /// Returns the exclusive claim on paths; an empty set is an unknown footprint.
    pub fn on_paths(paths: BTreeSet<String>) -> Self {
        if paths.is_empty() {
            return Self::Exclusive(ExclusiveScope::Global);
        }
        Self::Exclusive(ExclusiveScope::Paths(paths))
    }

    /// Says whether two calls with these claims must not run at the same time.
    pub fn conflicts_with(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Shared, Self::Shared) => false,
            (
                Self::Exclusive(ExclusiveScope::Paths(ours)),
                Self::Exclusive(ExclusiveScope::Paths(theirs)),
            ) => ours.iter().any(|one| theirs.iter().any(|other| overlap(one, other))),
            (Self::Exclusive(_), _) | (_, Self::Exclusive(_)) => true,
        }
    }

    /// Returns the claim's scope in one word for policy and receipts.
    pub fn scope(&self) -> &'static str {
        match self {
            Self::Shared => "shared",
            Self::Exclusive(ExclusiveScope::Global) => "global",
            Self::Exclusive(ExclusiveScope::Paths(_)) => "paths",
        }
    }

    /// Returns the claimed paths; empty unless the scope is `paths`.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        let paths = match self {
            Self::Exclusive(ExclusiveScope::Paths(paths)) => Some(paths),
            Self::Shared | Self::Exclusive(ExclusiveScope::Global) => None,
        };
        paths.into_iter().flatten().map(String::as_str)
    }
}

/// Compares component-wise: `src/a` and `src/ab` are apart, `src/a` and `src/a/b.rs` overlap.
fn overlap(one: &str, other: &str) -> bool {
    let (mut ones, mut others) = (one.split('/'), other.split('/'));
    loop {
        match (ones.next(), others.next()) {
            (Some(a), Some(b)) if a == b => {}
            (Some(_), Some(_)) => return false,
            (None, _) | (_, None) => return true,
        }
    }
}

/// How the claim of a call is read from its input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClaimRule {
    /// Every call is shared.
    Shared,
    /// Every call is exclusive and global.
    Global,
    /// The paths stand at these JSON Pointers of the input.
    Paths(Vec<String>),
}

impl ClaimRule {
    /// Returns the claim of a call, with paths taken relative to `root`.
    ///
    /// A pointer that leads to nothing or to another type than a string or a list of strings, a
    /// path that is `/` or climbs above it, and more than 32 paths make the footprint unknown,
    /// hence global.
    pub fn claim(&self, input: &Value, root: &str) -> ConcurrencyClaim {
        match self {
            Self::Shared => ConcurrencyClaim::Shared,
            Self::Global => ConcurrencyClaim::Exclusive(ExclusiveScope::Global),
            Self::Paths(pointers) => {
                let mut paths = BTreeSet::new();
                for pointer in pointers {
                    if !collect_paths(input.pointer(pointer), root, &mut paths) {
                        return ConcurrencyClaim::Exclusive(ExclusiveScope::Global);
                    }
                }
                ConcurrencyClaim::on_paths(paths)
            }
        }
    }
}

/// Paths of one claim; every pair of paths is compared while a call waits.
const MAX_PATHS: usize = 32;

fn collect_paths(value: Option<&Value>, root: &str, paths: &mut BTreeSet<String>) -> bool {
    match value {
        Some(Value::String(path)) => match normalise(path, root) {
            Some(path) => {
                paths.insert(path);
                paths.len() <= MAX_PATHS
            }
            None => false,
        },
        Some(Value::Array(items)) => {
            items.iter().all(|item| collect_paths(Some(item), root, paths))
        }
        _ => false,
    }
}

/// Folds `.`, `..` and doubled separators as the kernel does, for which a backslash is a letter;
/// `None` when the path climbs above `/` or is `/` itself.
fn normalise(path: &str, root: &str) -> Option<String> {
    let absolute = if path.starts_with('/') { path.to_owned() } else { format!("{root}/{path}") };
    let mut components: Vec<&str> = Vec::new();
    for component in absolute.split('/') {
        match component {
            "" | "." => {}
            ".." => {
                components.pop()?;
            }
            name => components.push(name),
        }
    }
    (!components.is_empty()).then(|| format!("/{}", components.join("/")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn paths(list: &[&str]) -> ConcurrencyClaim {
        ConcurrencyClaim::on_paths(list.iter().map(|path| (*path).to_owned()).collect())
    }

    #[track_caller]
    fn check_conflict(one: &ConcurrencyClaim, other: &ConcurrencyClaim, expected: bool) {
        assert_eq!(one.conflicts_with(other), expected, "{one:?} with {other:?}");
        assert_eq!(other.conflicts_with(one), expected, "{other:?} with {one:?}");
    }

    #[test]
    fn paths_conflict_by_component() {
        check_conflict(&paths(&["/src/a"]), &paths(&["/src/ab"]), false);
        check_conflict(&paths(&["/src/a"]), &paths(&["/src/a/b.rs"]), true);
        check_conflict(&paths(&["/src/a"]), &paths(&["/src/a"]), true);
        check_conflict(&paths(&["/x", "/y"]), &paths(&["/z", "/y/1"]), true);
        check_conflict(&ConcurrencyClaim::Shared, &paths(&["/x"]), true);
        check_conflict(&ConcurrencyClaim::Shared, &ConcurrencyClaim::Shared, false);
        check_conflict(&paths(&[]), &paths(&["/x"]), true);
    }

    #[track_caller]
    fn check_claim(input: &Value, expected: &ConcurrencyClaim) {
        let rule = ClaimRule::Paths(vec!["/path".into()]);
        assert_eq!(&rule.claim(input, "/.allternit/artifacts/run_1"), expected, "{input}");
    }

    #[test]
    fn an_unextractable_footprint_is_global() {
        let global = ConcurrencyClaim::Exclusive(ExclusiveScope::Global);
        check_claim(&json!({"path": "a/./b/../c"}), &paths(&["/.allternit/artifacts/run_1/a/c"]));
        check_claim(&json!({"path": "/workspace/w//x"}), &paths(&["/workspace/w/x"]));
        check_claim(
            &json!({"path": ["a", "b"]}),
            &paths(&["/.allternit/artifacts/run_1/a", "/.allternit/artifacts/run_1/b"]),
        );
        check_claim(&json!({"path": "../../../../x"}), &global);
        check_claim(&json!({"path": "/"}), &global);
        check_claim(&json!({"path": "/workspace/.."}), &global);
        check_claim(&json!({"path": r"a\b/../c"}), &paths(&["/.allternit/artifacts/run_1/c"]));
        let many: Vec<String> = (0..33).map(|number| number.to_string()).collect();
        check_claim(&json!({"path": many}), &global);
        check_claim(&json!({"path": 7}), &global);
        check_claim(&json!({"path": []}), &global);
        check_claim(&json!({}), &global);
    }

    proptest! {
        #[test]
        fn conflict_is_symmetric(a in "(/[ab]{1,2}){1,3}", b in "(/[ab]{1,2}){1,3}") {
            prop_assert_eq!(
                paths(&[&a]).conflicts_with(&paths(&[&b])),
                paths(&[&b]).conflicts_with(&paths(&[&a]))
            );
        }
    }
}
