//! What a call may use, and what happens beyond it.

use std::time::Duration;

use gateway_sandbox::{Exit, StoppedBy};

use crate::harness::cases;
use crate::place::{Place, bash, describe, processes_with, python, stdout};

cases![
    temporary_files_are_bounded,
    inodes_are_bounded,
    memory_of_all_processes_is_added_up,
    files_in_memory_count,
    memory_without_an_owner_is_not_to_be_had_under_a_limit,
    a_call_is_stopped_before_a_disk_is_full,
    processes_are_counted_for_each_call_alone,
    a_fork_bomb_ends_with_its_call,
    a_busy_loop_ends_at_its_processor_time,
    processor_time_of_all_processes_is_added_up,
    a_crash_leaves_no_core,
    what_was_used_is_told,
];

async fn temporary_files_are_bounded() {
    let mut place = Place::new().await;
    place.confinement.limits.tmp_bytes = 100 << 20;
    let line = "for i in 1 2 3; do head -c 40M /dev/zero > /tmp/$i || exit 7; done";
    let finished = place.bash(line).await;
    assert_eq!(finished.exit, Exit::Code(7), "{}", describe(&finished));
    assert!(describe(&finished).contains("No space left on device"), "{}", describe(&finished));
}

async fn inodes_are_bounded() {
    let place = Place::new().await;
    let code = "import errno\ntry:\n for i in range(6000): open(f'/tmp/{i}', 'w').close()\nexcept OSError as e: print(i, errno.errorcode[e.errno])";
    let printed = stdout(&place.run(&python(code)).await);
    let (count, error) = printed.trim().split_once(' ').unwrap();
    assert!(count.parse::<u32>().unwrap() < 4_096 && error == "ENOSPC", "{printed}");
}

async fn memory_of_all_processes_is_added_up() {
    let mut place = Place::new().await;
    place.confinement.limits.memory_bytes = Some(150 << 20);
    // Each stays below what a single process may have.
    let code =
        "import os, time\nfor _ in range(3): os.fork()\nx = b'x' * (60 << 20)\ntime.sleep(60036)";
    let finished = place.run(&python(code)).await;
    assert_eq!(finished.stopped_by, Some(StoppedBy::MemoryLimit), "{}", describe(&finished));
    assert_eq!(processes_with("60036"), [] as [String; 0]);
}

async fn files_in_memory_count() {
    let mut place = Place::new().await;
    place.confinement.limits.memory_bytes = Some(100 << 20);
    let finished = place
        .bash("head -c 90M /dev/zero > /tmp/a; head -c 40M /dev/zero > /dev/shm/b; sleep 60036")
        .await;
    assert_eq!(finished.stopped_by, Some(StoppedBy::MemoryLimit), "{}", describe(&finished));
}

const UNOWNED: &str = "
import ctypes, errno, os
libc = ctypes.CDLL(None, use_errno=True)
def tried(work):
    try:
        return work()
    except OSError as e:
        return errno.errorcode[e.errno]
def segment():
    if libc.shmget(0, 1 << 20, 0o1600) < 0:
        raise OSError(ctypes.get_errno(), '')
    return 'made'
def memfd():
    os.close(os.memfd_create('x'))
    return 'made'
print(tried(memfd), tried(segment))
";

async fn memory_without_an_owner_is_not_to_be_had_under_a_limit() {
    let mut place = Place::new().await;
    assert_eq!(stdout(&place.run(&python(UNOWNED)).await), "made made\n");
    place.confinement.limits.memory_bytes = Some(64 << 20);
    assert_eq!(stdout(&place.run(&python(UNOWNED)).await), "ENOSYS ENOSYS\n");
}

async fn a_call_is_stopped_before_a_disk_is_full() {
    let mut place = Place::new().await;
    place.confinement.limits.free_bytes = Some(u64::MAX);
    let finished = place.bash("echo begun > f; sleep 60036").await;
    assert_eq!(finished.stopped_by, Some(StoppedBy::DiskFull), "{}", describe(&finished));
    assert_eq!(processes_with("60036"), [] as [String; 0]);
    // Who may write nowhere fills no disk.
    place.confinement.run.as_mut().unwrap().writable = false;
    assert_eq!(place.succeeds("sleep 0.5; echo ended").await, "ended\n");
}

const FORKS: &str = "
import os, time
count = 0
try:
    for _ in range(400):
        if os.fork() == 0:
            time.sleep(60)
            os._exit(0)
        count += 1
except OSError as e:
    print(count)
time.sleep(1)
";

async fn processes_are_counted_for_each_call_alone() {
    let mut place = Place::new().await;
    place.confinement.limits.processes = 64;
    let program = python(FORKS);
    let (one, other) = tokio::join!(place.run(&program), place.run(&program));
    // The program is one of the 64 itself.
    assert_eq!(
        (stdout(&one).as_str(), stdout(&other).as_str()),
        ("63\n", "63\n"),
        "{}",
        describe(&one)
    );
}

async fn a_fork_bomb_ends_with_its_call() {
    let mut place = Place::new().await;
    place.confinement.limits.processes = 64;
    place.confinement.limits.wall = Duration::from_millis(700);
    let finished =
        place.bash("b60036(){ b60036|b60036& };b60036; trap '' TERM; while :; do :; done").await;
    assert_eq!(finished.stopped_by, Some(StoppedBy::WallClock), "{:?}", finished.exit);
    assert_eq!(processes_with("b60036"), [] as [String; 0]);
}

async fn a_busy_loop_ends_at_its_processor_time() {
    let mut place = Place::new().await;
    place.confinement.limits.cpu = Some(Duration::from_secs(1));
    let finished = place.bash("while :; do :; done").await;
    assert_eq!(finished.stopped_by, Some(StoppedBy::CpuLimit), "{}", describe(&finished));
    assert!(finished.usage.cpu.unwrap() < Duration::from_secs(4), "{:?}", finished.usage);
}

async fn processor_time_of_all_processes_is_added_up() {
    let mut place = Place::new().await;
    place.confinement.limits.cpu = Some(Duration::from_secs(1));
    let line = "while :; do timeout 0.2 bash -c 'while :; do :; done'; done";
    let finished = place.bash(line).await;
    assert_eq!(finished.stopped_by, Some(StoppedBy::CpuLimit), "{}", describe(&finished));
}

async fn a_crash_leaves_no_core() {
    let place = Place::new().await;
    let finished = place.run(&bash("ulimit -c; kill -SEGV $$")).await;
    assert_eq!((finished.exit, stdout(&finished).as_str()), (Exit::Signal(11), "0\n"));
    assert_eq!(std::fs::read_dir(place.run_directory()).unwrap().count(), 0);
}

async fn what_was_used_is_told() {
    let place = Place::new().await;
    let finished =
        place.run(&python("x = b'x' * (50 << 20)\nwhile sum(range(10000)) < 0: pass")).await;
    let usage = finished.usage;
    assert!(
        usage.max_rss_bytes.unwrap() > 50 << 20 && usage.max_rss_bytes.unwrap() < 200 << 20,
        "{usage:?}"
    );
    assert!(
        usage.cpu.unwrap() > Duration::from_millis(1) && usage.cpu.unwrap() <= usage.wall * 2,
        "{usage:?}"
    );
    let profile = finished.profile.to_json();
    assert_eq!(profile["tier"], "namespaces");
    assert!(profile["landlock_abi"].as_i64().unwrap() >= 1, "{profile}");
}
