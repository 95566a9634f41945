//! Hosts and which of them a tool may reach: one spelling for checks, sockets and messages.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use crate::limits::NetworkLimit;

/// The longest host name, in bytes (RFC 1035).
const MAX_NAME_BYTES: usize = 253;
/// The longest label of a host name, in bytes.
const MAX_LABEL_BYTES: usize = 63;
/// The ports that an entry without a port stands for.
const WEB_PORTS: [u16; 2] = [80, 443];

/// A host as a name or as an address, in its one canonical spelling.
///
/// INVARIANT: a name is lowercase ASCII and no resolver reads it as a number, so that no
/// spelling of an address passes for a name. An IPv6 address that maps an IPv4 one is that one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Host {
    /// A name that is resolved before anything is connected.
    Name(String),
    /// An address, written as such.
    Address(IpAddr),
}

/// A text that is not a host, or not an entry of a list of hosts.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} {reason}")]
pub struct InvalidHost {
    text: String,
    reason: &'static str,
}

impl FromStr for Host {
    type Err = InvalidHost;

    fn from_str(text: &str) -> Result<Self, InvalidHost> {
        parse_host(text).map_err(|reason| invalid(text, reason))
    }
}

fn invalid(text: &str, reason: &'static str) -> InvalidHost {
    InvalidHost { text: crate::bounded_text(text, 80).into_owned(), reason }
}

fn parse_host(text: &str) -> Result<Host, &'static str> {
    if let Some(rest) = text.strip_prefix('[') {
        let address = rest.strip_suffix(']').and_then(|inner| inner.parse::<Ipv6Addr>().ok());
        let address = address.ok_or("is no IPv6 address; expected one such as [2001:db8::1]")?;
        return Ok(Host::Address(IpAddr::V6(address).to_canonical()));
    }
    let text = text.strip_suffix('.').unwrap_or(text);
    if let Ok(address) = text.parse::<Ipv4Addr>() {
        return Ok(Host::Address(address.into()));
    }
    let name = text.to_ascii_lowercase();
    if name.is_empty() || name.len() > MAX_NAME_BYTES {
        return Err("is no host name; expected 1 to 253 bytes");
    }
    if !name.split('.').all(is_label) {
        return Err("is no host name; expected letters, digits and hyphens between dots (an \
                    international name in its xn-- form)");
    }
    if name.rsplit('.').next().is_some_and(is_number) {
        return Err("could be read as an address; expected four decimal numbers, or a name");
    }
    Ok(Host::Name(name))
}

/// Underscores are in names that exist, so they are taken.
fn is_label(label: &str) -> bool {
    (1..=MAX_LABEL_BYTES).contains(&label.len())
        && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
        && !label.starts_with('-')
        && !label.ends_with('-')
}

/// Says whether a name that ends in this label is an IPv4 address to the URL standard and to
/// `inet_aton`: decimal, octal, or hexadecimal after `0x`.
fn is_number(label: &str) -> bool {
    let hexadecimal = label.strip_prefix("0x");
    label.bytes().all(|byte| byte.is_ascii_digit())
        || hexadecimal.is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Address(IpAddr::V4(address)) => address.fmt(f),
            Self::Address(IpAddr::V6(address)) => write!(f, "[{address}]"),
        }
    }
}

/// Which hosts a call may reach.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostRules {
    /// None.
    Nothing,
    /// Those that one of the entries names.
    Listed(Vec<HostPattern>),
    /// Any.
    Any,
}

impl HostRules {
    /// Reads what a tool declares.
    ///
    /// # Errors
    /// Returns the first entry of the list that names no host.
    pub fn of(limit: &NetworkLimit) -> Result<Self, InvalidHost> {
        Ok(match limit {
            NetworkLimit::None => Self::Nothing,
            NetworkLimit::Unrestricted => Self::Any,
            NetworkLimit::DomainAllowlist(entries) => {
                Self::Listed(entries.iter().map(|entry| entry.parse()).collect::<Result<_, _>>()?)
            }
        })
    }

    /// Says whether a host may be reached at a port.
    pub fn can_reach(&self, host: &Host, port: u16) -> bool {
        match self {
            Self::Nothing => false,
            Self::Listed(patterns) => patterns.iter().any(|pattern| pattern.admits(host, port)),
            Self::Any => true,
        }
    }
}

/// One entry of a list of hosts: `HOST`, `*.SUFFIX`, either with `:PORT`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostPattern {
    hosts: Hosts,
    /// `None` for 80 and 443.
    port: Option<u16>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Hosts {
    Exactly(Host),
    /// Every name beneath this one, which is not itself included.
    Beneath(String),
}

impl HostPattern {
    fn admits(&self, host: &Host, port: u16) -> bool {
        let is_port = self.port.map_or(WEB_PORTS.contains(&port), |only| only == port);
        is_port
            && match (&self.hosts, host) {
                (Hosts::Exactly(only), host) => only == host,
                (Hosts::Beneath(suffix), Host::Name(name)) => name
                    .strip_suffix(suffix.as_str())
                    .is_some_and(|rest| rest.len() > 1 && rest.ends_with('.')),
                (Hosts::Beneath(_), Host::Address(_)) => false,
            }
    }
}

