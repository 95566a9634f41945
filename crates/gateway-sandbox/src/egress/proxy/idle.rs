//! A stream that tells when it was last used.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep_until};

/// A stream whose every byte counts as activity, whichever way it goes.
///
/// All bytes of a relayed connection pass its client's stream, so that one is watched.
pub(super) struct Watched {
    stream: TcpStream,
    activity: Arc<Activity>,
}

/// When a stream was last used.
pub(super) struct Activity {
    since: Instant,
    last_millis: AtomicU64,
}

impl Watched {
    pub(super) fn new(stream: TcpStream) -> (Self, Arc<Activity>) {
        let activity = Arc::new(Activity { since: Instant::now(), last_millis: AtomicU64::new(0) });
        (Self { stream, activity: Arc::clone(&activity) }, activity)
    }
}

impl Activity {
    fn note(&self) {
        let millis = u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last_millis.store(millis, Ordering::Relaxed);
    }

    /// Waits until the stream was not used for this long.
    pub(super) async fn has_ceased(&self, patience: Duration) {
        loop {
            let last = Duration::from_millis(self.last_millis.load(Ordering::Relaxed));
            let until = self.since + last + patience;
            if until <= Instant::now() {
                return;
            }
            sleep_until(until).await;
        }
    }
}

impl AsyncRead for Watched {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        self.activity.note();
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Watched {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.stream).poll_write(context, bytes))?;
        self.activity.note();
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
