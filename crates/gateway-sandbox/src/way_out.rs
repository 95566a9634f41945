//! The way out of one call: its listener, received from the helper, and what its programs are told.

use std::convert::Infallible;
use std::future::pending;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::TcpListener as BlockingListener;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream as BlockingStream;
use std::sync::Arc;

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use tokio::io::Interest;
use tokio::net::{TcpListener, UnixStream};
use tokio::task::JoinSet;

use crate::egress::Proxy;

/// The port of the proxy within the call's own network namespace.
pub(crate) const PORT: u16 = 3128;
/// What a program may talk to by itself: its own namespace.
const OWN_HOSTS: &str = "localhost,127.0.0.1,::1";

/// Returns the variables that lead a call's programs to the proxy, in both spellings.
///
/// The proxy speaks SOCKS as well, but `ALL_PROXY` names it as an HTTP proxy: widespread clients
/// refuse to start where that variable names a SOCKS proxy and they lack a library for it.
pub(crate) fn environment() -> impl Iterator<Item = (String, String)> {
    let proxy = format!("http://127.0.0.1:{PORT}");
    let rows = [
        ("HTTP_PROXY", proxy.clone()),
        ("HTTPS_PROXY", proxy.clone()),
        ("ALL_PROXY", proxy),
        ("NO_PROXY", OWN_HOSTS.to_owned()),
    ];
    rows.into_iter()
        .flat_map(|(name, value)| [(name.to_owned(), value.clone()), (name.to_lowercase(), value)])
}

/// Serves a call's connections until it is dropped; for a call without a way out it only waits.
///
/// Without a listener the call goes on, and its programs find their proxy refusing connections.
pub(crate) async fn serve(
    way_out: Option<(&Arc<Proxy>, BlockingStream)>,
    connections: &mut JoinSet<()>,
) -> Infallible {
    let Some((proxy, channel)) = way_out else { return pending().await };
    match receive(channel).await {
        Ok(listener) => proxy.serve(listener, connections).await,
        Err(error) => {
            // Where the helper failed before it had a listener, it says so itself.
            tracing::debug!(%error, "a call's way out was not opened");
            pending().await
        }
    }
}

async fn receive(channel: BlockingStream) -> io::Result<TcpListener> {
    channel.set_nonblocking(true)?;
    let channel = UnixStream::from_std(channel)?;
    let listener = loop {
        channel.readable().await?;
        match channel.try_io(Interest::READABLE, || take_descriptor(&channel)) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            taken => break taken?,
        }
    };
    let listener = BlockingListener::from(listener);
    listener.set_nonblocking(true)?;
    TcpListener::from_std(listener)
}

fn take_descriptor(channel: &UnixStream) -> io::Result<OwnedFd> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let buffers = &mut [IoSliceMut::new(&mut byte)];
    recvmsg(channel.as_fd(), buffers, &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let received = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    received.ok_or_else(|| io::Error::other("the helper handed over no listener"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_variable_comes_in_both_spellings() {
        let names: Vec<String> = environment().map(|(name, _)| name).collect();
        assert_eq!(
            names,
            [
                "HTTP_PROXY",
                "http_proxy",
                "HTTPS_PROXY",
                "https_proxy",
                "ALL_PROXY",
                "all_proxy",
                "NO_PROXY",
                "no_proxy",
            ]
        );
    }
}
