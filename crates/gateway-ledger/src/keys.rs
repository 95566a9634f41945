//! Idempotency keys: one effect for each key, whatever crashes in between.

use gateway_model::{CallId, CorrelationId, Principal, RunId, ToolError, ToolId, ToolOutput};
use rusqlite::types::Type;
use rusqlite::{Connection, OptionalExtension as _, Row, params};
use serde_json::Value;

use crate::flights::Joiner;
use crate::record::Status;
use crate::sealing::{authenticate, content_of};

/// Where a key is unique: the same text in another run or for another tool is another key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyScope {
    /// The run.
    pub run: RunId,
    /// The tool.
    pub tool: ToolId,
    /// The caller's key.
    pub key: CorrelationId,
}

/// Under which outcomes a call with a used key may act again, as another attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rerun {
    /// After the tool ran and failed: it is retryable, and its failures are transient.
    pub after_failure: bool,
    /// After an unknown outcome: repeating the effect changes nothing, or the peer knows our key.
    pub after_unknown: bool,
}

/// What a key has seen.
#[derive(Debug)]
pub enum KeyState {
    /// Nothing, or nothing that stands in the way of acting.
    Free {
        /// The ended attempt after which the caller may act again.
        after: Option<CallId>,
    },
    /// A finished call with the same input.
    Replay(StoredOutcome),
    /// A running call with the same input.
    InFlight(Joiner),
    /// A call with another input.
    Mismatch {
        /// The call that used the key first.
        first: CallId,
    },
    /// A call of another principal.
    Foreign,
    /// A call whose outcome is unknown.
    Indeterminate {
        /// The call; its receipt shows what was about to be done.
        call: CallId,
    },
    /// A call whose effect happened, as an operator found; its output is unknown.
    Resolved {
        /// The call.
        call: CallId,
    },
    /// A call so long ago that its outcome is not kept for replay.
    Expired {
        /// The call.
        call: CallId,
    },
}

/// The outcome of an earlier call, exactly as it was stored.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredOutcome {
    /// The call that acted; its receipt shows it.
    pub call: CallId,
    /// What its caller was told.
    pub result: Result<ToolOutput, ToolError>,
}

/// What identifies a key in the index; the key cannot be guessed from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct KeyCode(pub(crate) [u8; 32]);

/// What identifies an input; the input cannot be guessed from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fingerprint(pub(crate) [u8; 32]);

impl KeyCode {
    pub(crate) fn of(secret: &[u8; 32], scope: &KeyScope) -> Self {
        let KeyScope { run, tool, key } = scope;
        let texts = [run.as_str(), tool.as_str(), key.as_str()].map(str::as_bytes);
        let [run, tool, key] = texts;
        Self(authenticate(secret, &[b"scope", run, tool, key]))
    }
}

impl Fingerprint {
    pub(crate) fn of(secret: &[u8; 32], tool: &ToolId, input: &[u8]) -> Self {
        Self(authenticate(secret, &[b"input", tool.as_str().as_bytes(), input]))
    }
}

/// A row of the key table. It is never deleted once a tool has begun: it is the tombstone that
/// keeps an old key from acting again.
#[derive(Debug, Clone)]
pub(crate) struct KeyRow {
    pub(crate) fingerprint: Fingerprint,
    pub(crate) call: CallId,
    pub(crate) first_call: CallId,
    pub(crate) attempt: u32,
    pub(crate) principal: String,
    /// Absent while the call runs.
    pub(crate) status: Option<Status>,
    pub(crate) updated: u64,
}

impl KeyRow {
    fn from_row(row: &Row<'_>) -> rusqlite::Result<Self> {
        let status = match row.get_ref(5)?.as_str_or_null()? {
            None => None,
            Some(name) => Some(Status::from_name(name).ok_or_else(|| unreadable(5, "status"))?),
        };
        Ok(Self {
            fingerprint: Fingerprint(row.get(0)?),
            call: parsed(row, 1)?,
            first_call: parsed(row, 2)?,
            attempt: row.get(3)?,
            principal: row.get(4)?,
            status,
            updated: row.get(6)?,
        })
    }
}

/// Reads a column that holds an id as text.
pub(crate) fn parsed<T: std::str::FromStr>(row: &Row<'_>, column: usize) -> rusqlite::Result<T> {
    row.get_ref(column)?.as_str()?.parse().map_err(|_invalid| unreadable(column, "identifier"))
}

fn unreadable(column: usize, expected: &str) -> rusqlite::Error {
    let reason = format!("not a {expected} of this ledger").into();
    rusqlite::Error::FromSqlConversionFailure(column, Type::Text, reason)
}

pub(crate) fn read_row(database: &Connection, code: KeyCode) -> rusqlite::Result<Option<KeyRow>> {
    database
        .prepare_cached(
            "SELECT fingerprint, call, first_call, attempt, principal, status, updated \
             FROM keys WHERE code = ?1",
        )?
        .query_row([&code.0[..]], KeyRow::from_row)
        .optional()
}

