//! Bounds on the shape of a policy text, checked before Cedar's recursive parser sees it.

use crate::problem::Problem;

/// The size of the largest rule, comments in front of it included.
const MAX_RULE_BYTES: usize = 16 * 1024;
/// How deeply brackets may nest within one rule.
const MAX_NESTING: usize = 32;
/// How many characters of operators one rule may hold, since a chain of them nests in the parse.
const MAX_OPERATOR_CHARACTERS: usize = 1024;
/// How many conditional expressions one rule may hold, since they nest without brackets.
const MAX_CONDITIONALS: usize = 32;

/// Refuses a text whose rules are too long or nested too deeply for a bounded stack.
pub(crate) fn check_shape(file: &str, text: &str) -> Result<(), Problem> {
    let mut scan = Scan::default();
    for token in Tokens(text) {
        scan.advance(token);
        let fault = if scan.rule_bytes > MAX_RULE_BYTES {
            format!("a rule is longer than {MAX_RULE_BYTES} bytes; split it")
        } else if scan.depth > MAX_NESTING {
            format!("brackets nest deeper than {MAX_NESTING}")
        } else if scan.operators > MAX_OPERATOR_CHARACTERS {
            "a rule holds too many operators; split it, or list values in a set".to_owned()
        } else if scan.conditionals > MAX_CONDITIONALS {
            format!("a rule holds more than {MAX_CONDITIONALS} `if`; split it")
        } else {
            continue;
        };
        return Err(Problem::of_line(file, scan.line, fault));
    }
    Ok(())
}

struct Scan {
    line: usize,
    rule_bytes: usize,
    depth: usize,
    operators: usize,
    conditionals: usize,
}

impl Default for Scan {
    fn default() -> Self {
        Self { line: 1, rule_bytes: 0, depth: 0, operators: 0, conditionals: 0 }
    }
}

impl Scan {
    fn advance(&mut self, token: &str) {
        self.line += token.bytes().filter(|byte| *byte == b'\n').count();
        self.rule_bytes += token.len();
        match token {
            ";" => *self = Self { line: self.line, ..Self::default() },
            "(" | "[" | "{" => self.depth += 1,
            ")" | "]" | "}" => self.depth = self.depth.saturating_sub(1),
            "&" | "|" | "+" | "-" | "*" | "." | "=" | "<" | ">" | "!" => self.operators += 1,
            "if" => self.conditionals += 1,
            _ => {}
        }
    }
}

/// Splits a text into comments, strings, words and single characters, without loss.
struct Tokens<'a>(&'a str);

impl<'a> Iterator for Tokens<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        let first = self.0.chars().next()?;
        let length = if first == '"' {
            string_length(self.0)
        } else if self.0.starts_with("//") {
            self.0.find('\n').unwrap_or(self.0.len())
        } else if is_word(first) {
            self.0.find(|character| !is_word(character)).unwrap_or(self.0.len())
        } else {
            first.len_utf8()
        };
        let (token, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(token)
    }
}

fn is_word(character: char) -> bool {
    character.is_ascii_alphanumeric() || character == '_'
}

/// Returns the length of the string literal at the start, or of all where it does not end.
fn string_length(text: &str) -> usize {
    let mut is_escaped = false;
    for (position, character) in text.char_indices().skip(1) {
        match character {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            '"' => return position + 1,
            _ => {}
        }
    }
    text.len()
}
