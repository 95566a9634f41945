//! The ledger's interface to approvals: ask, wait, answer, list.

use std::sync::Arc;

use gateway_model::{ApprovalId, Principal, Timestamp};
use rusqlite::{Connection, OptionalExtension as _, Row};
use serde_json::{Map, Value, json};
use tokio::sync::watch;

use super::{Ledger, LedgerError};
use crate::approvals::{
    self, Answered, ApprovalRequest, ApprovalState, Codes, Found, NewApproval, Stage,
};
use crate::intake::Command;
use crate::keys::parsed;
use crate::record::leaf::{self, AdmittedCall};
use crate::sealing::{Bundle, content_of};
use crate::writer::ApprovalCommand;

/// Approvals that one answer holds at most.
const MAX_LISTED: u32 = 1_000;

/// A question to a person, with what came of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Approval {
    /// Its position among the approvals, after which the next ones are listed.
    pub position: u64,
    /// How far it has come.
    pub stage: Stage,
    whole: Value,
    input: Option<Value>,
}

/// Tells when an approval was asked for, answered or revoked.
#[derive(Debug)]
pub struct ApprovalChanges(watch::Receiver<()>);

impl ApprovalChanges {
    /// Waits for the next change since this was made or last waited for. Cancel-safe.
    ///
    /// Returns at once, and for good, when the ledger is closed.
    pub async fn next(&mut self) {
        if self.0.changed().await.is_err() {
            tracing::debug!("the ledger is gone");
        }
    }
}

impl Approval {
    /// Returns the approval as JSON, without the input.
    pub fn to_json(&self) -> Value {
        self.whole.clone()
    }

    /// Returns the approval as JSON with the whole input, exactly as the call holds it.
    pub fn to_json_with_input(&self) -> Value {
        let mut whole = self.whole.clone();
        if let (Some(members), Some(input)) = (whole.as_object_mut(), &self.input) {
            members.insert("input".to_owned(), input.clone());
        }
        whole
    }

    /// Reads the columns of [`SELECT_APPROVAL`].
    fn from_row(row: &Row<'_>, now: Timestamp) -> rusqlite::Result<Self> {
        let id: ApprovalId = parsed(row, 1)?;
        let expires = Timestamp(row.get(2)?);
        let stage = match approvals::stage(row, 3)? {
            Stage::Pending | Stage::Approved if expires <= now => Stage::Expired,
            stored => stored,
        };
        let answered: Option<u64> = row.get(5)?;
        let leaf: Map<String, Value> =
            serde_json::from_slice(row.get_ref(8)?.as_blob_or_null()?.unwrap_or(b"{}"))
                .unwrap_or_default();
        let told = |name: &str| leaf.get(name).cloned().unwrap_or_default();
        let policy = told("policy");
        let whole = json!({
            "approval_id": id.to_string(),
            "state": stage.as_str(),
            "scope": told("scope"),
            "principal": told("principal"),
            "run_id": told("run_id"),
            "wih_id": told("wih_id"),
            "correlation_id": told("correlation_id"),
            "call_id": told("call"),
            "tool": told("tool"),
            "rule": policy.get("rule"),
            "reason": told("reason"),
            "policy_set": policy.get("set"),
            "input_bytes": told("input").get("len"),
            "asked_at": told("ts"),
            "expires_at": expires.to_string(),
            "answered_by": row.get::<_, Option<String>>(4)?,
            "answered_at": answered.map(|at| Timestamp(at).to_string()),
            "answer_reason": row.get::<_, Option<String>>(6)?,
            "used_by": row.get::<_, Option<String>>(7)?,
        });
        let bundle: Value =
            serde_json::from_slice(row.get_ref(9)?.as_blob_or_null()?.unwrap_or(b"{}"))
                .unwrap_or_default();
        let input = bundle.get("input").and_then(content_of);
        let input = input.and_then(|input| serde_json::from_slice(&input).ok());
        Ok(Self { position: row.get(0)?, stage, whole, input })
    }
}

/// position, id, expiry, state, answer (by, at, reason), use, and the question's leaf and content.
const SELECT_APPROVAL: &str = "SELECT approvals.id, approval, expires, state, answered_by, \
     answered, reason, used_by, records.leaf, contents.bundle FROM approvals \
     LEFT JOIN records ON records.seq = asked_seq LEFT JOIN contents ON contents.seq = asked_seq";

/// Returns the rows in a stage, as of ?1.
fn condition(stage: Option<Stage>) -> &'static str {
    match stage {
        None => "?1 = ?1",
        Some(Stage::Pending) => "state = 'pending' AND expires > ?1",
        Some(Stage::Approved) => "state = 'approved' AND expires > ?1",
        Some(Stage::Expired) => {
            "(state = 'expired' OR state IN ('pending', 'approved') AND expires <= ?1)"
        }
        Some(Stage::Used) => "state = 'used'",
        Some(Stage::Denied) => "state = 'denied'",
        Some(Stage::Revoked) => "state = 'revoked'",
    }
}

