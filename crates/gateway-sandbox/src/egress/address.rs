//! Which addresses are on the public internet, and which others an operator lists.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// IPv4 networks that are not on the public internet (IANA special-purpose registry), and the
/// address at which one cloud serves metadata although it is a public one.
const V4_RANGES: [(Ipv4Addr, u8, &str); 16] = [
    (Ipv4Addr::new(0, 0, 0, 0), 8, "this network"),
    (Ipv4Addr::new(10, 0, 0, 0), 8, "private"),
    (Ipv4Addr::new(100, 64, 0, 0), 10, "carrier-grade NAT"),
    (Ipv4Addr::new(127, 0, 0, 0), 8, "loopback"),
    (Ipv4Addr::new(168, 63, 129, 16), 32, "cloud metadata"),
    (Ipv4Addr::new(169, 254, 0, 0), 16, "link-local, cloud metadata"),
    (Ipv4Addr::new(172, 16, 0, 0), 12, "private"),
    (Ipv4Addr::new(192, 0, 0, 0), 24, "protocol assignments"),
    (Ipv4Addr::new(192, 0, 2, 0), 24, "documentation"),
    (Ipv4Addr::new(192, 88, 99, 0), 24, "6to4 relay"),
    (Ipv4Addr::new(192, 168, 0, 0), 16, "private"),
    (Ipv4Addr::new(198, 18, 0, 0), 15, "benchmarking"),
    (Ipv4Addr::new(198, 51, 100, 0), 24, "documentation"),
    (Ipv4Addr::new(203, 0, 113, 0), 24, "documentation"),
    (Ipv4Addr::new(224, 0, 0, 0), 4, "multicast"),
    (Ipv4Addr::new(240, 0, 0, 0), 4, "reserved"),
];

/// IPv6 networks within global unicast that are not on the public internet.
const V6_RANGES: [(Ipv6Addr, u8, &str); 3] = [
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23, "protocol assignments"),
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32, "documentation"),
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20, "documentation"),
];

/// Everything public lies within this network.
const V6_GLOBAL: (Ipv6Addr, u8) = (Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3);
/// A translator sends what is in here to the IPv4 address in the last 32 bits (RFC 6052).
const V6_TRANSLATED: (Ipv6Addr, u8) = (Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0), 96);
/// A relay sends what is in here to the IPv4 address after the prefix (RFC 3056).
const V6_TO_V4: (Ipv6Addr, u8) = (Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16);

/// Returns what an address is for that is not on the public internet; `None` for a public one.
pub(super) fn private_range(address: IpAddr) -> Option<&'static str> {
    match address.to_canonical() {
        IpAddr::V4(address) => private_v4(address),
        IpAddr::V6(address) => private_v6(address),
    }
}

fn private_v4(address: Ipv4Addr) -> Option<&'static str> {
    let bits = u128::from(address.to_bits());
    let found = V4_RANGES.iter().find(|(network, prefix, _)| {
        is_within(bits, u128::from(network.to_bits()), 32 - u32::from(*prefix))
    });
    found.map(|(_, _, range)| *range)
}

fn private_v6(address: Ipv6Addr) -> Option<&'static str> {
    let holds = |(network, prefix): (Ipv6Addr, u8)| {
        is_within(address.to_bits(), network.to_bits(), 128 - u32::from(prefix))
    };
    let [.., a, b, c, d] = address.octets();
    if holds(V6_TRANSLATED) {
        return private_v4(Ipv4Addr::new(a, b, c, d));
    }
    let [_, _, a, b, c, d, ..] = address.octets();
    if holds(V6_TO_V4) {
        return private_v4(Ipv4Addr::new(a, b, c, d));
    }
    if !holds(V6_GLOBAL) {
        return Some(match address.octets() {
            [0xfc | 0xfd, ..] => "unique local",
            [0xfe, 0x80..=0xbf, ..] => "link-local",
            [0xff, ..] => "multicast",
            _ if address.is_loopback() => "loopback",
            _ => "not global unicast",
        });
    }
    let found = V6_RANGES.iter().find(|(network, prefix, _)| holds((*network, *prefix)));
    found.map(|(_, _, range)| *range)
}

/// Says whether two addresses agree in all but the last `host_bits`.
fn is_within(address: u128, network: u128, host_bits: u32) -> bool {
    let shifted = |bits: u128| bits.checked_shr(host_bits).unwrap_or(0);
    shifted(address) == shifted(network)
}

/// An address or a network that an operator lets calls reach, at one port or at all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AddressRule {
    network: IpAddr,
    host_bits: u32,
    port: Option<u16>,
}

/// A text that is no entry of `allow_private`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no address or network; expected one such as \"127.0.0.1:8080\", \"10.0.0.0/8\", \"[::1]:8080\" or \"fd00::/8\""
)]
pub struct InvalidAddressRule(String);

