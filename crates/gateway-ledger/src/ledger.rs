//! The ledger's interface: look up, admit, settle, append, read.

mod approving;
mod reading;
pub(crate) mod space;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use gateway_model::{CallId, Clock, Decision, Digest, Principal, ToolId, canonical_json};
use serde_json::Value;

pub use self::approving::{Approval, ApprovalChanges};
pub use self::reading::StoredRecord;
use self::space::Space;
use crate::approvals::{Codes, GrantedApproval};
use crate::intake::{AdmitCommand, AdmitReply, Command, Intake, Lease};
use crate::keys::{self, Fingerprint, KeyCode, KeyScope, KeyState, Question, Rerun, Verdict};
use crate::open::{self, OpenError, OpenReport, connect_reader};
use crate::readers::Readers;
use crate::receipt::files::{Follower, ReceiptFiles};
use crate::record::leaf::{self, AdmittedCall};
use crate::record::{CallFacts, Event, Resolved, Settlement};
use crate::sealing::{Bundle, MAX_REFUSED_INPUT_BYTES};
use crate::writer::{ResolveCommand, Writer};

/// Where a ledger lives, how long it remembers, and how much room it keeps.
#[derive(Debug, Clone)]
pub struct LedgerOptions {
    /// The directory of the database.
    pub directory: PathBuf,
    /// The directory of the receipt files.
    pub receipts: PathBuf,
    /// How long an outcome is kept for replay; later uses of its key are refused.
    pub key_retention: Duration,
    /// Free space of the disk below which only outcomes are written. The write-ahead log may take
    /// 16 MiB and as much again when it is moved into the database: less than 40 MiB is unsafe.
    pub reserve_bytes: u64,
}

impl LedgerOptions {
    /// Returns the options of a home: keys for seven days, 64 MiB in reserve.
    pub fn in_home(home: &Path) -> Self {
        Self {
            directory: home.join("ledger"),
            receipts: home.join("receipts"),
            key_retention: Duration::from_secs(7 * 24 * 60 * 60),
            reserve_bytes: 64 << 20,
        }
    }
}

/// Why the ledger did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// A write failed, or the ledger was closed; nothing is written until the next start.
    #[error("the journal is not written any more; the gateway must be restarted")]
    Poisoned,
    /// The disk is nearly full: running calls can still be settled, nothing else is written.
    #[error(
        "the disk of the journal has {free_bytes} bytes left, fewer than the {reserve_bytes} kept \
         for running calls; free some space"
    )]
    Full {
        /// What is left.
        free_bytes: u64,
        /// What is kept.
        reserve_bytes: u64,
    },
    /// The database could not be read.
    #[error("the journal cannot be read")]
    Read(#[source] rusqlite::Error),
    /// No random numbers could be had.
    #[error("no random numbers from the system")]
    Random(#[source] getrandom::Error),
    /// The reading task was lost.
    #[error("reading the journal was interrupted")]
    Interrupted,
}

/// A call that is about to act.
#[derive(Debug, Clone)]
pub struct Admission {
    /// Who called what.
    pub facts: CallFacts,
    /// The key; absent exactly where the tool has no side effects.
    pub key: Option<(KeyScope, Rerun)>,
    /// The ended attempt that [`Ledger::look_up`] found and that this one may follow.
    pub after: Option<CallId>,
    /// Canonical JSON of the input.
    pub input: Vec<u8>,
    /// What policy decided.
    pub decision: Arc<Decision>,
    /// The approval that the call uses, where the decision rests on one.
    pub approval: Option<GrantedApproval>,
    /// The claim that is held.
    pub claim: Value,
}

/// The answer to an admission.
#[derive(Debug)]
pub enum Admitted {
    /// The call may act, once.
    Fresh(Lease),
    /// The key stands in the way.
    Seen(KeyState),
    /// The approval was used, revoked or expired since, or is not one for exactly this call.
    Unapproved,
}

/// A registered tool, as stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredTool {
    /// The id.
    pub id: ToolId,
    /// The version, counted over the id's life by the ledger; ignored when registering.
    pub version: u32,
    /// Hash of the definition.
    pub digest: Digest,
    /// The definition's canonical bytes.
    pub definition: Vec<u8>,
    /// Who registered it.
    pub registered_by: Principal,
}

