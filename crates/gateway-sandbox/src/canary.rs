//! The attacks that a start-up tries from inside the sandbox; each of them must fail.

use std::fs::File;
use std::path::Path;

use crate::sys::process;

/// Returns the attacks that succeeded.
pub(crate) fn escaped(gateway: i32, secret: &Path) -> Vec<String> {
    let gateway_id = libc::c_long::from(gateway);
    let writes = |path: &str| File::options().write(true).create(true).truncate(false).open(path).is_ok();
    let calls = |number, a, b, c| process::attempt(number, a, b, c).is_ok();
    let socket = |family: libc::c_int| calls(libc::SYS_socket, family.into(), libc::SOCK_STREAM.into(), 0);
    let attacks = [
        ("write /etc/passwd", writes("/etc/passwd")),
        ("write /usr/canary", writes("/usr/canary")),
        ("write /canary", writes("/canary")),
        ("read /etc/shadow", File::open("/etc/shadow").is_ok()),
        ("read a file of the host", File::open(secret).is_ok()),
        ("see the gateway", Path::new(&format!("/proc/{gateway}/root")).read_link().is_ok() && gateway > 16),
        ("signal the gateway", gateway > 16 && calls(libc::SYS_kill, gateway_id, 0, 0)),
        ("trace a process", calls(libc::SYS_ptrace, libc::c_long::from(libc::PTRACE_TRACEME), 0, 0)),
        ("open an internet socket", socket(libc::AF_INET)),
        ("open a netlink socket", socket(libc::AF_NETLINK)),
        ("make a user namespace", calls(libc::SYS_unshare, libc::c_long::from(libc::CLONE_NEWUSER), 0, 0)),
        ("mount", calls(libc::SYS_mount, 0, 0, 0)),
        ("open a BPF map", calls(libc::SYS_bpf, 0, 0, 0)),
        ("become root", calls(libc::SYS_setresuid, 0, 0, 0)),
        ("have descriptors of the gateway", has_foreign_descriptors()),
    ];
    attacks.into_iter().filter(|(_, has_succeeded)| *has_succeeded).map(|(name, _)| name.to_owned()).collect()
}

/// The helper's own two (status, lifeline) are closed on execution; any other is a leak.
fn has_foreign_descriptors() -> bool {
    let Ok(entries) = std::fs::read_dir("/proc/self/fd") else { return false };
    entries.flatten().filter(|entry| entry.path().read_link().is_ok_and(|target| target.is_absolute() && !target.starts_with("/dev") && !target.starts_with("/proc"))).count() > 0
}
