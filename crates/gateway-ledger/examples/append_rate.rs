//! Prints how many durable calls the ledger takes beside a bare group-committed INSERT.
//!
//! `cargo run --release -p gateway-ledger --example append_rate [SECONDS] [DIRECTORY]`
//!
//! The floor inserts one record of 768 bytes; its writer is a thread that commits what waits.
//! Rounds alternate, so that a drift of the machine meets all of them.
#![expect(clippy::print_stdout, reason = "a program that prints what it measured")]
#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::cast_precision_loss,
    reason = "a measurement ends at the first failure"
)]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use gateway_ledger::{
    Admission, Admitted, CallFacts, KeyScope, Ledger, LedgerOptions, Rerun, Settlement, Status,
    ToolReference,
};
use gateway_model::{
    CallId, Clock as _, Decision, Digest, Effect, Face, Principal, SafetyTier, SystemClock,
};
use serde_json::json;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

const SUBMITTERS: [usize; 3] = [1, 8, 64];
const ROUNDS: usize = 3;

type Durable = oneshot::Sender<()>;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let seconds = arguments.next().map_or(2, |text| text.parse().expect("seconds"));
    let directory = match arguments.next() {
        Some(parent) => tempfile::tempdir_in(parent),
        None => tempfile::tempdir(),
    };
    let directory = directory.expect("temporary directory");
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("runtime");
    runtime.block_on(measure(directory.path(), Duration::from_secs(seconds)));
}

async fn measure(directory: &Path, duration: Duration) {
    let floor = floor(&directory.join("floor.db"));
    let (ledger, _report) =
        Ledger::open(LedgerOptions::in_home(directory), Arc::new(SystemClock)).expect("ledger");
    let ledger = Arc::new(ledger);
    println!("medians of {ROUNDS} rounds of {duration:?}; a call with a key has two records\n");
    println!("                 floor           without key      with key         records of floor");
    println!("submitters  records/s      p99  calls/s     p99  calls/s     p99  without  with");
    for submitters in SUBMITTERS {
        let mut rounds = [Vec::new(), Vec::new(), Vec::new()];
        for _ in 0..ROUNDS {
            let queue = floor.clone();
            rounds[0].push(round(submitters, duration, move |_| append(queue.clone())).await);
            for (round_of, is_keyed) in [(1, false), (2, true)] {
                let ledger = Arc::clone(&ledger);
                let one = move |number| call(Arc::clone(&ledger), number, is_keyed);
                rounds[round_of].push(round(submitters, duration, one).await);
            }
        }
        let [floor, plain, keyed] = rounds.map(median);
        println!(
            "{submitters:>10} {:>10.0} {:>8.1?} {:>7.0} {:>8.1?} {:>7.0} {:>8.1?} {:>7.2} {:>6.2}",
            floor.0,
            floor.1,
            plain.0,
            plain.1,
            keyed.0,
            keyed.1,
            plain.0 / floor.0,
            2.0 * keyed.0 / floor.0,
        );
    }
    ledger.close().await;
    drop(ledger);
    let started = Instant::now();
    let (_ledger, report) =
        Ledger::open(LedgerOptions::in_home(directory), Arc::new(SystemClock)).expect("ledger");
    println!("\nopening it again with {} records: {:.1?}", report.records, started.elapsed());
}

fn median(mut rounds: Vec<(f64, Duration)>) -> (f64, Duration) {
    rounds.sort_by(|a, b| a.0.total_cmp(&b.0));
    rounds[rounds.len() / 2]
}