pub(crate) fn write_row(
    database: &Connection,
    code: KeyCode,
    row: &KeyRow,
) -> rusqlite::Result<()> {
    database
        .prepare_cached(
            "INSERT OR REPLACE INTO keys(code, fingerprint, call, first_call, attempt, principal, \
             status, updated) VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
        )?
        .execute(params![
            &code.0[..],
            row.fingerprint.0,
            row.call.to_string(),
            row.first_call.to_string(),
            row.attempt,
            row.principal,
            row.status.map(Status::as_str),
            row.updated,
        ])?;
    Ok(())
}

pub(crate) fn set_status(
    database: &Connection,
    code: KeyCode,
    status: Status,
    at: u64,
) -> rusqlite::Result<()> {
    database
        .prepare_cached("UPDATE keys SET status = ?2, updated = ?3 WHERE code = ?1")?
        .execute(params![&code.0[..], status.as_str(), at])?;
    Ok(())
}

/// Puts a key back to what it was before an attempt that never began.
pub(crate) fn restore(
    database: &Connection,
    code: KeyCode,
    previous: Option<&KeyRow>,
) -> rusqlite::Result<()> {
    if let Some(row) = previous {
        return write_row(database, code, row);
    }
    database.prepare_cached("DELETE FROM keys WHERE code = ?1")?.execute([&code.0[..]])?;
    Ok(())
}

/// What stands in the way of acting under a key, before stored outcomes are read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Act,
    Stored(CallId),
    InFlight(CallId),
    Mismatch(CallId),
    Foreign,
    Indeterminate(CallId),
    Resolved(CallId),
    Expired(CallId),
}

/// Who asks about a key, with what, and what may be repeated.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Question {
    pub(crate) fingerprint: Fingerprint,
    pub(crate) principal: Principal,
    pub(crate) rerun: Rerun,
    /// Keys that were last used before this are expired.
    pub(crate) oldest: u64,
}

impl Question {
    /// Judges a key for a caller who has seen one ended attempt, or none.
    ///
    /// Another attempt that ended since ran beside the caller, who gets its outcome.
    pub(crate) fn judge_after(&self, row: &KeyRow, seen: Option<CallId>) -> Verdict {
        let rerun = Rerun { after_failure: false, after_unknown: false };
        match self.judge(row) {
            Verdict::Act if seen != Some(row.call) => Self { rerun, ..*self }.judge(row),
            verdict => verdict,
        }
    }

    /// Judges a key. The input is compared before the state, so that a reuse is never hidden.
    pub(crate) fn judge(&self, row: &KeyRow) -> Verdict {
        let Self { fingerprint, principal, rerun, oldest } = *self;
        let is_permitted = match principal {
            Principal::Operator => true,
            Principal::Local => row.principal == principal.as_str(),
        };
        if !is_permitted {
            return Verdict::Foreign;
        }
        if row.fingerprint != fingerprint {
            return Verdict::Mismatch(row.first_call);
        }
        let Some(status) = row.status else { return Verdict::InFlight(row.call) };
        if row.updated < oldest {
            return Verdict::Expired(row.call);
        }
        match status {
            Status::Ok | Status::OutputInvalid => Verdict::Stored(row.call),
            Status::ToolError if rerun.after_failure => Verdict::Act,
            Status::ToolError => Verdict::Stored(row.call),
            Status::NotStarted => Verdict::Act,
            Status::Resolved => Verdict::Resolved(row.call),
            Status::Timeout | Status::Cancelled | Status::Indeterminate if rerun.after_unknown => {
                Verdict::Act
            }
            Status::Timeout | Status::Cancelled | Status::Indeterminate => {
                Verdict::Indeterminate(row.call)
            }
        }
    }
}

/// Reads what a settled call's caller was told.
pub(crate) fn read_outcome(
    database: &Connection,
    call: CallId,
) -> rusqlite::Result<Option<StoredOutcome>> {
    let bundle: Option<Vec<u8>> = database
        .prepare_cached(
            "SELECT bundle FROM records JOIN contents USING (seq) WHERE settled_call = ?1",
        )?
        .query_row([call.to_string()], |row| row.get(0))
        .optional()?;
    Ok(bundle.and_then(|bundle| result_of(&bundle)).map(|result| StoredOutcome { call, result }))
}

fn result_of(bundle: &[u8]) -> Option<Result<ToolOutput, ToolError>> {
    let bundle: Value = serde_json::from_slice(bundle).ok()?;
    let read =
        |name| -> Option<Value> { serde_json::from_slice(&content_of(bundle.get(name)?)?).ok() };
    match read("error") {
        Some(error) => ToolError::from_json(&error).map(Err),
        None => ToolOutput::from_json(read("output")?).ok().map(Ok),
    }
}
