//! How many calls of in-process tools work at once: each holds a thread until it returns.

use gateway_model::{ErrorKind, ToolError};
use tokio::sync::{Semaphore, SemaphorePermit};

use super::reach::Stop;

/// Calls at work in this process. A tool that goes on after its time is up still counts, so that
/// no number of them takes every thread of the process.
const MAX_AT_WORK: usize = 16;
/// Calls that wait for a thread; one more is told to come again.
const MAX_WAITING: usize = 256;

/// The threads of this process's tools.
pub(super) static THREADS: Threads = Threads::new(MAX_AT_WORK, MAX_WAITING);

/// A bounded number of threads, and a bounded queue for them.
#[derive(Debug)]
pub(super) struct Threads {
    at_work: Semaphore,
    waiting: Semaphore,
}

/// The right to one thread, given back when it is dropped.
pub(super) type Thread<'a> = SemaphorePermit<'a>;

impl Threads {
    const fn new(at_work: usize, waiting: usize) -> Self {
        Self { at_work: Semaphore::const_new(at_work), waiting: Semaphore::const_new(waiting) }
    }

    /// Waits for a thread, in the order of asking. Cancel-safe: the place in the queue is lost.
    ///
    /// # Errors
    /// Refuses a call where the queue is full, and one that must stop before its turn.
    pub(super) async fn take(&self, stop: &Stop) -> Result<Thread<'_>, ToolError> {
        let full = || {
            let message = format!(
                "{MAX_AT_WORK} calls of built-in tools are at work and {MAX_WAITING} wait; call again later"
            );
            ToolError::new(ErrorKind::Unavailable, message)
        };
        if let Ok(thread) = self.at_work.try_acquire() {
            return Ok(thread);
        }
        let _waiting = self.waiting.try_acquire().map_err(|_none| full())?;
        tokio::select! {
            thread = self.at_work.acquire() => thread.map_err(|_closed| full()),
            error = stop.come() => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::Future as _;
    use std::task::{Context, Poll, Waker};

    #[tokio::test]
    async fn calls_wait_in_a_bounded_queue_until_a_thread_is_given_back() {
        let threads = Threads::new(1, 1);
        let mut context = Context::from_waker(Waker::noop());
        let mut ask = |stop: &Stop| {
            let stop = stop.clone();
            let threads = &threads;
            let mut asking = Box::pin(async move { threads.take(&stop).await });
            (asking.as_mut().poll(&mut context), asking)
        };
        let (Poll::Ready(Ok(first)), _) = ask(&Stop::never()) else { panic!("a thread is free") };
        let (second, mut waiting) = ask(&Stop::never());
        assert!(second.is_pending(), "the thread is at work");
        let (third, _) = ask(&Stop::never());
        let Poll::Ready(Err(error)) = third else { panic!("the queue is full") };
        assert_eq!(error.kind, ErrorKind::Unavailable);
        drop(first);
        let Poll::Ready(Ok(_second)) =
            waiting.as_mut().poll(&mut Context::from_waker(Waker::noop()))
        else {
            panic!("the thread was given back")
        };
    }

    #[tokio::test]
    async fn a_call_that_must_stop_leaves_the_queue() {
        let threads = Threads::new(1, 1);
        let _first = threads.take(&Stop::never()).await.unwrap();
        let error = threads.take(&Stop::at_once()).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Cancelled);
    }
}
