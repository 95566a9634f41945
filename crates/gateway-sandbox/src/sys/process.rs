//! Processes, identities and limits, as the helper sets them. The helper has a single thread.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};
use std::ptr;

use super::{check, check_long};

/// What a child's stack holds at most; only what is touched takes memory.
const STACK_BYTES: usize = 1 << 20;

/// Runs `work` in a child that shares this process's memory, as after `vfork`: this process
/// stands still until the child has ended, with what `work` returns, or has executed a program.
///
/// INVARIANT: only the helper calls this, and it has a single thread; so the child may do all
/// that its parent may, and what it changes in memory nobody looks at meanwhile.
pub(crate) fn run_in_child(
    namespaces: libc::c_int,
    mut work: &mut dyn FnMut() -> i32,
) -> io::Result<libc::pid_t> {
    extern "C" fn start(argument: *mut libc::c_void) -> libc::c_int {
        let work: *mut &mut dyn FnMut() -> i32 = argument.cast();
        // SAFETY: the pointer was made from such a reference, which its owner does not use now.
        let work = unsafe { &mut *work };
        work()
    }
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD | namespaces;
    let mut stack = Stack::new();
    let argument = ptr::from_mut(&mut work).cast();
    // SAFETY: stack and argument outlive the child's use of this memory, since this process
    // stands still until then.
    check(unsafe { libc::clone(start, stack.top(), flags, argument) })
}

/// Calls `look` with a child that sleeps in new namespaces, and ends the child.
pub(crate) fn beside_sleeping_child<T>(
    namespaces: libc::c_int,
    look: impl FnOnce(libc::pid_t) -> T,
) -> io::Result<T> {
    extern "C" fn sleep(_: *mut libc::c_void) -> libc::c_int {
        // SAFETY: has no arguments; it returns after a signal's handler, and there are none.
        unsafe { libc::pause() }
    }
    let flags = libc::CLONE_VM | libc::SIGCHLD | namespaces;
    let mut stack = Stack::new();
    // SAFETY: the child touches nothing but its stack, which lives until it is reaped below.
    let child = check(unsafe { libc::clone(sleep, stack.top(), flags, ptr::null_mut()) })?;
    let seen = look(child);
    kill(child, libc::SIGKILL)?;
    wait(child, true)?;
    drop(stack);
    Ok(seen)
}

/// The stack of a child that shares memory.
struct Stack(Vec<u128>);

impl Stack {
    fn new() -> Self {
        Self(Vec::with_capacity(STACK_BYTES / size_of::<u128>()))
    }

    /// Returns the end it grows down from, aligned as functions expect.
    fn top(&mut self) -> *mut libc::c_void {
        self.0.spare_capacity_mut().as_mut_ptr_range().end.cast()
    }
}

/// Ends this process at once, without running anything registered for its exit.
pub(crate) fn exit(code: i32) -> ! {
    // SAFETY: ends the process.
    unsafe { libc::_exit(code) }
}

