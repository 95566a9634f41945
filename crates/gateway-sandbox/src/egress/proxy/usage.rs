//! What a call did with its way out, for its receipt and the log. Bounded.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use gateway_model::{HostRules, bounded_text};
use serde_json::{Map, Value, json};

/// Hosts of each kind that are told by name; of others it is told how many connections there were.
const MAX_HOSTS: usize = 32;
/// Bytes of a receipt's record for the rule, for hosts reached or denied each, and for the others.
const MAX_RULE_BYTES: usize = 512;
const MAX_ROWS_BYTES: usize = 1_024;
const MAX_FAILED_BYTES: usize = 384;
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
    rule: Vec<String>,
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
            HostRules::Nothing => Vec::new(),
            HostRules::Listed(patterns) => patterns.iter().map(ToString::to_string).collect(),
            HostRules::Any => vec!["any public host".to_owned()],
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
            tracing::warn!(host = ?bounded_text(host, MAX_NAME_BYTES), reason = ?why, "a tool was denied a host");
        }
    }

    pub(super) fn failed(&mut self, host: &str) {
        self.failed.count(host, || json!({}));
    }

    /// Returns it as it stands in receipts, in at most 3 KiB.
    pub(crate) fn to_json(&self) -> Value {
        let (rule, rules_left) =
            within(MAX_RULE_BYTES, self.rule.iter().map(|entry| entry.as_str().into()));
        let kinds = [
            ("reached", &self.reached, MAX_ROWS_BYTES),
            ("denied", &self.denied, MAX_ROWS_BYTES),
            ("failed", &self.failed, MAX_FAILED_BYTES),
        ];
        let mut document = Map::from_iter([("rule".to_owned(), rule.into())]);
        let mut others = 0;
        for (name, hosts, most_bytes) in kinds {
            let (rows, left) = hosts.rows(most_bytes);
            document.insert(name.to_owned(), rows.into());
            others += left;
        }
        let left = [("other_rules", rules_left.len() as u64), ("others", others)];
        let left = left.into_iter().filter(|(_, count)| *count > 0);
        document.extend(left.map(|(name, count)| (name.to_owned(), count.into())));
        document.into()
    }
}

/// Splits values into those whose JSON fits, and those from the first that does not.
fn within(most_bytes: usize, values: impl Iterator<Item = Value>) -> (Vec<Value>, Vec<Value>) {
    let mut bytes = 0;
    values.partition(|value| {
        bytes += value.to_string().len() + 1;
        bytes <= most_bytes
    })
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

    /// Returns a row for each host that fits, and how many connections the others had.
    fn rows(&self, most_bytes: usize) -> (Vec<Value>, u64) {
        let rows = self.named.iter().map(|(host, (count, said))| {
            let mut row = json!({ "host": host, "count": count });
            if let (Some(row), Some(said)) = (row.as_object_mut(), said.as_object()) {
                row.extend(said.clone());
            }
            row
        });
        let (rows, left) = within(most_bytes, rows);
        let left = left.iter().filter_map(|row| row.get("count")?.as_u64()).sum::<u64>();
        (rows, self.others + left)
    }
}
