//! file_ops: lists, describes, makes, moves, copies and deletes files and directories.

use gateway_model::{ToolError, ToolOutput};
use gateway_sandbox::{FileKind, Metadata};
use serde_json::{Map, Value, json};

use super::Call;
use crate::builtin_registry::input::refuse;
use crate::builtin_registry::reach::{Place, Stop};

/// Entries of a directory that are listed.
const MAX_LISTED: usize = 1_000;
/// Files and directories of one copy.
const MAX_COPIED: usize = 10_000;
/// The largest file that is copied.
const MAX_COPIED_FILE_BYTES: u64 = 64 << 20;
/// Bytes of one copy.
const MAX_COPIED_BYTES: u64 = 1 << 30;
/// How deep a tree may be to be copied.
const MAX_COPIED_DEPTH: usize = 64;

/// What a call does, by the word in its input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operation {
    List,
    Stat,
    Mkdir,
    Move,
    Copy,
    Delete,
}

impl Operation {
    const ALL: [Self; 6] =
        [Self::List, Self::Stat, Self::Mkdir, Self::Move, Self::Copy, Self::Delete];

    fn as_str(self) -> &'static str {
        match self {
            Self::List => "list",
            Self::Stat => "stat",
            Self::Mkdir => "mkdir",
            Self::Move => "move",
            Self::Copy => "copy",
            Self::Delete => "delete",
        }
    }

    /// Says whether what `path` names is changed; what `to` names always is.
    fn changes_path(self) -> bool {
        match self {
            Self::Mkdir | Self::Move | Self::Delete => true,
            Self::List | Self::Stat | Self::Copy => false,
        }
    }
}

pub(in super::super) fn input_schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "op": { "type": "string", "enum": Operation::ALL.map(Operation::as_str), "description": "what to do" },
            "path": { "type": "string", "minLength": 1, "maxLength": 4096, "description": "the file or directory" },
            "to": { "type": "string", "minLength": 1, "maxLength": 4096, "description": "move, copy: the new path, where nothing may be yet" },
            "recursive": { "type": "boolean", "default": false, "description": "delete: a directory with all that is in it" },
        },
        "required": ["op", "path"],
        "additionalProperties": false,
    })
}

pub(in super::super) fn output_schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "path": { "type": "string" },
            "to": { "type": "string" },
            "entries": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {
                        "name": { "type": "string" },
                        "kind": { "type": "string" },
                        "size_bytes": { "type": "integer" },
                    },
                    "required": ["name", "kind"],
                },
            },
            "is_truncated": { "type": "boolean" },
            "kind": { "type": "string", "description": "file, directory, link or other" },
            "size_bytes": { "type": "integer" },
            "mode": { "type": "string", "description": "permission bits, in octal" },
            "modified_seconds": { "type": "integer", "description": "seconds since 1970" },
            "copied": { "type": "integer", "description": "files and directories that were copied" },
            "skipped": { "type": "integer", "description": "links, special files and git repositories' own state that were left out of a copy" },
        },
        "required": ["path"],
    })
}

pub(in super::super) fn run(call: &Call) -> Result<ToolOutput, ToolError> {
    let word = call.input.text("op");
    let operation = Operation::ALL.into_iter().find(|operation| operation.as_str() == word);
    let operation = operation.ok_or_else(|| refuse("/op", "is no operation"))?;
    let place = call.directories.place("/path", call.input.text("path"))?;
    let target = target(call, operation)?;
    let mut answer = Map::new();
    answer.insert("path".to_owned(), call.directories.shown(&place).into());
    call.stop.check()?;
    if operation.changes_path() {
        place.check_may_change("/path")?;
    }
    if let Some(target) = &target {
        target.check_may_change("/to")?;
    }
    match (operation, target) {
        (Operation::Move, Some(target)) => {
            move_to(&place, &target)?;
            answer.insert("to".to_owned(), call.directories.shown(&target).into());
        }
        (Operation::Copy, Some(target)) => {
            answer.extend(Copying::new(&call.stop).run(&place, &target)?);
            answer.insert("to".to_owned(), call.directories.shown(&target).into());
        }
        (Operation::List, _) => answer.extend(list(&place)?),
        (Operation::Stat, _) => answer.extend(described(existing(&place)?)),
        (Operation::Mkdir, _) => make_directory(&place)?,
        (Operation::Delete, _) => delete(&place, call.input.flag("recursive"))?,
        (Operation::Move | Operation::Copy, None) => {
            return Err(refuse("/to", "is required to move or copy"));
        }
    }
    Ok(ToolOutput::from_value(Value::Object(answer)))
}

