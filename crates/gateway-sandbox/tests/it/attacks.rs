//! What a hostile tool tries: `attacks.py`, case by case, with the verdict that each must have.

use std::fs::File;
use std::net::TcpListener;
use std::os::fd::AsFd as _;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};

use crate::harness::cases;
use crate::place::{Place, RUN, describe, program, python, stdout};

cases![no_attack_succeeds, no_file_becomes_set_user_id, the_init_cannot_be_harmed];

const SCRIPT: &str = include_str!("attacks.py");

/// The verdict of each case of the script, by its number.
#[rustfmt::skip]
const EXPECTED: &[(&str, &str)] = &[
    // Files outside of the run.
    ("01", "blocked|EROFS"), ("02", "blocked|ENOENT"), ("03", "blocked|ENOENT"), ("04", "blocked|ENOENT"),
    ("05", "blocked|ENOENT"), ("06", "blocked|ENOENT"), ("07", "blocked|ENOENT"), ("08", "blocked|ENOENT"),
    ("09", "blocked|ENOENT"), ("10", "blocked|ENOENT"),
    // Other processes.
    ("11", "blocked|EACCES"), ("12", "blocked|ENOENT"), ("13", "blocked|ENOENT"), ("14", "blocked|ENOENT"),
    ("15", "blocked|ENOENT"), ("16", "blocked|ENOENT"), ("17", "blocked|EPERM"), ("18", "blocked|EPERM"),
    ("19", "blocked|ESRCH"), ("20", "blocked|ESRCH"), ("21", "blocked|ESRCH"),
    // What was inherited.
    ("22", "blocked|EBADF"), ("23", "blocked|ENOENT"),
    // Sockets.
    ("24", "blocked|ECONNREFUSED"), ("25", "blocked|ENOENT"), ("26", "blocked|ENOENT"), ("27", "blocked|EPERM"),
    ("28", "blocked|EPERM"), ("29", "blocked|EPERM"), ("30", "blocked|EPERM"), ("31", "blocked|EPERM"),
    ("32", "blocked|EPERM"), ("33", "blocked|EPERM"), ("34", "blocked|EPERM"), ("35", "blocked|EPERM"),
    // The kernel.
    ("36", "blocked|ENOSYS"), ("37", "blocked|EPERM"), ("38", "blocked|ENOSYS"), ("39", "blocked|EPERM"),
    ("40", "blocked|EPERM"), ("41", "blocked|EPERM"), ("42", "blocked|ENOENT"), ("43", "blocked|EPERM"),
    ("44", "blocked|EPERM"), ("45", "blocked|EPERM"), ("46", "blocked|EPERM"), ("47", "blocked|EPERM"),
    ("48", "blocked|EPERM"), ("49", "blocked|EPERM"), ("50", "blocked|EPERM"), ("51", "blocked|EINVAL"),
    ("52", "blocked|rc1"), ("53", "blocked|ENOENT"), ("54", "blocked|ENOENT"),
    // Private to the call, so it may.
    ("55", "ALLOWED"),
    ("56", "blocked|ENOENT"), ("57", "blocked|ENOENT"), ("58", "blocked|EACCES"),
    ("59", "blocked|ValueError"), ("60", "blocked|ValueError"), ("61", "blocked|EPERM"), ("62", "blocked|ENOENT"),
    ("63", "blocked|ENOENT"), ("64", "blocked|ENOSYS"),
    // A limit on memory leaves none that is in no account.
    ("65", "blocked|ENOSYS"),
    ("66", "blocked|EACCES"), ("67", "blocked|EPERM"), ("68", "blocked|ENOMEM"), ("69", "blocked|EROFS"),
    ("70", "blocked|ENOENT"),
    // Limits.
    ("71", "blocked|EFBIG"), ("72", "blocked|MemoryError"), ("73", "blocked|EAGAIN"),
    // Work that must not be blocked.
    ("74", "ALLOWED"), ("75", "ALLOWED"), ("76", "ALLOWED"), ("77", "ALLOWED"), ("78", "ALLOWED"), ("79", "ALLOWED"),
    ("80", "blocked|EPERM"),
];

