//! Holds claims while calls run, so that calls which conflict never overlap.
//!
//! One line of claims in order of arrival: a call waits for every earlier claim, held or
//! waiting, that it conflicts with. Each call holds one claim, so no two can wait for each
//! other, and a late call never overtakes an earlier one that it conflicts with.

use std::collections::{BTreeSet, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use gateway_model::ConcurrencyClaim;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// Calls that may hold or await a claim at once.
const MAX_CLAIMS: usize = 4_096;
/// How long a call waits for the calls before it.
const MAX_WAIT: Duration = Duration::from_secs(300);

/// Where claims can meet: the run, and every workspace that is granted for writing.
pub(crate) type Domain = BTreeSet<String>;

/// Why a claim could not be had.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ClaimError {
    #[error("{MAX_CLAIMS} calls hold or await a claim already")]
    Full,
    #[error("waited {} s for a call that holds {held}", MAX_WAIT.as_secs())]
    Waited { held: String },
    #[error("cancelled while waiting for a claim")]
    Cancelled,
}

#[derive(Debug, Default)]
pub(crate) struct Scheduler {
    line: Mutex<Line>,
    released: Notify,
    waiting: AtomicUsize,
}

#[derive(Debug, Default)]
struct Line {
    claims: VecDeque<Waiting>,
    next_ticket: u64,
}

#[derive(Debug)]
struct Waiting {
    ticket: u64,
    domain: Domain,
    claim: ConcurrencyClaim,
}

/// A held claim; dropping it lets waiting calls go on.
#[derive(Debug)]
pub(crate) struct HeldClaim {
    scheduler: Arc<Scheduler>,
    ticket: u64,
}

impl Scheduler {
    /// Waits for every earlier conflicting claim and then holds this one.
    ///
    /// Cancel-safe: a dropped wait leaves the line.
    pub(crate) async fn hold(
        self: &Arc<Self>,
        domain: Domain,
        claim: ConcurrencyClaim,
        cancel: &CancellationToken,
    ) -> Result<HeldClaim, ClaimError> {
        let held = self.join(domain, claim)?;
        let turn = async {
            loop {
                // Registered before the look, so that a release in between is not missed.
                let released = self.released.notified();
                if self.blocker(held.ticket).is_none() {
                    return;
                }
                let _counted = Counted::new(&self.waiting);
                released.await;
            }
        };
        tokio::select! {
            () = turn => Ok(held),
            () = cancel.cancelled() => Err(ClaimError::Cancelled),
            () = tokio::time::sleep(MAX_WAIT) => {
                let held = self.blocker(held.ticket).unwrap_or_default();
                Err(ClaimError::Waited { held })
            }
        }
    }

    /// Returns how many calls wait for a claim.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    fn join(
        self: &Arc<Self>,
        domain: Domain,
        claim: ConcurrencyClaim,
    ) -> Result<HeldClaim, ClaimError> {
        let mut line = self.line.lock().unwrap_or_else(PoisonError::into_inner);
        if line.claims.len() >= MAX_CLAIMS {
            return Err(ClaimError::Full);
        }
        let ticket = line.next_ticket;
        line.next_ticket += 1;
        line.claims.push_back(Waiting { ticket, domain, claim });
        Ok(HeldClaim { scheduler: Arc::clone(self), ticket })
    }

    /// Returns the scope of the first earlier claim that this one has to wait for.
    fn blocker(&self, ticket: u64) -> Option<String> {
        let line = self.line.lock().unwrap_or_else(PoisonError::into_inner);
        let own = line.claims.iter().find(|waiting| waiting.ticket == ticket)?;
        line.claims
            .iter()
            .take_while(|earlier| earlier.ticket < ticket)
            .find(|earlier| {
                earlier.claim.conflicts_with(&own.claim) && !earlier.domain.is_disjoint(&own.domain)
            })
            .map(|earlier| earlier.claim.scope().to_owned())
    }
}

