//! The port to name resolution, and the system's resolver behind it.

use std::future::Future;
use std::io;
use std::net::{IpAddr, ToSocketAddrs};
use std::pin::Pin;
use std::sync::Arc;

use tokio::sync::Semaphore;

/// Lookups that the system's resolver does at once; each holds a thread until it answers.
const MAX_LOOKUPS: usize = 32;

/// An answer that is awaited.
pub type Resolving<'a> = Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send + 'a>>;

/// Turns a name into all its addresses.
///
/// What it answers is checked before anything is connected, so it need not be trusted. It is
/// asked once for each connection, and its future may be dropped at any time.
pub trait Resolve: Send + Sync + 'static {
    /// Looks a name up.
    fn resolve<'a>(&'a self, name: &'a str) -> Resolving<'a>;
}

/// The resolver of the operating system: hosts file, search domains and name servers.
#[derive(Debug, Clone)]
pub struct SystemResolver {
    lookups: Arc<Semaphore>,
}

impl SystemResolver {
    /// Returns the system's resolver.
    pub fn new() -> Self {
        Self { lookups: Arc::new(Semaphore::new(MAX_LOOKUPS)) }
    }
}

impl Default for SystemResolver {
    fn default() -> Self {
        Self::new()
    }
}

impl Resolve for SystemResolver {
    fn resolve<'a>(&'a self, name: &'a str) -> Resolving<'a> {
        Box::pin(async move {
            let lookups = Arc::clone(&self.lookups);
            let permit = lookups.acquire_owned().await.map_err(io::Error::other)?;
            let name = name.to_owned();
            let looking = tokio::task::spawn_blocking(move || {
                // Held by the thread, not by the caller: a lookup that nobody waits for counts.
                let _permit = permit;
                let found = (name.as_str(), 0).to_socket_addrs()?;
                Ok(found.map(|address| address.ip()).collect())
            });
            looking.await.map_err(io::Error::other)?
        })
    }
}
