//! What ends a program before it ends by itself, and that nothing of it is left then.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use gateway_sandbox::{Exit, LaunchError, StoppedBy};
use tokio_util::sync::CancellationToken;

use crate::harness::{cases, command};
use crate::place::{Place, bash, describe, mine, processes_with, python, stdout};

cases![
    a_grandchild_that_ignores_the_polite_stop_is_killed,
    a_program_may_tidy_up_when_its_time_is_over,
    a_cancelled_call_keeps_what_was_printed,
    detached_children_die_with_a_time_out,
    children_left_behind_die_with_the_program,
    a_dropped_run_leaves_nothing,
    a_killed_gateway_leaves_nothing,
    a_flood_is_stopped_and_its_start_is_kept,
    output_beyond_the_limit_is_counted,
    streams_of_both_kinds_are_drained_together,
    a_lost_helper_leaves_it_open_what_the_program_did,
    a_killed_init_leaves_it_open_what_the_program_did,
];

/// The argument that makes this program run a tool for ever.
pub(crate) const RUN_FOREVER: &str = "__forever";

/// Far more than anything here may take, on a machine that is busy.
const PATIENCE: Duration = Duration::from_secs(20);

async fn until(is_so: impl Fn() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < PATIENCE, "waited in vain");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[track_caller]
fn check_nothing_is_left(marker: &str) {
    assert_eq!(processes_with(marker), [] as [String; 0], "processes of {marker} are left");
}

async fn a_grandchild_that_ignores_the_polite_stop_is_killed() {
    let mut place = Place::new().await;
    place.confinement.limits.wall = Duration::from_millis(400);
    let started = Instant::now();
    let finished =
        place.bash("echo early; trap '' TERM; (trap '' TERM; sleep 60036) & sleep 60036").await;
    assert_eq!((finished.exit, finished.stopped_by), (Exit::Signal(9), Some(StoppedBy::WallClock)));
    assert_eq!(stdout(&finished), "early\n");
    assert!(started.elapsed() >= Duration::from_millis(700), "limit and grace were not waited for");
    assert!(started.elapsed() < PATIENCE);
    assert!(finished.usage.cpu.is_some() && finished.usage.max_rss_bytes.is_some(), "{finished:?}");
    check_nothing_is_left("60036");
}

async fn a_program_may_tidy_up_when_its_time_is_over() {
    let mut place = Place::new().await;
    place.confinement.limits.wall = Duration::from_millis(400);
    place.confinement.limits.grace = PATIENCE;
    let finished = place.bash("trap 'echo bye; exit 3' TERM; sleep 60036 & wait").await;
    assert_eq!((finished.exit, finished.stopped_by), (Exit::Code(3), Some(StoppedBy::WallClock)));
    assert_eq!(stdout(&finished), "bye\n");
    check_nothing_is_left("60036");
}

async fn a_cancelled_call_keeps_what_was_printed() {
    let place = Place::new().await;
    let cancel = CancellationToken::new();
    let program = bash("echo early; exec sleep 60036");
    let run = place.sandbox.run(&program, &place.confinement, &cancel);
    let stop = async {
        until(|| !processes_with("sleep\x0060036").is_empty()).await;
        cancel.cancel();
    };
    let (finished, ()) = tokio::join!(run, stop);
    let finished = finished.unwrap();
    assert_eq!(
        (finished.exit, finished.stopped_by),
        (Exit::Signal(15), Some(StoppedBy::Cancelled))
    );
    assert_eq!(stdout(&finished), "early\n");
}

/// Ten processes in sessions of their own, which ignore the polite stop and hold the streams.
const DETACHED: &str = "
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
for _ in range(10):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.execv('/bin/sleep', ['sleep', sys.argv[1]])
        os._exit(0)
    os.wait()
print('started', flush=True)
";

async fn detached_children_die_with_a_time_out() {
    let mut place = Place::new().await;
    place.confinement.limits.wall = Duration::from_millis(800);
    let mut program = python(&format!("{DETACHED}time.sleep(60036)"));
    program.args.push(mine("60036").into());
    let finished = place.run(&program).await;
    assert_eq!(
        (stdout(&finished).as_str(), finished.stopped_by),
        ("started\n", Some(StoppedBy::WallClock))
    );
    check_nothing_is_left("60036");
}

async fn children_left_behind_die_with_the_program() {
    let place = Place::new().await;
    let mut program = python(DETACHED);
    program.args.push(mine("60036").into());
    let started = Instant::now();
    let finished = place.run(&program).await;
    assert_eq!(
        (finished.exit, finished.stopped_by),
        (Exit::Code(0), None),
        "{}",
        describe(&finished)
    );
    assert!(started.elapsed() < PATIENCE, "the streams of what was left behind were waited for");
    check_nothing_is_left("60036");
}

