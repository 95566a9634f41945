//! Connections that are kept for the next request of the same tool to the same origin.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use gateway_model::{Digest, HttpUrl};
use hyper::HeaderMap;
use tokio::time::Instant;

use super::connection::Connection;

/// Connections that are kept in all; one more closes the oldest.
const MAX_KEPT: usize = 64;
/// How long a connection is kept: less than the shortest usual patience of servers, 5 s.
const KEPT: Duration = Duration::from_secs(4);

/// Which requests a kept connection may serve.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PoolKey {
    origin: String,
    partition: Digest,
}

impl PoolKey {
    pub(super) fn of(url: &HttpUrl, partition: Digest) -> Self {
        Self { origin: url.origin(), partition }
    }
}

struct Kept {
    key: PoolKey,
    until: Instant,
    connection: Connection,
}

/// The kept connections, oldest first.
#[derive(Default)]
pub(in super::super) struct Pool {
    kept: Mutex<Vec<Kept>>,
}

impl Pool {
    /// Takes the connection that was kept last, as far as one is still open.
    pub(super) fn take(&self, key: &PoolKey) -> Option<Connection> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        retain_open(&mut kept);
        let position = kept.iter().rposition(|one| one.key == *key)?;
        Some(kept.remove(position).connection)
    }

    /// Keeps a connection, for less time than its server says it will.
    pub(super) fn put(&self, key: PoolKey, connection: Connection, headers: &HeaderMap) {
        let Some(patience) = patience(headers) else { return };
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        retain_unexpired(&mut kept);
        if kept.len() >= MAX_KEPT {
            kept.remove(0);
        }
        kept.push(Kept { key, until: Instant::now() + patience, connection });
    }
}

fn retain_unexpired(kept: &mut Vec<Kept>) {
    let now = Instant::now();
    kept.retain(|one| one.until > now);
}

fn retain_open(kept: &mut Vec<Kept>) {
    retain_unexpired(kept);
    kept.retain(|one| one.connection.is_ready());
}

/// Returns how long to keep a connection; `None` where the server closes it now.
///
/// A server that says `Keep-Alive: timeout=N` may close it at N seconds sharp, so half of that
/// is trusted.
fn patience(headers: &HeaderMap) -> Option<Duration> {
    let texts = |name: &str| {
        let values = headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok());
        values.flat_map(|value| value.split(',')).map(str::trim).collect::<Vec<_>>()
    };
    if texts("connection").iter().any(|option| option.eq_ignore_ascii_case("close")) {
        return None;
    }
    let said = texts("keep-alive").into_iter().find_map(|parameter| {
        parameter.strip_prefix("timeout=").and_then(|seconds| seconds.parse::<u32>().ok())
    });
    Some(said.map_or(KEPT, |seconds| (Duration::from_secs(seconds.into()) / 2).min(KEPT)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(headers: &[(&'static str, &str)], expected: Option<Duration>) {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, value.parse().unwrap());
        }
        assert_eq!(patience(&map), expected, "{headers:?}");
    }

    #[test]
    fn a_connection_is_kept_for_less_than_its_server_says() {
        check(&[], Some(KEPT));
        check(&[("keep-alive", "timeout=1")], Some(Duration::from_millis(500)));
        check(&[("keep-alive", "max=100, timeout=60")], Some(KEPT));
        check(&[("keep-alive", "timeout=0")], Some(Duration::ZERO));
        check(&[("keep-alive", "timeout=soon")], Some(KEPT));
        check(&[("connection", "keep-alive, Close")], None);
    }
}
