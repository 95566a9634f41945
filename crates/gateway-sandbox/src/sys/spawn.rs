//! Starting a process without copying this one: `posix_spawn`, with chosen descriptors.

use std::ffi::{CString, OsStr};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt as _;
use std::ptr;

use tokio::io::unix::AsyncFd;

use super::{check, check_long};

/// Descriptors are moved out of the way of the child's numbers first.
const FIRST_FREE_FD: RawFd = 16;

/// Starts a program whose descriptors 0, 1, 2, … are `fds`, with an empty environment.
///
/// Every other descriptor of this process is closed in the child, since all are close-on-exec.
pub(crate) fn spawn(program: &OsStr, args: &[&OsStr], fds: Vec<OwnedFd>) -> io::Result<Spawned> {
    let program = CString::new(program.as_bytes())?;
    let args: Vec<CString> =
        args.iter().map(|arg| CString::new(arg.as_bytes())).collect::<Result<_, _>>()?;
    let mut argv: Vec<*mut libc::c_char> =
        std::iter::once(&program).chain(&args).map(|arg| arg.as_ptr().cast_mut()).collect();
    argv.push(ptr::null_mut());
    let envp: [*mut libc::c_char; 1] = [ptr::null_mut()];
    let mut high = Vec::with_capacity(fds.len());
    for fd in fds {
        // SAFETY: duplicates a descriptor that is open for as long as `fd` lives.
        let raw =
            check(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_DUPFD_CLOEXEC, FIRST_FREE_FD) })?;
        // SAFETY: the descriptor was just made and has no other owner.
        high.push(unsafe { OwnedFd::from_raw_fd(raw) });
    }
    let mut actions = Actions::new()?;
    for (number, fd) in high.iter().enumerate() {
        actions.dup2(fd.as_raw_fd(), RawFd::try_from(number).unwrap_or(RawFd::MAX))?;
    }
    let attributes = Attributes::new()?;
    let mut pid = 0;
    // SAFETY: all pointers lead to values that outlive the call, and the lists end in null.
    let error = unsafe {
        libc::posix_spawn(
            &mut pid,
            program.as_ptr(),
            &actions.0,
            &attributes.0,
            argv.as_ptr(),
            envp.as_ptr(),
        )
    };
    if error != 0 {
        return Err(io::Error::from_raw_os_error(error));
    }
    Ok(Spawned(pid))
}

/// A child that runs, is not reaped, and is not watched yet.
pub(crate) struct Spawned(libc::pid_t);

impl Spawned {
    /// Watches the process by a descriptor, which is readable once the process has ended.
    ///
    /// # Errors
    /// Returns what the kernel said; the process is killed and reaped then.
    pub(crate) fn watch(self) -> io::Result<AsyncFd<OwnedFd>> {
        let watched = self.open().and_then(|process| {
            // SAFETY: an `OwnedFd` stays open, and the same, for as long as it lives.
            Ok(unsafe { AsyncFd::register(process) }?)
        });
        if watched.is_err() {
            drop(super::process::kill(self.0, libc::SIGKILL));
            drop(super::process::wait(self.0, true));
        }
        watched
    }

    fn open(&self) -> io::Result<OwnedFd> {
        // SAFETY: opens a descriptor of our own child, which nobody has reaped.
        let raw = check_long(unsafe { libc::syscall(libc::SYS_pidfd_open, self.0, 0) })?;
        // SAFETY: the descriptor was just made and has no other owner.
        Ok(unsafe { OwnedFd::from_raw_fd(raw) })
    }
}

struct Actions(libc::posix_spawn_file_actions_t);

impl Actions {
    fn new() -> io::Result<Self> {
        let mut actions = MaybeUninit::uninit();
        // SAFETY: initialises the value that the pointer leads to.
        let error = unsafe { libc::posix_spawn_file_actions_init(actions.as_mut_ptr()) };
        if error != 0 {
            return Err(io::Error::from_raw_os_error(error));
        }
        // SAFETY: was just initialised.
        Ok(Self(unsafe { actions.assume_init() }))
    }

    fn dup2(&mut self, from: RawFd, to: RawFd) -> io::Result<()> {
        // SAFETY: adds to an initialised list.
        let error = unsafe { libc::posix_spawn_file_actions_adddup2(&mut self.0, from, to) };
        if error != 0 { Err(io::Error::from_raw_os_error(error)) } else { Ok(()) }
    }
}

impl Drop for Actions {
    fn drop(&mut self) {
        // SAFETY: destroys an initialised list, once.
        unsafe { libc::posix_spawn_file_actions_destroy(&mut self.0) };
    }
}

/// No blocked signals, and every signal's default action.
struct Attributes(libc::posix_spawnattr_t);

impl Attributes {
    fn new() -> io::Result<Self> {
        let mut attributes = MaybeUninit::uninit();
        // SAFETY: initialises the value that the pointer leads to.
        let error = unsafe { libc::posix_spawnattr_init(attributes.as_mut_ptr()) };
        if error != 0 {
            return Err(io::Error::from_raw_os_error(error));
        }
        // SAFETY: was just initialised.
        let mut attributes = Self(unsafe { attributes.assume_init() });
        let mut all = MaybeUninit::uninit();
        // SAFETY: initialises the set that the pointer leads to.
        unsafe { libc::sigfillset(all.as_mut_ptr()) };
        let mut none = MaybeUninit::uninit();
        // SAFETY: initialises the set that the pointer leads to.
        unsafe { libc::sigemptyset(none.as_mut_ptr()) };
        // SAFETY: both values are initialised.
        unsafe { libc::posix_spawnattr_setsigdefault(&mut attributes.0, all.as_ptr()) };
        // SAFETY: both values are initialised.
        unsafe { libc::posix_spawnattr_setsigmask(&mut attributes.0, none.as_ptr()) };
        let flags = libc::POSIX_SPAWN_SETSIGDEF | libc::POSIX_SPAWN_SETSIGMASK;
        // SAFETY: the value is initialised.
        unsafe { libc::posix_spawnattr_setflags(&mut attributes.0, flags as libc::c_short) };
        Ok(attributes)
    }
}

impl Drop for Attributes {
    fn drop(&mut self) {
        // SAFETY: destroys an initialised value, once.
        unsafe { libc::posix_spawnattr_destroy(&mut self.0) };
    }
}
