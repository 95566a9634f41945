//! Approvals: one question to a person about one exact call, its answer, and its single use.
//!
//! INVARIANT: an approval is used once, by a call whose binding is the one it was asked for, inside
//! the transaction that makes that call's intent durable.

use std::sync::Arc;
use std::time::Duration;

use gateway_model::{ApprovalId, CallId, Decision, Digest, Principal, Timestamp};
use rusqlite::types::Type;
use rusqlite::{Connection, OptionalExtension as _, Row, params};

use crate::keys::parsed;
use crate::record::CallFacts;
use crate::sealing::authenticate;

/// Questions of one run that may wait for an answer at once.
pub(crate) const MAX_PENDING_OF_RUN: u64 = 64;
/// Questions that may wait for an answer at once.
pub(crate) const MAX_PENDING: u64 = 1_024;
/// Denials in a row after which a run's further questions are held back.
const DENIALS_THAT_PAUSE: usize = 3;
/// How long they are held back; then one question goes through.
const PAUSE: Duration = Duration::from_secs(300);
/// The longest input that a person is asked about.
pub const MAX_APPROVABLE_INPUT_BYTES: usize = 256 << 10;

/// A call that a person must approve.
#[derive(Debug, Clone)]
pub struct ApprovalRequest {
    /// Who calls what.
    pub facts: CallFacts,
    /// Canonical JSON of the input, at most [`MAX_APPROVABLE_INPUT_BYTES`].
    pub input: Vec<u8>,
    /// The decision that asks.
    pub decision: Arc<Decision>,
    /// What else the approval is bound to: what the call reaches.
    pub reach: Arc<[u8]>,
    /// How long the question stands.
    pub answer_time: Duration,
}

/// A person's yes to one exact call, not used yet.
#[derive(Debug, Clone)]
pub struct GrantedApproval {
    /// The approval.
    pub id: ApprovalId,
    /// Who said yes.
    pub by: Principal,
    /// When.
    pub at: Timestamp,
    /// What the call reached when it was asked.
    pub reach: Arc<[u8]>,
}

/// What a call is told about its approval.
#[derive(Debug, Clone)]
pub enum ApprovalState {
    /// A person said yes; [`Ledger::admit`](crate::Ledger::admit) uses it.
    Granted(GrantedApproval),
    /// Nobody answered yet.
    Pending {
        /// The question.
        id: ApprovalId,
        /// Until when it stands.
        expires: Timestamp,
    },
    /// A person said no, to this call or to one that differs in its key alone.
    Declined {
        /// The question.
        id: ApprovalId,
        /// Who said no.
        by: Principal,
        /// Why, where a reason was given.
        reason: Option<String>,
    },
    /// Nobody answered, or the yes was not used, in time. Told once; then it is asked anew.
    Expired {
        /// The question.
        id: ApprovalId,
    },
    /// The run's last questions were all denied.
    Paused {
        /// When one more goes through.
        retry_after: Duration,
    },
    /// Too many questions wait already.
    Full {
        /// How many may.
        most: u64,
        /// They are this run's own.
        is_of_run: bool,
    },
}

/// What became of an answer or a revocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answered {
    /// It holds.
    Done,
    /// No such approval.
    Unknown,
    /// Whoever asks may not answer.
    OwnCall,
    /// It came too late: this is how the question ended.
    Ended {
        /// Its state.
        stage: Stage,
        /// Who ended it, where a person did.
        by: Option<Principal>,
        /// When.
        at: Option<Timestamp>,
    },
}

/// How far an approval has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// It waits for an answer.
    Pending,
    /// A person said yes.
    Approved,
    /// A call used the yes.
    Used,
    /// A person said no.
    Denied,
    /// Its time ran out.
    Expired,
    /// An operator took it back.
    Revoked,
}

impl Stage {
    /// Every stage.
    pub const ALL: [Self; 6] =
        [Self::Pending, Self::Approved, Self::Used, Self::Denied, Self::Expired, Self::Revoked];

    /// Returns the stage's name in answers.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Approved => "approved",
            Self::Used => "used",
            Self::Denied => "denied",
            Self::Expired => "expired",
            Self::Revoked => "revoked",
        }
    }

    /// Returns the stage with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|stage| stage.as_str() == name)
    }
}

/// What identifies a call to approvals; neither can be guessed from its code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Codes {
    /// Exactly this call: any difference is another call.
    pub(crate) binding: [u8; 32],
    /// This call under any key and any policy: to which a no holds.
    pub(crate) likeness: [u8; 32],
}

