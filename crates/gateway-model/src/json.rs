//! Strict JSON in, canonical JSON out, and the digest of bytes.
//!
//! INVARIANT: a value that [`parse_json`] accepted has exactly one canonical form, so that two
//! texts hash alike only if they mean the same. Duplicate keys, integers that a 64-bit number
//! cannot hold, non-finite numbers, lone surrogates and deep nesting are refused with their path.

use std::cell::RefCell;
use std::fmt;

use serde::de::{DeserializeSeed, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Number, Value};
use sha2::{Digest as _, Sha256};

/// How deeply arrays and objects may nest.
pub const MAX_JSON_DEPTH: usize = 64;

/// A text that is not JSON the gateway accepts.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JsonError {
    /// The text is not JSON (RFC 8259).
    #[error("not valid JSON: {reason}")]
    Syntax {
        /// What is wrong, with line and column.
        reason: String,
    },
    /// The text is JSON, but has no single meaning here.
    #[error("{reason} at {path}")]
    NotCanonical {
        /// JSON Pointer (RFC 6901) to the value; `(root)` for the whole.
        path: String,
        /// What is wrong with the value.
        reason: String,
    },
}

/// Parses JSON strictly.
///
/// Integers (no fraction, no exponent) within the ranges of i64 and u64 keep every digit.
///
/// # Errors
/// Returns [`JsonError`] with position or path. Recursion is bounded by [`MAX_JSON_DEPTH`].
pub fn parse_json(bytes: &[u8]) -> Result<Value, JsonError> {
    let faults = Faults::default();
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let parsed = Strict { faults: &faults, depth: 0 }
        .deserialize(&mut deserializer)
        .and_then(|value| deserializer.end().map(|()| value));
    match parsed {
        Ok(value) if faults.has_huge_number.take() => match find_rounded_integer(bytes) {
            Some((path, token)) => Err(not_canonical(
                path,
                format!("integer {} is outside the 64-bit range", crate::bounded_text(&token, 80)),
            )),
            None => Ok(value),
        },
        Ok(value) => Ok(value),
        Err(error) => match faults.reason.take() {
            Some(reason) => Err(not_canonical(faults.path.take(), reason)),
            None => Err(JsonError::Syntax { reason: error.to_string() }),
        },
    }
}

fn not_canonical(mut reversed_path: Vec<String>, reason: String) -> JsonError {
    reversed_path.reverse();
    let path = if reversed_path.is_empty() {
        "(root)".to_owned()
    } else {
        reversed_path.iter().map(|segment| format!("/{}", escape_segment(segment))).collect()
    };
    JsonError::NotCanonical { path: crate::bounded_text(&path, 500).into_owned(), reason }
}

fn escape_segment(segment: &str) -> String {
    segment.replace('~', "~0").replace('/', "~1")
}

/// What the visitor wants to say beyond a serde error.
#[derive(Default)]
struct Faults {
    reason: RefCell<Option<String>>,
    /// Segments from the fault outwards, pushed while the error unwinds.
    path: RefCell<Vec<String>>,
    /// Set when a float might be an integer that lost digits.
    has_huge_number: std::cell::Cell<bool>,
}

#[derive(Clone, Copy)]
struct Strict<'a> {
    faults: &'a Faults,
    depth: usize,
}

impl Strict<'_> {
    fn refuse<E: serde::de::Error>(self, reason: String) -> E {
        let error = E::custom(&reason);
        self.faults.reason.replace(Some(reason));
        error
    }

    fn at<E>(self, segment: impl FnOnce() -> String) -> impl FnOnce(E) -> E {
        let path = &self.faults.path;
        move |error| {
            path.borrow_mut().push(segment());
            error
        }
    }

    fn deeper<E: serde::de::Error>(self) -> Result<Self, E> {
        if self.depth == MAX_JSON_DEPTH {
            return Err(self.refuse(format!("nesting is deeper than {MAX_JSON_DEPTH}")));
        }
        Ok(Self { depth: self.depth + 1, ..self })
    }
}

impl<'de> DeserializeSeed<'de> for Strict<'_> {
    type Value = Value;

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        if value.abs() >= 9.2e18 {
            self.faults.has_huge_number.set(true);
        }
        match Number::from_f64(value) {
            Some(number) => Ok(Value::Number(number)),
            None => Err(self.refuse("number is not finite".to_owned())),
        }
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let deeper = self.deeper()?;
        let mut array = Vec::new();
        while let Some(item) =
            items.next_element_seed(deeper).map_err(self.at(|| array.len().to_string()))?
        {
            array.push(item);
        }
        Ok(Value::Array(array))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let deeper = self.deeper()?;
        let mut object = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            if object.contains_key(&key) {
                let error = A::Error::custom("duplicate key");
                self.faults.reason.replace(Some("duplicate key".to_owned()));
                return Err(self.at(|| key)(error));
            }
            let value = entries.next_value_seed(deeper).map_err(self.at(|| key.clone()))?;
            object.insert(key, value);
        }
        Ok(Value::Object(object))
    }
}

