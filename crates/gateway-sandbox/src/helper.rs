//! The one-shot helper: this program again, between the gateway and one process of a tool.
//!
//! ```text
//! gateway ── posix_spawn ──▶ helper ── fork ──▶ init ── fork ──▶ tool
//!            (own root, own namespaces)   (pid 1)      (limits, Landlock, seccomp, execve)
//! ```
//!
//! INVARIANT: when the init ends, the kernel kills every process of the tool; when the gateway
//! ends, the lifeline breaks and the init ends.

use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};

use crate::lockdown;
use crate::root::{self, Failure, Stage as _};
use crate::spec::{FileIdentity, Report, Spec, Task};
use crate::sys::process::{self, Fork};

/// The descriptors that the helper is started with, after the three standard ones.
const SPEC_FD: i32 = 3;
const STATUS_FD: i32 = 4;
const LIFELINE_FD: i32 = 5;

/// The user and group that a root gateway's tools run as. No account has them.
const UNPRIVILEGED: u32 = 1_879_048_351;

/// How often memory is added up while a limit is set.
const MEMORY_CHECK: Duration = Duration::from_millis(50);

/// The byte on the lifeline that asks for the polite stop.
pub(crate) const STOP_POLITELY: u8 = b'T';

const NAMESPACES: i32 =
    libc::CLONE_NEWNS | libc::CLONE_NEWPID | libc::CLONE_NEWNET | libc::CLONE_NEWIPC | libc::CLONE_NEWUTS;

/// Returns the user and group that a tool's process has, seen from inside.
pub(crate) fn tool_ids() -> (u32, u32) {
    match process::effective_ids() {
        (0, _) => (UNPRIVILEGED, UNPRIVILEGED),
        ids => ids,
    }
}

/// Runs the helper. Must be called before anything else, while the process has one thread.
pub fn helper_main() -> ExitCode {
    let mut status = Status(File::from(process::inherited(STATUS_FD)));
    match supervise(&mut status) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure { stage, errno }) => {
            status.report(&Report::Failed { stage, errno });
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
        // A gateway that is gone hears nothing, and the broken lifeline ends everything.
        drop(self.0.write_all(&line));
    }
}

/// The helper itself: makes the namespaces, starts the init, waits for it.
fn supervise(status: &mut Status) -> Result<(), Failure> {
    let spec = read_spec()?;
    let lifeline = process::inherited(LIFELINE_FD);
    for fd in [STATUS_FD, LIFELINE_FD] {
        process::close_on_exec(fd).stage(|| "set descriptors up".to_owned())?;
    }
    let mut owners = Vec::new();
    if spec.is_confined {
        let ids = process::effective_ids();
        if ids.0 == 0 {
            for directory in &spec.directories {
                owners.push(owner_namespace(root::owner_of(&directory.host)?)?);
            }
            process::unshare(NAMESPACES).stage(|| "make namespaces".to_owned())?;
        } else {
            process::unshare(NAMESPACES | libc::CLONE_NEWUSER).stage(|| "make a user namespace".to_owned())?;
            map_self(ids)?;
        }
    } else {
        process::prctl(libc::PR_SET_CHILD_SUBREAPER, 1).stage(|| "adopt orphans".to_owned())?;
    }
    match process::fork().stage(|| "start the init".to_owned())? {
        Fork::Child => {
            let code = match init(&spec, &owners, &lifeline, status) {
                Ok(()) => 0,
                Err(Failure { stage, errno }) => {
                    status.report(&Report::Failed { stage, errno });
                    1
                }
            };
            process::exit(code)
        }
        Fork::Parent { child } => {
            drop(lifeline);
            close_standard_streams();
            process::wait(child, true).stage(|| "wait for the init".to_owned()).map(drop)
        }
    }
}

fn read_spec() -> Result<Spec, Failure> {
    let mut text = Vec::new();
    let stage = || "read the order".to_owned();
    File::from(process::inherited(SPEC_FD)).read_to_end(&mut text).stage(stage)?;
    serde_json::from_slice(&text).map_err(io::Error::from).stage(stage)
}

/// Gives up the tool's streams, so that only the tool's processes hold them.
fn close_standard_streams() {
    for fd in 0..3 {
        drop(process::inherited(fd));
    }
}

/// Maps this process's user and group onto themselves, in its new user namespace.
fn map_self((user, group): (u32, u32)) -> Result<(), Failure> {
    for (file, content) in [
        ("setgroups", "deny".to_owned()),
        ("uid_map", format!("{user} {user} 1")),
        ("gid_map", format!("{group} {group} 1")),
    ] {
        write_proc(&format!("/proc/self/{file}"), &content)?;
    }
    Ok(())
}

