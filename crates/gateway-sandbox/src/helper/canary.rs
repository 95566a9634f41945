//! What a start-up tries from inside the sandbox: attacks that must fail, and work that must not.

use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;

use crate::sys::{mount, process};

/// Identifiers of processes that the namespace itself uses; a host's may be as small by chance.
const OWN_PROCESSES: i32 = 16;

/// Returns what did not turn out as it must.
pub(super) fn faults(gateway: i32, secret: &Path, writable: Option<&Path>) -> Vec<String> {
    let attacks = attacks(gateway, secret).into_iter();
    let escaped = attacks
        .filter(|(_, has_succeeded)| *has_succeeded)
        .map(|(name, _)| format!("attack succeeded: {name}"));
    let work = work(writable).into_iter();
    let blocked = work
        .filter(|(_, has_succeeded)| !*has_succeeded)
        .map(|(name, _)| format!("work was refused: {name}"));
    escaped.chain(blocked).collect()
}

fn attacks(gateway: i32, secret: &Path) -> [(&'static str, bool); 18] {
    let foreign = (gateway > OWN_PROCESSES).then_some(gateway);
    let writes =
        |path: &str| File::options().write(true).create(true).truncate(false).open(path).is_ok();
    let calls = |number, a, b| process::attempt(number, [a, b, 0]).is_ok();
    let socket =
        |family: libc::c_int| calls(libc::SYS_socket, family.into(), libc::SOCK_DGRAM.into());
    [
        ("write /etc/passwd", writes("/etc/passwd")),
        ("write into /usr", writes("/usr/allternit-canary")),
        ("write into /", writes("/allternit-canary")),
        ("write a kernel setting", writes("/proc/sys/kernel/core_pattern")),
        ("read /etc/shadow", File::open("/etc/shadow").is_ok()),
        ("see the gateway's home", is_seen(secret)),
        (
            "see the gateway's process",
            foreign.is_some_and(|id| Path::new(&format!("/proc/{id}")).exists()),
        ),
        ("signal the gateway", foreign.is_some_and(|id| calls(libc::SYS_kill, id.into(), 0))),
        ("look into the init", File::open("/proc/1/environ").is_ok()),
        ("trace", calls(libc::SYS_ptrace, libc::c_long::from(libc::PTRACE_TRACEME), 0)),
        ("open an internet socket", socket(libc::AF_INET)),
        ("open a netlink socket", socket(libc::AF_NETLINK)),
        (
            "make a user namespace",
            calls(libc::SYS_unshare, libc::c_long::from(libc::CLONE_NEWUSER), 0),
        ),
        ("mount", mount::mount(c"tmpfs", c"/tmp", 0, c"").is_ok()),
        ("change the root", rustix::process::chroot("/tmp").is_ok()),
        ("open a BPF map", calls(libc::SYS_bpf, 0, 0)),
        ("become root", calls(libc::SYS_setuid, 0, 0)),
        ("hold a foreign descriptor", holds_foreign_descriptor()),
    ]
}

fn work(writable: Option<&Path>) -> [(&'static str, bool); 5] {
    let writes = |path: &Path| {
        File::create(path.join("canary")).and_then(|mut file| file.write_all(b"sings")).is_ok()
    };
    [
        ("write into /tmp", writes(Path::new("/tmp"))),
        ("write into the run's directory", writable.is_none_or(writes)),
        ("read /usr", std::fs::read_dir("/usr").is_ok()),
        ("read /proc/self/maps", File::open("/proc/self/maps").is_ok()),
        ("make a pair of sockets", UnixStream::pair().is_ok()),
    ]
}

/// A directory that is covered is still there, but nobody may do anything with it.
fn is_seen(secret: &Path) -> bool {
    secret.symlink_metadata().is_ok_and(|metadata| metadata.permissions().mode() & 0o777 != 0)
}

/// Looks for a file of the host; the streams are pipes, the order and the lifeline are gone.
fn holds_foreign_descriptor() -> bool {
    let entries = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let targets = entries.filter_map(|entry| entry.path().read_link().ok());
    targets.into_iter().any(|target| {
        target.is_absolute() && !target.starts_with("/dev") && !target.starts_with("/proc")
    })
}
