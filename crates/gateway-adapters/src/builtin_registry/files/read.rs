//! file_read: a window of numbered lines, or a small image.

use std::io::{BufRead, BufReader, Read, Seek as _};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use gateway_model::{Content, ToolError, ToolOutput};
use serde_json::{Value, json};

use super::Call;
use crate::builtin_registry::input::refuse;
use crate::builtin_registry::reach::{Place, Stop};

/// Lines of a window where the input names no limit.
const DEFAULT_LINES: u64 = 2_000;
/// The largest window, in lines.
const MAX_LINES: u64 = 10_000;
/// The largest window, in bytes of text.
const MAX_WINDOW_BYTES: usize = 128 * 1024;
/// Bytes shown of one line.
const MAX_LINE_BYTES: usize = 4_000;
/// How much of a file is passed over to find the first line of a window.
const MAX_SCAN_BYTES: u64 = 512 << 20;
/// How much of a file is looked at to tell text from anything else.
const HEAD_BYTES: u64 = 8 * 1024;
/// The largest image that is shown.
const MAX_IMAGE_BYTES: u64 = 4 << 20;

pub(in super::super) fn input_schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "path": { "type": "string", "minLength": 1, "maxLength": 4096, "description": "the file" },
            "offset": { "type": "integer", "minimum": 1, "default": 1, "description": "the first line to show, from 1" },
            "limit": { "type": "integer", "minimum": 1, "maximum": MAX_LINES, "default": DEFAULT_LINES, "description": "how many lines to show" },
        },
        "required": ["path"],
        "additionalProperties": false,
    })
}

pub(in super::super) fn output_schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "path": { "type": "string" },
            "content": { "type": "string", "description": "one line of the file each: its number, a tab, its text" },
            "size_bytes": { "type": "integer" },
            "next_offset": { "type": ["integer", "null"], "description": "where to go on; null at the end of the file" },
            "is_lossy": { "type": "boolean", "description": "true where bytes that are not UTF-8 are shown as \u{fffd}" },
        },
        "required": ["path", "content", "size_bytes", "next_offset", "is_lossy"],
    })
}

pub(in super::super) fn run(call: &Call) -> Result<ToolOutput, ToolError> {
    let place = call.directories.place("/path", call.input.text("path"))?;
    let mut file =
        place.directory.scoped.open_read(&place.relative).map_err(|error| place.failed(&error))?;
    let broken = |error: std::io::Error| place.fault(error);
    let size_bytes = file.metadata().map_err(broken)?.len();
    let mut head = Vec::new();
    file.by_ref().take(HEAD_BYTES).read_to_end(&mut head).map_err(broken)?;
    file.rewind().map_err(broken)?;
    let shown = call.directories.shown(&place);
    if let Some(media_type) = image_type(&head) {
        return image(&place, &shown, file, media_type);
    }
    if head.contains(&0) {
        return Err(place.fault(format_args!(
            "is binary ({size_bytes} bytes); read it with bash, for example with xxd or strings"
        )));
    }
    let wanted = Wanted {
        offset: call.input.number("offset", 1),
        limit: call.input.number("limit", DEFAULT_LINES),
    };
    let window = read_window(&mut BufReader::new(file), wanted, &call.stop)
        .map_err(|fault| fault.at(&place))?;
    Ok(ToolOutput::from_value(json!({
        "path": shown,
        "content": window.content,
        "size_bytes": size_bytes,
        "next_offset": window.next_offset,
        "is_lossy": window.is_lossy,
    })))
}

