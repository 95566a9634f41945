//! grep: lines that match a pattern, in the files of a directory or in one file.

use std::fs::File;
use std::io::{self, Read};

use gateway_model::{ToolError, ToolOutput, bounded_text};
use gateway_sandbox::FileKind;
use grep_matcher::LineTerminator;
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use grep_searcher::{BinaryDetection, Searcher, SearcherBuilder, Sink, SinkContext, SinkMatch};
use serde_json::{Value, json};

use super::PathGlob;
use super::walk::{Next, Walk};
use crate::builtin_registry::files::Call;
use crate::builtin_registry::input::refuse;
use crate::builtin_registry::reach::{Place, Stop};
use crate::text::lossy;

/// Matching lines where the input names no limit.
const DEFAULT_MATCHES: u64 = 200;
/// Matching lines of one call.
const MAX_MATCHES: u64 = 2_000;
/// Lines shown around a match.
const MAX_CONTEXT: u64 = 20;
/// Bytes shown of one line.
const MAX_LINE_BYTES: usize = 500;
/// Bytes of text in one result.
const MAX_RESULT_BYTES: usize = 256 * 1024;
/// Memory for one line of a file; files with longer ones are skipped.
///
/// INVARIANT: a line is matched in one go, in which nothing can stop it. A pattern at its bound
/// over a line at its bound takes seconds, since that time grows with their product.
const MAX_SEARCHED_LINE_BYTES: usize = 512 << 10;
/// Memory of a compiled pattern, which grows with its states.
const PATTERN_BYTES: usize = 256 << 10;
/// Memory of what is remembered while matching.
const MATCHING_BYTES: usize = 4 << 20;

pub(in super::super) fn input_schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "pattern": { "type": "string", "minLength": 1, "maxLength": 4096, "description": "a regular expression (Rust syntax: no look-around, no back-references) for one line" },
            "is_literal": { "type": "boolean", "default": false, "description": "take the pattern as plain text" },
            "ignore_case": { "type": "boolean", "default": false },
            "path": { "type": "string", "minLength": 1, "maxLength": 4096, "default": ".", "description": "the directory or file to search" },
            "glob": { "type": "string", "minLength": 1, "maxLength": 1000, "description": "only these files, such as *.rs (over names) or src/**/*.rs (over paths beneath the directory)" },
            "context": { "type": "integer", "minimum": 0, "maximum": MAX_CONTEXT, "default": 0, "description": "lines to show around each match" },
            "include_ignored": { "type": "boolean", "default": false, "description": "also what .gitignore and .ignore exclude" },
            "limit": { "type": "integer", "minimum": 1, "maximum": MAX_MATCHES, "default": DEFAULT_MATCHES, "description": "how many matching lines to show" },
        },
        "required": ["pattern"],
        "additionalProperties": false,
    })
}

pub(in super::super) fn output_schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "files": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {
                        "path": { "type": "string" },
                        "lines": { "type": "array", "items": { "type": "string" }, "description": "NUMBER:TEXT for a match, NUMBER-TEXT for a line around one" },
                    },
                    "required": ["path", "lines"],
                },
            },
            "matches": { "type": "integer", "description": "matching lines that are shown" },
            "searched": { "type": "integer", "description": "files that were searched" },
            "skipped": { "type": "integer", "description": "files and directories that could not be searched; binary files end a search quietly" },
            "is_truncated": { "type": "boolean", "description": "true where there are more matches than are shown" },
        },
        "required": ["files", "matches", "searched", "skipped", "is_truncated"],
    })
}

pub(in super::super) fn run(call: &Call) -> Result<ToolOutput, ToolError> {
    let input = &call.input;
    let matcher =
        matcher(input.text("pattern"), input.flag("is_literal"), input.flag("ignore_case"))?;
    let glob =
        input.optional_text("glob").map(|glob| PathGlob::compile("/glob", glob)).transpose()?;
    let start = call.directories.place("/path", input.optional_text("path").unwrap_or("."))?;
    let mut search = Search::new(
        matcher,
        input.number("context", 0),
        input.number("limit", DEFAULT_MATCHES),
        &call.stop,
    );
    let kind = start.metadata()?.ok_or_else(|| start.fault("does not exist"))?.kind;
    if kind == FileKind::Directory {
        let walk = Walk {
            start: &start,
            includes_ignored: input.flag("include_ignored"),
            stop: &call.stop,
        };
        let unreadable = walk.run(&mut |entry| {
            if entry.kind != FileKind::File
                || glob.as_ref().is_some_and(|glob| !glob.is_match(entry))
            {
                return Ok(Next::Continue);
            }
            search.file(entry.place, call.directories.shown(entry.place))?;
            Ok(if search.is_truncated { Next::Enough } else { Next::Continue })
        })?;
        search.skipped += unreadable;
    } else {
        search.file(&start, call.directories.shown(&start))?;
        if search.skipped > 0 {
            return Err(start.fault(
                "cannot be searched; expected a regular file with lines of at most 512 KiB",
            ));
        }
    }
    Ok(search.into_output())
}

fn matcher(pattern: &str, is_literal: bool, ignores_case: bool) -> Result<RegexMatcher, ToolError> {
    RegexMatcherBuilder::new()
        .case_insensitive(ignores_case)
        .fixed_strings(is_literal)
        .crlf(true)
        .size_limit(PATTERN_BYTES)
        .dfa_size_limit(MATCHING_BYTES)
        .build(pattern)
        .map_err(|error| refuse("/pattern", unusable(&error)))
}

fn unusable(error: &grep_regex::Error) -> String {
    let text = error.to_string();
    // The library's error has no kind of its own for this.
    if text.contains("size limit") {
        return format!(
            "is too large: compiled it takes more than {} KiB; repeat less, or write (?-u:\\w) for ASCII letters alone",
            PATTERN_BYTES >> 10
        );
    }
    format!("is no regular expression for one line: {text}")
}