/// Takes a descriptor that this process was started with; `None` where it is not open.
///
/// INVARIANT: only the helper calls this, once for each descriptor; nothing else owns them.
pub(crate) fn inherited(fd: RawFd) -> Option<OwnedFd> {
    // SAFETY: sets a flag of a descriptor, or fails.
    check(unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) }).ok()?;
    // SAFETY: the descriptor is open, and nothing else owns it.
    Some(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Gives a signal its default action again.
pub(crate) fn default_action(signal: libc::c_int) -> io::Result<()> {
    // SAFETY: the default action runs no code of this program.
    let previous = unsafe { libc::signal(signal, libc::SIG_DFL) };
    if previous == libc::SIG_ERR { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Blocks a signal and returns a descriptor that is readable when it comes.
pub(crate) fn signal_descriptor(signal: libc::c_int) -> io::Result<OwnedFd> {
    let mut set = std::mem::MaybeUninit::uninit();
    // SAFETY: initialises the set that the pointer leads to.
    unsafe { libc::sigemptyset(set.as_mut_ptr()) };
    // SAFETY: the set is initialised.
    unsafe { libc::sigaddset(set.as_mut_ptr(), signal) };
    // SAFETY: the set is initialised; the old mask is not asked for.
    check(unsafe { libc::sigprocmask(libc::SIG_BLOCK, set.as_ptr(), ptr::null_mut()) })?;
    // SAFETY: the set is initialised.
    let raw =
        check(unsafe { libc::signalfd(-1, set.as_ptr(), libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) })?;
    // SAFETY: the descriptor was just made and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(raw) })
}

/// Unblocks every signal, for what is executed.
pub(crate) fn clear_signal_mask() -> io::Result<()> {
    let mut set = std::mem::MaybeUninit::uninit();
    // SAFETY: initialises the set that the pointer leads to.
    unsafe { libc::sigemptyset(set.as_mut_ptr()) };
    // SAFETY: the set is initialised; the old mask is not asked for.
    check(unsafe { libc::sigprocmask(libc::SIG_SETMASK, set.as_ptr(), ptr::null_mut()) }).map(drop)
}

/// Closes every descriptor from `first` on.
pub(crate) fn close_from(first: RawFd) -> io::Result<()> {
    let first = first.cast_unsigned();
    // SAFETY: the helper owns no descriptor from `first` on; these came from its parent.
    check_long(unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, 0) }).map(drop)
}

/// Marks every descriptor from `first` on so that an executed program gets none of them.
pub(crate) fn close_all_on_exec(first: u32) -> io::Result<()> {
    // SAFETY: changes flags of this process's descriptors.
    check_long(unsafe {
        libc::syscall(libc::SYS_close_range, first, u32::MAX, libc::CLOSE_RANGE_CLOEXEC)
    })
    .map(drop)
}

/// How a waited-for process ended.
pub(crate) struct Waited {
    pub(crate) process: libc::pid_t,
    pub(crate) exit: Option<i32>,
    pub(crate) signal: Option<i32>,
}

/// Waits for a child; `None` where none has ended (`is_blocking` false) or none is left.
pub(crate) fn wait(process: libc::pid_t, is_blocking: bool) -> io::Result<Option<Waited>> {
    let mut status = 0;
    let flags = if is_blocking { 0 } else { libc::WNOHANG };
    // SAFETY: `status` outlives the call.
    let waited = check(unsafe { libc::waitpid(process, &mut status, flags) });
    match waited {
        Ok(0) => Ok(None),
        Ok(process) => Ok(Some(Waited {
            process,
            exit: libc::WIFEXITED(status).then(|| libc::WEXITSTATUS(status)),
            signal: libc::WIFSIGNALED(status).then(|| libc::WTERMSIG(status)),
        })),
        Err(error) if error.raw_os_error() == Some(libc::ECHILD) => Ok(None),
        Err(error) => Err(error),
    }
}

pub(crate) fn kill(process: libc::pid_t, signal: libc::c_int) -> io::Result<()> {
    // SAFETY: sends a signal.
    check(unsafe { libc::kill(process, signal) }).map(drop)
}

/// Has this process killed when its parent ends. INVARIANT: the parent has a single thread,
/// since the signal comes when the parent's *thread* ends.
pub(crate) fn die_with_parent() -> io::Result<()> {
    prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as libc::c_ulong)
}

pub(crate) fn prctl(option: libc::c_int, value: libc::c_ulong) -> io::Result<()> {
    // SAFETY: the options used here take numbers alone.
    check(unsafe { libc::prctl(option, value, 0, 0, 0) }).map(drop)
}

pub(crate) fn set_session() -> io::Result<()> {
    // SAFETY: makes this process the leader of a session.
    check(unsafe { libc::setsid() }).map(drop)
}

pub(crate) fn effective_ids() -> (u32, u32) {
    // SAFETY: reads this process's user.
    let user = unsafe { libc::geteuid() };
    // SAFETY: reads this process's group.
    let group = unsafe { libc::getegid() };
    (user, group)
}

/// Becomes another user and group for good, in no other group.
pub(crate) fn become_user(user: u32, group: u32) -> io::Result<()> {
    // SAFETY: an empty list needs no memory.
    check(unsafe { libc::setgroups(0, ptr::null()) })?;
    // SAFETY: changes this process's groups.
    check(unsafe { libc::setresgid(group, group, group) })?;
    // SAFETY: changes this process's users.
    check(unsafe { libc::setresuid(user, user, user) }).map(drop)
}

pub(crate) fn set_host_name(name: &str) -> io::Result<()> {
    // SAFETY: pointer and length belong together.
    check(unsafe { libc::sethostname(name.as_ptr().cast(), name.len()) }).map(drop)
}

