//! Settling by hand: an operator says what became of a call whose outcome is unknown.

use gateway_ledger::{LedgerError, Resolved};
use gateway_model::{CallId, Principal};

use super::ToolGateway;

/// A resolution that does not hold.
#[derive(Debug, thiserror::Error)]
pub enum ResolutionError {
    /// Only operators settle calls.
    #[error("only an operator settles a call; send the operator's token")]
    Forbidden,
    /// No such call, or one without a key, which cannot stand in anybody's way.
    #[error("no call {0} has ended under a key")]
    NotFound(CallId),
    /// There is nothing to settle.
    #[error("the outcome of call {0} is known, or a later attempt has taken its place")]
    Settled(CallId),
    /// The ledger could not be used.
    #[error("the ledger could not be used")]
    Ledger(#[source] LedgerError),
}

impl ToolGateway {
    /// Settles a call whose outcome is unknown: its effect happened, or it did not.
    ///
    /// After a yes its key answers that it acted; after a no the same call may act under the key.
    ///
    /// # Errors
    /// Returns why nothing changed.
    pub async fn resolve_call(
        &self,
        principal: Principal,
        call: CallId,
        (has_acted, reason): (bool, Option<String>),
    ) -> Result<(), ResolutionError> {
        match principal {
            Principal::Operator => {}
            Principal::Local => return Err(ResolutionError::Forbidden),
        }
        let found = (has_acted, reason);
        let resolved = self.inner.executor.ledger.resolve_call(call, principal, found).await;
        match resolved.map_err(ResolutionError::Ledger)? {
            Resolved::Done => Ok(()),
            Resolved::Unknown => Err(ResolutionError::NotFound(call)),
            Resolved::Settled => Err(ResolutionError::Settled(call)),
        }
    }
}