/// Returns the place that `to` names; only moves and copies have one.
fn target(call: &Call, operation: Operation) -> Result<Option<Place<'_>>, ToolError> {
    match (operation, call.input.optional_text("to")) {
        (Operation::Move | Operation::Copy, Some(to)) => {
            let target = call.directories.place("/to", to)?;
            if target.metadata()?.is_some() {
                return Err(refuse("/to", format!("{} exists already", target.whole())));
            }
            Ok(Some(target))
        }
        (Operation::List | Operation::Stat | Operation::Mkdir | Operation::Delete, Some(_)) => {
            Err(refuse("/to", format!("belongs to move and copy, not to {}", operation.as_str())))
        }
        (_, None) => Ok(None),
    }
}

fn existing(place: &Place<'_>) -> Result<Metadata, ToolError> {
    place.metadata()?.ok_or_else(|| place.fault("does not exist"))
}

fn kind_word(kind: FileKind) -> &'static str {
    match kind {
        FileKind::File => "file",
        FileKind::Directory => "directory",
        FileKind::Link => "link",
        FileKind::Other => "other",
    }
}

fn described(metadata: Metadata) -> Map<String, Value> {
    Map::from_iter([
        ("kind".to_owned(), kind_word(metadata.kind).into()),
        ("size_bytes".to_owned(), metadata.size_bytes.into()),
        ("mode".to_owned(), format!("{:04o}", metadata.mode).into()),
        ("modified_seconds".to_owned(), metadata.modified_seconds.into()),
    ])
}

fn list(place: &Place<'_>) -> Result<Map<String, Value>, ToolError> {
    let names =
        place.directory.scoped.read_dir(&place.relative).map_err(|error| place.failed(&error))?;
    let mut entries = Vec::new();
    for (name, kind) in names.iter().take(MAX_LISTED) {
        let mut entry = json!({ "name": name, "kind": kind_word(*kind) });
        // An entry that goes away meanwhile, or whose name is no text, has no size.
        if *kind == FileKind::File
            && let Ok(Some(metadata)) = place.child(name).metadata()
            && let Some(fields) = entry.as_object_mut()
        {
            fields.insert("size_bytes".to_owned(), metadata.size_bytes.into());
        }
        entries.push(entry);
    }
    Ok(Map::from_iter([
        ("entries".to_owned(), entries.into()),
        ("is_truncated".to_owned(), (names.len() > MAX_LISTED).into()),
    ]))
}

fn make_directory(place: &Place<'_>) -> Result<(), ToolError> {
    place.directory.scoped.create_dir_all(&place.relative).map_err(|error| place.failed(&error))
}

/// Makes the directory that a new place stands in.
fn make_parent(place: &Place<'_>) -> Result<(), ToolError> {
    let parent = place.relative.rsplit_once('/').map_or("", |(parent, _)| parent);
    place.directory.scoped.create_dir_all(parent).map_err(|error| place.failed(&error))
}

fn move_to(place: &Place<'_>, target: &Place<'_>) -> Result<(), ToolError> {
    existing(place)?;
    if !std::ptr::eq(place.directory, target.directory) {
        let reason = format!(
            "is in another directory ({}) than path ({}); copy it there instead",
            target.directory.seen_as, place.directory.seen_as
        );
        return Err(refuse("/to", reason));
    }
    refuse_inside_itself(place, target)?;
    make_parent(target)?;
    place
        .directory
        .scoped
        .rename(&place.relative, &target.relative)
        .map_err(|error| place.failed(&error))
}

