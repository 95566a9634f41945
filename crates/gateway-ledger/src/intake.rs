//! The way to the writer: what it is asked, what is given up, and whether it still writes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gateway_model::{ApprovalId, CallId, Clock, ErrorKind, Principal, RunId, ToolId};
use tokio::sync::{mpsc, oneshot, watch};

use crate::flights::Flights;
use crate::keys::{KeyCode, KeyRow, Question, Verdict};
use crate::ledger::{LedgerError, StoredTool};
use crate::record::leaf::{self, AdmittedCall, End, Leaf, Origin};
use crate::record::{Resolved, Status};
use crate::sealing::Bundle;
use crate::writer::{ApprovalCommand, ResolveCommand};

/// Commands that may wait for the writer.
const QUEUE: usize = 8_192;

/// Where an answer goes; it is dropped unanswered when the ledger cannot be written any more.
pub(crate) type Reply<T> = oneshot::Sender<T>;

/// What the writer is asked to make durable.
pub(crate) enum Command {
    Admit(Box<AdmitCommand>, Reply<AdmitReply>),
    Settle(Box<SettleCommand>, Reply<u64>),
    Append {
        leaf: Leaf,
        bundle: Vec<u8>,
        reply: Reply<u64>,
    },
    Register(Box<StoredTool>, Origin, Reply<u32>),
    Remove(ToolId, Principal, Origin, Reply<bool>),
    Approval(Box<ApprovalCommand>, Origin),
    Resolve(Box<ResolveCommand>, Origin, Reply<Resolved>),
    /// Leases were given up; they wait in [`Intake::take_abandoned`].
    Abandoned,
}

pub(crate) struct AdmitCommand {
    pub(crate) lease: Lease,
    pub(crate) code: KeyCode,
    pub(crate) question: Question,
    /// The approval to use, with what binds it to this call.
    pub(crate) approval: Option<(ApprovalId, [u8; 32])>,
    pub(crate) after: Option<CallId>,
    /// The intent as it is when this is the key's first attempt.
    pub(crate) leaf: Leaf,
    pub(crate) bundle: Vec<u8>,
    pub(crate) claim: serde_json::Value,
    pub(crate) origin: Origin,
}

pub(crate) enum AdmitReply {
    Fresh(Box<Lease>),
    Seen(Verdict),
    /// The approval does not hold for this call, or no longer.
    Unapproved,
}

/// The durable trace of a call that was admitted under a key.
#[derive(Debug)]
pub(crate) struct Intent {
    pub(crate) seq: u64,
    pub(crate) code: KeyCode,
    /// The key before this attempt; comes back if the tool never begins.
    pub(crate) previous: Option<KeyRow>,
}

pub(crate) struct SettleCommand {
    pub(crate) leaf: Leaf,
    pub(crate) bundle: Vec<u8>,
    pub(crate) call: CallId,
    pub(crate) run: RunId,
    pub(crate) intent: Option<Intent>,
    pub(crate) status: Status,
    pub(crate) at: u64,
}

/// Shared by the ledger, its leases and its writer.
pub(crate) struct Intake {
    commands: Mutex<Option<mpsc::Sender<Command>>>,
    abandoned: Mutex<Vec<SettleCommand>>,
    pub(crate) flights: Flights,
    /// Sent to whenever an approval was asked for, answered or revoked.
    pub(crate) approvals: watch::Sender<()>,
    is_writable: AtomicBool,
    clock: Arc<dyn Clock>,
    epoch: u64,
}

impl Intake {
    /// Returns the intake, and the end of its queue for the writer.
    pub(crate) fn new(clock: Arc<dyn Clock>, epoch: u64) -> (Arc<Self>, mpsc::Receiver<Command>) {
        let (commands, queue) = mpsc::channel(QUEUE);
        let intake = Self {
            commands: Mutex::new(Some(commands)),
            abandoned: Mutex::default(),
            flights: Flights::default(),
            approvals: watch::Sender::new(()),
            is_writable: AtomicBool::new(true),
            clock,
            epoch,
        };
        (Arc::new(intake), queue)
    }

    pub(crate) fn is_writable(&self) -> bool {
        self.is_writable.load(Ordering::Acquire)
    }

    /// Takes no further command; what is in the queue is still written.
    pub(crate) fn close(&self) {
        self.is_writable.store(false, Ordering::Release);
        drop(self.commands().take());
        // Whoever waits for an answer learns that none will come.
        self.approvals.send_replace(());
    }

    /// Refuses everything from now on, because a write failed. It is never retried: after a
    /// failed sync nobody knows what is on the disk.
    pub(crate) fn poison(&self) {
        self.close();
        self.flights.end_all();
    }

    pub(crate) fn origin(&self) -> Origin {
        Origin { epoch: self.epoch, at: self.clock.now() }
    }