impl Codes {
    pub(crate) fn of(
        secret: &[u8; 32],
        facts: &CallFacts,
        input: &[u8],
        (policy_set, reach): (Digest, &[u8]),
    ) -> Self {
        let CallFacts { call: _, principal, face: _, run, wih, correlation, tool } = facts;
        let (principal, run) = (principal.as_str().as_bytes(), run.as_str().as_bytes());
        let (id, definition) = (tool.id.as_str().as_bytes(), &tool.digest.0[..]);
        let version = tool.version.to_be_bytes();
        // A key is never empty, so an absent one is told apart.
        let key = correlation.as_ref().map_or("", |key| key.as_str()).as_bytes();
        let wih = wih.as_str().as_bytes();
        let likeness = [b"like".as_slice(), principal, run, id, definition, input];
        let binding = [
            b"approval".as_slice(),
            principal,
            run,
            wih,
            key,
            id,
            &version,
            definition,
            &policy_set.0,
            reach,
            input,
        ];
        Self { binding: authenticate(secret, &binding), likeness: authenticate(secret, &likeness) }
    }
}

/// A row of the approvals' table, without what is in its record.
#[derive(Debug, Clone)]
pub(crate) struct ApprovalRow {
    pub(crate) id: ApprovalId,
    pub(crate) principal: String,
    pub(crate) expires: Timestamp,
    /// As stored: what has expired since is not told yet.
    stored: Stage,
    pub(crate) answered: Option<(Principal, Timestamp)>,
    pub(crate) reason: Option<String>,
}

/// The columns of an [`ApprovalRow`], in its order.
const COLUMNS: &str = "approval, principal, expires, state, answered_by, answered, reason";

impl ApprovalRow {
    fn from_row(row: &Row<'_>) -> rusqlite::Result<Self> {
        let by: Option<String> = row.get(4)?;
        let at: Option<u64> = row.get(5)?;
        Ok(Self {
            id: parsed(row, 0)?,
            principal: row.get(1)?,
            expires: Timestamp(row.get(2)?),
            stored: stage(row, 3)?,
            answered: by.zip(at).map(|(by, at)| (principal_named(&by), Timestamp(at))),
            reason: row.get(6)?,
        })
    }

    pub(crate) fn stage(&self, now: Timestamp) -> Stage {
        match self.stored {
            Stage::Pending | Stage::Approved if self.expires <= now => Stage::Expired,
            stored => stored,
        }
    }

    /// Says what a call is told, but for what has to be written first.
    fn state(&self, now: Timestamp, reach: &Arc<[u8]>) -> Option<ApprovalState> {
        let id = self.id;
        Some(match (self.stage(now), self.answered) {
            (Stage::Pending, _) => ApprovalState::Pending { id, expires: self.expires },
            (Stage::Approved, Some((by, at))) => {
                ApprovalState::Granted(GrantedApproval { id, by, at, reach: Arc::clone(reach) })
            }
            (Stage::Denied, Some((by, _))) => {
                ApprovalState::Declined { id, by, reason: self.reason.clone() }
            }
            _ => return None,
        })
    }
}

pub(crate) fn principal_named(name: &str) -> Principal {
    if name == Principal::Operator.as_str() { Principal::Operator } else { Principal::Local }
}

pub(crate) fn stage(row: &Row<'_>, column: usize) -> rusqlite::Result<Stage> {
    Stage::from_name(row.get_ref(column)?.as_str()?).ok_or_else(|| {
        let reason = "not a stage of an approval".into();
        rusqlite::Error::FromSqlConversionFailure(column, Type::Text, reason)
    })
}

/// What stands about a call.
pub(crate) enum Found {
    /// An answer that needs no writing.
    State(ApprovalState),
    /// A question whose time ran out and of which the caller was not told.
    Expired(ApprovalRow),
    Nothing,
}

/// Looks what stands about a call: its own question first, then a no to its like.
pub(crate) fn look(
    database: &Connection,
    codes: &Codes,
    now: Timestamp,
    reach: &Arc<[u8]>,
) -> rusqlite::Result<Found> {
    let own = database
        .prepare_cached(&format!(
            "SELECT {COLUMNS} FROM approvals WHERE binding = ?1 \
             AND state IN ('pending', 'approved') ORDER BY id DESC LIMIT 1"
        ))?
        .query_row([&codes.binding[..]], ApprovalRow::from_row)
        .optional()?;
    if let Some(state) = own.as_ref().and_then(|row| row.state(now, reach)) {
        return Ok(Found::State(state));
    }
    let denied = database
        .prepare_cached(&format!(
            "SELECT {COLUMNS} FROM approvals WHERE likeness = ?1 AND state = 'denied' \
             ORDER BY id DESC LIMIT 1"
        ))?
        .query_row([&codes.likeness[..]], ApprovalRow::from_row)
        .optional()?;
    if let Some(state) = denied.and_then(|row| row.state(now, reach)) {
        return Ok(Found::State(state));
    }
    Ok(own.map_or(Found::Nothing, Found::Expired))
}