async fn no_attack_succeeds() {
    let mut place = Place::new().await;
    let limits = &mut place.confinement.limits;
    limits.memory_bytes = Some(512 << 20);
    limits.file_bytes = 64 << 20;
    limits.processes = 64;
    // What the attacks are after: services of the gateway, and a descriptor left open by mistake.
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = tcp.local_addr().unwrap().port().to_string();
    let _abstract =
        UnixListener::bind_addr(&SocketAddr::from_abstract_name("gw-abstract").unwrap());
    let _named = UnixListener::bind("/tmp/gw.sock");
    let leaked = File::open("/etc/passwd").unwrap();
    rustix::io::fcntl_setfd(leaked.as_fd(), rustix::io::FdFlags::empty()).unwrap();
    let gateway = std::process::id().to_string();
    let other = place.home().join("artifacts/run_2");
    let receipts = place.home().join("receipts/run_1");
    let paths = [other.to_str().unwrap(), receipts.to_str().unwrap()];
    let args = ["-c", SCRIPT, &gateway, &port, RUN, paths[0], paths[1]];
    let finished = place.run(&program("/usr/bin/python3", &args)).await;
    drop(std::fs::remove_file("/tmp/gw.sock"));
    let printed = stdout(&finished);
    let verdicts: Vec<(&str, &str)> = printed
        .lines()
        .filter_map(|line| {
            let verdict =
                ["|ALLOWED|", "|blocked|"].into_iter().find_map(|word| line.find(word))?;
            Some((line.get(..verdict)?, line.get(verdict + 1..)?))
        })
        .collect();
    let numbers = verdicts.iter().map(|(name, _)| name.get(..2).unwrap_or(name));
    assert!(numbers.eq(EXPECTED.iter().map(|(number, _)| *number)), "{}", describe(&finished));
    let wrong = verdicts
        .iter()
        .zip(EXPECTED)
        .filter(|((_, verdict), (_, expected))| !verdict.starts_with(expected));
    assert_eq!(wrong.collect::<Vec<_>>(), [], "{}", describe(&finished));
    assert!(!place.home().join("artifacts/run_2/x").exists(), "another run was written");
}

/// Runs Python that prints the name of the error of each expression, or what it returned.
async fn errors_of(expressions: &[&str]) -> String {
    let mut code =
        "import os, errno, ctypes, resource, signal\nlibc = ctypes.CDLL(None, use_errno=True)\n"
            .to_owned();
    for expression in expressions {
        code += &format!(
            "try: print({expression})\nexcept OSError as e: print(errno.errorcode[e.errno])\n"
        );
    }
    let place = Place::new().await;
    let finished = place.run(&python(&code)).await;
    assert!(finished.stderr.bytes.is_empty(), "{}", describe(&finished));
    stdout(&finished)
}

async fn no_file_becomes_set_user_id() {
    // On the host the file would belong to the gateway's user.
    let printed = errors_of(&[
        "os.open('a', os.O_CREAT | os.O_WRONLY, 0o4755)",
        "os.open('b', os.O_CREAT | os.O_WRONLY, 0o2755)",
        "os.open('.', os.O_TMPFILE | os.O_WRONLY, 0o4755)",
        "os.mknod('c', 0o104755)",
        "os.chmod('/tmp', 0o2777)",
        "libc.syscall(85, b'd', 0o4755) and errno.errorcode[ctypes.get_errno()]",
        "libc.syscall(452, -100, b'd', 0o4755, 0) and errno.errorcode[ctypes.get_errno()]",
        "libc.syscall(437, -100, b'd', 0, 0) and errno.errorcode[ctypes.get_errno()]",
        "os.close(os.open('fine', os.O_CREAT | os.O_WRONLY, 0o755))",
    ])
    .await;
    assert_eq!(printed, "EPERM\nEPERM\nEPERM\nEPERM\nEPERM\nEPERM\nEPERM\nENOSYS\nNone\n");
}

async fn the_init_cannot_be_harmed() {
    let printed = errors_of(&[
        "resource.prlimit(1, resource.RLIMIT_NOFILE, (0, 0))",
        "os.kill(1, signal.SIGKILL)",
        "os.kill(1, signal.SIGSTOP)",
        "open('/proc/1/mem', 'r+b')",
        "os.listdir('/proc/1/fd')",
        "os.readlink('/proc/1/exe')",
        "os.waitpid(os.posix_spawn('/bin/true', ['true'], {}), 0)[1]",
    ])
    .await;
    // Signals to the first process of a namespace from within it come to nothing.
    let signals = printed.lines().skip(1).take(2).all(|line| matches!(line, "None" | "EPERM"));
    assert!(
        signals && printed.ends_with("EACCES\nEACCES\nEACCES\n0\n") && printed.starts_with("EPERM"),
        "{printed}"
    );
}