/// The durable journal. One process at a time has a ledger open.
pub struct Ledger {
    intake: Arc<Intake>,
    readers: Readers,
    threads: Mutex<Option<Threads>>,
    path: PathBuf,
    secret: [u8; 32],
    key_retention: Duration,
    space: Arc<Space>,
}

/// What runs beside the callers until the ledger is closed.
struct Threads {
    writer: std::thread::JoinHandle<()>,
    files: ReceiptFiles,
}

impl Ledger {
    /// Opens or creates a ledger, and settles what a crash left open.
    ///
    /// # Errors
    /// Returns what cannot be opened, read or verified.
    pub fn open(
        options: LedgerOptions,
        clock: Arc<dyn Clock>,
    ) -> Result<(Self, OpenReport), OpenError> {
        let LedgerOptions { directory, receipts, key_retention, reserve_bytes } = options;
        let opened = open::open(&directory, clock.now())?;
        let report = OpenReport {
            records: opened.next_seq - 1,
            epoch: opened.epoch,
            reconciled: opened.reconciled,
        };
        let path = opened.path;
        let follower = connect_reader(&path)
            .map_err(|source| OpenError::Database { path: path.clone(), source })?;
        let space = Arc::new(Space::new(directory, reserve_bytes, Arc::clone(&clock)));
        let follower = Follower::new(follower, receipts, report.records, Arc::clone(&space));
        let files = ReceiptFiles::start(follower).map_err(OpenError::Thread)?;
        let (intake, queue) = Intake::new(clock, report.epoch);
        let writer = Writer {
            database: opened.database,
            next_seq: opened.next_seq,
            intake: Arc::clone(&intake),
            _lock: opened.lock,
        };
        let writer = std::thread::Builder::new()
            .name("ledger-writer".to_owned())
            .spawn(move || writer.run(queue))
            .map_err(OpenError::Thread)?;
        let ledger = Self {
            intake,
            readers: Readers::new(&path),
            threads: Mutex::new(Some(Threads { writer, files })),
            path,
            secret: opened.secret,
            key_retention,
            space,
        };
        Ok((ledger, report))
    }

    /// Says whether entries are still accepted.
    pub fn is_writable(&self) -> bool {
        self.intake.is_writable()
    }

    /// Returns how many calls wait for a running one with the same key.
    pub fn joiners(&self) -> usize {
        self.intake.flights.joiners()
    }

    /// Says what a key has seen. A hint: [`Self::admit`] judges again, atomically.
    ///
    /// # Errors
    /// Returns why the ledger could not be read, or that no call can be admitted any more.
    pub async fn look_up(
        &self,
        scope: &KeyScope,
        rerun: Rerun,
        principal: Principal,
        input: &[u8],
    ) -> Result<KeyState, LedgerError> {
        if !self.is_writable() {
            return Err(LedgerError::Poisoned);
        }
        let code = KeyCode::of(&self.secret, scope);
        let question = self.question(&scope.tool, rerun, principal, input);
        let row = self.readers.read(move |database| keys::read_row(database, code)).await?;
        match row {
            None => Ok(KeyState::Free { after: None }),
            Some(row) => match question.judge(&row) {
                Verdict::Act => Ok(KeyState::Free { after: Some(row.call) }),
                verdict => self.state_of(verdict, code).await,
            },
        }
    }

