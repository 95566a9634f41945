//! The configuration file: every key it holds is known, or named with the nearest known one.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use gateway_model::{WorkspaceName, bounded_text};
use toml::de::{DeTable, DeValue};

use super::given::Given;
use super::keys::{KEYS, Key};
use super::{Config, Layers, Problem, Source};

/// The size of the largest file that is read.
const MAX_FILE_BYTES: u64 = 1024 * 1024;

/// Sets what the file says.
///
/// The file of the home may be absent; one that was asked for may not.
pub(super) fn apply(config: &mut Config, layers: &Layers, problems: &mut Vec<Problem>) {
    let (path, is_required) = match &layers.flags.file {
        Some(path) => (layers.directory.join(path), true),
        None => (config.home.join("config.toml"), false),
    };
    let text = match read(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound && !is_required => return,
        Err(error) => {
            let message = format!("{}: cannot be read: {error}", path.display());
            let source = if is_required { Source::Flag("--config") } else { Source::Default };
            problems.push(Problem { source, message });
            return;
        }
    };
    let first = problems.len();
    File { path: &path, text: &text, problems }.apply(config);
    // Keys are read in their own order; faults are told in that of the file.
    let (_, found) = problems.split_at_mut(first);
    found.sort_by_key(|problem| match &problem.source {
        Source::File { line, .. } => *line,
        Source::Default | Source::Environment(_) | Source::Flag(_) => 0,
    });
}

fn read(path: &Path) -> io::Result<String> {
    let bytes = fs::metadata(path)?.len();
    if bytes > MAX_FILE_BYTES {
        let reason = format!("it has {bytes} bytes, expected at most {MAX_FILE_BYTES}");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, reason));
    }
    fs::read_to_string(path)
}

struct File<'a> {
    path: &'a Path,
    text: &'a str,
    problems: &'a mut Vec<Problem>,
}

/// A key with the workspace it is for, or what is wrong with a path of keys.
enum Known<'p> {
    Key(&'static Key, Option<WorkspaceName>),
    Section,
    Unknown(&'p [String]),
}

impl File<'_> {
    fn apply(mut self, config: &mut Config) {
        match DeTable::parse(self.text) {
            Ok(table) => self.apply_table(config, &[], table.get_ref()),
            Err(error) => {
                let start = error.span().map_or(0, |span| span.start);
                self.refuse(start, error.message().lines().collect::<Vec<_>>().join("; "));
            }
        }
    }

    fn apply_table(&mut self, config: &mut Config, above: &[String], table: &DeTable<'_>) {
        for (name, value) in table {
            let path: Vec<String> =
                above.iter().cloned().chain([name.get_ref().clone().into_owned()]).collect();
            let at = name.span().start;
            match (find(&path), value.get_ref()) {
                (Known::Key(key, workspace), value) => {
                    self.apply_key(config, at, (key, workspace), value);
                }
                (Known::Section, DeValue::Table(inner)) => self.apply_table(config, &path, inner),
                (Known::Section, _) => {
                    let section = path.join(".");
                    let message =
                        format!("{section} is a section, expected [{section}] and its keys below");
                    self.refuse(at, message);
                }
                (Known::Unknown(_), DeValue::Table(inner)) if !inner.is_empty() => {
                    self.apply_table(config, &path, inner);
                }
                (Known::Unknown(path), _) => self.refuse(at, unknown(path)),
            }
        }
    }

    fn apply_key(
        &mut self,
        config: &mut Config,
        at: usize,
        (key, workspace): (&'static Key, Option<WorkspaceName>),
        value: &DeValue<'_>,
    ) {
        if key.name == "home" {
            let message =
                "home: cannot be set in the file, which lies in it; use --home or ALLTERNIT_HOME";
            self.refuse(at, message);
            return;
        }
        let base = self.path.parent().map(PathBuf::from).unwrap_or_default();
        let given = Given::of_toml(value, &base, workspace.as_ref());
        let source = Source::File { path: self.path.to_owned(), line: self.line(at) };
        config.set(key, &given, source, self.problems);
    }

    fn refuse(&mut self, at: usize, message: impl Into<String>) {
        let source = Source::File { path: self.path.to_owned(), line: self.line(at) };
        self.problems.push(Problem { source, message: message.into() });
    }

    /// Returns the line, counted from 1, of a place in the text.
    fn line(&self, at: usize) -> usize {
        let before = self.text.as_bytes().iter().take(at);
        1 + before.filter(|byte| **byte == b'\n').count()
    }
}

/// Finds the key that a path of names stands for.
fn find(path: &[String]) -> Known<'_> {
    for key in KEYS {
        let mut workspace = None;
        let names: Vec<&str> = key.name.split('.').collect();
        let mut matches = path.iter().zip(&names).all(|(given, name)| {
            if *name == "NAME" {
                workspace = given.parse().ok();
                workspace.is_some()
            } else {
                given == name
            }
        });
        matches &= path.len() <= names.len();
        if matches && path.len() == names.len() {
            return Known::Key(key, workspace);
        }
        if matches {
            return Known::Section;
        }
    }
    Known::Unknown(path)
}

/// Says that no key has this name, and which one may have been meant.
fn unknown(path: &[String]) -> String {
    let given = path.join(".");
    let candidates = KEYS.iter().filter(|key| key.name != "home").map(|key| match path {
        [_, name, _] if key.is_of_workspace() => key.name.replace("NAME", name),
        _ => key.name.to_owned(),
    });
    let nearest = candidates
        .map(|name| (strsim::damerau_levenshtein(&given, &name), name))
        .min()
        .filter(|(distance, name)| *distance <= name.chars().count() / 2);
    let shown = bounded_text(&given, 80);
    if let [section, name, _] = path
        && section == "workspaces"
        && let Err(error) = name.parse::<WorkspaceName>()
    {
        return format!("{shown}: {error}");
    }
    match nearest {
        Some((_, name)) => format!("unknown key {shown}; did you mean {name}?"),
        None => format!("unknown key {shown}; `config show` lists the known ones"),
    }
}