impl FromStr for HostPattern {
    type Err = InvalidHost;

    fn from_str(text: &str) -> Result<Self, InvalidHost> {
        let (host, port) = split_port(text)
            .ok_or_else(|| invalid(text, "has no port after its colon; expected 1 to 65535"))?;
        let Some(suffix) = host.strip_prefix("*.") else {
            return Ok(Self { hosts: Hosts::Exactly(host.parse()?), port });
        };
        match suffix.parse()? {
            Host::Name(name) if name.contains('.') => {
                Ok(Self { hosts: Hosts::Beneath(name), port })
            }
            Host::Name(_) | Host::Address(_) => {
                Err(invalid(text, "stands for too much; expected a name of two labels after *."))
            }
        }
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.hosts {
            Hosts::Exactly(host) => host.fmt(f)?,
            Hosts::Beneath(suffix) => write!(f, "*.{suffix}")?,
        }
        self.port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

/// Splits `HOST:PORT` or `HOST`; `None` where what follows the last colon is no port.
pub(crate) fn split_port(text: &str) -> Option<(&str, Option<u16>)> {
    let after_address = text.rfind(']').map_or(0, |end| end + 1);
    let tail = text.get(after_address..)?;
    let Some(colon) = tail.rfind(':') else { return Some((text, None)) };
    let (host, port) = (text.get(..after_address + colon)?, tail.get(colon + 1..)?);
    let is_number = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    let port = port.parse().ok().filter(|port: &u16| is_number && *port != 0)?;
    Some((host, Some(port)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Option<&str>) {
        let host = text.parse::<Host>().ok().map(|host| host.to_string());
        assert_eq!(host.as_deref(), expected, "{text:?}");
    }

    #[test]
    fn every_host_has_one_spelling() {
        check("Example.ORG", Some("example.org"));
        check("example.org.", Some("example.org"));
        check("xn--mnchen-3ya.de", Some("xn--mnchen-3ya.de"));
        check("127.0.0.1", Some("127.0.0.1"));
        check("127.0.0.1.", Some("127.0.0.1"));
        check("[::1]", Some("[::1]"));
        check("[::ffff:127.0.0.1]", Some("127.0.0.1"));
        check("[::ffff:a9fe:a9fe]", Some("169.254.169.254"));
        check("3com.com", Some("3com.com"));
    }

    #[test]
    fn a_spelling_of_an_address_is_never_a_name() {
        for text in [
            "2130706433",
            "0x7f000001",
            "0x7f.1",
            "0X7F.0.0.1",
            "0177.0.0.1",
            "127.1",
            "127.0.0.01",
            "127.0.0.0x1",
            "127.0.0.1.0x",
            "example.1",
            "１２７.0.0.1",
            "127。0。0。1",
            "[127.0.0.1]",
            "[::1",
            "::1",
            "[fe80::1%eth0]",
        ] {
            check(text, None);
        }
    }

    #[test]
    fn what_is_no_host_is_refused() {
        for text in ["", ".", "a..b", "-a.b", "a-.b", "a b", "a/b", "a@b", "münchen.de", "a%41"] {
            check(text, None);
        }
        check(&format!("{}.org", "a".repeat(64)), None);
        check(&"a.".repeat(128), None);
    }

    #[track_caller]
    fn check_rule(entry: &str, host: &str, port: u16, is_admitted: bool) {
        let limit = NetworkLimit::DomainAllowlist(vec![entry.to_owned()]);
        let rules = HostRules::of(&limit).unwrap();
        assert_eq!(
            rules.can_reach(&host.parse().unwrap(), port),
            is_admitted,
            "{entry} {host}:{port}"
        );
    }

    #[test]
    fn an_entry_admits_its_host_at_its_port_alone() {
        check_rule("example.org", "example.org", 443, true);
        check_rule("example.org", "EXAMPLE.org.", 80, true);
        check_rule("example.org", "example.org", 8080, false);
        check_rule("example.org:8080", "example.org", 8080, true);
        check_rule("example.org:8080", "example.org", 443, false);
        check_rule("example.org", "www.example.org", 443, false);
        check_rule("example.org", "example.org.evil.net", 443, false);
        check_rule("*.example.org", "www.example.org", 443, true);
        check_rule("*.example.org", "a.b.example.org", 443, true);
        check_rule("*.example.org", "example.org", 443, false);
        check_rule("*.example.org", "evilexample.org", 443, false);
        check_rule("127.0.0.1:9", "[::ffff:127.0.0.1]", 9, true);
        check_rule("[::1]:9", "[::1]", 9, true);
        assert!(!HostRules::Nothing.can_reach(&"example.org".parse().unwrap(), 443));
        assert!(HostRules::Any.can_reach(&"example.org".parse().unwrap(), 1));
    }

    #[test]
    fn an_entry_that_names_no_host_is_refused() {
        for entry in [
            "*",
            "*.org",
            "*.1.2.3.4",
            "a.*.org",
            "example.org:0",
            "example.org:",
            "https://a.org",
            "::1",
        ] {
            assert!(entry.parse::<HostPattern>().is_err(), "{entry}");
        }
    }
}