impl Ledger {
    /// Says what stands about a call's approval; asks for one where nothing does.
    ///
    /// A question is durable before this returns. The next call with the same binding finds it, also
    /// after a restart. Cancel-safe.
    ///
    /// # Errors
    /// Returns why the ledger could not be read or written.
    pub async fn ask(&self, request: ApprovalRequest) -> Result<ApprovalState, LedgerError> {
        self.check_writable()?;
        let ApprovalRequest { facts, input, decision, reach, answer_time } = request;
        let codes = Codes::of(&self.secret, &facts, &input, (decision.policy_set, &reach));
        let origin = self.intake.origin();
        let found = {
            let reach = Arc::clone(&reach);
            self.readers.read(move |database| approvals::look(database, &codes, origin.at, &reach))
        };
        if let Found::State(state) = found.await? {
            return Ok(state);
        }
        let mut bundle = Bundle::default();
        let commitment = bundle.add("input", input).map_err(LedgerError::Random)?;
        let expires = origin.at.plus(answer_time);
        let id = ApprovalId::generate(origin.at);
        let about = (&facts, &*decision);
        let leaf = leaf::approval::requested(id, about, &commitment, expires, origin);
        let bundle = bundle.into_stored(usize::MAX);
        let _room = self.space.take(leaf.len() + bundle.len())?;
        let new = Box::new(NewApproval { id, facts, codes, asked: origin.at, expires });
        let ask = |reply| {
            let command = ApprovalCommand::Ask { new, reach, leaf, bundle, reply };
            Command::Approval(Box::new(command), origin)
        };
        self.intake.write(ask).await
    }

    /// Answers a question: yes or no, with a reason for whoever asked. The first answer holds.
    ///
    /// # Errors
    /// Returns why the ledger could not be written.
    pub async fn answer_approval(
        &self,
        id: ApprovalId,
        (by, is_approved): (Principal, bool),
        reason: Option<String>,
    ) -> Result<Answered, LedgerError> {
        let stage = if is_approved { Stage::Approved } else { Stage::Denied };
        self.end_approval(id, stage, by, reason).await
    }

    /// Takes back a question, a yes that was not used, or a no, which then no longer sticks.
    ///
    /// # Errors
    /// Returns why the ledger could not be written.
    pub async fn revoke_approval(
        &self,
        id: ApprovalId,
        by: Principal,
    ) -> Result<Answered, LedgerError> {
        self.end_approval(id, Stage::Revoked, by, None).await
    }

    async fn end_approval(
        &self,
        id: ApprovalId,
        stage: Stage,
        by: Principal,
        reason: Option<String>,
    ) -> Result<Answered, LedgerError> {
        self.check_writable()?;
        let origin = self.intake.origin();
        let answer = |reply| {
            let command = ApprovalCommand::Answer { id, stage, by, reason, reply };
            Command::Approval(Box::new(command), origin)
        };
        self.intake.write(answer).await
    }

    /// Uses the approval of a call that has no intent; true where it has none.
    pub(super) async fn use_approval(
        &self,
        call: &AdmittedCall,
        bound: Option<(ApprovalId, [u8; 32])>,
    ) -> Result<bool, LedgerError> {
        let (Some(granted), Some((_, binding))) = (&call.approval, bound) else { return Ok(true) };
        let origin = self.intake.origin();
        let leaf = leaf::approval::used(granted, &call.facts, origin);
        let _room = self.space.take(leaf.len())?;
        let (granted, call) = (granted.clone(), call.facts.call);
        let used = |reply| {
            let command = ApprovalCommand::Use { granted, binding, call, leaf, reply };
            Command::Approval(Box::new(command), origin)
        };
        self.intake.write(used).await
    }

    /// Returns what tells of changes from now on.
    pub fn approval_changes(&self) -> ApprovalChanges {
        ApprovalChanges(self.intake.approvals.subscribe())
    }

    /// Returns one approval.
    ///
    /// # Errors
    /// Returns why the ledger could not be read.
    pub async fn approval(&self, id: ApprovalId) -> Result<Option<Approval>, LedgerError> {
        let now = self.intake.origin().at;
        let read = move |database: &Connection| {
            database
                .prepare_cached(&format!("{SELECT_APPROVAL} WHERE approval = ?1"))?
                .query_row([id.to_string()], |row| Approval::from_row(row, now))
                .optional()
        };
        self.readers.read(read).await
    }

    /// Returns approvals after a position in the order they were asked, at most `limit` or 1 000.
    ///
    /// # Errors
    /// Returns why the ledger could not be read.
    pub async fn approvals(
        &self,
        stage: Option<Stage>,
        after: u64,
        limit: u32,
    ) -> Result<Vec<Approval>, LedgerError> {
        let now = self.intake.origin().at;
        let condition = condition(stage);
        let read = move |database: &Connection| {
            database
                .prepare_cached(&format!(
                    "{SELECT_APPROVAL} WHERE {condition} AND approvals.id > ?2 \
                     ORDER BY approvals.id LIMIT ?3"
                ))?
                .query_map((now.0, after, limit.min(MAX_LISTED)), |row| {
                    Approval::from_row(row, now)
                })?
                .collect()
        };
        self.readers.read(read).await
    }
}