fn write_proc(path: &str, content: &str) -> Result<(), Failure> {
    let stage = || format!("write {path}");
    let mut file = File::options().write(true).open(path).stage(stage)?;
    file.write_all(content.as_bytes()).stage(stage)
}

/// Returns a user namespace whose map shows one owner as the sandbox's user.
fn owner_namespace((user, group): (u32, u32)) -> Result<OwnedFd, Failure> {
    let stage = || "make an owner's map".to_owned();
    let (ready, told) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).map_err(io::Error::from).stage(stage)?;
    match process::fork().stage(stage)? {
        Fork::Child => {
            let is_ready = process::unshare(libc::CLONE_NEWUSER).is_ok() && rustix::io::write(&told, b"1").is_ok();
            drop(told);
            if !is_ready {
                process::exit(1);
            }
            // Waits to be killed, once its namespace is held open.
            loop {
                std::thread::park();
            }
        }
        Fork::Parent { child } => {
            drop(told);
            let mapped = map_owner(child, &ready, user, group);
            process::kill(child, libc::SIGKILL).stage(stage)?;
            process::wait(child, true).stage(stage)?;
            mapped
        }
    }
}

fn map_owner(child: libc::pid_t, ready: &OwnedFd, user: u32, group: u32) -> Result<OwnedFd, Failure> {
    let stage = || "make an owner's map".to_owned();
    let mut byte = [0];
    if rustix::io::read(ready, &mut byte).map_err(io::Error::from).stage(stage)? == 0 {
        return Err(Failure { stage: "make a user namespace".to_owned(), errno: libc::EPERM });
    }
    write_proc(&format!("/proc/{child}/uid_map"), &format!("{user} {UNPRIVILEGED} 1"))?;
    write_proc(&format!("/proc/{child}/gid_map"), &format!("{group} {UNPRIVILEGED} 1"))?;
    Ok(File::open(format!("/proc/{child}/ns/user")).stage(stage)?.into())
}

/// The first process of the namespaces: puts the root together, starts the tool, ends with it.
fn init(spec: &Spec, owners: &[OwnedFd], lifeline: &OwnedFd, status: &mut Status) -> Result<(), Failure> {
    process::die_with_parent().stage(|| "die with the helper".to_owned())?;
    if spec.is_confined {
        root::enter(spec, owners)?;
        process::set_host_name("sandbox").stage(|| "set the host name".to_owned())?;
    }
    let ended = child_signal().stage(|| "watch children".to_owned())?;
    match process::fork().stage(|| "start the tool".to_owned())? {
        Fork::Child => {
            let Failure { stage, errno } = become_tool(spec, status);
            status.report(&Report::Failed { stage, errno });
            process::exit(127)
        }
        Fork::Parent { child } => {
            close_standard_streams();
            watch(child, spec, lifeline, &ended, status);
            if !spec.is_confined {
                kill_descendants(child);
            }
            Ok(())
        }
    }
}

/// Returns a descriptor that is readable when a child has ended.
fn child_signal() -> io::Result<OwnedFd> {
    crate::sys::process::signal_descriptor(libc::SIGCHLD)
}