fn refuse_inside_itself(place: &Place<'_>, target: &Place<'_>) -> Result<(), ToolError> {
    if crate::builtin_registry::reach::beneath(&target.whole(), &place.whole()).is_some() {
        return Err(refuse("/to", format!("is inside {}", place.whole())));
    }
    Ok(())
}

/// Deletes in the run's own directory. A workspace outlives the run, so what is deleted there is a
/// loss that this tool's tier does not cover.
fn delete(place: &Place<'_>, is_recursive: bool) -> Result<(), ToolError> {
    if !place.is_in_run() {
        let reason = format!(
            "{} is not in the run's own directory, and file_ops deletes only there; delete it with bash, or ask an operator",
            place.whole()
        );
        return Err(refuse("/path", reason));
    }
    let scoped = &place.directory.scoped;
    let metadata = existing(place)?;
    if metadata.kind != FileKind::Directory {
        return scoped.remove_file(&place.relative).map_err(|error| place.failed(&error));
    }
    if place.relative.is_empty() {
        return Err(refuse("/path", "is the run's whole directory; name what is in it"));
    }
    let entries = scoped.read_dir(&place.relative).map_err(|error| place.failed(&error))?.len();
    if entries > 0 && !is_recursive {
        return Err(refuse(
            "/path",
            format!("{} is a directory with {entries} entries; set recursive", place.whole()),
        ));
    }
    scoped.remove_dir_all(&place.relative).map_err(|error| place.failed(&error))
}

/// A copy under way: how much it has copied, and when it must stop.
struct Copying<'a> {
    stop: &'a Stop,
    copied: usize,
    skipped: usize,
    bytes: u64,
}

impl<'a> Copying<'a> {
    fn new(stop: &'a Stop) -> Self {
        Self { stop, copied: 0, skipped: 0, bytes: 0 }
    }

    fn run(
        mut self,
        place: &Place<'_>,
        target: &Place<'_>,
    ) -> Result<Map<String, Value>, ToolError> {
        let kind = existing(place)?.kind;
        if matches!(kind, FileKind::Link | FileKind::Other) {
            return Err(place.fault(format_args!("is a {}, no file or directory", kind_word(kind))));
        }
        refuse_inside_itself(place, target)?;
        make_parent(target)?;
        self.copy(place, target, kind, MAX_COPIED_DEPTH)?;
        Ok(Map::from_iter([
            ("copied".to_owned(), self.copied.into()),
            ("skipped".to_owned(), self.skipped.into()),
        ]))
    }

    fn copy(
        &mut self,
        place: &Place<'_>,
        target: &Place<'_>,
        kind: FileKind,
        depth: usize,
    ) -> Result<(), ToolError> {
        self.stop.check()?;
        if self.copied == MAX_COPIED || depth == 0 {
            return Err(place.fault(format_args!(
                "stopped here: a copy has at most {MAX_COPIED} files and directories, {MAX_COPIED_DEPTH} deep"
            )));
        }
        match kind {
            // A copied repository would bring its hooks along.
            _ if target.is_in_repository() => self.skipped += 1,
            FileKind::Directory => {
                self.copied += 1;
                make_directory(target)?;
                let names = place
                    .directory
                    .scoped
                    .read_dir(&place.relative)
                    .map_err(|error| place.failed(&error))?;
                for (name, kind) in names {
                    self.copy(&place.child(&name), &target.child(&name), kind, depth - 1)?;
                }
            }
            FileKind::File => {
                self.copied += 1;
                self.copy_file(place, target)?;
            }
            FileKind::Link | FileKind::Other => self.skipped += 1,
        }
        Ok(())
    }

    fn copy_file(&mut self, place: &Place<'_>, target: &Place<'_>) -> Result<(), ToolError> {
        self.bytes += existing(place)?.size_bytes;
        if self.bytes > MAX_COPIED_BYTES {
            return Err(place
                .fault(format_args!("stopped here: a copy has at most {MAX_COPIED_BYTES} bytes")));
        }
        let (from, to) = (&place.directory.scoped, &target.directory.scoped);
        from.copy(&place.relative, to, &target.relative, MAX_COPIED_FILE_BYTES)
            .map_err(|error| place.failed(&error))
    }
}