async fn a_dropped_run_leaves_nothing() {
    let place = Place::new().await;
    let program = bash("sleep 60036 & sleep 60036");
    tokio::select! {
        finished = place.try_run(&program) => panic!("{finished:?}"),
        () = until(|| processes_with("sleep\x0060036").len() == 2) => {}
    }
    until(|| processes_with("60036").is_empty()).await;
    place.succeeds("true").await;
}

async fn a_killed_gateway_leaves_nothing() {
    // It cannot tidy up after itself.
    let shelf = tempfile::tempdir().unwrap();
    let mut gateway = command(&crate::place::helper());
    gateway.args([RUN_FOREVER, &mine("60036")]).env("TMPDIR", shelf.path());
    let mut gateway = gateway.spawn().unwrap();
    until(|| processes_with("sleep\x0060036").len() == 11).await;
    gateway.kill().unwrap();
    gateway.wait().unwrap();
    until(|| processes_with("60036").is_empty()).await;
}

/// A gateway whose tool does not end.
pub(crate) fn run_forever(args: &[String]) -> ExitCode {
    let marker = args.get(1).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let place = Place::new().await;
        let mut program =
            python(&format!("{DETACHED}os.execv('/bin/sleep', ['sleep', sys.argv[1]])"));
        program.args.push(marker.into());
        place.run(&program).await
    });
    ExitCode::SUCCESS
}

async fn a_flood_is_stopped_and_its_start_is_kept() {
    let mut place = Place::new().await;
    place.confinement.limits.stdout_bytes = 64 << 10;
    let finished = place.bash("yes 60036").await;
    assert_eq!(
        (finished.exit, finished.stopped_by),
        (Exit::Signal(9), Some(StoppedBy::OutputLimit))
    );
    assert_eq!(finished.stdout.bytes.len(), 64 << 10);
    assert!(finished.stdout.is_truncated() && finished.stdout.total_bytes > 512 << 10);
    assert_eq!(stdout(&finished).lines().next(), Some(mine("60036").as_str()));
    check_nothing_is_left("60036");
}

async fn output_beyond_the_limit_is_counted() {
    let mut place = Place::new().await;
    place.confinement.limits.stdout_bytes = 1_000;
    let finished = place.bash("head -c 7999 /dev/zero; echo done >&2").await;
    assert_eq!((finished.exit, finished.stopped_by), (Exit::Code(0), None));
    assert_eq!((finished.stdout.bytes.len(), finished.stdout.total_bytes), (1_000, 7_999));
    assert_eq!(finished.stderr.bytes, b"done\n");
    assert!(!finished.stderr.is_truncated());
}

async fn streams_of_both_kinds_are_drained_together() {
    let place = Place::new().await;
    let mut program =
        python("import sys\nsys.stderr.write('e' * 200000)\nsys.stdout.write(sys.stdin.read())");
    program.stdin = vec![b'x'; 300_000];
    let finished = place.run(&program).await;
    assert_eq!((finished.stderr.bytes.len(), finished.stdout.bytes.len()), (200_000, 300_000));
}

async fn a_lost_helper_leaves_it_open_what_the_program_did() {
    // Only where it is switched off can a tool reach its own helper.
    let place = Place::off().await;
    let program = bash("echo x > made; kill -9 $PPID; sleep 60036");
    let lost = place.sandbox.run(&program, &place.confinement, &CancellationToken::new()).await;
    assert!(matches!(lost, Err(LaunchError::Lost(_))), "{lost:?}");
    assert!(place.run_directory().join("made").exists());
    check_nothing_is_left("60036");
}

async fn a_killed_init_leaves_it_open_what_the_program_did() {
    let place = Place::new().await;
    let program = bash("echo x > made; exec sleep 60036");
    let cancel = CancellationToken::new();
    let run = place.sandbox.run(&program, &place.confinement, &cancel);
    let kill = async {
        until(|| !processes_with("sleep\x0060036").is_empty()).await;
        kill_parent_of(&processes_with("sleep\x0060036")[0]);
    };
    let (lost, ()) = tokio::join!(run, kill);
    assert!(matches!(lost, Err(LaunchError::Lost(_))), "{lost:?}");
    assert!(place.run_directory().join("made").exists());
    until(|| processes_with("60036").is_empty()).await;
}

fn kill_parent_of(process: &str) {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let parent = status.lines().find_map(|line| line.strip_prefix("PPid:\t")).unwrap();
    let parent = rustix::process::Pid::from_raw(parent.parse().unwrap()).unwrap();
    rustix::process::kill_process(parent, rustix::process::Signal::KILL).unwrap();
}
