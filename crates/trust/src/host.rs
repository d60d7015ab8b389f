//! Reading a Host header strictly: what is not plainly a host and a port is refused.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A host as a client may write it, with the port it named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostName {
    /// An address literal: dotted IPv4 of four decimal parts, or IPv6 in brackets.
    Address(IpAddr, Option<u16>),
    /// A name, in lower case, without a trailing dot.
    Name(String, Option<u16>),
}

impl HostName {
    /// Returns the port that was named, if any.
    pub const fn port(&self) -> Option<u16> {
        match self {
            Self::Address(_, port) | Self::Name(_, port) => *port,
        }
    }

    /// Says whether both name the same host, whatever their ports.
    pub fn is_same_host(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Address(a, _), Self::Address(b, _)) => a == b,
            (Self::Name(a, _), Self::Name(b, _)) => a == b,
            (Self::Address(..), Self::Name(..)) | (Self::Name(..), Self::Address(..)) => false,
        }
    }

    /// Says whether this names the loopback interface: one of its addresses, or `localhost`.
    pub fn is_loopback(&self) -> bool {
        match self {
            Self::Address(address, _) => address.is_loopback(),
            Self::Name(name, _) => name == "localhost",
        }
    }
}

/// Reads the value of a Host header, or `None` when it is not a host with an optional port.
///
/// Only the four-part decimal form of IPv4 is an address: `2130706433` and `0x7f.1`, which some
/// resolvers take for 127.0.0.1, are names here, and so never loopback.
pub fn parse_host(value: &str) -> Option<HostName> {
    if let Some(rest) = value.strip_prefix('[') {
        let (address, port) = rest.split_once(']')?;
        let address: Ipv6Addr = address.parse().ok()?;
        return Some(HostName::Address(IpAddr::V6(address), parse_port(port)?));
    }
    let (name, port) = match value.find(':') {
        Some(at) => value.split_at_checked(at)?,
        None => (value, ""),
    };
    let port = parse_port(port)?;
    let name = name.strip_suffix('.').unwrap_or(name);
    if let Ok(address) = name.parse::<Ipv4Addr>() {
        return Some(HostName::Address(IpAddr::V4(address), port));
    }
    let plain = !name.is_empty()
        && name.len() <= 253
        && name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b));
    plain.then(|| HostName::Name(name.to_ascii_lowercase(), port))
}

/// Reads what follows the host: nothing, or a colon and a port (the port may be empty, RFC 3986).
#[expect(
    clippy::option_option,
    reason = "malformed, absent and given are three things"
)]
fn parse_port(text: &str) -> Option<Option<u16>> {
    if text.is_empty() {
        return Some(None);
    }
    let digits = text.strip_prefix(':')?;
    if digits.is_empty() {
        return Some(None);
    }
    if !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    digits.parse().ok().map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn honest_spellings_of_loopback() {
        for text in [
            "127.0.0.1:17400",
            "127.0.0.1",
            "localhost:17400",
            "localhost",
            "LOCALHOST:17400",
            "localhost.:17400",
            "[::1]:17400",
            "[::1]",
            "127.1.2.3:17400",
            "localhost:",
        ] {
            assert!(
                parse_host(text).is_some_and(|host| host.is_loopback()),
                "{text}"
            );
        }
    }

    #[test]
    fn other_names_are_read_and_are_not_loopback() {
        for text in [
            "evil.example",
            "evil.example:17400",
            "localhost.evil.example",
            "127.0.0.1.nip.io",
            "0.0.0.0",
            "2130706433",
            "0x7f.1",
            "[::2]",
            "169.254.169.254",
        ] {
            assert!(
                parse_host(text).is_some_and(|host| !host.is_loopback()),
                "{text}"
            );
        }
    }

    #[test]
    fn malformed_hosts_are_refused() {
        for text in [
            "",
            "[::1]evil",
            "[::1]:99999",
            "[::1",
            "127.0.0.1@evil.example",
            "127.0.0.1:80,evil",
            "local host",
            "a:b",
            "::1",
            "localhost:+80",
            "localhost:80:80",
            ":80",
            "local\u{e9}",
        ] {
            assert_eq!(parse_host(text), None, "{text}");
        }
    }
}
