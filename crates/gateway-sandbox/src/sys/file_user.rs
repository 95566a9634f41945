//! The user and group as whom this thread reaches files, where the gateway is root (setfsuid(2)).

use std::io;
use std::marker::PhantomData;

use super::{check, check_long};

/// This thread reaches files as somebody else until this is dropped.
///
/// INVARIANT: the kernel keeps these per thread, and takes root's power over files away for as
/// long as the user is another one; so this value never leaves its thread.
pub(crate) struct FileUser {
    groups: Vec<libc::gid_t>,
    stays_on_its_thread: PhantomData<*const ()>,
}

impl FileUser {
    /// Becomes this user and group, and a member of no other group.
    pub(crate) fn become_user(user: u32, group: u32) -> io::Result<Self> {
        let became = Self { groups: groups()?, stays_on_its_thread: PhantomData };
        set_groups(&[])?;
        set(user, group)?;
        Ok(became)
    }
}

impl Drop for FileUser {
    fn drop(&mut self) {
        if let Err(error) = set(0, 0).and_then(|()| set_groups(&self.groups)) {
            tracing::error!(%error, "a thread could not become root again; it reaches fewer files");
        }
    }
}

fn groups() -> io::Result<Vec<libc::gid_t>> {
    // SAFETY: with a length of 0 the kernel writes nothing.
    let count = check(unsafe { libc::getgroups(0, std::ptr::null_mut()) })?;
    let mut groups = vec![0; usize::try_from(count).unwrap_or_default()];
    // SAFETY: the pointer belongs to as many elements as are said.
    check(unsafe { libc::getgroups(count, groups.as_mut_ptr()) })?;
    Ok(groups)
}

/// Sets the groups of this thread alone, as the library's own function would not.
fn set_groups(groups: &[libc::gid_t]) -> io::Result<()> {
    // SAFETY: pointer and length belong together.
    check_long(unsafe { libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()) })
        .map(drop)
}

fn set(user: u32, group: u32) -> io::Result<()> {
    // SAFETY: the call has no memory of this process to look at.
    unsafe { libc::setfsgid(group) };
    // SAFETY: as above.
    unsafe { libc::setfsuid(user) };
    // Neither call tells whether it worked; with a user that cannot be, each only answers.
    // SAFETY: as above.
    let group_is = unsafe { libc::setfsgid(libc::gid_t::MAX) };
    // SAFETY: as above.
    let user_is = unsafe { libc::setfsuid(libc::uid_t::MAX) };
    let are_set = i64::from(group_is) == i64::from(group.cast_signed())
        && i64::from(user_is) == i64::from(user.cast_signed());
    if are_set { Ok(()) } else { Err(io::ErrorKind::PermissionDenied.into()) }
}