/// Returns operations per second and the 99th percentile of their latency.
async fn round<F>(
    submitters: usize,
    duration: Duration,
    one: impl Fn(u64) -> F + Clone + Send + 'static,
) -> (f64, Duration)
where
    F: Future<Output = ()> + Send + 'static,
{
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let started = Instant::now();
    let mut tasks = JoinSet::new();
    for _ in 0..submitters {
        let one = one.clone();
        tasks.spawn(async move {
            let mut latencies = Vec::new();
            while started.elapsed() < duration {
                let sent = Instant::now();
                one(NUMBER.fetch_add(1, Ordering::Relaxed)).await;
                latencies.push(sent.elapsed());
            }
            latencies
        });
    }
    let mut latencies = Vec::new();
    while let Some(task) = tasks.join_next().await {
        latencies.extend(task.expect("submitter"));
    }
    let rate = latencies.len() as f64 / started.elapsed().as_secs_f64();
    latencies.sort_unstable();
    (rate, latencies[latencies.len() * 99 / 100])
}

async fn append(queue: mpsc::Sender<Durable>) {
    let (done, durable) = oneshot::channel();
    queue.send(done).await.expect("floor's writer");
    durable.await.expect("floor's commit");
}

fn floor(path: &Path) -> mpsc::Sender<Durable> {
    let database = rusqlite::Connection::open(path).expect("floor's database");
    database
        .execute_batch(
            "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; \
             CREATE TABLE records(seq INTEGER PRIMARY KEY, leaf BLOB NOT NULL)",
        )
        .expect("floor's table");
    let (sender, mut queue) = mpsc::channel::<Durable>(8_192);
    std::thread::spawn(move || {
        let mut group = Vec::new();
        while queue.blocking_recv_many(&mut group, 1_024) > 0 {
            database.execute_batch("BEGIN IMMEDIATE").expect("begin");
            for _ in &group {
                database
                    .prepare_cached("INSERT INTO records(leaf) VALUES(?1)")
                    .expect("statement")
                    .execute([&[7_u8; 768][..]])
                    .expect("insert");
            }
            database.execute_batch("COMMIT").expect("commit");
            for done in group.drain(..) {
                done.send(()).expect("submitter");
            }
        }
    });
    sender
}

async fn call(ledger: Arc<Ledger>, number: u64, is_keyed: bool) {
    let admitted = ledger.admit(admission(number, is_keyed)).await.expect("admission");
    let Admitted::Fresh(lease) = admitted else { return };
    let settlement = Settlement {
        status: Status::Ok,
        output: Some(br#"{"structured":{"message":"hello"}}"#.to_vec()),
        error: None,
        stdout: None,
        stderr: None,
        artifacts: None,
        sandbox: json!({ "tier": "in_process" }),
        claim: json!({ "scope": "none" }),
        started: SystemClock.now(),
        duration: Duration::from_micros(20),
        exit: None,
        cpu: None,
        max_rss_bytes: None,
    };
    ledger.settle(lease, settlement).await.expect("settlement");
}

fn admission(number: u64, is_keyed: bool) -> Admission {
    let parse = "valid";
    let facts = CallFacts {
        call: CallId::generate(SystemClock.now()),
        principal: Principal::Local,
        face: Face::Rest,
        run: format!("run_{}", number % 16).parse().expect(parse),
        wih: "wih_1".parse().expect(parse),
        correlation: Some(format!("corr_{number}").parse().expect(parse)),
        tool: ToolReference {
            id: "bench.echo".parse().expect(parse),
            version: 1,
            digest: Digest::of(b"definition"),
            tier: SafetyTier::T0,
            adapter: "Sdk",
        },
    };
    let scope = KeyScope {
        run: facts.run.clone(),
        tool: facts.tool.id.clone(),
        key: format!("corr_{number}").parse().expect(parse),
    };
    let rerun = Rerun { after_failure: false, after_unknown: false };
    Admission {
        facts,
        key: is_keyed.then_some((scope, rerun)),
        after: None,
        input: br#"{"message":"hello"}"#.to_vec(),
        decision: std::sync::Arc::new(Decision {
            effect: Effect::Allow,
            rule: "base.t0".to_owned(),
            reason: "reads only".to_owned(),
            reasons: vec!["base.t0".to_owned()],
            errors: Vec::new(),
            policy_set: Digest::of(b"policies"),
        }),
        approval: None,
        claim: json!({ "scope": "none" }),
    }
}