    /// Makes key and intent durable, then gives the right to act.
    ///
    /// A call without a key has no effect that could be repeated; it is admitted without a
    /// write, and only its outcome is durable. Cancel-safe: a call that nobody waits for any
    /// more is not admitted, or is settled as never begun.
    ///
    /// # Errors
    /// Returns why nothing was admitted.
    pub async fn admit(&self, admission: Admission) -> Result<Admitted, LedgerError> {
        self.check_writable()?;
        let Admission { facts, key, after, input, decision, approval, claim } = admission;
        let keyed = key.map(|(scope, rerun)| {
            let code = KeyCode::of(&self.secret, &scope);
            (code, self.question(&facts.tool.id, rerun, facts.principal, &input))
        });
        // Computed from what will run, not from what was asked.
        let bound = approval.as_ref().map(|granted| {
            let under = (decision.policy_set, &*granted.reach);
            (granted.id, Codes::of(&self.secret, &facts, &input, under).binding)
        });
        let mut bundle = Bundle::default();
        let input = bundle.add("input", input).map_err(LedgerError::Random)?;
        let first_call = facts.call;
        let key = keyed.map(|(code, _)| format!("hmac:{}", hex::encode(code.0)));
        let call = AdmittedCall { facts, attempt: 1, first_call, decision, approval, input, key };
        let Some((code, question)) = keyed else {
            self.space.check()?;
            if !self.use_approval(&call, bound).await? {
                return Ok(Admitted::Unapproved);
            }
            return Ok(Admitted::Fresh(Lease::asked(call, bundle, &self.intake).held()));
        };
        let origin = self.intake.origin();
        let command = Box::new(AdmitCommand {
            leaf: leaf::intent(&call, &claim, origin),
            bundle: bundle.into_stored(usize::MAX),
            lease: Lease::asked(call, Bundle::default(), &self.intake),
            code,
            question,
            approval: bound,
            after,
            claim,
            origin,
        });
        let _room = self.space.take(command.bundle.len() + command.leaf.len())?;
        match self.intake.write(|reply| Command::Admit(command, reply)).await? {
            AdmitReply::Fresh(lease) => Ok(Admitted::Fresh(lease.held())),
            AdmitReply::Unapproved => Ok(Admitted::Unapproved),
            AdmitReply::Seen(verdict) => Ok(Admitted::Seen(self.state_of(verdict, code).await?)),
        }
    }

    /// Makes an outcome durable and ends the call. Returns the position of the outcome.
    ///
    /// A future that is dropped before the outcome is on its way gives the lease up.
    ///
    /// # Errors
    /// Returns why the outcome is not durable; the call is then indeterminate after a restart.
    pub async fn settle(&self, lease: Lease, settlement: Settlement) -> Result<u64, LedgerError> {
        let (mut lease, mut settlement) = (lease, settlement);
        let error = settlement.error.as_ref().map(|error| canonical_json(&error.to_json()));
        let contents = [
            ("output", settlement.output.take()),
            ("error", error),
            ("stdout", settlement.stdout.take()),
            ("stderr", settlement.stderr.take()),
            ("artifacts", settlement.artifacts.take()),
        ];
        for (name, content) in contents {
            if let Some(content) = content {
                lease.bundle.add(name, content).map_err(LedgerError::Random)?;
            }
        }
        let (status, origin) = (settlement.status, self.intake.origin());
        let intent_seq = lease.intent_seq();
        let leaf = leaf::outcome(&lease.call, &settlement, intent_seq, &lease.bundle, origin);
        let _room = self.space.take_reserved(lease.bundle.content_bytes() + leaf.len());
        let settle = move |reply| Command::Settle(Box::new(lease.end(leaf, status)), reply);
        let seq = self.intake.write(settle).await?;
        self.wake_files();
        Ok(seq)
    }

    /// Journals what is not an admitted call, durably. Returns its position.
    ///
    /// # Errors
    /// Returns why nothing was journaled.
    pub async fn append(&self, event: Event) -> Result<u64, LedgerError> {
        self.check_writable()?;
        let (mut event, mut bundle) = (event, Bundle::default());
        if let Event::Refused { input, .. } = &mut event {
            bundle.add("input", std::mem::take(input)).map_err(LedgerError::Random)?;
        }
        let leaf = leaf::event(&event, &bundle, self.intake.origin());
        let bundle = bundle.into_stored(MAX_REFUSED_INPUT_BYTES);
        let _room = self.space.take(leaf.len() + bundle.len())?;
        self.intake.write(|reply| Command::Append { leaf, bundle, reply }).await
    }

    /// Registers a tool durably. Returns its version, counted over the id's life.
    ///
    /// # Errors
    /// Returns why it is not registered.
    pub async fn register_tool(&self, tool: StoredTool) -> Result<u32, LedgerError> {
        self.check_writable()?;
        let _room = self.space.take(tool.definition.len())?;
        let origin = self.intake.origin();
        self.intake.write(|reply| Command::Register(Box::new(tool), origin, reply)).await
    }

