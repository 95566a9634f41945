//! The one thread that writes: it commits what is waiting as one group, and only then answers.
//!
//! No timer: while one group is being synced, the next one gathers.

mod approving;
mod resolving;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use gateway_model::{Digest, Principal, ToolId};
use rusqlite::{Connection, OptionalExtension as _, params};
use tokio::sync::mpsc;

pub(crate) use self::approving::ApprovalCommand;
pub(crate) use self::resolving::ResolveCommand;
use crate::approvals;
use crate::intake::{AdmitCommand, AdmitReply, Command, Intake, Intent, Reply, SettleCommand};
use crate::keys::{self, KeyRow, Verdict};
use crate::ledger::StoredTool;
use crate::record::Status;
use crate::record::leaf::{self, Leaf, Origin};
use crate::sealing::leaf_hash;

/// Commands that one group commits at most.
const GROUP: usize = 1_024;
/// Bytes after which a group takes no further command.
const GROUP_BYTES: usize = 4 << 20;

/// An answer that is sent once the group is durable.
type Answer = Box<dyn FnOnce(&Intake) + Send>;

pub(crate) struct Writer {
    pub(crate) database: Connection,
    pub(crate) next_seq: u64,
    pub(crate) intake: Arc<Intake>,
    /// Held as long as this process may write.
    pub(crate) _lock: std::fs::File,
}

fn answer_to<T>(reply: Reply<T>, answer: T) {
    if reply.send(answer).is_err() {
        tracing::trace!("the caller left before its entry was durable");
    }
}

impl Writer {
    /// Serves commands until the intake is closed or a commit fails.
    pub(crate) fn run(mut self, mut queue: mpsc::Receiver<Command>) {
        let mut waiting = Vec::with_capacity(GROUP);
        loop {
            let is_closed = queue.blocking_recv_many(&mut waiting, GROUP) == 0;
            let mut group: VecDeque<Command> = waiting.drain(..).collect();
            // Also without a command, for leases that were given up last.
            loop {
                if let Err(error) = self.commit(&mut group) {
                    self.intake.poison();
                    tracing::error!(%error, "the ledger cannot be written any more");
                    return;
                }
                if group.is_empty() {
                    break;
                }
            }
            if is_closed {
                return self.leave_one_file();
            }
        }
    }