/// Finds an integer token that no 64-bit number holds, with its reversed path.
fn find_rounded_integer(bytes: &[u8]) -> Option<(Vec<String>, String)> {
    let whole: &RawValue = serde_json::from_slice(bytes).ok()?;
    find_in(whole)
}

fn find_in(raw: &RawValue) -> Option<(Vec<String>, String)> {
    let text = raw.get();
    let with = |segment: String, found: Option<(Vec<String>, String)>| {
        found.map(|(mut path, token)| {
            path.push(segment);
            (path, token)
        })
    };
    match text.as_bytes().first()? {
        b'{' => {
            let entries: std::collections::BTreeMap<String, &RawValue> =
                serde_json::from_str(text).ok()?;
            entries.into_iter().find_map(|(key, value)| with(key, find_in(value)))
        }
        b'[' => {
            let items: Vec<&RawValue> = serde_json::from_str(text).ok()?;
            items.into_iter().enumerate().find_map(|(n, item)| with(n.to_string(), find_in(item)))
        }
        b'-' | b'0'..=b'9' => {
            let is_integer = !text.contains(['.', 'e', 'E']);
            let fits = text.parse::<i64>().is_ok() || text.parse::<u64>().is_ok();
            (is_integer && !fits).then(|| (Vec::new(), text.to_owned()))
        }
        _ => None,
    }
}

/// Writes the canonical form of a value (RFC 8785, with 64-bit integers kept digit by digit).
///
/// Keys are sorted by UTF-16 code units, floats are written as ECMAScript does (so `1.0` is
/// `1`), and nothing else is left to choice.
pub fn canonical_json(value: &Value) -> Vec<u8> {
    let mut out = Vec::with_capacity(256);
    write_canonical_json(value, &mut out);
    out
}

/// Appends the canonical form of a value, as [`canonical_json`] returns it.
pub fn write_canonical_json(value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::Null => out.extend_from_slice(b"null"),
        Value::Bool(true) => out.extend_from_slice(b"true"),
        Value::Bool(false) => out.extend_from_slice(b"false"),
        Value::Number(number) => write_number(number, out),
        Value::String(text) => write_string(text, out),
        Value::Array(items) => {
            out.push(b'[');
            for (position, item) in items.iter().enumerate() {
                if position > 0 {
                    out.push(b',');
                }
                write_canonical_json(item, out);
            }
            out.push(b']');
        }
        Value::Object(entries) => write_object(entries, out),
    }
}

fn write_object(entries: &Map<String, Value>, out: &mut Vec<u8>) {
    let mut sorted: Vec<(&String, &Value)> = entries.iter().collect();
    if sorted.iter().all(|(key, _)| key.is_ascii()) {
        sorted.sort_unstable_by(|a, b| a.0.cmp(b.0));
    } else {
        sorted.sort_by(|a, b| a.0.encode_utf16().cmp(b.0.encode_utf16()));
    }
    out.push(b'{');
    for (position, (key, value)) in sorted.into_iter().enumerate() {
        if position > 0 {
            out.push(b',');
        }
        write_string(key, out);
        out.push(b':');
        write_canonical_json(value, out);
    }
    out.push(b'}');
}

fn write_number(number: &Number, out: &mut Vec<u8>) {
    if let Some(integer) = number.as_i64() {
        out.extend_from_slice(integer.to_string().as_bytes());
    } else if let Some(integer) = number.as_u64() {
        out.extend_from_slice(integer.to_string().as_bytes());
    } else {
        let float = number.as_f64().unwrap_or_default();
        out.extend_from_slice(ryu_js::Buffer::new().format_finite(float).as_bytes());
    }
}

fn write_string(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    if text.bytes().all(|byte| byte >= 0x20 && byte != b'"' && byte != b'\\') {
        out.extend_from_slice(text.as_bytes());
    } else {
        for byte in text.bytes() {
            write_escaped(byte, out);
        }
    }
    out.push(b'"');
}

fn write_escaped(byte: u8, out: &mut Vec<u8>) {
    let short = match byte {
        b'"' => b'"',
        b'\\' => b'\\',
        0x08 => b'b',
        0x09 => b't',
        0x0a => b'n',
        0x0c => b'f',
        0x0d => b'r',
        0x00..=0x1f => {
            out.extend_from_slice(format!("\\u{byte:04x}").as_bytes());
            return;
        }
        _ => {
            out.push(byte);
            return;
        }
    };
    out.extend_from_slice(&[b'\\', short]);
}

/// A SHA-256 digest.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest(pub [u8; 32]);

impl Digest {
    /// Hashes bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// Hashes the canonical form of a value.
    pub fn of_json(value: &Value) -> Self {
        Self::of(&canonical_json(value))
    }

    /// Reads a digest from its text form, `sha256:` and 64 hexadecimal digits.
    pub fn from_text(text: &str) -> Option<Self> {
        let mut bytes = [0; 32];
        hex::decode_to_slice(text.strip_prefix("sha256:")?, &mut bytes).ok()?;
        Some(Self(bytes))
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{}", hex::encode(self.0))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests;
