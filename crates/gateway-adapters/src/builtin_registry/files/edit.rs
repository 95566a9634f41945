//! file_edit: exact replacements in one file, all of them or none.

use gateway_model::{Digest, ToolError, ToolOutput};
use regex::bytes::{Regex, RegexBuilder};
use serde_json::{Value, json};

use super::Call;
use crate::builtin_registry::input::{Input, refuse};

/// The largest file that is edited.
const MAX_FILE_BYTES: u64 = 16 << 20;
/// Replacements in one call.
const MAX_EDITS: usize = 100;
/// Characters of a text to be replaced.
const MAX_OLD_TEXT: usize = 65_536;
/// Memory of the matcher of one text.
const MATCHER_BYTES: usize = 64 << 20;
/// Places listed where a text occurs too often.
const MAX_PLACES: usize = 10;

pub(in super::super) fn input_schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "path": { "type": "string", "minLength": 1, "maxLength": 4096, "description": "the file" },
            "edits": {
                "type": "array",
                "minItems": 1,
                "maxItems": MAX_EDITS,
                "description": "applied in order, each to the result of the one before; all of them or none",
                "items": {
                    "type": "object",
                    "properties": {
                        "old_text": { "type": "string", "minLength": 1, "maxLength": MAX_OLD_TEXT, "description": "the exact text to replace, with its white space, without line numbers" },
                        "new_text": { "type": "string", "description": "what stands there afterwards" },
                        "replace_all": { "type": "boolean", "default": false, "description": "replace every occurrence; otherwise old_text must occur exactly once" },
                    },
                    "required": ["old_text", "new_text"],
                    "additionalProperties": false,
                },
            },
        },
        "required": ["path", "edits"],
        "additionalProperties": false,
    })
}

pub(in super::super) fn output_schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "path": { "type": "string" },
            "replacements": { "type": "array", "items": { "type": "integer" }, "description": "how often each edit was applied" },
            "bytes": { "type": "integer" },
            "digest": { "type": "string", "description": "SHA-256 of the new content" },
        },
        "required": ["path", "replacements", "bytes", "digest"],
    })
}

pub(in super::super) fn run(call: &Call) -> Result<ToolOutput, ToolError> {
    let place = call.directories.place("/path", call.input.text("path"))?;
    if !place.check_replaceable()? {
        return Err(place.fault("does not exist; create it with file_write"));
    }
    let scoped = &place.directory.scoped;
    let mut content =
        scoped.read(&place.relative, MAX_FILE_BYTES).map_err(|error| place.failed(&error))?;
    let mut replacements = Vec::new();
    for (position, edit) in call.input.list("edits").iter().enumerate() {
        call.stop.check()?;
        let edit = Edit::read(edit);
        let count = edit.apply(&mut content).map_err(|reason| {
            let reason = format!("{reason}, in {}; nothing was changed", place.whole());
            refuse(format!("/edits/{position}/old_text"), reason)
        })?;
        replacements.push(count);
    }
    scoped.write(&place.relative, &content).map_err(|error| place.failed(&error))?;
    Ok(ToolOutput::from_value(json!({
        "path": call.directories.shown(&place),
        "replacements": replacements,
        "bytes": content.len(),
        "digest": Digest::of(&content).to_string(),
    })))
}

#[derive(Debug)]
struct Edit {
    old_text: String,
    new_text: String,
    replaces_all: bool,
}

impl Edit {
    fn read(edit: &Value) -> Self {
        let fields = Input(edit.as_object().cloned().unwrap_or_default());
        Self {
            old_text: fields.text("old_text").to_owned(),
            new_text: fields.text("new_text").to_owned(),
            replaces_all: fields.flag("replace_all"),
        }
    }

    /// Replaces the text and returns how often it stood there.
    ///
    /// Works on bytes, so that whatever is not UTF-8 around the text stays as it is. A file with
    /// CRLF line ends keeps them although the texts of an edit have plain ones.
    ///
    /// # Errors
    /// Returns why the text cannot be replaced; the content is unchanged then.
    fn apply(&self, content: &mut Vec<u8>) -> Result<usize, String> {
        let mut found = find_all(content, &self.old_text)?;
        let mut with_crlf = None;
        if found.is_empty() && self.old_text.contains('\n') && !self.old_text.contains('\r') {
            let converted = self.old_text.replace('\n', "\r\n");
            found = find_all(content, &converted)?;
            with_crlf = Some(converted);
        }
        if found.is_empty() {
            return Err(self.not_found(content));
        }
        if found.len() > 1 && !self.replaces_all {
            return Err(too_often(content, &found));
        }
        let old_length = with_crlf.as_ref().unwrap_or(&self.old_text).len();
        let is_crlf =
            with_crlf.is_some() || (self.new_text.contains('\n') && has_crlf_lines(content));
        let new_text = if is_crlf && !self.new_text.contains('\r') {
            self.new_text.replace('\n', "\r\n")
        } else {
            self.new_text.clone()
        };
        *content = replaced(content, &found, old_length, new_text.as_bytes());
        Ok(found.len())
    }

    /// Says that the text does not occur, and which line comes closest.
    fn not_found(&self, content: &[u8]) -> String {
        let first = self.old_text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
        let wanted = squeezed(first);
        let near = content.split(|byte| *byte == b'\n').position(|line| {
            !wanted.is_empty() && squeezed(&String::from_utf8_lossy(line)).contains(&wanted)
        });
        match near {
            Some(index) => format!(
                "does not occur; line {} is like its first line, so look at white space and the lines after it",
                index + 1
            ),
            None => {
                "does not occur; read the file again and copy the exact text, without line numbers"
                    .to_owned()
            }
        }
    }
}

