//! One raw value, and the readings that keys take of it.

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use gateway_model::{WorkspaceName, bounded_text};
use toml::de::DeValue;

/// A value as one layer gives it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Given<'a> {
    raw: Raw<'a>,
    /// The directory that a relative path starts from.
    base: &'a Path,
    /// The workspace that the key belongs to, where it belongs to one.
    pub(crate) workspace: Option<&'a WorkspaceName>,
}

#[derive(Debug, Clone, Copy)]
enum Raw<'a> {
    Text(&'a str),
    Toml(&'a DeValue<'a>),
}

/// Why a value cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Wrong {
    /// It is not what the key expects.
    Value,
    /// It is what the key expects, and yet it cannot be.
    Reason(String),
}

impl<'a> Given<'a> {
    /// Returns a value of the environment or of a flag.
    pub(super) fn of_text(text: &'a str, base: &'a Path) -> Self {
        Self { raw: Raw::Text(text), base, workspace: None }
    }

    /// Returns a value of the file.
    pub(super) fn of_toml(
        value: &'a DeValue<'a>,
        base: &'a Path,
        workspace: Option<&'a WorkspaceName>,
    ) -> Self {
        Self { raw: Raw::Toml(value), base, workspace }
    }

    /// Names the value for a message.
    pub(super) fn found(&self) -> String {
        match self.raw {
            Raw::Text(text) => format!("{:?}", bounded_text(text, 80)),
            Raw::Toml(DeValue::String(text)) => format!("{:?}", bounded_text(text, 80)),
            Raw::Toml(DeValue::Integer(number)) => {
                bounded_text(&number.to_string(), 80).into_owned()
            }
            Raw::Toml(DeValue::Float(number)) => bounded_text(&number.to_string(), 80).into_owned(),
            Raw::Toml(DeValue::Boolean(switch)) => switch.to_string(),
            Raw::Toml(DeValue::Datetime(_)) => "a date".to_owned(),
            Raw::Toml(DeValue::Array(items)) => {
                let is_text =
                    |item: &&DeValue<'_>| matches!(item, DeValue::String(text) if !text.is_empty());
                let items = items.iter().map(toml::Spanned::get_ref);
                match items.clone().find(|item| !is_text(item)) {
                    None => "a list".to_owned(),
                    Some(item) => format!(
                        "a list that holds {}",
                        Self { raw: Raw::Toml(item), ..*self }.found()
                    ),
                }
            }
            Raw::Toml(DeValue::Table(_)) => "a table".to_owned(),
        }
    }

    pub(super) fn text(&self) -> Result<&'a str, Wrong> {
        match self.raw {
            Raw::Text(text) => Ok(text),
            Raw::Toml(DeValue::String(text)) => Ok(text),
            Raw::Toml(_) => Err(Wrong::Value),
        }
    }

    pub(super) fn parsed<T: FromStr>(&self) -> Result<T, Wrong> {
        self.text()?.parse().map_err(|_unparsable| Wrong::Value)
    }

    pub(super) fn switch(&self) -> Result<bool, Wrong> {
        match self.raw {
            Raw::Toml(DeValue::Boolean(switch)) => Ok(*switch),
            Raw::Text("true") => Ok(true),
            Raw::Text("false") => Ok(false),
            Raw::Text(_) | Raw::Toml(_) => Err(Wrong::Value),
        }
    }

    pub(super) fn integer(&self, range: RangeInclusive<u64>) -> Result<u64, Wrong> {
        let number = match self.raw {
            Raw::Text(text) => text.parse(),
            Raw::Toml(DeValue::Integer(number)) => {
                u64::from_str_radix(number.as_str(), number.radix())
            }
            Raw::Toml(_) => return Err(Wrong::Value),
        };
        number.ok().filter(|number| range.contains(number)).ok_or(Wrong::Value)
    }

    /// Reads one of a closed list of words.
    pub(super) fn word<T: Copy>(&self, words: &[(&str, T)]) -> Result<T, Wrong> {
        let text = self.text()?;
        words
            .iter()
            .find(|(word, _)| *word == text)
            .map(|(_, meaning)| *meaning)
            .ok_or(Wrong::Value)
    }

    /// Reads a path; a relative one starts from the file's or the working directory.
    pub(super) fn path(&self) -> Result<PathBuf, Wrong> {
        self.as_path(self.text()?)
    }

    /// Reads a list of paths; as one text they are separated by colons.
    pub(super) fn paths(&self) -> Result<Vec<PathBuf>, Wrong> {
        self.texts()?.into_iter().map(|text| self.as_path(text)).collect()
    }

    pub(super) fn texts(&self) -> Result<Vec<&'a str>, Wrong> {
        match self.raw {
            Raw::Text(text) => Ok(text.split(':').collect()),
            Raw::Toml(DeValue::Array(items)) => items
                .iter()
                .map(|item| match item.get_ref() {
                    DeValue::String(text) => Ok(text.as_ref()),
                    _ => Err(Wrong::Value),
                })
                .collect(),
            Raw::Toml(_) => Err(Wrong::Value),
        }
    }

    fn as_path(&self, text: &str) -> Result<PathBuf, Wrong> {
        if text.is_empty() {
            return Err(Wrong::Value);
        }
        if text.contains('\0') {
            return Err(Wrong::Reason("a path cannot hold NUL".to_owned()));
        }
        if text == "~" || text.starts_with("~/") {
            return Err(Wrong::Reason(format!(
                "{text:?}: ~ is not expanded here; write the whole path"
            )));
        }
        Ok(self.base.join(text))
    }
}
