//! Identifiers: newtypes that can only be made by parsing, so that a held id is a valid id.

use std::fmt;
use std::str::FromStr;

use crate::clock::Timestamp;

/// The longest identifier a caller may choose, in bytes.
const MAX_ID_BYTES: usize = 128;

/// A text that is not the identifier it should be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field} {fault}: expected 1 to {MAX_ID_BYTES} of {alphabet}")]
pub struct InvalidId {
    /// The field that held the text, such as `run_id`.
    pub field: &'static str,
    fault: String,
    alphabet: &'static str,
}

fn check(
    field: &'static str,
    text: &str,
    alphabet: &'static str,
    is_allowed: fn(u8) -> bool,
) -> Result<(), InvalidId> {
    let fault = if text.is_empty() {
        "is empty".to_owned()
    } else if text.len() > MAX_ID_BYTES {
        format!("has {} bytes", text.len())
    } else if let Some(character) = text.chars().find(|c| !c.is_ascii() || !is_allowed(*c as u8)) {
        format!("holds {character:?}")
    } else {
        return Ok(());
    };
    Err(InvalidId { field, fault, alphabet })
}

fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b':' | b'-')
}

fn is_component_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-')
}

const NAME_ALPHABET: &str = "A-Z a-z 0-9 . _ : -";
const COMPONENT_ALPHABET: &str = "A-Z a-z 0-9 _ -";

macro_rules! identifier {
    ($(#[$doc:meta])* $name:ident, $field:literal, $alphabet:ident, $is_allowed:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(String);

        impl $name {
            /// Returns the identifier as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = InvalidId;

            fn from_str(text: &str) -> Result<Self, InvalidId> {
                check($field, text, $alphabet, $is_allowed)?;
                Ok(Self(text.to_owned()))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

identifier!(
    /// The name under which a tool is registered and called.
    ToolId, "tool_id", NAME_ALPHABET, is_name_byte
);
identifier!(
    /// The run that a call belongs to; always one safe path component.
    RunId, "run_id", COMPONENT_ALPHABET, is_component_byte
);
identifier!(
    /// The workflow invocation handle a call is made under.
    WihId, "wih_id", NAME_ALPHABET, is_name_byte
);
identifier!(
    /// The caller's key for one intended effect: idempotency key and trace correlation.
    CorrelationId, "correlation_id", NAME_ALPHABET, is_name_byte
);
identifier!(
    /// The name under which a granted workspace appears at `/workspace/NAME`.
    WorkspaceName, "workspace", COMPONENT_ALPHABET, is_component_byte
);
identifier!(
    /// The name of a worker in the operator's registry.
    WorkerId, "worker_id", NAME_ALPHABET, is_name_byte
);
identifier!(
    /// The name that `secret:NAME` refers to; always one safe path component.
    SecretName, "secret", COMPONENT_ALPHABET, is_component_byte
);

macro_rules! generated_identifier {
    ($(#[$doc:meta])* $name:ident, $field:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(uuid::Uuid);

        impl $name {
            /// Returns a fresh id: later ids sort after earlier ones, to the millisecond.
            pub fn generate(at: Timestamp) -> Self {
                let nanoseconds = u32::try_from(at.0 % 1_000 * 1_000_000).unwrap_or_default();
                Self(uuid::Uuid::new_v7(uuid::Timestamp::from_unix(
                    uuid::NoContext,
                    at.0 / 1_000,
                    nanoseconds,
                )))
            }

            /// Returns the id made from a time and random bits.
            pub fn new(at: Timestamp, random: [u8; 10]) -> Self {
                Self(uuid::Builder::from_unix_timestamp_millis(at.0, &random).into_uuid())
            }
        }

        impl FromStr for $name {
            type Err = InvalidId;

            fn from_str(text: &str) -> Result<Self, InvalidId> {
                let uuid = uuid::Uuid::try_parse(text).map_err(|_unparsable| InvalidId {
                    field: $field,
                    fault: "is not a UUID".to_owned(),
                    alphabet: "hexadecimal digits and hyphens",
                })?;
                Ok(Self(uuid))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.hyphenated().fmt(f)
            }
        }
    };
}

generated_identifier!(
    /// One attempt at a call, named by the gateway (UUID version 7, RFC 9562).
    CallId, "call_id"
);
generated_identifier!(
    /// One question to a person about one exact call (UUID version 7, RFC 9562).
    ApprovalId, "approval_id"
);

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_run(text: &str, is_valid: bool) {
        assert_eq!(text.parse::<RunId>().is_ok(), is_valid, "run id {text:?}");
    }

    #[test]
    fn a_run_id_is_one_safe_path_component() {
        for text in ["run_xyz789", "a", "-", &"x".repeat(128)] {
            check_run(text, true);
        }
        for text in [
            "",
            ".",
            "..",
            "../run_2",
            "run/1",
            "run.1",
            "run:1",
            "a b",
            "run\0",
            "é",
            &"x".repeat(129),
        ] {
            check_run(text, false);
        }
    }

    #[test]
    fn an_invalid_id_says_which_field_and_what_was_expected() {
        let error = "a/b".parse::<ToolId>().unwrap_err().to_string();
        assert_eq!(error, "tool_id holds '/': expected 1 to 128 of A-Z a-z 0-9 . _ : -");
    }

    #[test]
    fn a_call_id_reads_back() {
        let id = CallId::new(Timestamp(1_764_551_792_000), [7; 10]);
        assert_eq!(id.to_string().parse::<CallId>().unwrap(), id);
        assert_eq!(id.to_string().as_bytes()[14], b'7');
    }
}
