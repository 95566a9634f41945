//! Secrets by reference: the texts of a binding that may name one, never a value.

use std::fmt;
use std::str::FromStr;

use crate::id::{InvalidId, SecretName};

/// What stands before the name of a secret in a text.
const MARK: &str = "secret:";

/// A text of a binding, such as a variable or a header, that may end in a reference to a secret.
///
/// `secret:NAME` is a reference, and so is the end of a text such as `Bearer secret:NAME`. Any
/// other text stands for itself. What is stored, shown and hashed is always the reference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretText {
    prefix: String,
    secret: Option<SecretName>,
}

/// A text whose reference cannot be one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SecretTextError {
    /// The name is none.
    #[error("{0}")]
    Name(#[from] InvalidId),
    /// The reference does not end the text.
    #[error("a reference secret:NAME must be the last word of its text")]
    NotLast,
}

impl SecretText {
    /// Returns the secret that the text names.
    pub fn secret(&self) -> Option<&SecretName> {
        self.secret.as_ref()
    }

    /// Returns the text before the reference; the whole text where there is none.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Says whether a text holds a reference where none is resolved.
    ///
    /// Such a reference starts the text, or follows a space or `=`.
    pub fn is_in(text: &str) -> bool {
        text.match_indices(MARK).any(|(at, _)| {
            let before = text.get(..at).unwrap_or_default();
            before.is_empty() || before.ends_with([' ', '='])
        })
    }
}

impl FromStr for SecretText {
    type Err = SecretTextError;

    fn from_str(text: &str) -> Result<Self, SecretTextError> {
        let start = if text.starts_with(MARK) {
            Some(0)
        } else {
            text.find(" secret:").map(|space| space + 1)
        };
        let Some((prefix, reference)) = start.and_then(|start| text.split_at_checked(start)) else {
            return Ok(Self { prefix: text.to_owned(), secret: None });
        };
        let name = reference.strip_prefix(MARK).unwrap_or_default();
        if name.contains(' ') {
            return Err(SecretTextError::NotLast);
        }
        Ok(Self { prefix: prefix.to_owned(), secret: Some(name.parse()?) })
    }
}

impl fmt::Display for SecretText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.prefix)?;
        match &self.secret {
            Some(name) => write!(f, "{MARK}{name}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Result<(&str, Option<&str>), &str>) {
        match (text.parse::<SecretText>(), expected) {
            (Ok(parsed), Ok((prefix, name))) => {
                assert_eq!(
                    (parsed.prefix(), parsed.secret().map(SecretName::as_str)),
                    (prefix, name)
                );
                assert_eq!(parsed.to_string(), text);
            }
            (Err(error), Err(expected)) => assert!(error.to_string().contains(expected), "{error}"),
            (got, _) => panic!("{text:?} gave {got:?}"),
        }
    }

    #[test]
    fn a_reference_is_the_whole_text_or_its_last_word() {
        check("secret:CRM_TOKEN", Ok(("", Some("CRM_TOKEN"))));
        check("Bearer secret:CRM_TOKEN", Ok(("Bearer ", Some("CRM_TOKEN"))));
        check("plain", Ok(("plain", None)));
        check("", Ok(("", None)));
        check("topsecret:x", Ok(("topsecret:x", None)));
        check("secret:", Err("secret is empty"));
        check("secret:a/b", Err("secret holds '/'"));
        check("secret:A and more", Err("last word"));
        check("one secret:A secret:B", Err("last word"));
    }

    #[test]
    fn a_reference_is_found_where_none_is_resolved() {
        for text in ["secret:A", "--token=secret:A", "Bearer secret:A"] {
            assert!(SecretText::is_in(text), "{text}");
        }
        for text in ["", "topsecret:A", "/etc/secret", "a secret"] {
            assert!(!SecretText::is_in(text), "{text}");
        }
    }
}
