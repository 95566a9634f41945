//! The way out of a call that has one: a listener on its own loopback, handed to the gateway.
//!
//! INVARIANT: a socket belongs to the network namespace it was made in, so what the gateway accepts
//! on this listener comes from this very call, and nothing of the call leaves its namespace.

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::{AsFd as _, OwnedFd};

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

use super::failure::{Failure, Stage as _};
use crate::sys::network;
use crate::way_out::PORT;

/// Raises the loopback interface, listens on it and hands the listener over.
///
/// Runs as the first process of the namespaces, while it still has power over its network.
pub(super) fn offer(channel: &OwnedFd) -> Result<(), Failure> {
    network::raise_loopback().stage("raise the call's loopback interface")?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, PORT))
        .stage("listen on the call's loopback interface")?;
    let fds = [listener.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let is_packed = control.push(SendAncillaryMessage::ScmRights(&fds));
    debug_assert!(is_packed, "there is space for one descriptor");
    sendmsg(channel, &[IoSlice::new(&[0])], &mut control, SendFlags::NOSIGNAL)
        .stage("hand the call's listener to the gateway")
        .map(drop)
}
