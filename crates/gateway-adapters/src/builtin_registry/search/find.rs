//! find: files and directories by name, kind and size.

use gateway_model::{ToolError, ToolOutput};
use gateway_sandbox::FileKind;
use serde_json::{Value, json};

use super::PathGlob;
use super::walk::{Entry, Next, Walk};
use crate::builtin_registry::files::Call;

/// Results where the input names no limit.
const DEFAULT_RESULTS: u64 = 200;
/// Results of one call.
const MAX_RESULTS: u64 = 5_000;

pub(in super::super) fn input_schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "path": { "type": "string", "minLength": 1, "maxLength": 4096, "default": ".", "description": "the directory to search" },
            "glob": { "type": "string", "minLength": 1, "maxLength": 1000, "description": "such as *.rs (over names) or src/**/*.rs (over paths beneath the directory)" },
            "kind": { "type": "string", "enum": ["file", "directory", "link", "any"], "default": "file" },
            "min_bytes": { "type": "integer", "minimum": 0, "description": "files of at least this size" },
            "max_bytes": { "type": "integer", "minimum": 0, "description": "files of at most this size" },
            "include_ignored": { "type": "boolean", "default": false, "description": "also what .gitignore and .ignore exclude" },
            "limit": { "type": "integer", "minimum": 1, "maximum": MAX_RESULTS, "default": DEFAULT_RESULTS },
        },
        "additionalProperties": false,
    })
}

pub(in super::super) fn output_schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "paths": { "type": "array", "items": { "type": "string" }, "description": "sorted; a directory ends with a slash" },
            "is_truncated": { "type": "boolean", "description": "true where more was found than limit" },
            "unreadable": { "type": "integer", "description": "directories that could not be searched" },
        },
        "required": ["paths", "is_truncated", "unreadable"],
    })
}

pub(in super::super) fn run(call: &Call) -> Result<ToolOutput, ToolError> {
    let input = &call.input;
    let start = call.directories.place("/path", input.optional_text("path").unwrap_or("."))?;
    let wanted = Wanted {
        glob: input
            .optional_text("glob")
            .map(|glob| PathGlob::compile("/glob", glob))
            .transpose()?,
        kind: kind(input.optional_text("kind").unwrap_or("file")),
        min_bytes: input.optional_number("min_bytes"),
        max_bytes: input.optional_number("max_bytes"),
    };
    let limit = input.number("limit", DEFAULT_RESULTS);
    let mut paths: Vec<String> = Vec::new();
    let mut is_truncated = false;
    let walk =
        Walk { start: &start, includes_ignored: input.flag("include_ignored"), stop: &call.stop };
    let unreadable = walk.run(&mut |entry| {
        if !wanted.includes(entry) {
            return Ok(Next::Continue);
        }
        if paths.len() as u64 == limit {
            is_truncated = true;
            return Ok(Next::Enough);
        }
        let slash = if entry.kind == FileKind::Directory { "/" } else { "" };
        paths.push(format!("{}{slash}", call.directories.shown(entry.place)));
        Ok(Next::Continue)
    })?;
    Ok(ToolOutput::from_value(
        json!({ "paths": paths, "is_truncated": is_truncated, "unreadable": unreadable }),
    ))
}

/// Returns the kind of a word; `None` for any kind.
fn kind(word: &str) -> Option<FileKind> {
    match word {
        "file" => Some(FileKind::File),
        "directory" => Some(FileKind::Directory),
        "link" => Some(FileKind::Link),
        _ => None,
    }
}

/// What is looked for.
struct Wanted {
    glob: Option<PathGlob>,
    kind: Option<FileKind>,
    min_bytes: Option<u64>,
    max_bytes: Option<u64>,
}

impl Wanted {
    fn includes(&self, entry: &Entry<'_>) -> bool {
        self.kind.is_none_or(|kind| kind == entry.kind)
            && self.glob.as_ref().is_none_or(|glob| glob.is_match(entry))
            && self.has_size(entry)
    }

    /// Asks for the size only where one is wanted.
    fn has_size(&self, entry: &Entry<'_>) -> bool {
        if self.min_bytes.is_none() && self.max_bytes.is_none() {
            return true;
        }
        let Ok(Some(metadata)) = entry.place.metadata() else { return false };
        entry.kind == FileKind::File
            && self.min_bytes.is_none_or(|min| metadata.size_bytes >= min)
            && self.max_bytes.is_none_or(|max| metadata.size_bytes <= max)
    }
}
