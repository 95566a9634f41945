//! Mounts, by the descriptors of the newer interface (open_tree, mount_setattr, move_mount).

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::ptr;

use super::{check, check_long};

/// `struct mount_attr` of the kernel.
#[repr(C)]
#[derive(Default)]
struct MountAttributes {
    set: u64,
    clear: u64,
    propagation: u64,
    user_namespace: u64,
}

const MOUNT_ATTR_RDONLY: u64 = 0x1;
const MOUNT_ATTR_NOSUID: u64 = 0x2;
const MOUNT_ATTR_NODEV: u64 = 0x4;
const MOUNT_ATTR_IDMAP: u64 = 0x0010_0000;
const OPEN_TREE_CLONE: libc::c_uint = 1;
const MOVE_MOUNT_F_EMPTY_PATH: libc::c_uint = 4;

/// How a directory or a file is bound.
#[derive(Clone, Copy, Default)]
pub(crate) struct Bind<'a> {
    pub(crate) is_writable: bool,
    /// Keeps device nodes working; only for the few of `/dev`.
    pub(crate) is_device: bool,
    /// Shows the owner of this user namespace's map as the sandbox's user.
    pub(crate) owner: Option<BorrowedFd<'a>>,
}

/// Binds what `source` leads to onto an existing path.
pub(crate) fn bind(source: BorrowedFd<'_>, target: &CStr, how: Bind<'_>) -> io::Result<()> {
    let flags = OPEN_TREE_CLONE
        | libc::O_CLOEXEC as libc::c_uint
        | (libc::AT_EMPTY_PATH | libc::AT_RECURSIVE) as libc::c_uint;
    // SAFETY: clones the mount of an open descriptor; the path is an empty text.
    let raw = check_long(unsafe {
        libc::syscall(libc::SYS_open_tree, source.as_raw_fd(), c"".as_ptr(), flags)
    })?;
    // SAFETY: the descriptor was just made and has no other owner.
    let tree = unsafe { OwnedFd::from_raw_fd(raw) };
    let mut set = MOUNT_ATTR_NOSUID;
    set |= if how.is_writable { 0 } else { MOUNT_ATTR_RDONLY };
    set |= if how.is_device { 0 } else { MOUNT_ATTR_NODEV };
    set_attributes(tree.as_fd(), &MountAttributes { set, ..MountAttributes::default() }, true)?;
    if let Some(namespace) = how.owner {
        let attributes = MountAttributes {
            set: MOUNT_ATTR_IDMAP,
            user_namespace: u64::try_from(namespace.as_raw_fd()).unwrap_or_default(),
            ..MountAttributes::default()
        };
        set_attributes(tree.as_fd(), &attributes, false)?;
    }
    // SAFETY: both paths are texts that outlive the call.
    check_long(unsafe {
        libc::syscall(
            libc::SYS_move_mount,
            tree.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_FDCWD,
            target.as_ptr(),
            MOVE_MOUNT_F_EMPTY_PATH,
        )
    })
    .map(drop)
}

fn set_attributes(
    tree: BorrowedFd<'_>,
    attributes: &MountAttributes,
    is_recursive: bool,
) -> io::Result<()> {
    let flags = libc::AT_EMPTY_PATH | if is_recursive { libc::AT_RECURSIVE } else { 0 };
    // SAFETY: pointer and size belong to a value that outlives the call.
    check_long(unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            tree.as_raw_fd(),
            c"".as_ptr(),
            flags,
            ptr::from_ref(attributes),
            size_of::<MountAttributes>(),
        )
    })
    .map(drop)
}

/// Mounts a file system of its own on an existing path.
pub(crate) fn mount(
    kind: &CStr,
    target: &CStr,
    flags: libc::c_ulong,
    options: &CStr,
) -> io::Result<()> {
    // SAFETY: all texts outlive the call.
    check(unsafe {
        libc::mount(kind.as_ptr(), target.as_ptr(), kind.as_ptr(), flags, options.as_ptr().cast())
    })
    .map(drop)
}

/// Changes flags of an existing mount.
pub(crate) fn remount(target: &CStr, flags: libc::c_ulong) -> io::Result<()> {
    // SAFETY: the text outlives the call; the other pointers may be null.
    check(unsafe { libc::mount(ptr::null(), target.as_ptr(), ptr::null(), flags, ptr::null()) })
        .map(drop)
}

/// Makes the working directory the root, and drops the old one.
pub(crate) fn pivot_here() -> io::Result<()> {
    // SAFETY: both texts outlive the call. The old root is stacked under the new one.
    check_long(unsafe { libc::syscall(libc::SYS_pivot_root, c".".as_ptr(), c".".as_ptr()) })?;
    // SAFETY: the text outlives the call.
    check(unsafe { libc::umount2(c".".as_ptr(), libc::MNT_DETACH) }).map(drop)
}
