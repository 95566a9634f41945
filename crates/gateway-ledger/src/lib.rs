//! What happened? The durable journal, idempotency and receipts.
//!
//! One SQLite database holds records, keys and the registry, so that they share one transaction
//! and one crash surface. A single thread writes, committing what is waiting as one group.

mod approvals;
mod flights;
mod intake;
mod keys;
mod ledger;
mod open;
mod readers;
mod receipt;
mod record;
mod sealing;
mod verify;
mod writer;

pub use approvals::{
    Answered, ApprovalRequest, ApprovalState, GrantedApproval, MAX_APPROVABLE_INPUT_BYTES, Stage,
};
pub use flights::Joiner;
pub use intake::Lease;
pub use keys::{KeyScope, KeyState, Rerun, StoredOutcome};
pub use ledger::{
    Admission, Admitted, Approval, ApprovalChanges, Ledger, LedgerError, LedgerOptions,
    StoredRecord, StoredTool,
};
pub use open::{OpenError, OpenReport, ReconciledCall};
pub use receipt::Receipt;
pub use record::{CallFacts, Event, Resolved, Settlement, Status, ToolReference};
pub use verify::{VerifyError, VerifyReport};
