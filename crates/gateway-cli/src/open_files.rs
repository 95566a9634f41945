//! How many files the gateway may have open, and how many connections that leaves room for.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Connections at once where the limit leaves room for them; more wait to be accepted.
const MAX_CONNECTIONS: u64 = 1_024;
/// The share of the limit that connections may take. The rest is for what they ask for: a call
/// of a confined tool alone has a dozen pipes and descriptors open.
const SHARE_OF_CONNECTIONS: u64 = 4;

/// Raises this process's limit as far as it may, and returns it; `None` stands for no limit.
///
/// What a tool's process may open is limited by the sandbox.
pub(crate) fn raise_limit() -> Option<u64> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    match setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }) {
        Ok(()) => maximum,
        Err(error) => {
            tracing::warn!(%error, limit = current, "the limit of open files cannot be raised");
            current
        }
    }
}

/// Returns how many connections may be open at once under a limit of open files.
pub(crate) fn max_connections(limit: Option<u64>) -> usize {
    let share = limit.map_or(MAX_CONNECTIONS, |limit| limit / SHARE_OF_CONNECTIONS);
    usize::try_from(share.clamp(1, MAX_CONNECTIONS)).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_most_of_the_limit_to_calls() {
        for (limit, expected) in
            [(None, 1_024), (Some(1 << 20), 1_024), (Some(1_024), 256), (Some(3), 1)]
        {
            assert_eq!(max_connections(limit), expected, "{limit:?}");
        }
    }
}
