//! Calls that run under a key, and those who wait for them.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use gateway_model::CallId;
use tokio::sync::watch;

use crate::keys::KeyCode;

/// Waits for a running call with the same key.
#[derive(Debug, Clone)]
pub struct Joiner {
    /// The call that runs.
    pub call: CallId,
    ended: watch::Receiver<()>,
}

impl Joiner {
    /// Waits until the running call has ended; the key can then be looked up again.
    ///
    /// Cancel-safe. Returns whether it ended in time.
    pub async fn wait(&self, patience: Duration) -> bool {
        let mut ended = self.ended.clone();
        // Nothing is ever sent: the channel closes when the flight ends.
        tokio::time::timeout(patience, ended.changed()).await.is_ok()
    }
}

/// Every running call with a key.
#[derive(Debug, Default)]
pub(crate) struct Flights(Mutex<HashMap<KeyCode, Flight>>);

#[derive(Debug)]
struct Flight {
    call: CallId,
    /// Dropped when the call ends, which wakes whoever waits.
    ends: watch::Sender<()>,
}

impl Flights {
    pub(crate) fn start(&self, code: KeyCode, call: CallId) {
        self.lock().insert(code, Flight { call, ends: watch::Sender::new(()) });
    }

    /// Ends the flight of a call, and not that of a later attempt under the same key.
    pub(crate) fn end(&self, code: KeyCode, call: CallId) {
        let mut flights = self.lock();
        if flights.get(&code).is_some_and(|flight| flight.call == call) {
            flights.remove(&code);
        }
    }

    pub(crate) fn end_all(&self) {
        self.lock().clear();
    }

    /// Returns the joiner of a call; that of a call which has just ended does not wait.
    pub(crate) fn join(&self, code: KeyCode, call: CallId) -> Joiner {
        let flights = self.lock();
        let ended = match flights.get(&code).filter(|flight| flight.call == call) {
            Some(flight) => flight.ends.subscribe(),
            None => watch::Sender::new(()).subscribe(),
        };
        Joiner { call, ended }
    }

    pub(crate) fn joiners(&self) -> usize {
        self.lock().values().map(|flight| flight.ends.receiver_count()).sum()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<KeyCode, Flight>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
