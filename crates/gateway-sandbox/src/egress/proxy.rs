//! Proxy: the way out of one confined call, by HTTP and by SOCKS 5 on one listener.
//!
//! INVARIANT: the rules belong to the listener, which lives in the call's own network namespace, so
//! they hold for whatever process of the call connects, also through a relay within it.
//! INVARIANT: every outbound socket is [`Egress::connect`]'s, so it leads to a checked address.

mod http;
mod idle;
mod socks;
mod usage;

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use gateway_model::{Host, HostRules, InvalidHost};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tracing::Instrument as _;

use super::{CheckedStream, ConnectError, Egress};
use idle::Watched;
use usage::Denied;
pub(crate) use usage::ProxyUse;

/// Connections of all calls together, at most.
pub(crate) const MAX_CONNECTIONS: usize = 512;
/// Connections of one call at once; more wait in the listener's own queue.
const CALL_CONNECTIONS: usize = 64;
/// How long a client may take to say what it wants.
const HEAD_TIME: Duration = Duration::from_secs(30);
/// How long a connection may be silent in both directions.
const IDLE_TIME: Duration = Duration::from_secs(300);
/// How long to wait where a connection cannot be accepted, such as for want of open files.
const BACK_OFF: Duration = Duration::from_millis(50);

/// Serves the connections of one call.
#[derive(Debug)]
pub(crate) struct Proxy {
    egress: Arc<Egress>,
    rules: HostRules,
    used: Mutex<ProxyUse>,
    /// Connections of all calls.
    places: Arc<Semaphore>,
    deadline: Instant,
}

/// Why a connection of a call was not made.
#[derive(Debug, thiserror::Error)]
enum Refused {
    /// Not a host in any spelling that is taken.
    #[error(transparent)]
    Host(#[from] InvalidHost),
    /// No connection.
    #[error(transparent)]
    Connect(#[from] ConnectError),
}

impl Proxy {
    pub(crate) fn new(
        egress: Arc<Egress>,
        rules: HostRules,
        places: Arc<Semaphore>,
        deadline: Instant,
    ) -> Self {
        let used = Mutex::new(ProxyUse::under(&rules));
        Self { egress, rules, used, places, deadline }
    }

    /// Returns whom the call reached, and whom it was denied.
    pub(crate) fn used(&self) -> ProxyUse {
        self.used.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Accepts connections until it is dropped; dropping `connections` closes them all.
    pub(crate) async fn serve(
        self: &Arc<Self>,
        listener: TcpListener,
        connections: &mut JoinSet<()>,
    ) -> ! {
        loop {
            // Whoever opens many connections waits for his own to end.
            while connections.try_join_next().is_some() {}
            if connections.len() >= CALL_CONNECTIONS {
                connections.join_next().await;
                continue;
            }
            let accepted = match listener.accept().await {
                Ok((stream, _from)) => stream,
                Err(error) => {
                    tracing::warn!(%error, "a call's connection cannot be accepted");
                    sleep(BACK_OFF).await;
                    continue;
                }
            };
            // The semaphore is never closed.
            let Ok(place) = Arc::clone(&self.places).acquire_owned().await else { continue };
            let proxy = Arc::clone(self);
            let serving = async move {
                let _place = place;
                proxy.attend(accepted).await;
            };
            connections.spawn(serving.in_current_span());
        }
    }

    /// Serves one connection to its end.
    async fn attend(self: Arc<Self>, stream: TcpStream) {
        let mut first = [0];
        let peeked = timeout(HEAD_TIME, stream.peek(&mut first)).await;
        if !matches!(peeked, Ok(Ok(1))) {
            return;
        }
        let (stream, activity) = Watched::new(stream);
        let serving = async {
            match first {
                [socks::VERSION] => socks::serve(&self, stream).await,
                _ => http::serve(&self, stream).await,
            }
        };
        let ended = tokio::select! {
            ended = serving => ended,
            () = activity.has_ceased(IDLE_TIME) => Err(io::ErrorKind::TimedOut.into()),
        };
        if let Err(error) = ended {
            tracing::debug!(%error, "a call's connection through the proxy ended");
        }
    }

    /// Connects to a host as the call's program wrote it, and records what came of it.
    async fn connect(&self, host: &str, port: u16) -> Result<TcpStream, Refused> {
        let host: Host = host.parse().inspect_err(|_invalid: &InvalidHost| {
            self.record(|used| used.denied(&format!("{host}:{port}"), Denied::NoHost));
        })?;
        let name = format!("{host}:{port}");
        match self.egress.connect(&self.rules, (&host, port), self.deadline).await {
            Ok(CheckedStream { stream, address }) => {
                self.record(|used| used.reached(&name, address));
                Ok(stream)
            }
            Err(error) => {
                match &error {
                    ConnectError::NotListed { .. } => {
                        self.record(|used| used.denied(&name, Denied::NotListed));
                    }
                    ConnectError::NotPublic { address, .. } => {
                        let to = SocketAddr::new(*address, port);
                        self.record(|used| used.denied(&name, Denied::NotPublic(to)));
                    }
                    ConnectError::Resolve { .. }
                    | ConnectError::Unreachable { .. }
                    | ConnectError::Slow { .. } => self.record(|used| used.failed(&name)),
                }
                Err(error.into())
            }
        }
    }

    fn record(&self, note: impl FnOnce(&mut ProxyUse)) {
        note(&mut self.used.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

impl Refused {
    /// Says whether policy refuses, so that no other try can succeed.
    fn is_denied(&self) -> bool {
        match self {
            Self::Host(_) => true,
            Self::Connect(error) => error.is_denied(),
        }
    }

    /// Returns what a program, and the model that reads its output, should know.
    fn to_text(&self) -> String {
        match self {
            Self::Connect(ConnectError::NotListed { host, port }) => format!(
                "{host}:{port} is denied: the registration of this tool does not permit this host \
                 (resource_limits.network). Retrying does not help.\n"
            ),
            Self::Host(_) | Self::Connect(ConnectError::NotPublic { .. }) => {
                format!("denied: {self}. Retrying does not help.\n")
            }
            Self::Connect(
                error @ (ConnectError::Resolve { source, .. }
                | ConnectError::Unreachable { source, .. }),
            ) => format!("{error}: {source}\n"),
            Self::Connect(error @ ConnectError::Slow { .. }) => format!("{error}\n"),
        }
    }
}

#[cfg(test)]
mod tests;
