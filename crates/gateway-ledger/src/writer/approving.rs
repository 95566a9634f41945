//! Writes questions, answers and their ends, each judged again inside its transaction.

use std::sync::Arc;

use gateway_model::{ApprovalId, CallId, Principal};

use super::{Answer, Writer, answer_to};
use crate::approvals::{self, Answered, ApprovalState, Found, GrantedApproval, NewApproval, Stage};
use crate::intake::{Intake, Reply};
use crate::record::leaf::{self, Leaf, Origin};

/// What the writer is asked about approvals.
pub(crate) enum ApprovalCommand {
    /// Ask, unless something stands about the call already.
    Ask {
        new: Box<NewApproval>,
        reach: Arc<[u8]>,
        leaf: Leaf,
        bundle: Vec<u8>,
        reply: Reply<ApprovalState>,
    },
    /// Answer a question, or take one back.
    Answer {
        id: ApprovalId,
        stage: Stage,
        by: Principal,
        reason: Option<String>,
        reply: Reply<Answered>,
    },
    /// Use a yes for a call that has no intent.
    Use {
        granted: GrantedApproval,
        binding: [u8; 32],
        call: CallId,
        leaf: Leaf,
        reply: Reply<bool>,
    },
}

impl ApprovalCommand {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Ask { leaf, bundle, .. } => leaf.len() + bundle.len(),
            Self::Use { leaf, .. } => leaf.len(),
            Self::Answer { reason, .. } => reason.as_ref().map_or(0, String::len),
        }
    }
}

impl Writer {
    pub(super) fn approval(
        &mut self,
        command: ApprovalCommand,
        origin: Origin,
    ) -> rusqlite::Result<Answer> {
        Ok(match command {
            ApprovalCommand::Ask { new, reach, leaf, bundle, reply } => {
                let state = self.ask(&new, &reach, (&leaf, &bundle), origin)?;
                Box::new(move |intake: &Intake| {
                    intake.approvals.send_replace(());
                    answer_to(reply, state);
                })
            }
            ApprovalCommand::Answer { id, stage, by, reason, reply } => {
                let answered = self.answer(id, stage, (by, reason.as_deref()), origin)?;
                Box::new(move |intake: &Intake| {
                    intake.approvals.send_replace(());
                    answer_to(reply, answered);
                })
            }
            ApprovalCommand::Use { granted, binding, call, leaf, reply } => {
                let used = (call, origin.at);
                let is_used = approvals::consume(&self.database, granted.id, &binding, used)?;
                if is_used {
                    self.append(&leaf, b"", None)?;
                }
                Box::new(move |_| answer_to(reply, is_used))
            }
        })
    }

    fn ask(
        &mut self,
        new: &NewApproval,
        reach: &Arc<[u8]>,
        (leaf, bundle): (&Leaf, &[u8]),
        origin: Origin,
    ) -> rusqlite::Result<ApprovalState> {
        match approvals::look(&self.database, &new.codes, origin.at, reach)? {
            Found::State(state) => return Ok(state),
            Found::Expired(row) => {
                self.expire(row.id, origin)?;
                return Ok(ApprovalState::Expired { id: row.id });
            }
            Found::Nothing => {}
        }
        if let Some(held_back) = approvals::breaker(&self.database, &new.facts, origin.at)? {
            return Ok(held_back);
        }
        let seq = self.append(leaf, bundle, None)?;
        approvals::insert(&self.database, new, seq)?;
        Ok(ApprovalState::Pending { id: new.id, expires: new.expires })
    }

    /// The first answer holds; whoever comes later is told which it was.
    fn answer(
        &mut self,
        id: ApprovalId,
        stage: Stage,
        (by, reason): (Principal, Option<&str>),
        origin: Origin,
    ) -> rusqlite::Result<Answered> {
        let Some(row) = approvals::read_row(&self.database, id)? else {
            return Ok(Answered::Unknown);
        };
        let found = row.stage(origin.at);
        let is_open = match stage {
            Stage::Revoked => matches!(found, Stage::Pending | Stage::Approved | Stage::Denied),
            _ => found == Stage::Pending,
        };
        if !is_open {
            let (by, at) = row.answered.unzip();
            return Ok(Answered::Ended { stage: found, by, at });
        }
        if stage == Stage::Approved && row.principal == by.as_str() {
            return Ok(Answered::OwnCall);
        }
        let word = match stage {
            Stage::Approved => "approve",
            Stage::Denied => "deny",
            _ => "revoke",
        };
        self.append(&leaf::approval::answered(id, word, (by, reason), origin), b"", None)?;
        approvals::set_answered(&self.database, id, stage, (by, origin.at, reason))?;
        Ok(Answered::Done)
    }

    fn expire(&mut self, id: ApprovalId, origin: Origin) -> rusqlite::Result<()> {
        self.append(&leaf::approval::expired(id, origin), b"", None)?;
        approvals::set_expired(&self.database, id)
    }
}
