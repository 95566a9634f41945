//! Read-only connections beside the writer's: a bounded few, off the async runtime.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::Connection;
use tokio::sync::Semaphore;

use crate::ledger::LedgerError;
use crate::open::connect_reader;

/// Reads that may go on at once.
const READERS: usize = 2;

pub(crate) struct Readers {
    path: PathBuf,
    places: Arc<Semaphore>,
    idle: Arc<Mutex<Vec<Connection>>>,
}

impl Readers {
    pub(crate) fn new(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            places: Arc::new(Semaphore::new(READERS)),
            idle: Arc::default(),
        }
    }

    /// Runs a query on a blocking thread.
    ///
    /// Cancel-safe: a query that has begun ends by itself and gives its connection back.
    pub(crate) async fn read<T: Send + 'static>(
        &self,
        query: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, LedgerError> {
        let place = Arc::clone(&self.places).acquire_owned().await;
        let place = place.map_err(|_closed| LedgerError::Interrupted)?;
        let (path, idle) = (self.path.clone(), Arc::clone(&self.idle));
        let reading = tokio::task::spawn_blocking(move || {
            let _place = place;
            let waiting = idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let database = match waiting {
                Some(database) => database,
                None => connect_reader(&path)?,
            };
            let answer = query(&database);
            idle.lock().unwrap_or_else(PoisonError::into_inner).push(database);
            answer
        });
        reading.await.map_err(|_lost| LedgerError::Interrupted)?.map_err(LedgerError::Read)
    }
}
