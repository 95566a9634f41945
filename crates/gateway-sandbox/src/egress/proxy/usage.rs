//! What a call did with its way out, for its receipt and the log. Bounded.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use gateway_model::{HostRules, bounded_text};
use serde_json::{Value, json};

/// Hosts of each kind that are told by name; of others it is told how many connections there were.
const MAX_HOSTS: usize = 32;
/// Bytes of a host's name that are told.
const MAX_NAME_BYTES: usize = 300;

/// Why a host was denied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Denied {
    /// The tool's registration does not permit it.
    NotListed,
    /// It leads to this address, which an operator does not permit.
    NotPublic(SocketAddr),
    /// It is no host.
    NoHost,
}

/// Whom a call reached, whom it was denied, and whom it could not reach.
#[derive(Debug, Clone)]
pub(crate) struct ProxyUse {
    rule: Value,
    reached: Hosts,
    denied: Hosts,
    failed: Hosts,
}

/// Hosts by name, each with how often and what is to be said of it.
#[derive(Debug, Clone, Default)]
struct Hosts {
    named: BTreeMap<String, (u64, Value)>,
    /// Connections to hosts beyond the bound.
    others: u64,
}

impl ProxyUse {
    pub(super) fn under(rules: &HostRules) -> Self {
        let rule = match rules {
            HostRules::Nothing => json!([]),
            HostRules::Listed(patterns) => {
                patterns.iter().map(|pattern| Value::from(pattern.to_string())).collect()
            }
            HostRules::Any => json!("any public host"),
        };
        let (reached, denied, failed) = (Hosts::default(), Hosts::default(), Hosts::default());
        Self { rule, reached, denied, failed }
    }

    pub(super) fn reached(&mut self, host: &str, address: SocketAddr) {
        self.reached.count(host, || json!({ "address": address.to_string() }));
    }

    pub(super) fn denied(&mut self, host: &str, why: Denied) {
        let is_new = self.denied.count(host, || match why {
            Denied::NotListed => json!({ "reason": "not_listed" }),
            Denied::NoHost => json!({ "reason": "no_host" }),
            Denied::NotPublic(address) => {
                json!({ "reason": "not_public", "address": address.to_string() })
            }
        });
        if is_new {
            tracing::warn!(host = %bounded_text(host, MAX_NAME_BYTES), reason = ?why, "a tool was denied a host");
        }
    }

    pub(super) fn failed(&mut self, host: &str) {
        self.failed.count(host, || json!({}));
    }

    /// Returns it as it stands in receipts.
    pub(crate) fn to_json(&self) -> Value {
        let mut document = json!({
            "rule": self.rule,
            "reached": self.reached.to_json(),
            "denied": self.denied.to_json(),
            "failed": self.failed.to_json(),
        });
        let others = self.reached.others + self.denied.others + self.failed.others;
        if let (true, Some(fields)) = (others > 0, document.as_object_mut()) {
            fields.insert("others".to_owned(), others.into());
        }
        document
    }
}

impl Hosts {
    /// Counts a connection; says whether its host is told for the first time.
    fn count(&mut self, host: &str, said: impl FnOnce() -> Value) -> bool {
        let name = bounded_text(host, MAX_NAME_BYTES);
        if let Some((count, _)) = self.named.get_mut(&*name) {
            *count += 1;
            return false;
        }
        if self.named.len() >= MAX_HOSTS {
            self.others += 1;
            return false;
        }
        self.named.insert(name.into_owned(), (1, said()));
        true
    }

    fn to_json(&self) -> Value {
        let rows = self.named.iter().map(|(host, (count, said))| {
            let mut row = json!({ "host": host, "count": count });
            if let (Some(row), Some(said)) = (row.as_object_mut(), said.as_object()) {
                row.extend(said.clone());
            }
            row
        });
        rows.collect()
    }
}
