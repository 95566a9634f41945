//! file_edit: exact replacements in one file, all of them or none.

use std::borrow::Cow;

use gateway_model::{Digest, ToolError, ToolOutput};
use memchr::memmem;
use serde_json::{Value, json};

use super::Call;
use crate::builtin_registry::input::{Input, refuse};

/// The largest file that is edited, and the largest that an edit makes.
const MAX_FILE_BYTES: u64 = 16 << 20;
/// Replacements in one call.
const MAX_EDITS: usize = 100;
/// Characters of a text to be replaced.
const MAX_OLD_TEXT: usize = 65_536;
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
    place.check_may_change("/path")?;
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
        let count = edit.apply(&mut content).map_err(|Unfit { field, reason }| {
            let reason = format!("{reason}, in {}; nothing was changed", place.whole());
            refuse(format!("/edits/{position}/{field}"), reason)
        })?;
        replacements.push(count);
    }
    call.write(&place, &content)?;
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
    fn apply(&self, content: &mut Vec<u8>) -> Result<usize, Unfit> {
        let mut old_text = Cow::Borrowed(&*self.old_text);
        let mut count = find_all(content, &old_text).count();
        let may_be_crlf = old_text.contains('\n') && !old_text.contains('\r');
        let mut is_crlf = false;
        if count == 0 && may_be_crlf {
            old_text = Cow::Owned(self.old_text.replace('\n', "\r\n"));
            count = find_all(content, &old_text).count();
            is_crlf = true;
        }
        if count == 0 {
            return Err(Unfit::of_old_text(self.not_found(content)));
        }
        if count > 1 && !self.replaces_all {
            return Err(Unfit::of_old_text(too_often(content, &old_text, count)));
        }
        is_crlf |= self.new_text.contains('\n') && has_crlf_lines(content);
        let new_text = if is_crlf && !self.new_text.contains('\r') {
            Cow::Owned(self.new_text.replace('\n', "\r\n"))
        } else {
            Cow::Borrowed(&*self.new_text)
        };
        let length = length_after(content.len(), count, old_text.len(), new_text.len())?;
        *content = replaced(content, &old_text, &new_text, length);
        Ok(count)
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

/// Why an edit is refused, and which of its fields is at fault.
#[derive(Debug)]
struct Unfit {
    field: &'static str,
    reason: String,
}

impl Unfit {
    fn of_old_text(reason: String) -> Self {
        Self { field: "old_text", reason }
    }
}

/// Returns where a text stands, without overlaps, in a time that grows with the content alone.
fn find_all<'c>(content: &'c [u8], text: &'c str) -> impl Iterator<Item = usize> + 'c {
    memmem::find_iter(content, text)
}

/// Returns how long the content becomes, before a byte of it is made.
///
/// INVARIANT: no content of an edit, and none between two edits, is larger than a file may be.
fn length_after(
    length: usize,
    count: usize,
    old_length: usize,
    new_length: usize,
) -> Result<usize, Unfit> {
    let max_length = usize::try_from(MAX_FILE_BYTES).unwrap_or(usize::MAX);
    let added = count.checked_mul(new_length);
    let kept = length.saturating_sub(count.saturating_mul(old_length));
    match added.and_then(|added| kept.checked_add(added)) {
        // A file may be as large as it was.
        Some(after) if after <= max_length.max(length) => Ok(after),
        _ => Err(Unfit {
            field: "new_text",
            reason: format!(
                "would stand there {count} times and make the file larger than {MAX_FILE_BYTES} bytes; replace less"
            ),
        }),
    }
}

fn replaced(content: &[u8], old_text: &str, new_text: &str, length: usize) -> Vec<u8> {
    let mut result = Vec::with_capacity(length);
    let mut position = 0;
    for start in find_all(content, old_text) {
        result.extend_from_slice(content.get(position..start).unwrap_or_default());
        result.extend_from_slice(new_text.as_bytes());
        position = start + old_text.len();
    }
    result.extend_from_slice(content.get(position..).unwrap_or_default());
    result
}

fn too_often(content: &[u8], text: &str, count: usize) -> String {
    let lines = find_all(content, text).take(MAX_PLACES).map(|start| {
        let before = content.get(..start).unwrap_or_default();
        (before.iter().filter(|byte| **byte == b'\n').count() + 1).to_string()
    });
    let lines = lines.collect::<Vec<_>>().join(", ");
    let more = if count > MAX_PLACES { ", …" } else { "" };
    format!(
        "occurs {count} times (lines {lines}{more}), expected exactly once: add lines around it, or set replace_all"
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
                assert!(reason.reason.contains(expected), "{reason:?}");
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
    fn no_edit_makes_a_file_larger_than_files_may_be() {
        let content = vec![b'a'; 8_000];
        let too_large = Err("larger than 16777216 bytes");
        check(&content, &edit("a", &"b".repeat(1 << 20), true), too_large);
        let lines = [b"a\r\n".repeat(4), vec![b'a'; 4_096]].concat();
        check(&lines, &edit("a", &"\n".repeat(2_048), true), too_large);
        let largest = vec![b'a'; 4_096];
        check(&largest, &edit("a", &"b".repeat(4_096), true), Ok((&vec![b'b'; 16 << 20], 4_096)));
    }

    #[test]
    fn a_long_text_that_nearly_repeats_is_found_in_one_pass() {
        let old = format!("{}b", "a".repeat(MAX_OLD_TEXT - 1));
        let mut content = vec![b'a'; 8 << 20];
        content.push(b'b');
        let expected = [vec![b'a'; (8 << 20) + 1 - MAX_OLD_TEXT], b"!".to_vec()].concat();
        check(&content, &edit(&old, "!", false), Ok((&expected, 1)));
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