/// A search under way over several files.
struct Search<'a> {
    matcher: RegexMatcher,
    searcher: Searcher,
    stop: &'a Stop,
    limit: u64,
    found: Vec<Value>,
    matches: u64,
    bytes: usize,
    searched: usize,
    skipped: usize,
    is_truncated: bool,
}

impl<'a> Search<'a> {
    fn new(matcher: RegexMatcher, context: u64, limit: u64, stop: &'a Stop) -> Self {
        let context = usize::try_from(context).unwrap_or_default();
        // Lines end with LF or CRLF alike, so that `$` means the same in both.
        let searcher = SearcherBuilder::new()
            .line_terminator(LineTerminator::crlf())
            .line_number(true)
            .before_context(context)
            .after_context(context)
            .binary_detection(BinaryDetection::quit(0))
            .heap_limit(Some(MAX_SEARCHED_LINE_BYTES))
            .build();
        Self {
            matcher,
            searcher,
            stop,
            limit,
            found: Vec::new(),
            matches: 0,
            bytes: 0,
            searched: 0,
            skipped: 0,
            is_truncated: false,
        }
    }

    /// Searches one file. A file that cannot be read is counted, and the search goes on.
    fn file(&mut self, place: &Place<'_>, shown: String) -> Result<(), ToolError> {
        let Ok(file) = place.directory.scoped.open_read(&place.relative) else {
            self.skipped += 1;
            return Ok(());
        };
        let mut lines =
            Lines { kept: Vec::new(), matches: 0, bytes: 0, room: self.room(), is_full: false };
        let reader = StoppableFile { file, stop: self.stop };
        let searched = self.searcher.search_reader(&self.matcher, reader, &mut lines);
        self.stop.check()?;
        match searched {
            Ok(()) => self.searched += 1,
            Err(_unreadable) => self.skipped += 1,
        }
        self.is_truncated |= lines.is_full;
        self.matches += lines.matches;
        self.bytes += lines.bytes;
        if lines.matches > 0 {
            self.found.push(json!({ "path": shown, "lines": lines.kept }));
        }
        Ok(())
    }

    fn room(&self) -> Room {
        Room {
            matches: self.limit - self.matches,
            bytes: MAX_RESULT_BYTES.saturating_sub(self.bytes),
        }
    }

    fn into_output(self) -> ToolOutput {
        ToolOutput::from_value(json!({
            "files": self.found,
            "matches": self.matches,
            "searched": self.searched,
            "skipped": self.skipped,
            "is_truncated": self.is_truncated,
        }))
    }
}

/// What still fits into the result.
#[derive(Debug, Clone, Copy)]
struct Room {
    matches: u64,
    bytes: usize,
}

/// The lines that are kept of one file.
#[derive(Debug)]
struct Lines {
    kept: Vec<String>,
    matches: u64,
    bytes: usize,
    room: Room,
    is_full: bool,
}

impl Lines {
    /// Keeps a line; false where it does not fit any more.
    fn keep(&mut self, number: Option<u64>, mark: char, bytes: &[u8]) -> bool {
        let line = bytes.strip_suffix(b"\n").unwrap_or(bytes);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let text = lossy(line, false);
        let shown =
            format!("{}{mark}{}", number.unwrap_or_default(), bounded_text(&text, MAX_LINE_BYTES));
        if self.bytes + shown.len() > self.room.bytes {
            self.is_full = true;
            return false;
        }
        self.bytes += shown.len();
        self.kept.push(shown);
        true
    }
}

impl Sink for &mut Lines {
    type Error = io::Error;

    fn matched(&mut self, _searcher: &Searcher, found: &SinkMatch<'_>) -> Result<bool, io::Error> {
        if self.matches == self.room.matches {
            self.is_full = true;
            return Ok(false);
        }
        if !self.keep(found.line_number(), ':', found.bytes()) {
            return Ok(false);
        }
        self.matches += 1;
        Ok(true)
    }

    fn context(
        &mut self,
        _searcher: &Searcher,
        around: &SinkContext<'_>,
    ) -> Result<bool, io::Error> {
        if self.matches == self.room.matches
            && around.kind() == &grep_searcher::SinkContextKind::Before
        {
            self.is_full = true;
            return Ok(false);
        }
        Ok(self.keep(around.line_number(), '-', around.bytes()))
    }
}

/// A file whose reads fail once the call must stop.
struct StoppableFile<'a> {
    file: File,
    stop: &'a Stop,
}

impl Read for StoppableFile<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.stop.check().map_err(io::Error::other)?;
        self.file.read(buffer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_bounded_and_usual_ones_are_not_refused() {
        for pattern in [
            r"\w+\s*=\s*\w+",
            r"(\w+)\s+(\w+)\s+(\w+)\s+(\w+)",
            r"\b[\w.+-]+@[\w-]+\.[\w.-]+\b",
            r"^\s*(pub(\(crate\))?\s+)?(async\s+)?fn\s+\w+\s*<",
            r"(?-u:\w){1,30}",
            r"[0-9a-f]{64}",
            r".{1,200}x",
        ] {
            assert!(matcher(pattern, false, true).is_ok(), "{pattern}");
        }
        let literal = "a (literal) of the largest size ".repeat(128);
        assert!(matcher(&literal, true, false).is_ok());
        for pattern in [r"[ab]*a[ab]{9000}[0-9]", r"(a?){4000}a{4000}", r"\w{1,100}"] {
            let error = matcher(pattern, false, false).unwrap_err();
            assert!(error.message.contains("is too large"), "{pattern}: {error}");
        }
    }
}
