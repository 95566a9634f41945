//! What still holds where an operator switched the sandbox off.

use std::time::Duration;

use gateway_sandbox::{Exit, StoppedBy};

use crate::harness::{SENTINEL, cases};
use crate::place::{Place, describe, mine, processes_with, program, python, stdout};

cases![
    a_program_runs_in_the_host_directory_of_its_run,
    the_environment_is_cleared_all_the_same,
    a_time_out_kills_detached_children_too,
    strays_die_with_the_program,
    output_is_bounded_all_the_same,
];

async fn a_program_runs_in_the_host_directory_of_its_run() {
    let mut place = Place::off().await;
    let host = place.grant("docs", true);
    let finished = place.bash("echo x > made; pwd; exit 3").await;
    assert_eq!(finished.exit, Exit::Code(3), "{}", describe(&finished));
    assert_eq!(finished.profile.to_json()["tier"], "off");
    assert_eq!(stdout(&finished).trim(), place.run_directory().to_str().unwrap());
    assert!(place.run_directory().join("made").exists());
    let mut program = program("/bin/pwd", &[]);
    program.cwd = "/workspace/docs".into();
    assert_eq!(stdout(&place.run(&program).await).trim(), host.to_str().unwrap());
}

async fn the_environment_is_cleared_all_the_same() {
    let place = Place::off().await;
    let printed = stdout(&place.run(&program("/usr/bin/env", &[])).await);
    assert!(!printed.contains(SENTINEL.1) && printed.contains("HOME=/tmp"), "{printed}");
}

const DETACHED: &str = "
import os, signal, sys, time
for _ in range(3):
    if os.fork() == 0:
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if os.fork() == 0: os.execv('/bin/sleep', ['sleep', sys.argv[1]])
        os._exit(0)
    os.wait()
";

async fn a_time_out_kills_detached_children_too() {
    let mut place = Place::off().await;
    place.confinement.limits.wall = Duration::from_millis(700);
    let mut program = python(&format!(
        "{DETACHED}signal.signal(signal.SIGTERM, signal.SIG_IGN)\ntime.sleep(60036)"
    ));
    program.args.push(mine("60036").into());
    let finished = place.run(&program).await;
    assert_eq!(finished.stopped_by, Some(StoppedBy::WallClock), "{}", describe(&finished));
    assert_eq!(processes_with("60036"), [] as [String; 0]);
}

async fn strays_die_with_the_program() {
    let place = Place::off().await;
    let mut program = python(DETACHED);
    program.args.push(mine("60036").into());
    let finished = place.run(&program).await;
    assert_eq!(finished.exit, Exit::Code(0), "{}", describe(&finished));
    assert_eq!(processes_with("60036"), [] as [String; 0]);
}

async fn output_is_bounded_all_the_same() {
    let mut place = Place::off().await;
    place.confinement.limits.stdout_bytes = 1 << 10;
    let finished = place.bash("yes 60036").await;
    assert_eq!(finished.stopped_by, Some(StoppedBy::OutputLimit));
    assert_eq!(finished.stdout.bytes.len(), 1 << 10);
    assert_eq!(processes_with("60036"), [] as [String; 0]);
}
