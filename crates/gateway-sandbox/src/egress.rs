//! The one way out: outbound connections under a policy of hosts and addresses.
//!
//! INVARIANT: a socket is connected only to an address that was checked here after resolution,
//! and to that very address. Nothing resolves a name a second time between check and connection,
//! so a name whose answers change (DNS rebinding) gains nothing.

mod address;
mod http;
#[cfg(can_confine)]
mod proxy;
mod resolver;
mod tls;

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use gateway_model::{Host, HostRules};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};

pub use address::{AddressRule, InvalidAddressRule};
pub use http::{Hop, HttpBounds, HttpError, HttpPhase, HttpProgress, HttpRequest, HttpResponse};
#[cfg(can_confine)]
pub(crate) use proxy::{MAX_CONNECTIONS, Proxy, ProxyUse};
pub use resolver::{Resolve, Resolving, SystemResolver};
pub use tls::TrustError;

use http::Pool;
use tls::Trust;

/// The longest time that one connection may take, its lookup and its TLS handshake each.
const CONNECT_TIME: Duration = Duration::from_secs(10);
/// Addresses of one name that are tried, in the order of the resolver.
const MAX_ADDRESSES: usize = 8;

/// What the operator says about outbound connections.
pub struct EgressOptions {
    /// Addresses beyond the public internet that may be reached all the same.
    pub allow_private: Vec<AddressRule>,
    /// A PEM file of certificate authorities that are trusted beside the system's.
    pub ca_file: Option<PathBuf>,
    /// Turns names into addresses.
    pub resolver: Arc<dyn Resolve>,
}

impl EgressOptions {
    /// Returns what holds where an operator says nothing: the public internet alone, by the
    /// system's resolver, with the certificate authorities that the system trusts.
    pub fn public_internet() -> Self {
        Self { allow_private: Vec::new(), ca_file: None, resolver: Arc::new(SystemResolver::new()) }
    }
}

/// Opens outbound connections; one for the whole gateway.
pub struct Egress {
    allow_private: Vec<AddressRule>,
    resolver: Arc<dyn Resolve>,
    trust: Trust,
    pool: Pool,
}

/// A connection to the address that was checked.
#[derive(Debug)]
pub struct CheckedStream {
    /// The connection.
    pub stream: TcpStream,
    /// Where it leads.
    pub address: SocketAddr,
}

/// A connection that was not made; then nothing was sent.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The host is outside what the call may reach.
    #[error(
        "{host}:{port} is not in the tool's network declaration; this is policy, and trying again changes nothing"
    )]
    NotListed {
        /// The host.
        host: Host,
        /// The port.
        port: u16,
    },
    /// The host is, or resolves to, an address that is not on the public internet.
    #[error(
        "{host}:{port} leads to {address} ({range}), which is not on the public internet; an operator permits it with \
         [egress] allow_private = [{}]", toml_entry(*address, *port)
    )]
    NotPublic {
        /// The host.
        host: Host,
        /// The port.
        port: u16,
        /// The address.
        address: IpAddr,
        /// What the address is for.
        range: &'static str,
    },
    /// The name could not be resolved.
    #[error("the name {host} could not be resolved")]
    Resolve {
        /// The name.
        host: Host,
        /// What the resolver said.
        source: io::Error,
    },
    /// No address of the host took the connection.
    #[error("no connection to {host} at {address}")]
    Unreachable {
        /// The host.
        host: Host,
        /// The last address that was tried.
        address: SocketAddr,
        /// What the last try said.
        source: io::Error,
    },
    /// The connection took too long.
    #[error("{host}:{port} was not connected within {} ms", within.as_millis())]
    Slow {
        /// The host.
        host: Host,
        /// The port.
        port: u16,
        /// The time it had.
        within: Duration,
    },
}

impl ConnectError {
    /// Says whether policy forbids the connection, so that no other try can succeed.
    pub fn is_denied(&self) -> bool {
        match self {
            Self::NotListed { .. } | Self::NotPublic { .. } => true,
            Self::Resolve { .. } | Self::Unreachable { .. } | Self::Slow { .. } => false,
        }
    }
}

/// Writes the entry of `allow_private` that would permit an address.
fn toml_entry(address: IpAddr, port: u16) -> String {
    format!("{:?}", SocketAddr::new(address, port).to_string())
}