    /// Sends a command once the queue has room, and waits until it is durable.
    pub(crate) async fn write<T>(
        &self,
        command: impl FnOnce(Reply<T>) -> Command,
    ) -> Result<T, LedgerError> {
        let sender = self.commands().clone().ok_or(LedgerError::Poisoned)?;
        let place = sender.reserve().await.map_err(|_closed| LedgerError::Poisoned)?;
        let (reply, answer) = oneshot::channel();
        place.send(command(reply));
        drop(sender);
        answer.await.map_err(|_dropped| {
            // The writer drops what it cannot write. Whoever learns of it first says so, so that
            // nobody sees a failed write and a writable ledger.
            self.poison();
            LedgerError::Poisoned
        })
    }

    /// Leaves a call to the writer whose lease was given up.
    fn abandon(&self, command: SettleCommand) {
        let sender = self.commands().clone();
        let Some(sender) = sender else { return };
        self.abandoned.lock().unwrap_or_else(PoisonError::into_inner).push(command);
        // A full queue is as good: the writer looks after every group.
        if let Err(mpsc::error::TrySendError::Closed(_)) = sender.try_send(Command::Abandoned) {
            tracing::debug!("a call was given up after the ledger's last write");
        }
    }

    pub(crate) fn take_abandoned(&self) -> Vec<SettleCommand> {
        std::mem::take(&mut self.abandoned.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn commands(&self) -> MutexGuard<'_, Option<mpsc::Sender<Command>>> {
        self.commands.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How far a lease has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Nothing is durable.
    Asked,
    /// The intent is part of a transaction, but nobody holds the lease yet.
    Written,
    /// The holder may have acted.
    Held,
    /// The end of the call is on its way.
    Ended,
}

/// The right to act once. Settling it ends the call.
///
/// A lease that is dropped is settled in the background: as indeterminate, or as cancelled where
/// the call has no effects.
pub struct Lease {
    pub(crate) call: Box<AdmittedCall>,
    pub(crate) intent: Option<Intent>,
    /// Content that no record holds yet.
    pub(crate) bundle: Bundle,
    stage: Stage,
    intake: Arc<Intake>,
}

impl Lease {
    /// Returns a lease that is not admitted yet.
    pub(crate) fn asked(call: AdmittedCall, bundle: Bundle, intake: &Arc<Intake>) -> Self {
        let (call, intake) = (Box::new(call), Arc::clone(intake));
        Self { call, intent: None, bundle, stage: Stage::Asked, intake }
    }

    /// Returns the number of this attempt under its key, from 1.
    pub fn attempt(&self) -> u32 {
        self.call.attempt
    }

    /// Returns the call that may act.
    pub fn call(&self) -> CallId {
        self.call.facts.call
    }

    pub(crate) fn intent_seq(&self) -> Option<u64> {
        self.intent.as_ref().map(|intent| intent.seq)
    }

    pub(crate) fn is_written(&mut self, intent: Intent) {
        self.intent = Some(intent);
        self.stage = Stage::Written;
    }

    /// Hands the lease to its holder.
    #[must_use]
    pub(crate) fn held(mut self) -> Self {
        self.stage = Stage::Held;
        self
    }

    /// Ends the lease with the command that settles its call.
    pub(crate) fn end(mut self, leaf: Leaf, status: Status) -> SettleCommand {
        self.stage = Stage::Ended;
        let at = self.intake.clock.now().0;
        SettleCommand {
            leaf,
            bundle: std::mem::take(&mut self.bundle).into_stored(usize::MAX),
            call: self.call.facts.call,
            run: self.call.facts.run.clone(),
            intent: self.intent.take(),
            status,
            at,
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let (status, error) = match self.stage {
            Stage::Asked | Stage::Ended => return,
            Stage::Written => (Status::NotStarted, ErrorKind::Cancelled),
            Stage::Held if self.intent.is_none() => (Status::Cancelled, ErrorKind::Cancelled),
            Stage::Held => (Status::Indeterminate, ErrorKind::Indeterminate),
        };
        let origin = self.intake.origin();
        let end = End { status, error: Some(error), intent_seq: self.intent_seq() };
        self.intake.abandon(SettleCommand {
            leaf: leaf::abandoned(&self.call, end, &self.bundle, origin),
            bundle: std::mem::take(&mut self.bundle).into_stored(usize::MAX),
            call: self.call.facts.call,
            run: self.call.facts.run.clone(),
            intent: self.intent.take(),
            status,
            at: origin.at.0,
        });
    }
}

impl std::fmt::Debug for Lease {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lease")
            .field("call", &self.call())
            .field("attempt", &self.attempt())
            .finish_non_exhaustive()
    }
}
