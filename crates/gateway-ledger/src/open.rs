//! Opening a ledger: its files, its integrity, and the calls that a crash left open.

use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use gateway_model::{CallId, Timestamp};
use rusqlite::{Connection, OpenFlags, OptionalExtension as _, params};
use rustix::fs::FlockOperation;
use serde_json::{Map, Value};

use crate::keys::{self, KeyCode, parsed};
use crate::record::Status;
use crate::record::leaf::{self, Origin};
use crate::verify::{self, VerifyError};
use crate::writer::{Settled, insert_record, write_head};

/// The version of the tables.
const SCHEMA_VERSION: i64 = 2;
/// Records whose hashes are checked at every start.
const CHECKED_AT_START: u64 = 1_000;
/// The database's file in the ledger's directory.
const FILE: &str = "ledger.db";

/// Outcomes alone have a call and a run, so that the indexes hold nothing else.
const SCHEMA: &str = "
    CREATE TABLE records(seq INTEGER PRIMARY KEY, leaf BLOB NOT NULL, hash BLOB NOT NULL,
        settled_call TEXT, run TEXT, intent_seq INTEGER);
    CREATE UNIQUE INDEX outcome_of_call ON records(settled_call) WHERE settled_call IS NOT NULL;
    CREATE INDEX outcomes_of_run ON records(run) WHERE run IS NOT NULL;
    CREATE TABLE contents(seq INTEGER PRIMARY KEY, bundle BLOB NOT NULL);
    CREATE TABLE open_calls(call TEXT PRIMARY KEY, intent_seq INTEGER NOT NULL, code BLOB NOT NULL)
        WITHOUT ROWID;
    CREATE TABLE keys(id INTEGER PRIMARY KEY, code BLOB NOT NULL, fingerprint BLOB NOT NULL,
        call TEXT NOT NULL, first_call TEXT NOT NULL, attempt INTEGER NOT NULL,
        principal TEXT NOT NULL, status TEXT, updated INTEGER NOT NULL);
    CREATE UNIQUE INDEX key_of_code ON keys(code);
    CREATE TABLE tools(id TEXT PRIMARY KEY, version INTEGER NOT NULL, digest BLOB NOT NULL,
        definition BLOB NOT NULL, registered_by TEXT NOT NULL) WITHOUT ROWID;
    CREATE TABLE tool_versions(id TEXT PRIMARY KEY, version INTEGER NOT NULL) WITHOUT ROWID;
    CREATE TABLE meta(name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
    INSERT INTO meta(name, value) VALUES('head', 0), ('epoch', 0);
";

/// What version 2 adds: questions to people, and their answers.
const SCHEMA_OF_APPROVALS: &str = "
    CREATE TABLE approvals(id INTEGER PRIMARY KEY, approval TEXT NOT NULL, binding BLOB NOT NULL,
        likeness BLOB NOT NULL, principal TEXT NOT NULL, run TEXT NOT NULL,
        asked_seq INTEGER NOT NULL, asked INTEGER NOT NULL, expires INTEGER NOT NULL,
        state TEXT NOT NULL, answered_by TEXT, answered INTEGER, reason TEXT, used_by TEXT);
    CREATE UNIQUE INDEX approval_of_id ON approvals(approval);
    CREATE INDEX approvals_of_binding ON approvals(binding);
    CREATE INDEX approvals_of_likeness ON approvals(likeness);
    CREATE INDEX approvals_of_run ON approvals(principal, run);
    CREATE INDEX approvals_of_state ON approvals(state, expires);
";

/// A ledger that cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The file system refused.
    #[error("{path}: cannot be created or opened")]
    File {
        /// The file or directory.
        path: PathBuf,
        /// What the file system said.
        #[source]
        source: std::io::Error,
    },
    /// Another process has the ledger open.
    #[error("{path}: another process has this ledger open; stop it, or use another home")]
    InUse {
        /// The lock file.
        path: PathBuf,
    },
    /// The database cannot be read or written.
    #[error(
        "{path}: the ledger cannot be opened. If the file is damaged, restore its directory from \
         a backup, or move the directory away to start a new ledger that knows no earlier call"
    )]
    Database {
        /// The file.
        path: PathBuf,
        /// What SQLite said.
        #[source]
        source: rusqlite::Error,
    },
    /// Another version of the gateway wrote the ledger.
    #[error(
        "{path}: the ledger has format {found}, this version reads {SCHEMA_VERSION}; run the \
         version that wrote it"
    )]
    Version {
        /// The file.
        path: PathBuf,
        /// The format that was found.
        found: i64,
    },
    /// A record is not what was written.
    #[error(
        "{path}: the ledger does not verify. Keep the file as evidence and restore its directory \
         from a backup, or move the directory away to start a new ledger that knows no earlier call"
    )]
    Tampered {
        /// The file.
        path: PathBuf,
        /// Which record.
        #[source]
        source: VerifyError,
    },
    /// No random numbers could be had.
    #[error("no random numbers from the system")]
    Random(#[source] getrandom::Error),
    /// A thread of the ledger could not be started.
    #[error("a thread of the ledger cannot be started")]
    Thread(#[source] std::io::Error),
}

/// A call that a crash left open; it is sealed as indeterminate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReconciledCall {
    /// The call.
    pub call: CallId,
    /// The tool that may have acted.
    pub tool: String,
    /// The run.
    pub run: String,
}

