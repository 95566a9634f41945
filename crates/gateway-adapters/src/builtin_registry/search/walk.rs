//! Walks a directory beneath its descriptor, in the order of names, without what a project ignores.
//!
//! INVARIANT: links are reported and never followed, so a walk ends and stays inside.

use std::path::Path;
use std::sync::Arc;

use gateway_model::ToolError;
use gateway_sandbox::FileKind;
use ignore::gitignore::{Gitignore, GitignoreBuilder};

use crate::builtin_registry::reach::{GIT_DIRECTORY, Place, Stop};

/// How deep a walk goes.
const MAX_DEPTH: usize = 64;
/// The largest ignore file that is read.
const MAX_RULES_BYTES: u64 = 256 * 1024;
/// The files that say what a project ignores; the later one decides.
const RULES_FILES: [&str; 2] = [".gitignore", ".ignore"];

/// Where and how to walk.
pub(super) struct Walk<'a> {
    pub(super) start: &'a Place<'a>,
    /// Whether ignored files are visited too.
    pub(super) includes_ignored: bool,
    pub(super) stop: &'a Stop,
}

/// What a walk comes by.
pub(super) struct Entry<'a> {
    pub(super) place: &'a Place<'a>,
    pub(super) name: &'a str,
    /// The path beneath the directory where the walk started.
    pub(super) below_start: &'a str,
    pub(super) kind: FileKind,
}

/// Whether a walk goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    Continue,
    Enough,
}

/// Is told of each entry of a walk.
type Visit<'v> = &'v mut dyn FnMut(&Entry<'_>) -> Result<Next, ToolError>;

/// The ignore files that hold for a directory, outermost first.
type Rules = Vec<Arc<Gitignore>>;

impl Walk<'_> {
    /// Visits every entry beneath the start and returns how many directories could not be read.
    ///
    /// # Errors
    /// Returns why the start cannot be read, that the call must stop, or the visitor's error.
    pub(super) fn run(&self, visit: Visit<'_>) -> Result<usize, ToolError> {
        let scoped = &self.start.directory.scoped;
        let names =
            scoped.read_dir(&self.start.relative).map_err(|error| self.start.failed(&error))?;
        let rules = if self.includes_ignored { Rules::new() } else { self.rules_of_start() };
        let mut unreadable = 0;
        self.walk(
            &Level { place: self.start, below_start: "", rules: &rules, depth: 0 },
            names,
            visit,
            &mut unreadable,
        )?;
        Ok(unreadable)
    }

    fn walk(
        &self,
        level: &Level<'_>,
        names: Vec<(String, FileKind)>,
        visit: Visit<'_>,
        unreadable: &mut usize,
    ) -> Result<Next, ToolError> {
        for (name, kind) in names {
            self.stop.check()?;
            let place = level.place.child(&name);
            let is_directory = kind == FileKind::Directory;
            if (is_directory && name == GIT_DIRECTORY)
                || is_ignored(level.rules, &place.relative, is_directory)
            {
                continue;
            }
            let below_start = if level.below_start.is_empty() {
                name.clone()
            } else {
                format!("{}/{name}", level.below_start)
            };
            let entry = Entry { place: &place, name: &name, below_start: &below_start, kind };
            if visit(&entry)? == Next::Enough {
                return Ok(Next::Enough);
            }
            if !is_directory {
                continue;
            }
            let Some(names) = self.names_of(&place, level.depth) else {
                *unreadable += 1;
                continue;
            };
            let rules = self.rules_below(level.rules, &place, &names);
            let inner = Level {
                place: &place,
                below_start: &below_start,
                rules: &rules,
                depth: level.depth + 1,
            };
            if self.walk(&inner, names, visit, unreadable)? == Next::Enough {
                return Ok(Next::Enough);
            }
        }
        Ok(Next::Continue)
    }

    fn names_of(&self, place: &Place<'_>, depth: usize) -> Option<Vec<(String, FileKind)>> {
        if depth + 1 == MAX_DEPTH {
            return None;
        }
        place.directory.scoped.read_dir(&place.relative).ok()
    }

    /// Reads the ignore files from the granted directory down to where the walk starts.
    fn rules_of_start(&self) -> Rules {
        let mut rules = Rules::new();
        let mut place = Place { directory: self.start.directory, relative: String::new() };
        rules.extend(read_rules(&place));
        for component in self.start.relative.split('/').filter(|component| !component.is_empty()) {
            place = place.child(component);
            rules.extend(read_rules(&place));
        }
        rules
    }

    fn rules_below(&self, rules: &Rules, place: &Place<'_>, names: &[(String, FileKind)]) -> Rules {
        let mut below = rules.clone();
        let has_rules = names.iter().any(|(name, _)| RULES_FILES.contains(&name.as_str()));
        if has_rules && !self.includes_ignored {
            below.extend(read_rules(place));
        }
        below
    }
}

/// A directory that is walked.
struct Level<'a> {
    place: &'a Place<'a>,
    below_start: &'a str,
    rules: &'a Rules,
    depth: usize,
}

fn read_rules(place: &Place<'_>) -> Option<Arc<Gitignore>> {
    let mut builder = GitignoreBuilder::new(Path::new("/").join(&place.relative));
    for name in RULES_FILES {
        let Ok(content) = place.directory.scoped.read(&place.child(name).relative, MAX_RULES_BYTES)
        else {
            continue;
        };
        for line in String::from_utf8_lossy(&content).lines() {
            // As git does, a line that is no pattern ignores nothing.
            if let Err(error) = builder.add_line(None, line) {
                tracing::debug!(%error, "line of an ignore file is no pattern");
            }
        }
    }
    builder.build().ok().filter(|rules| !rules.is_empty()).map(Arc::new)
}

/// Says whether the innermost rule that speaks of a path ignores it.
fn is_ignored(rules: &Rules, relative: &str, is_directory: bool) -> bool {
    let path = Path::new("/").join(relative);
    let decision = rules
        .iter()
        .rev()
        .map(|rules| rules.matched(&path, is_directory))
        .find(|found| !found.is_none());
    decision.is_some_and(|found| found.is_ignore())
}
