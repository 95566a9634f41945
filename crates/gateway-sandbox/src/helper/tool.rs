//! The tool's own process: gives everything up, then becomes the program.

use std::ffi::{CString, OsStr};
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use super::failure::{Failure, Stage as _};
use super::{Order, Status, canary, landlock, map_self, seccomp};
use crate::spec::{FileIdentity, ProcessLimits, Report, Task};
use crate::sys::process;

/// Becomes the program; returns only if that failed.
pub(super) fn run(order: &Order, status: &mut Status) -> Failure {
    match prepare(order) {
        Ok(()) => match become_task(order, status) {
            Ok(never) => match never {},
            Err(failure) => failure,
        },
        Err(failure) => failure,
    }
}

enum Never {}

fn prepare(order: &Order) -> Result<(), Failure> {
    process::clear_signal_mask().stage("unblock signals")?;
    // The runtime of this program ignores it, and what is ignored stays so across execution.
    process::default_action(libc::SIGPIPE).stage("restore the broken-pipe signal")?;
    process::set_session().stage("start a session")?;
    if order.spec.is_confined { map_self(order) } else { Ok(()) }
}

fn become_task(order: &Order, status: &mut Status) -> Result<Never, Failure> {
    match &order.spec.task {
        Task::Execute { program, identity, cwd, argument_count } => {
            enter(cwd)?;
            let program = Opened::open(program, identity.as_ref(), status)?;
            lock_down(order, status)?;
            let (args, env) =
                order.texts.split_at_checked(*argument_count).unwrap_or((&order.texts, &[]));
            Err(program.execute(args, env))
        }
        Task::Canary { gateway, secret, writable } => {
            lock_down(order, status)?;
            let faults = canary::faults(*gateway, secret, writable.as_deref());
            status.report(&Report::Canary { faults });
            process::exit(0)
        }
    }
}

fn enter(cwd: &Path) -> Result<(), Failure> {
    std::env::set_current_dir(cwd)
        .stage_with(|| format!("enter the working directory {}", cwd.display()))
}

fn lock_down(order: &Order, status: &mut Status) -> Result<(), Failure> {
    set_limits(&order.spec.limits, order.spec.is_confined)?;
    process::close_all_on_exec(3).stage("close descriptors")?;
    if order.spec.is_confined {
        process::drop_capabilities().stage("drop capabilities")?;
        process::prctl(libc::PR_SET_NO_NEW_PRIVS, 1).stage("set no_new_privs")?;
        let landlock_abi = landlock::restrict(&order.spec)?;
        seccomp::restrict(&order.spec)?;
        status.report(&Report::Confined { landlock_abi, is_root: order.is_root });
    }
    // The memory is the init's too, which the tool may not look into; a program has its own.
    process::prctl(libc::PR_SET_DUMPABLE, 0).stage("hide the init")
}

/// Sets every limit of the process; it cannot raise them again.
fn set_limits(limits: &ProcessLimits, is_confined: bool) -> Result<(), Failure> {
    let same = |value| Some((value, value));
    let rows = [
        ("core", libc::RLIMIT_CORE, same(0)),
        ("locked memory", libc::RLIMIT_MEMLOCK, same(65_536)),
        ("message queues", libc::RLIMIT_MSGQUEUE, same(0)),
        ("nice", libc::RLIMIT_NICE, same(0)),
        ("real-time priority", libc::RLIMIT_RTPRIO, same(0)),
        ("open files", libc::RLIMIT_NOFILE, same(limits.open_files)),
        ("file size", libc::RLIMIT_FSIZE, same(limits.file_bytes)),
        // Unconfined it would count every process of the user.
        (
            "processes",
            libc::RLIMIT_NPROC,
            is_confined.then_some((limits.processes, limits.processes)),
        ),
        // Address space would count what runtimes merely reserve; data is what they use.
        ("memory", libc::RLIMIT_DATA, limits.memory_bytes.and_then(same)),
        (
            "processor time",
            libc::RLIMIT_CPU,
            limits.cpu_seconds.map(|seconds| (seconds, seconds + 1)),
        ),
    ];
    for (name, resource, limit) in rows {
        if let Some((soft, hard)) = limit {
            process::set_limit(resource, soft, hard).stage_with(|| format!("limit {name}"))?;
        }
    }
    Ok(())
}

/// The program's file, opened once, so that what was checked is what is executed.
struct Opened {
    path: CString,
    file: File,
    /// A script is opened again by its interpreter, by name.
    is_script: bool,
}

impl Opened {
    fn open(
        program: &Path,
        identity: Option<&FileIdentity>,
        status: &mut Status,
    ) -> Result<Self, Failure> {
        let stage = || format!("open the program {}", program.display());
        let path = CString::new(program.as_os_str().as_bytes()).stage_with(stage)?;
        let flags = rustix::fs::OFlags::PATH | rustix::fs::OFlags::CLOEXEC;
        let file = File::from(
            rustix::fs::open(&path, flags, rustix::fs::Mode::empty()).stage_with(stage)?,
        );
        if let Some(expected) = identity
            && FileIdentity::of(&file.metadata().stage_with(stage)?) != *expected
        {
            status.report(&Report::Changed);
            process::exit(127);
        }
        let is_script = starts_as_script(&path);
        Ok(Self { path, file, is_script })
    }

    fn execute(&self, args: &[CString], env: &[CString]) -> Failure {
        let args: Vec<&CString> = std::iter::once(&self.path).chain(args).collect();
        let error = if self.is_script {
            process::execute(&self.path, &args, env)
        } else {
            process::execute_open(&self.file, &args, env)
        };
        let path = Path::new(OsStr::from_bytes(self.path.to_bytes())).display();
        let failure =
            Failure::new(format!("execute {path}"), error.raw_os_error().unwrap_or(libc::EINVAL));
        match error.raw_os_error() {
            Some(libc::ENOENT) => failure.advise(
                "its interpreter, named in its first line or its header, is not visible in the sandbox; \
                 name the interpreter's directory in sandbox.readable",
            ),
            Some(libc::EACCES) => failure.advise("it must be executable by the user that tools run as"),
            _ => failure,
        }
    }
}

fn starts_as_script(path: &CString) -> bool {
    let mut start = [0; 2];
    let read = |mut file: File| -> io::Result<()> { file.read_exact(&mut start) };
    // A program that may be executed but not read is no script.
    File::open(OsStr::from_bytes(path.to_bytes())).and_then(read).is_ok() && start == *b"#!"
}
