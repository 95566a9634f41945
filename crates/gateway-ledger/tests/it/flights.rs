//! Calls under one key at once: one acts, the others wait for it, nobody waits for ever.

use std::sync::Arc;
use std::time::Duration;

use gateway_ledger::{Admitted, KeyState, Ledger, Status};
use tokio::task::JoinSet;

use crate::home::{
    Home, effect_free, effectful, ended, lease, leaves, look_up, output, seen, status, succeeded,
};

const LONG: Duration = Duration::from_secs(60);

async fn join(ledger: &Ledger) -> gateway_ledger::Joiner {
    match look_up(ledger).await.unwrap() {
        KeyState::InFlight(joiner) => joiner,
        other => panic!("nobody runs: {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_many_calls_at_once_one_acts_and_all_get_its_outcome() {
    let home = Home::new();
    let ledger = Arc::new(home.open());
    let mut callers = JoinSet::new();
    for number in 0..64 {
        let ledger = Arc::clone(&ledger);
        callers.spawn(async move {
            let mut state = match ledger.admit(effectful(number)).await.unwrap() {
                Admitted::Fresh(lease) => {
                    ledger.settle(lease, succeeded()).await.unwrap();
                    return true;
                }
                Admitted::Seen(state) => state,
                Admitted::Unapproved => panic!("it needs no approval"),
            };
            while let KeyState::InFlight(joiner) = state {
                assert!(joiner.wait(LONG).await);
                state = look_up(&ledger).await.unwrap();
            }
            assert!(matches!(state, KeyState::Replay(stored) if stored.result == Ok(output())));
            false
        });
    }
    let acted = callers.join_all().await;
    assert_eq!(acted.iter().filter(|acted| **acted).count(), 1);
    assert_eq!(ledger.records(0, 100).await.unwrap().len(), 2);
}

#[tokio::test]
async fn a_joiner_gives_up_when_its_patience_ends_and_may_come_back() {
    let home = Home::new();
    let ledger = home.open();
    let running = lease(ledger.admit(effectful(1)).await);
    let joiner = join(&ledger).await;
    assert!(!joiner.wait(Duration::ZERO).await);
    assert!(matches!(seen(ledger.admit(effectful(2)).await), KeyState::InFlight(_)));
    ledger.settle(running, succeeded()).await.unwrap();
    assert!(joiner.wait(Duration::ZERO).await);
    assert!(matches!(look_up(&ledger).await.unwrap(), KeyState::Replay(_)));
}

#[tokio::test]
async fn a_lease_that_is_dropped_wakes_its_joiners_and_is_indeterminate() {
    let home = Home::new();
    let ledger = home.open();
    let running = lease(ledger.admit(effectful(1)).await);
    let joiner = join(&ledger).await;
    drop(running);
    assert!(joiner.wait(LONG).await);
    assert!(matches!(look_up(&ledger).await.unwrap(), KeyState::Indeterminate { .. }));
    assert_eq!(status(&ledger, 1).await.as_deref(), Some("indeterminate"));
}

#[tokio::test]
async fn a_settlement_that_is_given_up_before_it_is_sent_is_indeterminate() {
    let home = Home::new();
    let ledger = home.open();
    let running = lease(ledger.admit(effectful(1)).await);
    let joiner = join(&ledger).await;
    drop(ledger.settle(running, succeeded()));
    assert!(joiner.wait(LONG).await);
    assert!(matches!(look_up(&ledger).await.unwrap(), KeyState::Indeterminate { .. }));
}

#[tokio::test]
async fn an_effect_free_lease_that_is_dropped_is_journaled_as_cancelled() {
    let home = Home::new();
    let ledger = home.open();
    drop(lease(ledger.admit(effect_free(1)).await));
    ledger.close().await;
    assert_eq!(status(&ledger, 1).await.as_deref(), Some("cancelled"));
}

#[tokio::test]
async fn an_admission_that_nobody_waits_for_frees_its_key() {
    let home = Home::new();
    let ledger = home.open();
    {
        let admission = ledger.admit(effectful(1));
        tokio::pin!(admission);
        // One poll sends the command; the answer finds nobody.
        let sent = std::future::poll_fn(|context| {
            std::task::Poll::Ready(admission.as_mut().poll(context).is_pending())
        });
        assert!(sent.await);
    }
    // The next admission is behind the first in the queue, and may only find it given up.
    loop {
        match ledger.admit(effectful(2)).await.unwrap() {
            Admitted::Fresh(lease) => {
                assert_eq!(lease.attempt(), 1);
                break ledger.settle(lease, succeeded()).await.map(drop).unwrap();
            }
            Admitted::Seen(KeyState::InFlight(joiner)) => assert!(joiner.wait(LONG).await),
            other @ (Admitted::Seen(_) | Admitted::Unapproved) => panic!("{other:?}"),
        }
    }
    assert_eq!(status(&ledger, 1).await.as_deref(), Some("not_started"));
    let kinds: Vec<String> = leaves(&ledger)
        .await
        .iter()
        .map(|leaf| leaf["kind"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(kinds, ["intent", "outcome", "intent", "outcome"]);
}

#[tokio::test]
async fn each_attempt_has_a_receipt_that_names_the_first() {
    let home = Home::new();
    let ledger = home.open();
    for number in 1..4 {
        let mut admission = effectful(number);
        admission.key = admission.key.map(|(scope, _)| (scope, crate::home::ALWAYS));
        admission.after = number.checked_sub(1).filter(|seen| *seen > 0).map(crate::home::call);
        let running = lease(ledger.admit(admission).await);
        assert_eq!(running.attempt(), u32::from(number));
        ledger.settle(running, ended(Status::Timeout)).await.unwrap();
    }
    let leaves = leaves(&ledger).await;
    let first = leaves[0]["call"].clone();
    for (position, attempt) in [(1, 1), (3, 2), (5, 3)] {
        assert_eq!(leaves[position]["attempt"], attempt);
        let names_first = leaves[position]["first_call"] == first;
        assert_eq!(names_first, attempt > 1);
    }
    assert!(ledger.verify().await.is_ok());
}