impl Egress {
    /// Reads the certificate authorities that are trusted.
    ///
    /// # Errors
    /// Names the operator's file where it cannot be used. A system without a store of its own is
    /// no error: there only what the operator's file signs is trusted.
    pub fn open(options: EgressOptions) -> Result<Self, TrustError> {
        let EgressOptions { allow_private, ca_file, resolver } = options;
        let trust = Trust::read(ca_file.as_deref())?;
        Ok(Self { allow_private, resolver, trust, pool: Pool::default() })
    }

    /// Connects to a host that the rules admit, at an address that may be reached.
    ///
    /// Every address of the name is checked, and one that may not be reached refuses the whole
    /// name. Takes at most 10 s, or the time that is left until the deadline. Cancel-safe: a
    /// dropped future leaves no connection.
    ///
    /// # Errors
    /// Says why there is no connection.
    pub async fn connect(
        &self,
        rules: &HostRules,
        (host, port): (&Host, u16),
        deadline: Instant,
    ) -> Result<CheckedStream, ConnectError> {
        if !rules.can_reach(host, port) {
            return Err(ConnectError::NotListed { host: host.clone(), port });
        }
        let started = Instant::now();
        let deadline = deadline.min(started + CONNECT_TIME);
        let slow = || ConnectError::Slow {
            host: host.clone(),
            port,
            within: deadline.saturating_duration_since(started),
        };
        let addresses = match host {
            Host::Address(address) => vec![*address],
            Host::Name(name) => timeout_at(deadline, self.resolver.resolve(name))
                .await
                .map_err(|_elapsed| slow())?
                .map_err(|source| ConnectError::Resolve { host: host.clone(), source })?,
        };
        let addresses = self.check(host, port, &addresses)?;
        let connecting = dial(host, &addresses, deadline);
        timeout_at(deadline, connecting).await.map_err(|_elapsed| slow())?
    }

    /// Returns the addresses to dial, if all of a name's answers may be reached.
    fn check(
        &self,
        host: &Host,
        port: u16,
        answers: &[IpAddr],
    ) -> Result<Vec<SocketAddr>, ConnectError> {
        if answers.is_empty() {
            let source = io::Error::new(io::ErrorKind::NotFound, "it has no address");
            return Err(ConnectError::Resolve { host: host.clone(), source });
        }
        let mut checked = Vec::with_capacity(answers.len());
        for answer in answers {
            let address = answer.to_canonical();
            let is_listed = self.allow_private.iter().any(|rule| rule.admits(address, port));
            if let Some(range) = address::private_range(address).filter(|_range| !is_listed) {
                return Err(ConnectError::NotPublic { host: host.clone(), port, address, range });
            }
            checked.push(SocketAddr::new(address, port));
        }
        checked.truncate(MAX_ADDRESSES);
        Ok(checked)
    }
}

/// Tries the addresses in order; each but the last gets an even share of the time that is left.
async fn dial(
    host: &Host,
    addresses: &[SocketAddr],
    deadline: Instant,
) -> Result<CheckedStream, ConnectError> {
    let mut failed = None;
    for (position, address) in addresses.iter().enumerate() {
        let left = u32::try_from(addresses.len() - position).unwrap_or(u32::MAX);
        let now = Instant::now();
        let until = now + deadline.saturating_duration_since(now) / left;
        let tried = match timeout_at(until, tcp(*address)).await {
            Ok(Ok(stream)) => return Ok(CheckedStream { stream, address: *address }),
            Ok(Err(source)) => source,
            Err(_elapsed) => io::ErrorKind::TimedOut.into(),
        };
        failed = Some((*address, tried));
    }
    let (address, source) = failed
        .unwrap_or_else(|| ((IpAddr::from([0; 4]), 0).into(), io::ErrorKind::NotFound.into()));
    Err(ConnectError::Unreachable { host: host.clone(), address, source })
}

async fn tcp(address: SocketAddr) -> io::Result<TcpStream> {
    #[expect(clippy::disallowed_methods, reason = "the one place that opens outbound sockets")]
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

impl fmt::Debug for Egress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Egress").field("allow_private", &self.allow_private).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
