//! Commitments to content, and the bundle that holds content and salts.

use gateway_model::Digest;
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

/// The longest input of a refused call that is kept.
pub(crate) const MAX_REFUSED_INPUT_BYTES: usize = 16 << 10;

/// A salted commitment: HMAC-SHA256 of the content under a random salt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Commitment {
    code: [u8; 32],
    content_bytes: usize,
}

impl Commitment {
    fn to(salt: &[u8; 32], content: &[u8]) -> Self {
        let mut mac = keyed(salt);
        mac.update(content);
        Self { code: mac.finalize().into_bytes().into(), content_bytes: content.len() }
    }

    pub(crate) fn to_json(&self) -> Value {
        json!({ "c": format!("hs256:{}", hex::encode(self.code)), "len": self.content_bytes })
    }
}

/// Returns the HMAC-SHA256 of several texts under a key.
pub(crate) fn authenticate(key: &[u8; 32], parts: &[&[u8]]) -> [u8; 32] {
    let mut mac = keyed(key);
    for part in parts {
        // The length keeps ("a", "bc") and ("ab", "c") apart.
        mac.update(&(part.len() as u64).to_be_bytes());
        mac.update(part);
    }
    mac.finalize().into_bytes().into()
}

/// Returns HMAC-SHA256 under a key, which RFC 2104 pads with zeros to a whole block.
fn keyed(key: &[u8; 32]) -> Hmac<Sha256> {
    let mut block = [0; 64];
    for (padded, byte) in block.iter_mut().zip(key) {
        *padded = *byte;
    }
    Hmac::new((&block).into())
}

/// Returns the leaf hash of RFC 6962, section 2.1: SHA-256 of a zero byte and the leaf.
pub(crate) fn leaf_hash(leaf: &[u8]) -> Digest {
    let mut hasher = Sha256::new();
    hasher.update([0]);
    hasher.update(leaf);
    Digest(hasher.finalize().into())
}

/// The contents that a record commits to, each with its own salt.
#[derive(Debug, Clone, Default)]
pub(crate) struct Bundle {
    parts: Vec<Part>,
}

#[derive(Debug, Clone)]
struct Part {
    name: &'static str,
    salt: [u8; 32],
    content: Vec<u8>,
    commitment: Commitment,
}

impl Bundle {
    /// Adds content under a fresh salt.
    pub(crate) fn add(
        &mut self,
        name: &'static str,
        content: Vec<u8>,
    ) -> Result<Commitment, getrandom::Error> {
        let mut salt = [0; 32];
        getrandom::fill(&mut salt)?;
        let commitment = Commitment::to(&salt, &content);
        self.parts.push(Part { name, salt, content, commitment: commitment.clone() });
        Ok(commitment)
    }

    pub(crate) fn commitments(&self) -> impl Iterator<Item = (&'static str, Value)> {
        self.parts.iter().map(|part| (part.name, part.commitment.to_json()))
    }

    pub(crate) fn content_bytes(&self) -> usize {
        self.parts.iter().map(|part| part.content.len()).sum()
    }

    /// Returns the bundle as stored: the very bytes that were hashed, as text or hexadecimal.
    ///
    /// Of content longer than `longest` only the salt is kept, which still proves what the
    /// content was to whoever holds it. A bundle without parts is stored as no bytes.
    pub(crate) fn into_stored(self, longest: usize) -> Vec<u8> {
        if self.parts.is_empty() {
            return Vec::new();
        }
        let mut whole = Map::new();
        for Part { name, salt, content, .. } in self.parts {
            let mut part = Map::new();
            part.insert("salt".to_owned(), hex::encode(salt).into());
            if content.len() <= longest {
                let (form, text) = match String::from_utf8(content) {
                    Ok(text) => ("content", text),
                    Err(not_text) => ("content_hex", hex::encode(not_text.as_bytes())),
                };
                part.insert(form.to_owned(), text.into());
            }
            whole.insert(name.to_owned(), part.into());
        }
        Value::Object(whole).to_string().into_bytes()
    }
}