/// One more in a count, for as long as it lives.
struct Counted<'count>(&'count AtomicUsize);

impl<'count> Counted<'count> {
    fn new(count: &'count AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for HeldClaim {
    fn drop(&mut self) {
        let mut line = self.scheduler.line.lock().unwrap_or_else(PoisonError::into_inner);
        line.claims.retain(|waiting| waiting.ticket != self.ticket);
        drop(line);
        self.scheduler.released.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gateway_model::ExclusiveScope;

    fn domain(names: &[&str]) -> Domain {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn global() -> ConcurrencyClaim {
        ConcurrencyClaim::Exclusive(ExclusiveScope::Global)
    }

    fn path(path: &str) -> ConcurrencyClaim {
        ConcurrencyClaim::on_paths([path.to_owned()].into())
    }

    async fn is_free(scheduler: &Arc<Scheduler>, runs: &[&str], claim: ConcurrencyClaim) -> bool {
        let cancel = CancellationToken::new();
        let attempt = scheduler.hold(domain(runs), claim, &cancel);
        tokio::select! {
            biased;
            held = attempt => held.is_ok(),
            () = tokio::task::yield_now() => false,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn only_conflicting_claims_of_an_overlapping_domain_wait() {
        let scheduler = Arc::new(Scheduler::default());
        let cancel = CancellationToken::new();
        let held = scheduler.hold(domain(&["run_1"]), path("/a"), &cancel).await.unwrap();
        assert!(is_free(&scheduler, &["run_1"], path("/b")).await);
        assert!(is_free(&scheduler, &["run_2"], global()).await);
        assert!(!is_free(&scheduler, &["run_1"], path("/a/x")).await);
        assert!(!is_free(&scheduler, &["run_1", "ws"], global()).await);
        assert!(!is_free(&scheduler, &["run_1"], ConcurrencyClaim::Shared).await);
        drop(held);
        assert!(is_free(&scheduler, &["run_1"], global()).await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_later_call_never_overtakes_one_it_conflicts_with() {
        let scheduler = Arc::new(Scheduler::default());
        let cancel = CancellationToken::new();
        let reader =
            scheduler.hold(domain(&["r"]), ConcurrencyClaim::Shared, &cancel).await.unwrap();
        let waiting = {
            let scheduler = Arc::clone(&scheduler);
            let cancel = cancel.clone();
            async move { scheduler.hold(domain(&["r"]), global(), &cancel).await }
        };
        let mut writer = std::pin::pin!(waiting);
        assert!(futures_poll_once(writer.as_mut()).await.is_none());
        assert!(!is_free(&scheduler, &["r"], ConcurrencyClaim::Shared).await);
        drop(reader);
        drop(writer.await.unwrap());
        assert!(is_free(&scheduler, &["r"], ConcurrencyClaim::Shared).await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_ends_by_cancellation_or_after_its_bound() {
        let scheduler = Arc::new(Scheduler::default());
        let cancel = CancellationToken::new();
        let _held = scheduler.hold(domain(&["r"]), global(), &cancel).await.unwrap();
        let waited = scheduler.hold(domain(&["r"]), global(), &cancel).await.unwrap_err();
        assert_eq!(waited, ClaimError::Waited { held: "global".to_owned() });
        cancel.cancel();
        let cancelled = scheduler.hold(domain(&["r"]), global(), &cancel).await.unwrap_err();
        assert_eq!(cancelled, ClaimError::Cancelled);
    }

    async fn futures_poll_once<F: Future>(future: std::pin::Pin<&mut F>) -> Option<F::Output> {
        let mut future = Some(future);
        std::future::poll_fn(move |context| {
            let polled = future.take().map(|future| future.poll(context));
            std::task::Poll::Ready(match polled {
                Some(std::task::Poll::Ready(output)) => Some(output),
                Some(std::task::Poll::Pending) | None => None,
            })
        })
        .await
    }
}
