//! No process outlives its call, and none outlives the gateway.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use gateway_sandbox::Exit;

use crate::Case;
use crate::fixture::{Fixture, block_on, shell, text};

pub(crate) const CASES: &[Case] = &[
    ("daemons_end_with_the_tool", daemons_end_with_the_tool),
    ("children_that_ignore_the_stop_end_too", children_that_ignore_the_stop_end_too),
    ("a_killed_gateway_takes_its_calls_along", a_killed_gateway_takes_its_calls_along),
    ("without_confinement_the_tree_ends_too", without_confinement_the_tree_ends_too),
];

/// Daemons of their own sessions, twice forked, that hold the streams and ignore every stop.
fn daemons(mark: &str) -> String {
    format!(
        "for n in 1 2 3 4 5; do setsid bash -c '(trap \"\" TERM HUP INT; exec -a {mark} sleep 600) & disown' & done; \
         wait; sleep 0.3; echo started"
    )
}

/// Counts the processes of this machine that carry a mark.
fn marked(mark: &str) -> usize {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let lines = processes.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    lines.filter(|line| line.starts_with(mark.as_bytes())).count()
}

fn mark(name: &str) -> String {
    format!("stray-{name}-{}", std::process::id())
}

fn daemons_end_with_the_tool() {
    let mark = mark("daemon");
    let fixture = Fixture::new();
    let printed = fixture.shell_ok(&daemons(&mark));
    assert_eq!(printed, "started\n");
    assert_eq!(marked(&mark), 0);
}

fn children_that_ignore_the_stop_end_too() {
    let mark = mark("ignoring");
    let mut fixture = Fixture::new();
    fixture.confinement.limits.wall = Duration::from_millis(1_500);
    fixture.confinement.limits.grace = Duration::from_millis(200);
    let finished = fixture.shell(&format!("{}; sleep 600", daemons(&mark)));
    assert_eq!(text(&finished.stdout.bytes), "started\n");
    assert_eq!(marked(&mark), 0);
}

/// The part of the next case that is killed: it starts a call and says when it runs.
const VICTIM: &str = "--victim";

fn a_killed_gateway_takes_its_calls_along() {
    if let Some(mark) = std::env::args().skip_while(|argument| argument != VICTIM).nth(1) {
        let fixture = Fixture::new();
        let line = format!("{}; exec -a {mark} sleep 600", daemons(&mark));
        let program = shell(&line);
        drop(block_on(fixture.start(&program)));
        return;
    }
    let mark = mark("orphan");
    let mut victim = Command::new(std::env::current_exe().unwrap())
        .args(["a_killed_gateway_takes_its_calls_along", crate::AS_ORDINARY_USER, VICTIM, &mark])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let started = Instant::now();
    // `exec -a` gives the mark to the tool itself once its daemons run.
    while marked(&mark) < 6 {
        assert!(started.elapsed() < Duration::from_secs(30), "{} of 6 run", marked(&mark));
        std::thread::yield_now();
    }
    victim.kill().unwrap();
    victim.wait().unwrap();
    let killed = Instant::now();
    while marked(&mark) > 0 {
        assert!(killed.elapsed() < Duration::from_secs(10), "{} survive", marked(&mark));
        std::thread::yield_now();
    }
    let left = victim.stdout.take().map(|stdout| BufReader::new(stdout).lines().count());
    assert!(left.is_some());
}

fn without_confinement_the_tree_ends_too() {
    let mark = mark("unconfined");
    let mut fixture = Fixture::unconfined();
    fixture.confinement.limits.wall = Duration::from_secs(20);
    let finished = fixture.shell(&daemons(&mark));
    assert_eq!((finished.exit, text(&finished.stdout.bytes).as_str()), (Exit::Code(0), "started\n"));
    assert_eq!(finished.profile.to_json()["tier"], "off");
    assert_eq!(marked(&mark), 0);
}
