//! Writes what an operator found out about a call whose outcome is unknown.

use gateway_model::{CallId, Principal};
use rusqlite::OptionalExtension as _;
use serde_json::Value;

use super::Writer;
use crate::keys::{self, KeyCode};
use crate::record::leaf::{self, Origin};
use crate::record::{Resolved, Status};

/// What an operator found out.
pub(crate) struct ResolveCommand {
    pub(crate) call: CallId,
    pub(crate) by: Principal,
    /// The effect happened.
    pub(crate) has_acted: bool,
    pub(crate) reason: Option<String>,
}

impl Writer {
    /// Settles the key of a call whose outcome is unknown, unless it is known or another attempt
    /// has taken its place.
    pub(super) fn resolve(
        &mut self,
        command: &ResolveCommand,
        origin: Origin,
    ) -> rusqlite::Result<Resolved> {
        let ResolveCommand { call, by, has_acted, reason } = command;
        let outcome: Option<Vec<u8>> = self
            .database
            .prepare_cached("SELECT leaf FROM records WHERE settled_call = ?1")?
            .query_row([call.to_string()], |row| row.get(0))
            .optional()?;
        let Some(code) = outcome.as_deref().and_then(key_of) else { return Ok(Resolved::Unknown) };
        let row = keys::read_row(&self.database, code)?;
        let is_open = row.is_some_and(|row| {
            let is_unknown = matches!(
                row.status,
                Some(Status::Timeout | Status::Cancelled | Status::Indeterminate)
            );
            row.call == *call && is_unknown
        });
        if !is_open {
            return Ok(Resolved::Settled);
        }
        let leaf = leaf::resolution(*call, *has_acted, (*by, reason.as_deref()), origin);
        self.append(&leaf, b"", None)?;
        let status = if *has_acted { Status::Resolved } else { Status::NotStarted };
        keys::set_status(&self.database, code, status, origin.at.0)?;
        Ok(Resolved::Done)
    }
}

/// Reads the code of the key that an outcome names.
fn key_of(leaf: &[u8]) -> Option<KeyCode> {
    let leaf: Value = serde_json::from_slice(leaf).ok()?;
    let code = hex::decode(leaf.get("key")?.as_str()?.strip_prefix("hmac:")?).ok()?;
    code.try_into().ok().map(KeyCode)
}