    /// Brings the write-ahead log into the database, unless somebody still reads from it.
    fn leave_one_file(&self) {
        let moved = self.database.busy_timeout(Duration::ZERO).and_then(|()| {
            self.database.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_row| Ok(()))
        });
        if let Err(error) = moved {
            tracing::debug!(%error, "the write-ahead log stays beside the database");
        }
    }

    /// Commits the first commands of a group, then answers them.
    fn commit(&mut self, group: &mut VecDeque<Command>) -> rusqlite::Result<()> {
        self.database.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
        let mut answers: Vec<Answer> = Vec::with_capacity(group.len());
        for settle in self.intake.take_abandoned() {
            answers.push(self.settle(settle)?.0);
        }
        let mut bytes = 0;
        while bytes < GROUP_BYTES
            && let Some(command) = group.pop_front()
        {
            bytes += size_of(&command);
            answers.push(self.apply(command)?);
        }
        write_head(&self.database, self.next_seq - 1)?;
        self.database.prepare_cached("COMMIT")?.execute([])?;
        for answer in answers {
            answer(&self.intake);
        }
        Ok(())
    }

    fn apply(&mut self, command: Command) -> rusqlite::Result<Answer> {
        Ok(match command {
            Command::Admit(admit, reply) => self.admit(*admit, reply)?,
            Command::Settle(settle, reply) => {
                let (landed, seq) = self.settle(*settle)?;
                Box::new(move |intake| {
                    landed(intake);
                    answer_to(reply, seq);
                })
            }
            Command::Append { leaf, bundle, reply } => {
                let seq = self.append(&leaf, &bundle, None)?;
                Box::new(move |_| answer_to(reply, seq))
            }
            Command::Register(tool, origin, reply) => {
                let version = self.register(&tool, origin)?;
                Box::new(move |_| answer_to(reply, version))
            }
            Command::Remove(tool, by, origin, reply) => {
                let is_removed = self.remove(&tool, by, origin)?;
                Box::new(move |_| answer_to(reply, is_removed))
            }
            Command::Approval(command, origin) => self.approval(*command, origin)?,
            Command::Resolve(command, origin, reply) => {
                let resolved = self.resolve(&command, origin)?;
                Box::new(move |_| answer_to(reply, resolved))
            }
            Command::Abandoned => Box::new(|_| ()),
        })
    }

    fn append(
        &mut self,
        leaf: &Leaf,
        bundle: &[u8],
        settled: Option<Settled<'_>>,
    ) -> rusqlite::Result<u64> {
        let seq = self.next_seq;
        insert_record(&self.database, seq, leaf, settled)?;
        if !bundle.is_empty() {
            self.database
                .prepare_cached("INSERT INTO contents(seq, bundle) VALUES(?1, ?2)")?
                .execute(params![seq, bundle])?;
        }
        self.next_seq += 1;
        Ok(seq)
    }

    fn admit(&mut self, admit: AdmitCommand, reply: Reply<AdmitReply>) -> rusqlite::Result<Answer> {
        let AdmitCommand { mut lease, code, question, after, mut leaf, .. } = admit;
        let AdmitCommand { approval, bundle, claim, origin, .. } = admit;
        let previous = keys::read_row(&self.database, code)?;
        if let Some(row) = &previous {
            let verdict = question.judge_after(row, after);
            if verdict != Verdict::Act {
                return Ok(Box::new(move |_| answer_to(reply, AdmitReply::Seen(verdict))));
            }
        }
        if let Some((id, binding)) = approval {
            let used = (lease.call(), origin.at);
            if !approvals::consume(&self.database, id, &binding, used)? {
                return Ok(Box::new(move |_| answer_to(reply, AdmitReply::Unapproved)));
            }
        }
        if let Some(row) = &previous {
            lease.call.attempt = row.attempt + 1;
            lease.call.first_call = row.first_call;
            leaf = leaf::intent(&lease.call, &claim, origin);
        }
        let seq = self.append(&leaf, &bundle, None)?;
        let call = lease.call();
        let principal = match &previous {
            Some(row) => row.principal.clone(),
            None => question.principal.as_str().to_owned(),
        };
        let row = KeyRow {
            fingerprint: question.fingerprint,
            call,
            first_call: lease.call.first_call,
            attempt: lease.call.attempt,
            principal,
            status: None,
            updated: origin.at.0,
        };
        keys::write_row(&self.database, code, &row)?;
        self.database
            .prepare_cached("INSERT INTO open_calls(call, intent_seq, code) VALUES(?1, ?2, ?3)")?
            .execute(params![call.to_string(), seq, &code.0[..]])?;
        lease.is_written(Intent { seq, code, previous });
        Ok(Box::new(move |intake| {
            intake.flights.start(code, call);
            answer_to(reply, AdmitReply::Fresh(Box::new(lease)));
        }))
    }

    fn settle(&mut self, settle: SettleCommand) -> rusqlite::Result<(Answer, u64)> {
        let SettleCommand { leaf, bundle, call, run, intent, status, at } = settle;
        let text = call.to_string();
        let intent_seq = intent.as_ref().map(|intent| intent.seq);
        let settled = Settled { call: &text, run: run.as_str(), intent_seq };
        let seq = self.append(&leaf, &bundle, Some(settled))?;
        let Some(Intent { code, previous, .. }) = intent else {
            return Ok((Box::new(|_| ()), seq));
        };
        self.database.prepare_cached("DELETE FROM open_calls WHERE call = ?1")?.execute([&text])?;
        if status == Status::NotStarted {
            keys::restore(&self.database, code, previous.as_ref())?;
        } else {
            keys::set_status(&self.database, code, status, at)?;
        }
        Ok((Box::new(move |intake| intake.flights.end(code, call)), seq))
    }

    fn register(&mut self, tool: &StoredTool, origin: Origin) -> rusqlite::Result<u32> {
        let id = tool.id.as_str();
        let version: u32 = self
            .database
            .prepare_cached(
                "INSERT INTO tool_versions(id, version) VALUES(?1, 1) \
                 ON CONFLICT(id) DO UPDATE SET version = version + 1 RETURNING version",
            )?
            .query_row([id], |row| row.get(0))?;
        let by = tool.registered_by;
        self.database
            .prepare_cached(
                "INSERT OR REPLACE INTO tools(id, version, digest, definition, registered_by) \
                 VALUES(?1, ?2, ?3, ?4, ?5)",
            )?
            .execute(params![id, version, tool.digest.0, tool.definition, by.as_str()])?;
        let what = (version, tool.digest);
        let leaf = leaf::tool_event("tool.registered", &tool.id, what, by, origin);
        self.append(&leaf, b"", None)?;
        Ok(version)
    }

    fn remove(&mut self, tool: &ToolId, by: Principal, origin: Origin) -> rusqlite::Result<bool> {
        let removed: Option<(u32, [u8; 32])> = self
            .database
            .prepare_cached("DELETE FROM tools WHERE id = ?1 RETURNING version, digest")?
            .query_row([tool.as_str()], |row| Ok((row.get(0)?, row.get(1)?)))
            .optional()?;
        let Some((version, digest)) = removed else { return Ok(false) };
        let what = (version, Digest(digest));
        let leaf = leaf::tool_event("tool.removed", tool, what, by, origin);
        self.append(&leaf, b"", None)?;
        Ok(true)
    }
}

fn size_of(command: &Command) -> usize {
    match command {
        Command::Admit(admit, _) => admit.bundle.len() + admit.leaf.len(),
        Command::Settle(settle, _) => settle.bundle.len() + settle.leaf.len(),
        Command::Append { leaf, bundle, .. } => leaf.len() + bundle.len(),
        Command::Register(tool, ..) => tool.definition.len(),
        Command::Approval(command, _) => command.len(),
        Command::Remove(..) | Command::Resolve(..) | Command::Abandoned => 0,
    }
}

/// What makes an outcome findable by its call and its run.
#[derive(Clone, Copy)]
pub(crate) struct Settled<'a> {
    pub(crate) call: &'a str,
    pub(crate) run: &'a str,
    pub(crate) intent_seq: Option<u64>,
}

pub(crate) fn insert_record(
    database: &Connection,
    seq: u64,
    leaf: &Leaf,
    settled: Option<Settled<'_>>,
) -> rusqlite::Result<()> {
    let leaf = leaf.at(seq);
    let hash = leaf_hash(&leaf).0;
    let call = settled.map(|settled| settled.call);
    let run = settled.map(|settled| settled.run);
    let intent_seq = settled.and_then(|settled| settled.intent_seq);
    database
        .prepare_cached(
            "INSERT INTO records(seq, leaf, hash, settled_call, run, intent_seq) \
             VALUES(?1, ?2, ?3, ?4, ?5, ?6)",
        )?
        .execute(params![seq, leaf, hash, call, run, intent_seq])?;
    Ok(())
}

/// Writes down how many records there are, so that a missing last one is noticed.
pub(crate) fn write_head(database: &Connection, seq: u64) -> rusqlite::Result<()> {
    database.prepare_cached("UPDATE meta SET value = ?1 WHERE name = 'head'")?.execute([seq])?;
    Ok(())
}