/// Returns the media type of the images that models read.
fn image_type(head: &[u8]) -> Option<&'static str> {
    match head {
        [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => Some("image/png"),
        [0xff, 0xd8, 0xff, ..] => Some("image/jpeg"),
        [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Some("image/gif"),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some("image/webp"),
        _ => None,
    }
}

fn image(
    place: &Place<'_>,
    shown: &str,
    file: impl Read,
    media_type: &str,
) -> Result<ToolOutput, ToolError> {
    let mut bytes = Vec::new();
    file.take(MAX_IMAGE_BYTES + 1).read_to_end(&mut bytes).map_err(|error| place.fault(error))?;
    if bytes.len() as u64 > MAX_IMAGE_BYTES {
        return Err(place.fault(format_args!(
            "is an image of more than {MAX_IMAGE_BYTES} bytes; make it smaller first"
        )));
    }
    let text = format!("{shown}: {media_type}, {} bytes", bytes.len());
    let image =
        Content::Image { base64: STANDARD.encode(&bytes), mime_type: media_type.to_owned() };
    Ok(ToolOutput { content: vec![Content::Text { text }, image], ..ToolOutput::default() })
}

#[derive(Debug, Clone, Copy)]
struct Wanted {
    offset: u64,
    limit: u64,
}

#[derive(Debug, PartialEq, Eq)]
struct Window {
    content: String,
    next_offset: Option<u64>,
    is_lossy: bool,
}

/// Why a window could not be read.
#[derive(Debug)]
enum WindowFault {
    /// The file has fewer lines.
    Beyond { offset: u64, lines: u64 },
    /// Too much of the file would have to be read.
    TooFar,
    /// The call must stop.
    Stopped(ToolError),
    /// The file could not be read.
    Read(std::io::Error),
}

impl WindowFault {
    fn at(self, place: &Place<'_>) -> ToolError {
        match self {
            Self::Beyond { offset, lines } => {
                refuse("/offset", format!("is {offset}, but {} has {lines} lines", place.whole()))
            }
            Self::TooFar => place.fault(format_args!(
                "more than {MAX_SCAN_BYTES} bytes stand before the end of these lines; read them with bash, for example with tail -c"
            )),
            Self::Stopped(error) => error,
            Self::Read(error) => place.fault(error),
        }
    }
}

/// Reads the lines of a window, without holding more of the file than the window.
fn read_window(
    reader: &mut impl BufRead,
    wanted: Wanted,
    stop: &Stop,
) -> Result<Window, WindowFault> {
    let mut window = Window { content: String::new(), next_offset: None, is_lossy: false };
    let mut passed_bytes = 0;
    let mut number = 0;
    loop {
        let is_wanted = number + 1 >= wanted.offset;
        let Some(line) = read_line(reader, if is_wanted { MAX_LINE_BYTES } else { 0 }, stop)?
        else {
            break;
        };
        number += 1;
        if !is_wanted {
            passed_bytes += line.total_bytes;
            if passed_bytes > MAX_SCAN_BYTES {
                return Err(WindowFault::TooFar);
            }
            continue;
        }
        let is_full = number - wanted.offset >= wanted.limit;
        let text = line.text(&mut window.is_lossy);
        let numbered = format!("{number}\t{text}\n");
        if is_full || window.content.len() + numbered.len() > MAX_WINDOW_BYTES {
            window.next_offset = Some(number);
            return Ok(window);
        }
        window.content.push_str(&numbered);
    }
    // An empty file has an empty first window; any other offset past the end is a mistake.
    if number < wanted.offset && wanted.offset > 1 {
        return Err(WindowFault::Beyond { offset: wanted.offset, lines: number });
    }
    Ok(window)
}

/// A line without its end, as far as it is kept.
struct Line {
    kept: Vec<u8>,
    total_bytes: u64,
}

impl Line {
    fn text(&self, is_lossy: &mut bool) -> String {
        let is_cut = self.kept.len() as u64 != self.total_bytes;
        let kept =
            if is_cut { &self.kept } else { self.kept.strip_suffix(b"\r").unwrap_or(&self.kept) };
        let text = crate::text::lossy(kept, is_cut);
        *is_lossy |=
            std::str::from_utf8(kept).is_err_and(|error| !is_cut || error.error_len().is_some());
        if is_cut { format!("{text}… [line of {} bytes]", self.total_bytes) } else { text }
    }
}

/// Reads to the end of a line and keeps its first bytes; `None` at the end of the file.
fn read_line(
    reader: &mut impl BufRead,
    keep: usize,
    stop: &Stop,
) -> Result<Option<Line>, WindowFault> {
    let mut line = Line { kept: Vec::new(), total_bytes: 0 };
    loop {
        stop.check().map_err(WindowFault::Stopped)?;
        let buffer = reader.fill_buf().map_err(WindowFault::Read)?;
        if buffer.is_empty() {
            return Ok((line.total_bytes > 0).then_some(line));
        }
        let end = buffer.iter().position(|byte| *byte == b'\n');
        let part = buffer.get(..end.unwrap_or(buffer.len())).unwrap_or_default();
        let room = keep - line.kept.len();
        line.kept.extend_from_slice(part.get(..room.min(part.len())).unwrap_or_default());
        line.total_bytes += part.len() as u64;
        if line.total_bytes > MAX_SCAN_BYTES {
            return Err(WindowFault::TooFar);
        }
        let used = part.len() + usize::from(end.is_some());
        reader.consume(used);
        if end.is_some() {
            return Ok(Some(line));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(file: &[u8], offset: u64, limit: u64, expected: &str, next_offset: Option<u64>) {
        let window = read_window(&mut &*file, Wanted { offset, limit }, &Stop::never()).unwrap();
        assert_eq!((window.content.as_str(), window.next_offset), (expected, next_offset));
    }

    #[test]
    fn a_window_is_numbered_and_says_where_to_go_on() {
        let file = b"one\ntwo\r\n\nfour";
        check(file, 1, 10, "1\tone\n2\ttwo\n3\t\n4\tfour\n", None);
        check(file, 2, 1, "2\ttwo\n", Some(3));
        check(file, 4, 1, "4\tfour\n", None);
        check(b"", 1, 10, "", None);
        check(b"\n", 1, 10, "1\t\n", None);
        let fault = read_window(&mut &file[..], Wanted { offset: 5, limit: 1 }, &Stop::never());
        assert!(matches!(fault, Err(WindowFault::Beyond { offset: 5, lines: 4 })), "{fault:?}");
    }

    #[test]
    fn windows_and_lines_are_bounded_between_characters() {
        for shift in 0..4 {
            let line = format!("{}{}", "x".repeat(shift), "漢".repeat(MAX_LINE_BYTES));
            let window =
                read_window(&mut line.as_bytes(), Wanted { offset: 1, limit: 1 }, &Stop::never())
                    .unwrap();
            let end = format!("漢… [line of {} bytes]\n", line.len());
            assert!(window.content.ends_with(&end) && !window.is_lossy, "shift {shift}");
        }
        let many = "é\n".repeat(MAX_WINDOW_BYTES);
        let window = read_window(
            &mut many.as_bytes(),
            Wanted { offset: 1, limit: MAX_LINES * 100 },
            &Stop::never(),
        )
        .unwrap();
        assert!(window.content.len() <= MAX_WINDOW_BYTES);
        let shown = window.content.lines().count() as u64;
        assert_eq!(window.next_offset, Some(shown + 1));
    }

    #[test]
    fn bytes_that_are_not_text_are_shown_and_said() {
        let window =
            read_window(&mut &b"caf\xe9\nok\n"[..], Wanted { offset: 1, limit: 9 }, &Stop::never())
                .unwrap();
        assert_eq!((window.content.as_str(), window.is_lossy), ("1\tcaf\u{fffd}\n2\tok\n", true));
    }

    #[test]
    fn images_are_told_by_their_first_bytes() {
        assert_eq!(image_type(b"\x89PNG\r\n\x1a\nrest"), Some("image/png"));
        assert_eq!(image_type(b"\xff\xd8\xff\xe0"), Some("image/jpeg"));
        assert_eq!(image_type(b"GIF89a.."), Some("image/gif"));
        assert_eq!(image_type(b"RIFF\0\0\0\0WEBPVP8 "), Some("image/webp"));
        assert_eq!(image_type(b"GIF"), None);
    }
}