/// Sets a soft and a hard limit, no higher than the hard one that holds already.
pub(crate) fn set_limit(
    resource: libc::__rlimit_resource_t,
    soft: u64,
    hard: u64,
) -> io::Result<()> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` outlives the call.
    check(unsafe { libc::getrlimit(resource, &mut limit) })?;
    let hard = hard.min(limit.rlim_max);
    let limit = libc::rlimit { rlim_cur: soft.min(hard), rlim_max: hard };
    // SAFETY: `limit` outlives the call.
    check(unsafe { libc::setrlimit(resource, &limit) }).map(drop)
}

/// Returns processor time in microseconds and peak memory in bytes of all reaped children.
pub(crate) fn children_usage() -> (u64, u64) {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: writes to a value that outlives the call.
    unsafe { libc::getrusage(libc::RUSAGE_CHILDREN, usage.as_mut_ptr()) };
    // SAFETY: zeros are a valid value, and the call may have filled it.
    let usage = unsafe { usage.assume_init() };
    let micros = |time: libc::timeval| {
        time.tv_sec.cast_unsigned() * 1_000_000 + time.tv_usec.cast_unsigned()
    };
    (micros(usage.ru_utime) + micros(usage.ru_stime), usage.ru_maxrss.cast_unsigned() * 1_024)
}

#[repr(C)]
struct CapabilityHeader {
    version: u32,
    process: i32,
}

/// Gives up every capability, now and for what is executed.
pub(crate) fn drop_capabilities() -> io::Result<()> {
    for capability in 0..64 {
        match prctl(libc::PR_CAPBSET_DROP, capability) {
            Ok(()) => {}
            // Past the last capability that this kernel knows.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => break,
            Err(error) => return Err(error),
        }
    }
    prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_CLEAR_ALL as libc::c_ulong)?;
    /// `_LINUX_CAPABILITY_VERSION_3`: two sets of three words.
    const VERSION: u32 = 0x2008_0522;
    let header = CapabilityHeader { version: VERSION, process: 0 };
    let none = [0_u32; 6];
    // SAFETY: header and words have the layout that this version demands, and outlive the call.
    check_long(unsafe { libc::syscall(libc::SYS_capset, &header, none.as_ptr()) }).map(drop)
}

/// Returns the version of Landlock that the kernel offers; zero where it offers none.
pub(crate) fn landlock_abi() -> i32 {
    const VERSION_FLAG: libc::c_int = 1;
    let none: *const libc::c_void = ptr::null();
    // SAFETY: with this flag the call reads no memory and returns a number.
    check_long(unsafe {
        libc::syscall(libc::SYS_landlock_create_ruleset, none, 0_usize, VERSION_FLAG)
    })
    .unwrap_or(0)
}

/// Executes a program by its name; returns only if it could not.
pub(crate) fn execute(program: &CString, args: &[&CString], env: &[CString]) -> io::Error {
    let (args, env) = (pointers(args.iter().copied()), pointers(env));
    // SAFETY: the texts outlive the call, and the lists end in null.
    unsafe { libc::execve(program.as_ptr(), args.as_ptr(), env.as_ptr()) };
    io::Error::last_os_error()
}

/// Executes an open file; returns only if it could not.
pub(crate) fn execute_open(program: &File, args: &[&CString], env: &[CString]) -> io::Error {
    let (args, env) = (pointers(args.iter().copied()), pointers(env));
    let (fd, flags) = (program.as_raw_fd(), libc::AT_EMPTY_PATH);
    // SAFETY: the texts outlive the call, and the lists end in null.
    unsafe {
        libc::syscall(libc::SYS_execveat, fd, c"".as_ptr(), args.as_ptr(), env.as_ptr(), flags)
    };
    io::Error::last_os_error()
}

/// Returns a list of texts as the kernel wants it: pointers that end in null.
fn pointers<'text>(texts: impl IntoIterator<Item = &'text CString>) -> Vec<*const libc::c_char> {
    texts.into_iter().map(|text| text.as_ptr()).chain(std::iter::once(ptr::null())).collect()
}

/// Calls the kernel by number with three numbers; for attacks that must fail.
pub(crate) fn attempt(number: libc::c_long, [a, b, c]: [libc::c_long; 3]) -> io::Result<()> {
    // SAFETY: the attacks pass numbers and null pointers alone.
    check_long(unsafe { libc::syscall(number, a, b, c, 0, 0) }).map(drop)
}