/// What opening found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenReport {
    /// Records in the log.
    pub records: u64,
    /// How often the log has been opened, this time included.
    pub epoch: u64,
    /// Calls whose outcome is unknown since the last process ended.
    pub reconciled: Vec<ReconciledCall>,
}

/// An opened database with what was read from it.
pub(crate) struct Opened {
    pub(crate) database: Connection,
    pub(crate) lock: File,
    pub(crate) path: PathBuf,
    pub(crate) secret: [u8; 32],
    pub(crate) next_seq: u64,
    pub(crate) epoch: u64,
    pub(crate) reconciled: Vec<ReconciledCall>,
}

/// Opens or creates the database, checks its tail, and settles what a crash left open.
pub(crate) fn open(directory: &Path, now: Timestamp) -> Result<Opened, OpenError> {
    create_private_directory(directory).map_err(unusable(directory))?;
    let lock = lock(&directory.join("lock"))?;
    let path = directory.join(FILE);
    if !path.exists() {
        write_private(&path, b"").map_err(unusable(&path))?;
        // The name itself must survive a power cut, as SQLite sees to for its own files.
        File::open(directory).and_then(|names| names.sync_all()).map_err(unusable(directory))?;
    }
    let refused = |source| OpenError::Database { path: path.clone(), source };
    let database = connect_writer(&path).map_err(refused)?;
    create_tables(&database, &path)?;
    let secret = secret(&database, &path)?;
    let last = verify::head(&database).map_err(refused)?;
    verify::records(&database, last.saturating_sub(CHECKED_AT_START) + 1, last).map_err(
        |source| match source {
            VerifyError::Database(source) => refused(source),
            source => OpenError::Tampered { path: path.clone(), source },
        },
    )?;
    let (epoch, next_seq, reconciled) = begin_epoch(&database, last, now).map_err(refused)?;
    Ok(Opened { database, lock, path, secret, next_seq, epoch, reconciled })
}

fn unusable(path: &Path) -> impl FnOnce(std::io::Error) -> OpenError {
    let path = path.to_owned();
    |source| OpenError::File { path, source }
}

/// Takes the lock that one process at a time can have.
fn lock(path: &Path) -> Result<File, OpenError> {
    let file = std::fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)
        .map_err(unusable(path))?;
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(OpenError::InUse { path: path.to_owned() }),
        Err(errno) => Err(unusable(path)(errno.into())),
    }
}

fn connect_writer(path: &Path) -> rusqlite::Result<Connection> {
    let database = connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    // A longer log before a checkpoint keeps checkpoints, which sync twice, rare.
    database.execute_batch(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA wal_autocheckpoint = 4000; \
         PRAGMA journal_size_limit = 33554432; PRAGMA cache_size = -16384;",
    )?;
    Ok(database)
}

/// Connects to the database for reading only.
pub(crate) fn connect_reader(path: &Path) -> rusqlite::Result<Connection> {
    connect(path, OpenFlags::SQLITE_OPEN_READ_ONLY)
}

