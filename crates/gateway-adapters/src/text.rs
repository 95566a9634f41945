//! Turns what a program wrote into text that is safe to show: no escape sequences, no cut character.

use std::iter::Peekable;
use std::str::Chars;

/// Reads bytes as UTF-8, with `�` for what is not.
///
/// Where the bytes were cut from a longer stream, a character that was cut in two is left out.
pub(crate) fn lossy(bytes: &[u8], is_cut: bool) -> String {
    let mut text = String::with_capacity(bytes.len());
    let mut chunks = bytes.utf8_chunks().peekable();
    while let Some(chunk) = chunks.next() {
        text.push_str(chunk.valid());
        let is_cut_here = is_cut && chunks.peek().is_none();
        if !chunk.invalid().is_empty() && !is_cut_here {
            text.push(char::REPLACEMENT_CHARACTER);
        }
    }
    text
}

/// Removes terminal escape sequences (ECMA-48) and control characters other than tab and newline.
pub(crate) fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '\u{1b}' => skip_escape(&mut characters),
            '\u{9b}' => skip_control_sequence(&mut characters),
            '\n' | '\t' => plain.push(character),
            other if other.is_control() => {}
            other => plain.push(other),
        }
    }
    plain
}

fn skip_escape(characters: &mut Peekable<Chars<'_>>) {
    match characters.peek() {
        Some('[') => {
            characters.next();
            skip_control_sequence(characters);
        }
        Some(']' | 'P' | 'X' | '^' | '_') => skip_control_string(characters),
        Some(_) => {
            while characters.next_if(|next| (' '..='/').contains(next)).is_some() {}
            characters.next_if(|next| ('0'..='~').contains(next));
        }
        None => {}
    }
}

/// Skips the parameters and the final byte of `CSI … final`.
fn skip_control_sequence(characters: &mut Peekable<Chars<'_>>) {
    while characters.next_if(|next| (' '..='?').contains(next)).is_some() {}
    characters.next_if(|next| ('@'..='~').contains(next));
}

/// Skips a string such as a window title, up to its terminator: BEL, or ESC and a backslash.
fn skip_control_string(characters: &mut Peekable<Chars<'_>>) {
    while let Some(character) = characters.next() {
        if character == '\u{7}' {
            return;
        }
        if character == '\u{1b}' {
            characters.next_if_eq(&'\\');
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[track_caller]
    fn check_plain(text: &str, expected: &str) {
        assert_eq!(plain(text), expected, "{text:?}");
    }

    #[test]
    fn escape_sequences_are_removed_and_text_is_kept() {
        check_plain("\u{1b}[1;31merror\u{1b}[0m: no\tsuch\nfile", "error: no\tsuch\nfile");
        check_plain("\u{1b}]0;title\u{7}x\u{1b}]8;;http://a\u{1b}\\link", "xlink");
        check_plain("\u{1b}(Bplain\u{1b}7\u{1b}", "plain");
        check_plain("\u{9b}31mred", "red");
        check_plain("50%\r100%\u{8}\0", "50%100%");
        check_plain("naïve 漢字 👩‍👩‍👧", "naïve 漢字 👩‍👩‍👧");
        check_plain("\u{1b}[38;5;1", "");
    }

    #[test]
    fn a_cut_stream_loses_at_most_the_character_that_was_cut() {
        let whole = "aé漢👩e\u{301}";
        for end in 0..=whole.len() {
            let text = lossy(&whole.as_bytes()[..end], true);
            assert!(whole.starts_with(&text), "cut at {end}: {text:?}");
            assert!(end - text.len() < 4, "cut at {end} lost {}", end - text.len());
        }
        assert_eq!(lossy(b"a\xffb\xe6\xbc", false), "a\u{fffd}b\u{fffd}");
        assert_eq!(lossy(b"a\xffb\xe6\xbc", true), "a\u{fffd}b");
    }

    proptest! {
        #[test]
        fn plain_text_holds_no_control_character(text in "\\PC{0,4}(\\x1b[\\[\\]P(]?\\PC{0,6}|\\x07|\\n){0,6}") {
            let plain = plain(&text);
            prop_assert!(plain.chars().all(|c| c == '\n' || c == '\t' || !c.is_control()));
        }
    }
}