/// Returns where a text stands, without overlaps.
fn find_all(content: &[u8], text: &str) -> Result<Vec<usize>, String> {
    let matcher: Regex = RegexBuilder::new(&regex::escape(text))
        .size_limit(MATCHER_BYTES)
        .build()
        .map_err(|_too_large| "is too long; replace a shorter text".to_owned())?;
    Ok(matcher.find_iter(content).map(|found| found.start()).collect())
}

fn replaced(content: &[u8], starts: &[usize], old_length: usize, new_text: &[u8]) -> Vec<u8> {
    let mut result = Vec::with_capacity(content.len());
    let mut position = 0;
    for start in starts {
        result.extend_from_slice(content.get(position..*start).unwrap_or_default());
        result.extend_from_slice(new_text);
        position = start + old_length;
    }
    result.extend_from_slice(content.get(position..).unwrap_or_default());
    result
}

fn too_often(content: &[u8], starts: &[usize]) -> String {
    let lines = starts.iter().take(MAX_PLACES).map(|start| {
        let before = content.get(..*start).unwrap_or_default();
        (before.iter().filter(|byte| **byte == b'\n').count() + 1).to_string()
    });
    let lines = lines.collect::<Vec<_>>().join(", ");
    let more = if starts.len() > MAX_PLACES { ", …" } else { "" };
    format!(
        "occurs {} times (lines {lines}{more}), expected exactly once: add lines around it, or set replace_all",
        starts.len()
    )
}

/// Says whether every line of a text ends with CRLF.
fn has_crlf_lines(content: &[u8]) -> bool {
    let mut has_lines = false;
    let mut before = 0;
    for byte in content {
        if *byte == b'\n' {
            has_lines = true;
            if before != b'\r' {
                return false;
            }
        }
        before = *byte;
    }
    has_lines
}

fn squeezed(line: &str) -> String {
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn edit(old_text: &str, new_text: &str, replaces_all: bool) -> Edit {
        Edit { old_text: old_text.to_owned(), new_text: new_text.to_owned(), replaces_all }
    }

    #[track_caller]
    fn check(content: &[u8], edit: &Edit, expected: Result<(&[u8], usize), &str>) {
        let mut edited = content.to_vec();
        match (edit.apply(&mut edited), expected) {
            (Ok(count), Ok((expected, times))) => {
                assert_eq!(String::from_utf8_lossy(&edited), String::from_utf8_lossy(expected));
                assert_eq!((edited.as_slice(), count), (expected, times));
            }
            (Err(reason), Err(expected)) => {
                assert!(reason.contains(expected), "{reason}");
                assert_eq!(edited, content, "a refused edit changed the content");
            }
            (got, _) => panic!("{got:?}"),
        }
    }

    #[test]
    fn a_text_is_replaced_where_it_stands_exactly_once() {
        check(b"a = 1\nb = 2\n", &edit("b = 2", "b = 3", false), Ok((b"a = 1\nb = 3\n", 1)));
        check(b"x\nx\nx", &edit("x", "y", false), Err("occurs 3 times (lines 1, 2, 3)"));
        check(b"x\nx\nx", &edit("x", "yy", true), Ok((b"yy\nyy\nyy", 3)));
        check(b"aaa", &edit("aa", "b", true), Ok((b"ba", 1)));
        check(b"no end", &edit("end", "", false), Ok((b"no ", 1)));
        check(b"$1 \\d", &edit("$1 \\d", "$0", false), Ok((b"$0", 1)));
        check(b"", &edit("x", "y", false), Err("does not occur"));
    }

    #[test]
    fn a_text_that_does_not_occur_is_answered_with_the_nearest_line() {
        check(
            b"fn a() {\n\treturn 1;\n}\n",
            &edit("  return 1;", "", false),
            Err("line 2 is like its first line"),
        );
        check(b"abc\n", &edit("xyz", "", false), Err("read the file again"));
        check(b"abc\n", &edit("\n\n\n", "", false), Err("does not occur"));
    }

    #[test]
    fn crlf_lines_and_foreign_bytes_are_kept() {
        check(b"a\r\nb\r\nc\r\n", &edit("a\nb", "x\ny", false), Ok((b"x\r\ny\r\nc\r\n", 1)));
        check(b"a\r\nb\r\n", &edit("b", "b1\nb2", false), Ok((b"a\r\nb1\r\nb2\r\n", 1)));
        check(b"a\r\nb\n", &edit("b", "b1\nb2", false), Ok((b"a\r\nb1\nb2\n", 1)));
        check(b"a\r\nb", &edit("a\r\nb", "c\r\nd", false), Ok((b"c\r\nd", 1)));
        check(
            b"caf\xe9 = \xff\nx\n",
            &edit("x", "\u{e9}", false),
            Ok((b"caf\xe9 = \xff\n\xc3\xa9\n", 1)),
        );
    }

    proptest! {
        #[test]
        fn replacing_all_is_what_str_replace_does(text in "[ab\u{e9}]{0,20}", old in "[ab\u{e9}]{1,3}", new in "[ab\u{e9}]{0,3}") {
            let mut content = text.clone().into_bytes();
            let result = edit(&old, &new, true).apply(&mut content);
            prop_assert_eq!(result.is_ok(), text.contains(&old));
            prop_assert_eq!(String::from_utf8(content).unwrap(), text.replace(&old, &new));
        }
    }
}
