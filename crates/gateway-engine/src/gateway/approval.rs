//! Answering: an operator looks at what waits for approval, and says yes or no.

use gateway_ledger::{Answered, Approval, LedgerError, Stage};
use gateway_model::{ApprovalId, Principal};

use super::ToolGateway;

/// An answer or a revocation that did not happen.
#[derive(Debug, thiserror::Error)]
pub enum ApprovalError {
    /// Only operators see and answer approvals, and never those of their own calls.
    #[error("{0}")]
    Forbidden(String),
    /// No such approval.
    #[error("no approval {0}")]
    NotFound(ApprovalId),
    /// It has ended; the message says how.
    #[error("{0}")]
    Ended(String),
    /// The ledger could not be used.
    #[error("the ledger could not be used")]
    Ledger(#[source] LedgerError),
}

impl ToolGateway {
    /// Returns approvals after a position in the order they were asked for.
    ///
    /// # Errors
    /// Returns why they cannot be had.
    pub async fn approvals(
        &self,
        principal: Principal,
        stage: Option<Stage>,
        (after, limit): (u64, u32),
    ) -> Result<Vec<Approval>, ApprovalError> {
        check_operator(principal)?;
        let listed = self.inner.executor.ledger.approvals(stage, after, limit).await;
        listed.map_err(ApprovalError::Ledger)
    }

    /// Returns one approval.
    ///
    /// # Errors
    /// Returns why it cannot be had.
    pub async fn approval(
        &self,
        principal: Principal,
        id: ApprovalId,
    ) -> Result<Approval, ApprovalError> {
        check_operator(principal)?;
        let found = self.inner.executor.ledger.approval(id).await.map_err(ApprovalError::Ledger)?;
        found.ok_or(ApprovalError::NotFound(id))
    }

    /// Answers a question: yes or no, with a reason for whoever asked. The first answer holds.
    ///
    /// # Errors
    /// Returns why it does not, and where it came too late, which answer does.
    pub async fn answer_approval(
        &self,
        principal: Principal,
        id: ApprovalId,
        (is_approved, reason): (bool, Option<String>),
    ) -> Result<Approval, ApprovalError> {
        check_operator(principal)?;
        let answer = (principal, is_approved);
        let answered = self.inner.executor.ledger.answer_approval(id, answer, reason).await;
        check_answered(id, answered.map_err(ApprovalError::Ledger)?)?;
        self.approval(principal, id).await
    }

    /// Takes back a question, a yes that was not used, or a no, which then no longer sticks.
    ///
    /// # Errors
    /// Returns why it stays.
    pub async fn revoke_approval(
        &self,
        principal: Principal,
        id: ApprovalId,
    ) -> Result<Approval, ApprovalError> {
        check_operator(principal)?;
        let answered = self.inner.executor.ledger.revoke_approval(id, principal).await;
        check_answered(id, answered.map_err(ApprovalError::Ledger)?)?;
        self.approval(principal, id).await
    }
}

fn check_operator(principal: Principal) -> Result<(), ApprovalError> {
    match principal {
        Principal::Operator => Ok(()),
        Principal::Local => {
            let message = "approvals are an operator's; send the operator's token";
            Err(ApprovalError::Forbidden(message.to_owned()))
        }
    }
}

fn check_answered(id: ApprovalId, answered: Answered) -> Result<(), ApprovalError> {
    match answered {
        Answered::Done => Ok(()),
        Answered::Unknown => Err(ApprovalError::NotFound(id)),
        Answered::OwnCall => {
            let message = "nobody approves a call of their own".to_owned();
            Err(ApprovalError::Forbidden(message))
        }
        Answered::Ended { stage, by, at } => {
            let who = by.map_or_else(String::new, |by| format!(" by {by}"));
            let when = at.map_or_else(String::new, |at| format!(" at {at}"));
            let how = match stage {
                Stage::Pending => "not answered yet",
                Stage::Approved => "approved",
                Stage::Used => "approved and used",
                Stage::Denied => "denied",
                Stage::Expired => "expired",
                Stage::Revoked => "revoked",
            };
            Err(ApprovalError::Ended(format!("approval {id} was already {how}{who}{when}")))
        }
    }
}
