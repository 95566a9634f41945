//! A home for a ledger under test, a clock that stands still, and calls to journal.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use gateway_ledger::{
    Admission, Admitted, CallFacts, KeyScope, KeyState, Lease, Ledger, LedgerError, LedgerOptions,
    OpenError, OpenReport, Rerun, Settlement, Status, ToolReference,
};
use gateway_model::{
    CallId, Clock, Decision, Digest, Effect, ErrorKind, Face, Principal, SafetyTier, Timestamp,
    ToolError, ToolOutput,
};
use serde_json::{Value, json};
use tempfile::TempDir;

/// 2026-12-01T00:00:00Z.
const START: u64 = 1_796_083_200_000;

pub(crate) const NEVER: Rerun = Rerun { after_failure: false, after_unknown: false };
pub(crate) const ALWAYS: Rerun = Rerun { after_failure: true, after_unknown: true };

/// Time that passes only when a test says so.
pub(crate) struct FixedClock(AtomicU64);

impl FixedClock {
    pub(crate) fn advance(&self, duration: Duration) {
        self.0.fetch_add(u64::try_from(duration.as_millis()).unwrap(), Ordering::Relaxed);
    }
}

impl Clock for FixedClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::Relaxed))
    }
}

pub(crate) struct Home {
    pub(crate) directory: TempDir,
    pub(crate) clock: Arc<FixedClock>,
}

impl Home {
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        Self { directory, clock: Arc::new(FixedClock(AtomicU64::new(START))) }
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn try_open(&self) -> Result<(Ledger, OpenReport), OpenError> {
        let mut options = LedgerOptions::in_home(self.path());
        // The disk of the tests may be nearly full; what then happens has its own test.
        options.reserve_bytes = 0;
        Ledger::open(options, Arc::<FixedClock>::clone(&self.clock))
    }

    pub(crate) fn open(&self) -> Ledger {
        self.try_open().unwrap().0
    }

    /// A connection beside the ledger's, for tampering.
    pub(crate) fn database(&self) -> rusqlite::Connection {
        rusqlite::Connection::open(self.path().join("ledger/ledger.db")).unwrap()
    }
}

/// The call with a number, always the same.
pub(crate) fn call(number: u8) -> CallId {
    CallId::new(Timestamp(START), [number; 10])
}

pub(crate) fn facts(number: u8, tool: &str) -> CallFacts {
    CallFacts {
        call: call(number),
        principal: Principal::Local,
        face: Face::Rest,
        run: "run_1".parse().unwrap(),
        wih: "wih_1".parse().unwrap(),
        correlation: Some("corr_1".parse().unwrap()),
        tool: ToolReference {
            id: tool.parse().unwrap(),
            version: 1,
            digest: Digest::of(b"definition"),
            tier: SafetyTier::T2,
            adapter: "Local",
        },
    }
}

pub(crate) fn decision() -> Decision {
    Decision {
        effect: Effect::Allow,
        rule: "base.t2".to_owned(),
        reason: "tier is within bounds".to_owned(),
        reasons: vec!["base.t2".to_owned()],
        errors: Vec::new(),
        policy_set: Digest::of(b"policies"),
    }
}

pub(crate) fn scope(key: &str) -> KeyScope {
    KeyScope {
        run: "run_1".parse().unwrap(),
        tool: "mail.send".parse().unwrap(),
        key: key.parse().unwrap(),
    }
}

/// A call of a tool with side effects, under the key `corr_1`.
pub(crate) fn effectful(number: u8) -> Admission {
    Admission {
        facts: facts(number, "mail.send"),
        key: Some((scope("corr_1"), NEVER)),
        after: None,
        input: INPUT.to_vec(),
        decision: std::sync::Arc::new(decision()),
        approval: None,
        claim: json!({ "scope": "paths", "paths": ["/workspace/a"] }),
    }
}

pub(crate) const INPUT: &[u8] = br#"{"to":"ann@example.org"}"#;

/// A call of a tool without side effects.
pub(crate) fn effect_free(number: u8) -> Admission {
    Admission { facts: facts(number, "file.read"), key: None, ..effectful(number) }
}

pub(crate) fn output() -> ToolOutput {
    ToolOutput::from_value(json!({ "sent": 1 }))
}

pub(crate) fn succeeded() -> Settlement {
    Settlement {
        status: Status::Ok,
        output: Some(output().to_json().to_string().into_bytes()),
        error: None,
        stdout: Some(b"sent\n".to_vec()),
        stderr: Some(b"\xff\xfe".to_vec()),
        artifacts: None,
        sandbox: json!({ "tier": "namespaces" }),
        claim: json!({ "scope": "paths", "paths": ["/workspace/a"] }),
        started: Timestamp(START),
        duration: Duration::from_millis(20),
        exit: Some(0),
        cpu: Some(Duration::from_micros(1500)),
        max_rss_bytes: Some(1 << 20),
    }
}

pub(crate) fn failure() -> ToolError {
    ToolError::new(ErrorKind::Execution, "exit code 1").with("output", json!({ "raw_output": "x" }))
}

pub(crate) fn ended(status: Status) -> Settlement {
    match status {
        Status::Ok => succeeded(),
        Status::ToolError
        | Status::OutputInvalid
        | Status::Timeout
        | Status::Cancelled
        | Status::Indeterminate
        | Status::NotStarted
        | Status::Resolved => {
            Settlement { status, output: None, error: Some(failure()), ..succeeded() }
        }
    }
}

#[track_caller]
pub(crate) fn lease(admitted: Result<Admitted, LedgerError>) -> Lease {
    match admitted.unwrap() {
        Admitted::Fresh(lease) => lease,
        Admitted::Seen(state) => panic!("the key stands in the way: {state:?}"),
        Admitted::Unapproved => panic!("the approval does not hold"),
    }
}

#[track_caller]
pub(crate) fn seen(admitted: Result<Admitted, LedgerError>) -> KeyState {
    match admitted.unwrap() {
        Admitted::Fresh(lease) => panic!("a second call may act: {lease:?}"),
        Admitted::Seen(state) => state,
        Admitted::Unapproved => panic!("the approval does not hold"),
    }
}

pub(crate) async fn look_up(ledger: &Ledger) -> Result<KeyState, LedgerError> {
    ledger.look_up(&scope("corr_1"), NEVER, Principal::Local, INPUT).await
}

/// Every leaf of the log, parsed.
pub(crate) async fn leaves(ledger: &Ledger) -> Vec<Value> {
    let records = ledger.records(0, u32::MAX).await.unwrap();
    records.iter().map(|record| serde_json::from_str(&record.leaf).unwrap()).collect()
}

/// The status of a call in its receipt.
pub(crate) async fn status(ledger: &Ledger, number: u8) -> Option<String> {
    let receipt = ledger.receipt(call(number)).await.unwrap()?;
    receipt.to_json()["status"].as_str().map(str::to_owned)
}
