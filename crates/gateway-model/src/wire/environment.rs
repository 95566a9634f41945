//! `env`: variables of a process, whose values may name secrets.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::fields::{FieldError, Fields};
use crate::secret::SecretText;

/// Variables of one process.
const MAX_VARIABLES: usize = 64;
/// The longest text of a variable, in bytes.
const MAX_TEXT_BYTES: usize = 8_192;

/// Reads `env`, an object of texts; absent and null mean none.
pub(super) fn read_environment(
    fields: &mut Fields,
) -> Result<BTreeMap<String, SecretText>, FieldError> {
    let entries = match fields.take_non_null("env") {
        None => return Ok(BTreeMap::new()),
        Some(Value::Object(entries)) if entries.len() <= MAX_VARIABLES => entries,
        Some(_) => {
            let reason = format!("expected an object of at most {MAX_VARIABLES} texts");
            return Err(fields.error("env", reason));
        }
    };
    let mut environment = BTreeMap::new();
    for (name, text) in entries {
        let text = check_variable(&name).and_then(|()| read_text(&text));
        let path = format!("env/{}", crate::bounded_text(&name, 60));
        let text = text.map_err(|reason| fields.error(&path, reason))?;
        environment.insert(name, text);
    }
    Ok(environment)
}

/// Returns `env` as it was read, with references as references.
pub(super) fn environment_to_wire(environment: &BTreeMap<String, SecretText>) -> Value {
    let entries = environment.iter().map(|(name, text)| (name.clone(), text.to_string().into()));
    Value::Object(entries.collect::<Map<_, _>>())
}

/// Refuses a name that no variable has, or that the gateway itself sets.
pub(super) fn check_variable(name: &str) -> Result<(), String> {
    let mut bytes = name.bytes();
    let is_first = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_';
    let is_name = bytes.next().is_some_and(is_first)
        && bytes.all(|byte| is_first(byte) || byte.is_ascii_digit());
    if !is_name || name.len() > 128 {
        return Err("expected the name of a variable: letters, digits and _".to_owned());
    }
    if name.starts_with("ALLTERNIT_") {
        return Err("is a variable that the gateway sets by itself".to_owned());
    }
    Ok(())
}

/// Refuses a reference to a secret in a text that becomes an argument or a command.
pub(super) fn refuse_secret(text: &str) -> Result<(), String> {
    if SecretText::is_in(text) {
        return Err(
            "names a secret, but arguments are seen by other programs; put it into env, as \"secret:NAME\""
                .to_owned(),
        );
    }
    Ok(())
}

fn read_text(value: &Value) -> Result<SecretText, String> {
    let text = value.as_str().ok_or("expected a string")?;
    if text.len() > MAX_TEXT_BYTES || text.contains('\0') {
        return Err(format!("expected at most {MAX_TEXT_BYTES} bytes without a NUL"));
    }
    text.parse().map_err(|error: crate::SecretTextError| error.to_string())
}