impl AddressRule {
    pub(super) fn admits(&self, address: IpAddr, port: u16) -> bool {
        let is_port = self.port.is_none_or(|only| only == port);
        is_port
            && match (self.network, address.to_canonical()) {
                (IpAddr::V4(network), IpAddr::V4(address)) => is_within(
                    u128::from(address.to_bits()),
                    u128::from(network.to_bits()),
                    self.host_bits,
                ),
                (IpAddr::V6(network), IpAddr::V6(address)) => {
                    is_within(address.to_bits(), network.to_bits(), self.host_bits)
                }
                (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => false,
            }
    }

    fn read(text: &str) -> Option<Self> {
        let (network, port) = match text.strip_prefix('[') {
            Some(rest) => {
                let (network, after) = rest.split_once(']')?;
                (network, if after.is_empty() { None } else { Some(after.strip_prefix(':')?) })
            }
            // A bare IPv6 address has more than one colon, and so no port.
            None if text.matches(':').count() > 1 => (text, None),
            None => text.split_once(':').map_or((text, None), |(net, port)| (net, Some(port))),
        };
        let port = match port {
            Some(port) => Some(port.parse().ok().filter(|port: &u16| *port != 0)?),
            None => None,
        };
        let (address, prefix) =
            network.split_once('/').map_or((network, None), |(ip, bits)| (ip, Some(bits)));
        let network = address.parse::<IpAddr>().ok()?;
        let width = if network.is_ipv4() { 32 } else { 128 };
        let prefix = match prefix {
            Some(prefix) => prefix.parse().ok().filter(|bits: &u32| *bits <= width)?,
            None => width,
        };
        Some(Self { network, host_bits: width - prefix, port })
    }
}

impl fmt::Display for AddressRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = if self.network.is_ipv4() { 32 } else { 128 };
        let network = match self.host_bits {
            0 => self.network.to_string(),
            host_bits => format!("{}/{}", self.network, width - host_bits),
        };
        match self.port {
            None => f.write_str(&network),
            Some(port) if self.network.is_ipv4() => write!(f, "{network}:{port}"),
            Some(port) => write!(f, "[{network}]:{port}"),
        }
    }
}

impl FromStr for AddressRule {
    type Err = InvalidAddressRule;

    fn from_str(text: &str) -> Result<Self, InvalidAddressRule> {
        Self::read(text).ok_or_else(|| InvalidAddressRule(text.chars().take(80).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(address: &str, range: Option<&str>) {
        assert_eq!(private_range(address.parse().unwrap()), range, "{address}");
    }

    #[test]
    fn only_the_public_internet_is_public() {
        for public in [
            "1.1.1.1",
            "8.8.8.8",
            "100.63.255.255",
            "100.128.0.0",
            "172.15.255.255",
            "172.32.0.0",
            "168.63.129.17",
            "223.255.255.255",
            "2606:4700:4700::1111",
            "2a00:1450::1",
            "64:ff9b::8.8.8.8",
            "2002:808:808::1",
            "::ffff:8.8.8.8",
        ] {
            check(public, None);
        }
        for (address, range) in [
            ("0.0.0.0", "this network"),
            ("10.255.255.255", "private"),
            ("100.100.100.200", "carrier-grade NAT"),
            ("127.0.0.1", "loopback"),
            ("127.255.255.254", "loopback"),
            ("168.63.129.16", "cloud metadata"),
            ("169.254.169.254", "link-local, cloud metadata"),
            ("169.254.170.2", "link-local, cloud metadata"),
            ("172.31.0.1", "private"),
            ("192.0.0.192", "protocol assignments"),
            ("192.168.1.1", "private"),
            ("198.19.0.1", "benchmarking"),
            ("224.0.0.1", "multicast"),
            ("255.255.255.255", "reserved"),
            ("::", "not global unicast"),
            ("::1", "loopback"),
            ("::ffff:127.0.0.1", "loopback"),
            ("::ffff:a9fe:a9fe", "link-local, cloud metadata"),
            ("::127.0.0.1", "not global unicast"),
            ("::ffff:0:127.0.0.1", "not global unicast"),
            ("64:ff9b::169.254.169.254", "link-local, cloud metadata"),
            ("64:ff9b:1::1", "not global unicast"),
            ("2002:7f00:1::1", "loopback"),
            ("2002:a9fe:a9fe::1", "link-local, cloud metadata"),
            ("2001::1", "protocol assignments"),
            ("2001:db8::1", "documentation"),
            ("3fff::1", "documentation"),
            ("fd00:ec2::254", "unique local"),
            ("fc00::1", "unique local"),
            ("fe80::1", "link-local"),
            ("ff02::1", "multicast"),
        ] {
            check(address, Some(range));
        }
    }

    #[track_caller]
    fn check_rule(rule: &str, address: &str, port: u16, is_admitted: bool) {
        let parsed: AddressRule = rule.parse().unwrap();
        assert_eq!(parsed.to_string(), rule);
        assert_eq!(parsed.admits(address.parse().unwrap(), port), is_admitted, "{rule} {address}");
    }

    #[test]
    fn an_operator_lists_addresses_networks_and_ports() {
        check_rule("127.0.0.1:8080", "127.0.0.1", 8080, true);
        check_rule("127.0.0.1:8080", "::ffff:127.0.0.1", 8080, true);
        check_rule("127.0.0.1:8080", "127.0.0.1", 8081, false);
        check_rule("127.0.0.1:8080", "127.0.0.2", 8080, false);
        check_rule("127.0.0.1", "127.0.0.1", 1, true);
        check_rule("10.0.0.0/8", "10.9.8.7", 443, true);
        check_rule("10.0.0.0/8:443", "10.9.8.7", 80, false);
        check_rule("10.0.0.0/8", "11.0.0.0", 443, false);
        check_rule("0.0.0.0/0", "10.0.0.1", 1, true);
        check_rule("[::1]:8080", "::1", 8080, true);
        check_rule("fd00::/8", "fdab::1", 443, true);
        check_rule("[fd00::/8]:443", "fdab::1", 80, false);
        check_rule("fd00::/8", "127.0.0.1", 443, false);
        for wrong in
            ["", "localhost", "127.0.0.1:", "127.0.0.1:0", "10.0.0.0/33", "127.1", "[::1", "*"]
        {
            assert!(wrong.parse::<AddressRule>().is_err(), "{wrong}");
        }
    }
}
