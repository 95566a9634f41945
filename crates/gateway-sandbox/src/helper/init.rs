//! The first process of the namespaces: puts the root together, starts the tool, ends with it.

use std::os::fd::{AsFd as _, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::{FileType, Gid, Uid};

use super::failure::{Failure, Stage as _};
use super::owners::Owners;
use super::{
    Order, STOP_POLITELY, Status, children_used, close_standard_streams, map_self, network, root,
    tool, usage,
};
use crate::space;
use crate::spec::{Report, Spec};
use crate::sys::process::{self, Waited};

/// How often free space is looked at, where no limit asks for more.
const LOOK_AT_SPACE: Duration = Duration::from_millis(250);
/// How often memory and processor time are added up while a limit is set.
const LOOK: Duration = Duration::from_millis(50);

/// Runs the init until the tool's own process ends or the lifeline breaks.
pub(super) fn run(
    order: &Order,
    owners: &Owners,
    lifeline: &OwnedFd,
    status: &mut Status,
) -> Result<(), Failure> {
    process::die_with_parent().stage("die with the helper")?;
    if order.spec.is_confined {
        if !order.is_root {
            map_self(order)?;
        }
        if let Some(channel) = &order.channel {
            network::offer(channel)?;
        }
        root::enter(order, owners)?;
    } else {
        process::prctl(libc::PR_SET_CHILD_SUBREAPER, 1).stage("adopt orphans")?;
    }
    if order.is_root {
        give_streams(order)?;
        process::become_user(order.user, order.group)
            .stage("become the sandbox's user")
            .map_err(|failure| failure.advise("run the gateway as an ordinary user"))?;
        // The kernel forgets this with the change of user.
        process::die_with_parent().stage("die with the helper")?;
    }
    let ended = process::signal_descriptor(libc::SIGCHLD).stage("watch children")?;
    // A namespace of its own: no power over the mounts, and its own count of processes.
    let namespace = if order.spec.is_confined { libc::CLONE_NEWUSER } else { 0 };
    let tool = process::run_in_child(namespace, &mut || {
        let failure = tool::run(order, status);
        status.report(&failure.into_report());
        127
    });
    let tool = tool.stage("make the tool's user namespace")?;
    close_standard_streams();
    watch(tool, &order.spec, lifeline, &ended, status);
    if !order.spec.is_confined {
        drop(process::kill(-tool, libc::SIGKILL));
        kill_descendants();
    }
    Ok(())
}

/// Lets the tool open its own streams again, by way of `/dev/stdout` and the like.
fn give_streams(order: &Order) -> Result<(), Failure> {
    let (stdin, stdout, stderr) = (std::io::stdin(), std::io::stdout(), std::io::stderr());
    for stream in [stdin.as_fd(), stdout.as_fd(), stderr.as_fd()] {
        let mode = rustix::fs::fstat(stream).stage("look at a stream")?.st_mode;
        if FileType::from_raw_mode(mode) == FileType::Fifo {
            let (user, group) = (Uid::from_raw(order.user), Gid::from_raw(order.group));
            rustix::fs::fchown(stream, Some(user), Some(group))
                .stage("give a stream to the tool")?;
        }
    }
    Ok(())
}

fn watch(tool: libc::pid_t, spec: &Spec, lifeline: &OwnedFd, ended: &OwnedFd, status: &mut Status) {
    let is_limited = spec.limits.memory_bytes.is_some() || spec.limits.cpu_seconds.is_some();
    let is_writing = spec.bindings.iter().any(|binding| binding.is_writable);
    let patience = match (is_limited, is_writing) {
        (true, _) => Some(LOOK),
        (false, true) => Some(LOOK_AT_SPACE),
        (false, false) => None,
    };
    let patience = patience.map(|time| Timespec::try_from(time).unwrap_or_default());
    loop {
        if let Some(Waited { exit, signal, .. }) = reap(tool) {
            status.report(&Report::Ended { exit, signal, used: children_used() });
            return;
        }
        let mut fds = [PollFd::new(lifeline, PollFlags::IN), PollFd::new(ended, PollFlags::IN)];
        if rustix::event::poll(&mut fds, patience.as_ref()).is_err() {
            continue;
        }
        let [on_lifeline, on_ended] = fds.map(|fd| !fd.revents().is_empty());
        if on_ended && rustix::io::read(ended, &mut [0; 512]).is_err() {
            continue;
        }
        if on_lifeline && !stop_politely(tool, spec, lifeline) {
            return;
        }
        if spec.is_confined
            && let Some(exceeded) = exceeded(spec, is_limited)
        {
            status.report(&exceeded);
            return;
        }
    }
}

/// Returns what is exceeded: a limit of the call, or what a disk can take.
fn exceeded(spec: &Spec, is_limited: bool) -> Option<Report> {
    let mut writable = spec.bindings.iter().filter(|binding| binding.is_writable);
    let is_short =
        writable.any(|binding| space::is_short(&binding.seen_as, spec.limits.free_bytes));
    if is_short {
        return Some(Report::DiskFull);
    }
    if is_limited { usage::exceeded(&spec.limits) } else { None }
}

/// Reaps every child that has ended; returns how the tool's own process did.
fn reap(tool: libc::pid_t) -> Option<Waited> {
    while let Ok(Some(waited)) = process::wait(-1, false) {
        if waited.process == tool {
            return Some(waited);
        }
    }
    None
}

/// Reads the lifeline; false where it broke.
fn stop_politely(tool: libc::pid_t, spec: &Spec, lifeline: &OwnedFd) -> bool {
    let mut byte = [0];
    if !matches!(rustix::io::read(lifeline, &mut byte), Ok(1)) || byte != [STOP_POLITELY] {
        return false;
    }
    // Everyone but this process where it is the first of its namespace, else the tool's group.
    let everyone = if spec.is_confined { -1 } else { -tool };
    // Those that are gone already need no stop, and the kill follows in any case.
    drop(process::kill(everyone, libc::SIGTERM));
    true
}

/// Kills what the tool left behind, where no namespace does it.
pub(super) fn kill_descendants() {
    let own = std::process::id();
    // Orphans are adopted by this process; each round may bring the next generation.
    for _ in 0..64 {
        let children =
            std::fs::read_to_string(format!("/proc/{own}/task/{own}/children")).unwrap_or_default();
        let children: Vec<libc::pid_t> =
            children.split_whitespace().filter_map(|id| id.parse().ok()).collect();
        if children.is_empty() {
            return;
        }
        for child in children {
            drop(process::kill(child, libc::SIGKILL));
            drop(process::wait(child, true));
        }
    }
}