fn connect(path: &Path, access: OpenFlags) -> rusqlite::Result<Connection> {
    let database = Connection::open_with_flags(path, access | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    database.busy_timeout(std::time::Duration::from_secs(5))?;
    database.set_prepared_statement_cache_capacity(32);
    Ok(database)
}

fn create_tables(database: &Connection, path: &Path) -> Result<(), OpenError> {
    let refused = |source| OpenError::Database { path: path.to_owned(), source };
    let found: i64 =
        database.query_row("PRAGMA user_version", [], |row| row.get(0)).map_err(refused)?;
    let missing = match found {
        0 => format!("{SCHEMA} {SCHEMA_OF_APPROVALS}"),
        1 => SCHEMA_OF_APPROVALS.to_owned(),
        SCHEMA_VERSION => return Ok(()),
        found => return Err(OpenError::Version { path: path.to_owned(), found }),
    };
    let create = format!("BEGIN; {missing} PRAGMA user_version = {SCHEMA_VERSION}; COMMIT;");
    database.execute_batch(&create).map_err(refused)
}

/// Returns the ledger's own key, under which idempotency keys and inputs are indexed.
fn secret(database: &Connection, path: &Path) -> Result<[u8; 32], OpenError> {
    let refused = |source| OpenError::Database { path: path.to_owned(), source };
    let stored: Option<[u8; 32]> = database
        .query_row("SELECT value FROM meta WHERE name = 'secret'", [], |row| row.get(0))
        .optional()
        .map_err(refused)?;
    if let Some(secret) = stored {
        return Ok(secret);
    }
    let mut secret = [0; 32];
    getrandom::fill(&mut secret).map_err(OpenError::Random)?;
    database
        .execute("INSERT INTO meta(name, value) VALUES('secret', ?1)", params![secret])
        .map_err(refused)?;
    Ok(secret)
}

/// Counts this opening, and settles what the last process left open, in one transaction.
fn begin_epoch(
    database: &Connection,
    last: u64,
    now: Timestamp,
) -> rusqlite::Result<(u64, u64, Vec<ReconciledCall>)> {
    let transaction = database.unchecked_transaction()?;
    let epoch = transaction.query_row(
        "UPDATE meta SET value = value + 1 WHERE name = 'epoch' RETURNING value",
        [],
        |row| row.get(0),
    )?;
    let mut next_seq = last + 1;
    let mut reconciled = Vec::new();
    for open in open_calls(&transaction)? {
        reconciled.push(open.settle(&transaction, next_seq, Origin { epoch, at: now })?);
        next_seq += 1;
    }
    write_head(&transaction, next_seq - 1)?;
    transaction.commit()?;
    Ok((epoch, next_seq, reconciled))
}

/// An intent without an outcome.
struct OpenCall {
    call: CallId,
    intent_seq: u64,
    code: KeyCode,
    intent: Map<String, Value>,
}

fn open_calls(database: &Connection) -> rusqlite::Result<Vec<OpenCall>> {
    database
        .prepare(
            "SELECT open_calls.call, open_calls.intent_seq, open_calls.code, records.leaf \
             FROM open_calls JOIN records ON records.seq = open_calls.intent_seq \
             ORDER BY open_calls.intent_seq",
        )?
        .query_map([], |row| {
            Ok(OpenCall {
                call: parsed(row, 0)?,
                intent_seq: row.get(1)?,
                code: KeyCode(row.get(2)?),
                intent: serde_json::from_slice(row.get_ref(3)?.as_blob()?).unwrap_or_default(),
            })
        })?
        .collect()
}

impl OpenCall {
    fn settle(
        self,
        database: &Connection,
        seq: u64,
        origin: Origin,
    ) -> rusqlite::Result<ReconciledCall> {
        let Self { call, intent_seq, code, intent } = self;
        let text =
            |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or_default().to_owned();
        let run = text(intent.get("run_id"));
        let tool = text(intent.get("tool").and_then(|tool| tool.get("id")));
        let call_text = call.to_string();
        let settled = Settled { call: &call_text, run: &run, intent_seq: Some(intent_seq) };
        insert_record(database, seq, &leaf::lost(&intent, intent_seq, origin), Some(settled))?;
        database.execute("DELETE FROM open_calls WHERE call = ?1", [&call_text])?;
        keys::set_status(database, code, Status::Indeterminate, origin.at.0)?;
        Ok(ReconciledCall { call, tool, run })
    }
}

/// Creates a directory that only its owner can enter.
pub(crate) fn create_private_directory(path: &Path) -> std::io::Result<()> {
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Writes a file that only its owner can read.
pub(crate) fn write_private(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)?;
    file.write_all(bytes)
}
