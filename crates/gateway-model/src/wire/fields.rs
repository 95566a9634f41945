//! Reads the fields of one JSON object, and knows which keys nobody asked for.

use serde_json::{Map, Value};

/// A field that is not what it must be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {reason}")]
pub struct FieldError {
    /// JSON Pointer to the field; `(root)` for the whole body.
    pub path: String,
    /// What was expected and what was found.
    pub reason: String,
}

/// The fields of one JSON object that are still to be read.
#[derive(Debug)]
pub struct Fields {
    path: String,
    entries: Map<String, Value>,
    known: Vec<&'static str>,
}

impl Fields {
    /// Starts reading a body or the value of a field.
    ///
    /// # Errors
    /// Refuses anything but an object.
    pub fn of(value: Value, path: &str) -> Result<Self, FieldError> {
        match value {
            Value::Object(entries) => {
                Ok(Self { path: path.to_owned(), entries, known: Vec::new() })
            }
            other => Err(FieldError {
                path: if path.is_empty() { "(root)".to_owned() } else { path.to_owned() },
                reason: format!("expected an object, got {}", describe(&other)),
            }),
        }
    }

    /// Returns an error about a field of this object.
    pub fn error(&self, name: &str, reason: impl Into<String>) -> FieldError {
        FieldError { path: format!("{}/{name}", self.path), reason: reason.into() }
    }

    /// Takes a field; `None` where it is absent. An explicit null is present.
    pub fn take(&mut self, name: &'static str) -> Option<Value> {
        self.known.push(name);
        self.entries.shift_remove(name)
    }

    /// Takes a field that may be absent or null.
    pub fn take_non_null(&mut self, name: &'static str) -> Option<Value> {
        self.take(name).filter(|value| !value.is_null())
    }

    /// Takes a field that must be present.
    ///
    /// # Errors
    /// Refuses an absent field.
    pub fn required(&mut self, name: &'static str) -> Result<Value, FieldError> {
        self.take(name).ok_or_else(|| self.error(name, "is required"))
    }

    /// Takes a text that must be present.
    ///
    /// # Errors
    /// Refuses an absent field and any other type.
    pub fn text(&mut self, name: &'static str) -> Result<String, FieldError> {
        let value = self.required(name)?;
        self.as_text(name, value)
    }

    /// Takes a text that may be absent or null.
    ///
    /// # Errors
    /// Refuses any other type.
    pub fn optional_text(&mut self, name: &'static str) -> Result<Option<String>, FieldError> {
        match self.take_non_null(name) {
            None => Ok(None),
            Some(value) => self.as_text(name, value).map(Some),
        }
    }

    /// Takes a boolean that must be present.
    ///
    /// # Errors
    /// Refuses an absent field and any other type.
    pub fn boolean(&mut self, name: &'static str) -> Result<bool, FieldError> {
        match self.required(name)? {
            Value::Bool(flag) => Ok(flag),
            other => Err(self.error(name, format!("expected a boolean, got {}", describe(&other)))),
        }
    }

    /// Takes a list of texts that must be present, each of at most `max_bytes`.
    ///
    /// # Errors
    /// Refuses an absent field, any other type, too many and too long items.
    pub fn texts(
        &mut self,
        name: &'static str,
        max_items: usize,
        max_bytes: usize,
    ) -> Result<Vec<String>, FieldError> {
        let value = self.required(name)?;
        self.as_texts(name, value, max_items, max_bytes)
    }

    /// Takes a list of texts that may be absent or null.
    ///
    /// # Errors
    /// As [`Self::texts`], but for the absent field.
    pub fn optional_texts(
        &mut self,
        name: &'static str,
        max_items: usize,
        max_bytes: usize,
    ) -> Result<Option<Vec<String>>, FieldError> {
        match self.take_non_null(name) {
            None => Ok(None),
            Some(value) => self.as_texts(name, value, max_items, max_bytes).map(Some),
        }
    }

    /// Takes one word of a closed list.
    ///
    /// # Errors
    /// Refuses an absent field, any other type, and other words with the list of known ones.
    pub fn choice<T: Copy>(
        &mut self,
        name: &'static str,
        choices: &[T],
        word: fn(T) -> &'static str,
    ) -> Result<T, FieldError> {
        let text = self.text(name)?;
        choices.iter().copied().find(|choice| word(*choice) == text).ok_or_else(|| {
            let known: Vec<&str> = choices.iter().map(|choice| word(*choice)).collect();
            let text = crate::bounded_text(&text, 60);
            self.error(name, format!("expected one of {}, got {text:?}", known.join(", ")))
        })
    }

    /// Ends reading.
    ///
    /// # Errors
    /// Refuses a key that was never asked for, and names the known ones.
    pub fn finish(self) -> Result<(), FieldError> {
        match self.entries.keys().next() {
            None => Ok(()),
            Some(unknown) => {
                let reason = format!("unknown key; known are {}", self.known.join(", "));
                Err(self.error(&crate::bounded_text(unknown, 60), reason))
            }
        }
    }

    fn as_text(&self, name: &str, value: Value) -> Result<String, FieldError> {
        match value {
            Value::String(text) => Ok(text),
            other => Err(self.error(name, format!("expected a string, got {}", describe(&other)))),
        }
    }

    fn as_texts(
        &self,
        name: &str,
        value: Value,
        max_items: usize,
        max_bytes: usize,
    ) -> Result<Vec<String>, FieldError> {
        let Value::Array(items) = value else {
            return Err(
                self.error(name, format!("expected a list of strings, got {}", describe(&value)))
            );
        };
        if items.len() > max_items {
            return Err(self
                .error(name, format!("has {} items, expected at most {max_items}", items.len())));
        }
        let mut texts = Vec::with_capacity(items.len());
        for (position, item) in items.into_iter().enumerate() {
            let item_name = format!("{name}/{position}");
            let text = self.as_text(&item_name, item)?;
            if text.len() > max_bytes {
                return Err(self.error(
                    &item_name,
                    format!("has {} bytes, expected at most {max_bytes}", text.len()),
                ));
            }
            texts.push(text);
        }
        Ok(texts)
    }
}

/// Names a value for an error message, without repeating long content.
pub(super) fn describe(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(flag) => flag.to_string(),
        Value::Number(number) => number.to_string(),
        Value::String(text) => format!("{:?}", crate::bounded_text(text, 60)),
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "an object".to_owned(),
    }
}
