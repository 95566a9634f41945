//! The one-shot helper: this program again, between the gateway and one process of a tool.
//!
//! ```text
//! gateway ── posix_spawn ──▶ helper ── clone ──▶ init ── clone ──▶ tool
//!                            (waits)   (pid 1, own root)   (limits, Landlock, seccomp, execve)
//! ```
//! Each child shares its parent's memory, and its parent stands still until the child has ended
//! or has executed a program: copying memory that is soon thrown away costs more than all mounts.
//!
//! INVARIANT: when the init ends, the kernel kills every process of the tool; when the gateway
//! ends, the lifeline breaks and the init ends.
//! INVARIANT: nothing here starts a thread, so that each child may do all that its parent may.

mod canary;
mod failure;
mod init;
mod landlock;
mod network;
mod owners;
mod root;
mod seccomp;
mod tool;
mod usage;

use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::process::ExitCode;

use self::failure::{Failure, Stage as _};
use crate::spec::{self, Report, Spec, Used};
use crate::sys::process;

/// The descriptors that the helper is started with, after the three standard ones.
const SPEC_FD: i32 = 3;
const STATUS_FD: i32 = 4;
const LIFELINE_FD: i32 = 5;
/// Only where the call has a way out.
const CHANNEL_FD: i32 = 6;

/// The user and group that a root gateway's tools run as, within reach of a container's map.
///
/// Neither accounts nor systemd's dynamic users use it (systemd, UIDS-GIDS: 65520–65533 unused).
const UNPRIVILEGED: u32 = 65_521;

/// The byte on the lifeline that asks for the polite stop.
pub(crate) const STOP_POLITELY: u8 = b'T';

const NAMESPACES: i32 = libc::CLONE_NEWNS
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUTS;

/// The order, the program's texts, and who the tool will be.
struct Order {
    spec: Spec,
    texts: Vec<CString>,
    user: u32,
    group: u32,
    /// The gateway is root, so the tool must become somebody else.
    is_root: bool,
    /// Where the listener of the call's way out is handed to the gateway.
    channel: Option<OwnedFd>,
}

/// Runs the helper, where the program was started with [`crate::HELPER_ARGUMENT`].
///
/// Must be called before anything else, while the process has one thread.
pub fn helper_main() -> ExitCode {
    let descriptors = [SPEC_FD, STATUS_FD, LIFELINE_FD].map(process::inherited);
    let [Some(order), Some(status), Some(lifeline)] = descriptors else {
        let text = "this is the gateway's own entrance to its sandbox; it cannot be used by hand\n";
        // There is nobody else to tell.
        drop(io::stderr().write_all(text.as_bytes()));
        return ExitCode::from(64);
    };
    let mut status = Status(File::from(status));
    match supervise(File::from(order), &mut status, &lifeline) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            status.report(&failure.into_report());
            ExitCode::FAILURE
        }
    }
}

/// The pipe on which the gateway hears what happens here.
struct Status(File);

impl Status {
    fn report(&mut self, report: &Report) {
        let mut line = serde_json::to_vec(report).unwrap_or_default();
        line.push(b'\n');
        // A gateway that is gone hears nothing, and its broken lifeline ends everything.
        drop(self.0.write_all(&line));
    }
}

/// The helper itself: starts the init in its namespaces, and waits for it.
fn supervise(order: File, status: &mut Status, lifeline: &OwnedFd) -> Result<(), Failure> {
    let order = read_order(order)?;
    let last = if order.channel.is_some() { CHANNEL_FD } else { LIFELINE_FD };
    process::close_from(last + 1).stage("close foreign descriptors")?;
    let owners = if order.is_root {
        owners::Owners::make(&order.spec.bindings, UNPRIVILEGED)?
    } else {
        owners::Owners::default()
    };
    if !order.spec.is_confined {
        // A tool can end its init here, and what it left behind must have a parent all the same.
        process::prctl(libc::PR_SET_CHILD_SUBREAPER, 1).stage("adopt orphans")?;
    }
    let init = process::run_in_child(namespaces(&order), &mut || {
        let ended = init::run(&order, &owners, lifeline, status);
        let code = i32::from(ended.is_err());
        if let Err(failure) = ended {
            status.report(&failure.into_report());
        }
        code
    });
    process::wait(init.stage("make namespaces")?, true).stage("wait for the init")?;
    if !order.spec.is_confined {
        init::kill_descendants();
    }
    status.report(&Report::Total(children_used()));
    Ok(())
}

fn namespaces(order: &Order) -> i32 {
    match (order.spec.is_confined, order.is_root) {
        (false, _) => 0,
        (true, true) => NAMESPACES,
        (true, false) => NAMESPACES | libc::CLONE_NEWUSER,
    }
}

fn read_order(mut file: File) -> Result<Order, Failure> {
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).stage("read the order")?;
    let (spec, texts) = spec::decode(&bytes).stage("read the order")?;
    let (user, group) = process::effective_ids();
    let is_root = user == 0 && spec.is_confined;
    let (user, group) = if is_root { (UNPRIVILEGED, UNPRIVILEGED) } else { (user, group) };
    let channel = if spec.has_proxy {
        let missing = || std::io::Error::from_raw_os_error(libc::EBADF);
        Some(process::inherited(CHANNEL_FD).ok_or_else(missing).stage("find the way out")?)
    } else {
        None
    };
    Ok(Order { spec, texts, user, group, is_root, channel })
}

/// Maps this process's user and group onto themselves, in its new user namespace.
fn map_self(order: &Order) -> Result<(), Failure> {
    let Order { user, group, .. } = order;
    // The maps belong to root while the process is hidden.
    process::prctl(libc::PR_SET_DUMPABLE, 1).stage("show its own maps")?;
    write_proc("/proc/self/setgroups", "deny")?;
    write_proc("/proc/self/uid_map", &format!("{user} {user} 1"))?;
    write_proc("/proc/self/gid_map", &format!("{group} {group} 1"))
}

fn write_proc(path: &str, content: &str) -> Result<(), Failure> {
    let stage = || format!("write {path}");
    let mut file = File::options().write(true).open(path).stage_with(stage)?;
    file.write_all(content.as_bytes()).stage_with(stage)
}

/// Gives up the tool's streams, so that only the tool's processes hold them.
fn close_standard_streams() {
    for fd in 0..3 {
        drop(process::inherited(fd));
    }
}

fn children_used() -> Used {
    let (cpu_micros, max_rss_bytes) = process::children_usage();
    Used { cpu_micros, max_rss_bytes }
}