/// Says why no further question may be asked in a run, if none may.
pub(crate) fn breaker(
    database: &Connection,
    facts: &CallFacts,
    now: Timestamp,
) -> rusqlite::Result<Option<ApprovalState>> {
    let (principal, run) = (facts.principal.as_str(), facts.run.as_str());
    let pending: u64 = database
        .prepare_cached("SELECT count(*) FROM approvals WHERE state = 'pending' AND expires > ?1")?
        .query_row([now.0], |row| row.get(0))?;
    if pending >= MAX_PENDING {
        return Ok(Some(ApprovalState::Full { most: MAX_PENDING, is_of_run: false }));
    }
    // The newest question of the run that waits, and how many do.
    let (of_run, newest): (u64, Option<u64>) = database
        .prepare_cached(
            "SELECT count(*), max(asked) FROM approvals \
             WHERE principal = ?1 AND run = ?2 AND state = 'pending' AND expires > ?3",
        )?
        .query_row((principal, run, now.0), |row| Ok((row.get(0)?, row.get(1)?)))?;
    if of_run >= MAX_PENDING_OF_RUN {
        return Ok(Some(ApprovalState::Full { most: MAX_PENDING_OF_RUN, is_of_run: true }));
    }
    let answers: Vec<(Stage, u64)> = database
        .prepare_cached(
            "SELECT state, answered FROM approvals WHERE principal = ?1 AND run = ?2 \
             AND answered IS NOT NULL ORDER BY answered DESC, id DESC LIMIT ?3",
        )?
        .query_map((principal, run, DENIALS_THAT_PAUSE as u64), |row| {
            Ok((stage(row, 0)?, row.get(1)?))
        })?
        .collect::<rusqlite::Result<_>>()?;
    let is_denied = answers.iter().all(|(stage, _)| *stage == Stage::Denied);
    let Some((_, last)) = answers.first().filter(|_| is_denied) else { return Ok(None) };
    if answers.len() < DENIALS_THAT_PAUSE {
        return Ok(None);
    }
    let goes_on = Timestamp(*last).plus(PAUSE);
    let is_probed = newest.is_some_and(|asked| asked >= goes_on.0);
    if now >= goes_on && !is_probed {
        return Ok(None);
    }
    let retry_after = if is_probed { PAUSE } else { goes_on.since(now) };
    Ok(Some(ApprovalState::Paused { retry_after }))
}

/// A question as it is written down.
pub(crate) struct NewApproval {
    pub(crate) id: ApprovalId,
    pub(crate) facts: CallFacts,
    pub(crate) codes: Codes,
    pub(crate) asked: Timestamp,
    pub(crate) expires: Timestamp,
}

pub(crate) fn insert(database: &Connection, new: &NewApproval, seq: u64) -> rusqlite::Result<()> {
    let NewApproval { id, facts, codes, asked, expires } = new;
    database
        .prepare_cached(
            "INSERT INTO approvals(approval, binding, likeness, principal, run, asked_seq, asked, \
             expires, state) VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, 'pending')",
        )?
        .execute(params![
            id.to_string(),
            &codes.binding[..],
            &codes.likeness[..],
            facts.principal.as_str(),
            facts.run.as_str(),
            seq,
            asked.0,
            expires.0,
        ])?;
    Ok(())
}

pub(crate) fn read_row(
    database: &Connection,
    id: ApprovalId,
) -> rusqlite::Result<Option<ApprovalRow>> {
    database
        .prepare_cached(&format!("SELECT {COLUMNS} FROM approvals WHERE approval = ?1"))?
        .query_row([id.to_string()], ApprovalRow::from_row)
        .optional()
}

pub(crate) fn set_expired(database: &Connection, id: ApprovalId) -> rusqlite::Result<()> {
    database
        .prepare_cached("UPDATE approvals SET state = 'expired' WHERE approval = ?1")?
        .execute([id.to_string()])?;
    Ok(())
}

pub(crate) fn set_answered(
    database: &Connection,
    id: ApprovalId,
    stage: Stage,
    (by, at, reason): (Principal, Timestamp, Option<&str>),
) -> rusqlite::Result<()> {
    database
        .prepare_cached(
            "UPDATE approvals SET state = ?2, answered_by = ?3, answered = ?4, reason = ?5 \
             WHERE approval = ?1",
        )?
        .execute(params![id.to_string(), stage.as_str(), by.as_str(), at.0, reason])?;
    Ok(())
}

/// Uses a yes for a call, if it is one for exactly this call and still holds.
pub(crate) fn consume(
    database: &Connection,
    id: ApprovalId,
    binding: &[u8; 32],
    (call, now): (CallId, Timestamp),
) -> rusqlite::Result<bool> {
    let used = database
        .prepare_cached(
            "UPDATE approvals SET state = 'used', used_by = ?3 WHERE approval = ?1 \
             AND binding = ?2 AND state = 'approved' AND expires > ?4",
        )?
        .execute(params![id.to_string(), &binding[..], call.to_string(), now.0])?;
    Ok(used == 1)
}