    /// Says whether an id was ever registered.
    ///
    /// # Errors
    /// Returns why the ledger could not be read.
    pub async fn was_registered(&self, tool: &ToolId) -> Result<bool, LedgerError> {
        let tool = tool.clone();
        let read = move |database: &rusqlite::Connection| {
            database
                .prepare_cached("SELECT EXISTS(SELECT 1 FROM tool_versions WHERE id = ?1)")?
                .query_row([tool.as_str()], |row| row.get(0))
        };
        self.readers.read(read).await
    }

    /// Removes a tool durably. Returns whether it was registered.
    ///
    /// # Errors
    /// Returns why it is not removed.
    pub async fn remove_tool(&self, tool: &ToolId, by: Principal) -> Result<bool, LedgerError> {
        let (tool, origin) = (tool.clone(), self.intake.origin());
        self.intake.write(|reply| Command::Remove(tool, by, origin, reply)).await
    }

    /// Settles a call whose outcome is unknown, as an operator found it: it acted, or it did not.
    ///
    /// # Errors
    /// Returns why the ledger could not be written.
    pub async fn resolve_call(
        &self,
        call: CallId,
        by: Principal,
        (has_acted, reason): (bool, Option<String>),
    ) -> Result<Resolved, LedgerError> {
        self.check_writable()?;
        let origin = self.intake.origin();
        let command = Box::new(ResolveCommand { call, by, has_acted, reason });
        self.intake.write(|reply| Command::Resolve(command, origin, reply)).await
    }

    /// Waits until everything that was asked is durable, and stops writing.
    pub async fn close(&self) {
        if let Some(threads) = self.take_threads()
            && tokio::task::spawn_blocking(|| threads.finish()).await.is_err()
        {
            tracing::error!("closing the ledger was interrupted");
        }
    }

    /// Closes the intake; the caller waits for the threads.
    fn take_threads(&self) -> Option<Threads> {
        self.intake.close();
        self.threads.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn wake_files(&self) {
        let threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(threads) = &*threads {
            threads.files.wake();
        }
    }

    fn question(
        &self,
        tool: &ToolId,
        rerun: Rerun,
        principal: Principal,
        input: &[u8],
    ) -> Question {
        let fingerprint = Fingerprint::of(&self.secret, tool, input);
        let retention = u64::try_from(self.key_retention.as_millis()).unwrap_or(u64::MAX);
        let oldest = self.intake.origin().at.0.saturating_sub(retention);
        Question { fingerprint, principal, rerun, oldest }
    }

    async fn state_of(&self, verdict: Verdict, code: KeyCode) -> Result<KeyState, LedgerError> {
        Ok(match verdict {
            Verdict::Act => KeyState::Free { after: None },
            Verdict::Foreign => KeyState::Foreign,
            Verdict::Mismatch(first) => KeyState::Mismatch { first },
            Verdict::Indeterminate(call) => KeyState::Indeterminate { call },
            Verdict::Resolved(call) => KeyState::Resolved { call },
            Verdict::Expired(call) => KeyState::Expired { call },
            Verdict::InFlight(call) => KeyState::InFlight(self.intake.flights.join(code, call)),
            Verdict::Stored(call) => {
                let stored = self.readers.read(move |database| keys::read_outcome(database, call));
                match stored.await? {
                    Some(outcome) => KeyState::Replay(outcome),
                    // Never run again what once ran, even where its content is gone.
                    None => KeyState::Indeterminate { call },
                }
            }
        })
    }

    fn check_writable(&self) -> Result<(), LedgerError> {
        if self.is_writable() { Ok(()) } else { Err(LedgerError::Poisoned) }
    }
}

impl Threads {
    fn finish(self) {
        if self.writer.join().is_err() {
            tracing::error!("the ledger's writer panicked");
        }
        self.files.finish();
    }
}

/// A ledger that is dropped open is closed first, which blocks for one commit.
impl Drop for Ledger {
    fn drop(&mut self) {
        if let Some(threads) = self.take_threads() {
            threads.finish();
        }
    }
}

impl std::fmt::Debug for Ledger {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ledger").field("path", &self.path).finish_non_exhaustive()
    }
}