/// Waits until the tool's own process ends, the lifeline breaks, or its memory is used up.
fn watch(tool: libc::pid_t, spec: &Spec, lifeline: &OwnedFd, ended: &OwnedFd, status: &mut Status) {
    let limit = spec.limits.memory_bytes;
    let patience = limit.map(|_| rustix::event::Timespec::try_from(MEMORY_CHECK).unwrap_or_default());
    loop {
        while let Ok(Some(waited)) = process::wait(-1, false) {
            if waited.process == tool {
                let (cpu_us, max_rss_bytes) = process::children_usage();
                let process::Waited { exit, signal, .. } = waited;
                status.report(&Report::Ended { exit, signal, cpu_us, max_rss_bytes });
                return;
            }
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
        if limit.is_some_and(|limit| memory_in_use(spec.is_confined) > limit) {
            status.report(&Report::MemoryLimit);
            return;
        }
    }
}

/// Reads the lifeline; false where it broke.
fn stop_politely(tool: libc::pid_t, spec: &Spec, lifeline: &OwnedFd) -> bool {
    let mut byte = [0];
    if !matches!(rustix::io::read(lifeline, &mut byte), Ok(1)) || byte != [STOP_POLITELY] {
        return false;
    }
    // Everyone but the init where there is one, else the tool's own process group.
    let everyone = if spec.is_confined { -1 } else { -tool };
    drop(process::kill(everyone, libc::SIGTERM));
    true
}

/// Adds up the memory of every process but the init, shared pages by their share.
fn memory_in_use(is_confined: bool) -> u64 {
    let Ok(processes) = std::fs::read_dir("/proc") else { return 0 };
    let own = std::process::id();
    let mut kilobytes = 0;
    for entry in processes.flatten() {
        let name = entry.file_name();
        let is_other = name.to_str().and_then(|name| name.parse::<u32>().ok()).is_some_and(|id| id != own);
        if is_other && is_confined {
            let rollup = std::fs::read_to_string(entry.path().join("smaps_rollup")).unwrap_or_default();
            let share = rollup.lines().find_map(|line| line.strip_prefix("Pss:"));
            let share = share.and_then(|share| share.trim().trim_end_matches("kB").trim().parse::<u64>().ok());
            kilobytes += share.unwrap_or(0);
        }
    }
    kilobytes * 1_024
}

/// Kills what the tool left behind, where no namespace does it.
fn kill_descendants(tool: libc::pid_t) {
    drop(process::kill(-tool, libc::SIGKILL));
    let own = std::process::id();
    // Orphans are adopted by this process; each round may bring the next generation.
    for _ in 0..64 {
        let children = std::fs::read_to_string(format!("/proc/{own}/task/{own}/children")).unwrap_or_default();
        let children: Vec<libc::pid_t> = children.split_whitespace().filter_map(|id| id.parse().ok()).collect();
        for child in &children {
            drop(process::kill(*child, libc::SIGKILL));
            drop(process::wait(*child, true));
        }
        if children.is_empty() {
            return;
        }
    }
}

/// The tool's own process: gives everything up and becomes the program. Returns only on failure.
fn become_tool(spec: &Spec, status: &mut Status) -> Failure {
    match prepare_tool(spec, status) {
        Ok(()) => match &spec.task {
            Task::Execute { .. } => execute(&spec.task),
            Task::Canary { gateway, secret } => {
                let escaped = crate::canary::escaped(*gateway, secret);
                status.report(&Report::Canary { escaped });
                process::exit(0)
            }
        },
        Err(failure) => failure,
    }
}

fn prepare_tool(spec: &Spec, status: &mut Status) -> Result<(), Failure> {
    process::clear_signal_mask().stage(|| "unblock signals".to_owned())?;
    process::set_session().stage(|| "start a session".to_owned())?;
    if spec.is_confined {
        let ids = tool_ids();
        if process::effective_ids().0 == 0 {
            process::become_user(ids.0, ids.1).stage(|| "become the sandbox's user".to_owned())?;
            // Changing the user hid this process's own maps from it.
            process::prctl(libc::PR_SET_DUMPABLE, 1).stage(|| "show its own maps".to_owned())?;
        }
        // A namespace of its own: no power over the mounts, and its own count of processes.
        process::unshare(libc::CLONE_NEWUSER).stage(|| "make the tool's user namespace".to_owned())?;
        map_self(ids)?;
    }
    if let Task::Execute { program, identity: Some(identity), cwd, .. } = &spec.task {
        check_identity(program, identity, status)?;
        std::env::set_current_dir(cwd).stage(|| format!("enter {}", cwd.display()))?;
    } else if let Task::Execute { cwd, .. } = &spec.task {
        std::env::set_current_dir(cwd).stage(|| format!("enter {}", cwd.display()))?;
    }
    lockdown::set_limits(&spec.limits)?;
    process::close_all_on_exec(3).stage(|| "close descriptors".to_owned())?;
    if spec.is_confined {
        let landlock_abi = lockdown::give_up(spec)?;
        status.report(&Report::Confined { landlock_abi });
    }
    Ok(())
}

fn check_identity(program: &Path, identity: &FileIdentity, status: &mut Status) -> Result<(), Failure> {
    let metadata = program.metadata().stage(|| format!("find {}", program.display()))?;
    if FileIdentity::of(&metadata) != *identity {
        status.report(&Report::Changed);
        process::exit(127);
    }
    Ok(())
}

fn execute(task: &Task) -> Failure {
    let Task::Execute { program, args, env, .. } = task else {
        return Failure { stage: "execute".to_owned(), errno: libc::EINVAL };
    };
    let stage = || format!("execute {}", program.display());
    let texts = || -> io::Result<_> {
        let path = CString::new(program.as_os_str().as_bytes())?;
        let args = std::iter::once(Ok(path.clone())).chain(args.iter().map(|arg| CString::new(arg.as_bytes())));
        let env = env.iter().map(|(name, value)| CString::new(format!("{name}={value}")));
        Ok((path, args.collect::<Result<Vec<_>, _>>()?, env.collect::<Result<Vec<_>, _>>()?))
    };
    let error = match texts() {
        Ok((path, args, env)) => process::execute(&path, &args, &env),
        Err(error) => error,
    };
    Failure { stage: stage(), errno: error.raw_os_error().unwrap_or(libc::EINVAL) }
}
