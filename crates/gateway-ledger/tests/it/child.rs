//! This test binary again, as a process that can be killed or starved of disk space.
#![expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "a test starts itself again, tells the child its home, and reads what it prints"
)]

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;

use gateway_ledger::{Admission, Ledger, LedgerOptions};
use gateway_model::{CallId, Clock as _, SystemClock};
use tokio::task::JoinSet;

use crate::home::{effectful, lease, scope, succeeded};

const HOME: &str = "LEDGER_TEST_HOME";

/// The home that the parent chose.
pub(crate) fn home() -> PathBuf {
    std::env::var_os(HOME).expect("started by its parent").into()
}

fn itself(home: &Path, test: &str, shell: Option<&str>) -> Command {
    let program = std::env::current_exe().unwrap();
    let mut command = match shell {
        None => Command::new(program),
        Some(script) => {
            let mut command = Command::new("sh");
            command.args(["-c", script, "sh"]).arg(program);
            command
        }
    };
    command.args([test, "--exact", "--ignored", "--nocapture"]).env(HOME, home);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs a test of this binary to its end, under a shell script that ends in `exec "$@"`.
pub(crate) fn run(home: &Path, test: &str, script: &str) -> Output {
    itself(home, test, Some(script)).output().unwrap()
}

/// Starts a test of this binary, kills it after some acknowledgements, returns all of them.
pub(crate) fn kill_after(home: &Path, test: &str, count: usize) -> Vec<CallId> {
    let mut child: Child = itself(home, test, None).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut acknowledged = Vec::new();
    for line in lines {
        if let Some(call) = line.unwrap().strip_prefix("acknowledged ") {
            acknowledged.push(call.parse().unwrap());
        }
        if acknowledged.len() == count {
            child.kill().unwrap();
        }
    }
    child.wait().unwrap();
    acknowledged
}

fn call(number: u64) -> Admission {
    let mut admission = effectful(0);
    admission.facts.call = CallId::generate(SystemClock.now());
    admission.key = admission.key.map(|(_, rerun)| {
        let name = format!("corr_{number}_{}", admission.facts.call);
        (scope(&name), rerun)
    });
    admission
}

/// Eight callers at once, for ever.
pub(crate) async fn write_until_killed(home: &Path) {
    let options = LedgerOptions { reserve_bytes: 0, ..LedgerOptions::in_home(home) };
    let ledger = Arc::new(Ledger::open(options, Arc::new(SystemClock)).unwrap().0);
    let mut callers = JoinSet::new();
    for number in 0..8 {
        let ledger = Arc::clone(&ledger);
        callers.spawn(async move {
            loop {
                let running = lease(ledger.admit(call(number)).await);
                let id = running.call();
                ledger.settle(running, succeeded()).await.unwrap();
                println!("acknowledged {id}");
            }
        });
    }
    callers.join_all().await;
}

/// One caller until the ledger refuses; prints what was acknowledged, returns the refusal.
pub(crate) async fn write_until_refused(ledger: &Ledger, output_bytes: usize) -> String {
    for number in 0.. {
        let running = match ledger.admit(call(number)).await {
            Ok(admitted) => lease(Ok(admitted)),
            Err(refusal) => return refusal.to_string(),
        };
        let id = running.call();
        let mut settlement = succeeded();
        settlement.stdout = Some(vec![b'x'; output_bytes]);
        match ledger.settle(running, settlement).await {
            Ok(_seq) => println!("acknowledged {id}"),
            Err(refusal) => return refusal.to_string(),
        }
    }
    String::new()
}

/// The acknowledgements that a child printed.
pub(crate) fn acknowledged(output: &Output) -> Vec<CallId> {
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| line.strip_prefix("acknowledged ")?.parse().ok())
        .collect()
}