/// Returns the bytes of one part of a stored bundle.
pub(crate) fn content_of(part: &Value) -> Option<Vec<u8>> {
    match part.get("content").and_then(Value::as_str) {
        Some(text) => Some(text.as_bytes().to_vec()),
        None => hex::decode(part.get("content_hex")?.as_str()?).ok(),
    }
}

/// Says whether a part of a stored bundle is what a leaf's commitment speaks of.
///
/// A part holds its salt, and its content in one of two forms or not at all; nothing else agrees.
pub(crate) fn is_committed(part: &Value, commitment: &Value) -> bool {
    let names: Vec<&str> =
        part.as_object().into_iter().flatten().map(|(name, _)| name.as_str()).collect();
    let content = match names.as_slice() {
        // Content that was too long to keep: the length that is committed to says so.
        ["salt"] => {
            let length = commitment.get("len").and_then(Value::as_u64);
            return length.is_some_and(|length| length > MAX_REFUSED_INPUT_BYTES as u64);
        }
        ["salt", "content" | "content_hex"] => content_of(part),
        _ => None,
    };
    let Some(content) = content else { return false };
    let mut salt = [0; 32];
    let text = part.get("salt").and_then(Value::as_str).unwrap_or_default();
    if hex::decode_to_slice(text, &mut salt).is_err() {
        return false;
    }
    let found = Commitment::to(&salt, &content).to_json();
    ["c", "len"].iter().all(|name| found.get(name) == commitment.get(name))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, prop, proptest};

    use super::*;

    proptest! {
        #[test]
        fn a_commitment_opens_to_its_content_and_to_nothing_else(
            content in prop::collection::vec(any::<u8>(), 0..80),
            position in any::<prop::sample::Index>(),
        ) {
            let mut bundle = Bundle::default();
            let commitment = bundle.add("input", content.clone()).unwrap().to_json();
            let stored: Value = serde_json::from_slice(&bundle.into_stored(usize::MAX)).unwrap();
            assert_eq!(content_of(&stored["input"]).unwrap(), content);
            assert!(is_committed(&stored["input"], &commitment));
            if !content.is_empty() {
                let mut changed = content.clone();
                changed[position.index(content.len())] ^= 1;
                let part = json!({
                    "salt": stored["input"]["salt"], "content_hex": hex::encode(changed),
                });
                assert!(!is_committed(&part, &commitment));
            }
        }
    }

    #[test]
    fn a_part_without_its_content_is_refused_unless_it_was_too_long_to_keep() {
        let mut bundle = Bundle::default();
        let commitment = bundle.add("input", b"{}".to_vec()).unwrap().to_json();
        let salt = "00".repeat(32);
        for part in [
            json!({ "salt": salt }),
            json!({ "salt": salt, "renamed": "{}" }),
            json!({ "salt": salt, "content_hex": "zz" }),
            json!({ "salt": salt, "content": "{}", "content_hex": "7b7d" }),
            json!({ "content": "{}" }),
        ] {
            assert!(!is_committed(&part, &commitment), "{part}");
        }
        let long = bundle.add("stdout", vec![b'x'; MAX_REFUSED_INPUT_BYTES + 1]).unwrap();
        assert!(is_committed(&json!({ "salt": salt }), &long.to_json()));
    }

    #[test]
    fn equal_contents_do_not_have_equal_commitments() {
        let mut bundle = Bundle::default();
        let first = bundle.add("stdout", b"yes".to_vec()).unwrap();
        assert_ne!(first, bundle.add("stderr", b"yes".to_vec()).unwrap());
    }

    #[test]
    fn an_hmac_is_that_of_rfc_4231() {
        // Test case 2 has the key "Jefe", which the padding makes a key of any length.
        let mut key = [0; 32];
        key[..4].copy_from_slice(b"Jefe");
        let code = Commitment::to(&key, b"what do ya want for nothing?").to_json();
        let expected = "hs256:5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843";
        assert_eq!(code, json!({ "c": expected, "len": 28 }));
    }
}
