//! The only unsafe code of the gateway: system calls that no safe library offers.
#![expect(unsafe_code, reason = "each block is one system call, with its reason why it is sound")]

pub(crate) mod file_user;
pub(crate) mod mount;
pub(crate) mod network;
pub(crate) mod process;
pub(crate) mod spawn;

use std::io;

/// Turns the result of a system call into a `Result`.
fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// As [`check`], for calls made by number.
fn check_long(result: libc::c_long) -> io::Result<libc::c_int> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(libc::c_int::try_from(result).unwrap_or(libc::c_int::MAX))
    }
}
