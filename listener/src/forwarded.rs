//! The client's address in `X-Forwarded-For` or `Forwarded`, behind a balancer that terminates TLS or HTTP.
//!
//! The list is read from the right, because every hop appends: entries of trusted balancers are skipped, and the first
//! other address is the client. Entries left of it were written by the client and are ignored. The listener decides
//! which peers are trusted; this module knows no connections.

use std::net::{IpAddr, SocketAddr};

use http::{HeaderMap, HeaderName, header};
use ipnet::IpNet;

use crate::network::canonical;

contract::words! {
    /// The field that names the client.
    #[derive(Default)]
    pub enum ForwardedField {
        /// `X-Forwarded-For`.
        #[default]
        XForwardedFor = "x-forwarded-for",
        /// `Forwarded` (RFC 7239).
        Forwarded = "forwarded",
    }
}

/// Trusted balancers, and the field in which they name the client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Forwarders {
    /// Their networks.
    pub networks: Vec<IpNet>,
    /// The field that each of them writes; the other field comes from the client and is ignored.
    pub field: ForwardedField,
}

impl Forwarders {
    /// Whether `address` is one of the balancers.
    pub fn include(&self, address: IpAddr) -> bool {
        self.networks.iter().any(|network| network.contains(&address))
    }

    /// The client that the balancers name; `None` without a valid entry.
    pub fn client(&self, headers: &HeaderMap) -> Option<IpAddr> {
        let name = match self.field {
            ForwardedField::XForwardedFor => HeaderName::from_static("x-forwarded-for"),
            ForwardedField::Forwarded => header::FORWARDED,
        };
        let mut client = None;
        for line in headers.get_all(name).iter().rev() {
            // Entries left of the last balancer come from the client and may hold any bytes.
            for hop in line.as_bytes().rsplit(|byte| *byte == b',') {
                let node = std::str::from_utf8(hop).ok().and_then(|hop| match self.field {
                    ForwardedField::XForwardedFor => Some(hop.trim()),
                    ForwardedField::Forwarded => of_pairs(hop),
                });
                // An entry that is not an address (`unknown`, `_hidden`) ends the search.
                let Some(address) = node.and_then(address) else { return client };
                client = Some(address);
                if !self.include(address) {
                    return client;
                }
            }
        }
        client
    }
}

/// The `for=` value of one element of `Forwarded`. An address contains no quoted comma or semicolon.
fn of_pairs(element: &str) -> Option<&str> {
    let pairs = element.split(';').filter_map(|pair| pair.trim().split_once('='));
    let (_, node) = pairs.into_iter().find(|(name, _)| name.eq_ignore_ascii_case("for"))?;
    Some(node.trim_matches('"'))
}

/// An address with or without a port; the port is not checked. IPv6 with a port has brackets.
fn address(node: &str) -> Option<IpAddr> {
    let (bare, port) = match node.strip_prefix('[') {
        Some(bracketed) => bracketed.split_once(']')?,
        None if node.matches(':').count() == 1 => node.split_at(node.find(':')?),
        None => (node, ""),
    };
    let is_port =
        |port: &str| port.strip_prefix(':').is_some_and(|port| port.bytes().all(|byte| byte.is_ascii_digit()));
    let address = bare.parse().ok().filter(|_| port.is_empty() || is_port(port))?;
    Some(canonical(SocketAddr::new(address, 0)).ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(field: ForwardedField, lines: &[&str]) -> Option<String> {
        let networks = vec!["10.0.0.0/8".parse().unwrap(), "fd00::/8".parse().unwrap()];
        let name = if field == ForwardedField::Forwarded { "forwarded" } else { "x-forwarded-for" };
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(name, http::HeaderValue::from_bytes(line.as_bytes()).unwrap());
        }
        Forwarders { networks, field }.client(&headers).map(|address| address.to_string())
    }

    #[test]
    fn the_client_is_the_last_address_that_is_not_a_balancers() {
        for (lines, expected) in [
            (&["192.0.2.7"][..], Some("192.0.2.7")),
            (&["6.6.6.6, 192.0.2.7"], Some("192.0.2.7")),
            (&["6.6.6.6, 192.0.2.7, 10.1.2.3"], Some("192.0.2.7")),
            (&["6.6.6.6", "192.0.2.7", "10.1.2.3,10.1.2.4"], Some("192.0.2.7")),
            (&["192.0.2.7:4711"], Some("192.0.2.7")),
            (&["[2001:db8::7]:4711"], Some("2001:db8::7")),
            (&["2001:db8::7"], Some("2001:db8::7")),
            (&["::ffff:192.0.2.7"], Some("192.0.2.7")),
            (&["192.0.2.7:99999, 10.1.2.3"], Some("192.0.2.7")),
            (&["192.0.2.7:http, 10.1.2.3"], Some("10.1.2.3")),
            (&["[2001:db8::7]x"], None),
            (&["caf\u{e9}, 192.0.2.7, 10.1.2.3"], Some("192.0.2.7")),
            (&["10.1.2.3"], Some("10.1.2.3")),
            (&["6.6.6.6, unknown, 10.1.2.3"], Some("10.1.2.3")),
            (&["nonsense"], None),
            (&[""], None),
            (&[], None),
        ] {
            assert_eq!(client(ForwardedField::XForwardedFor, lines).as_deref(), expected, "{lines:?}");
        }
    }

    #[test]
    fn the_field_of_the_rfc_is_read_as_it_is_written() {
        for (lines, expected) in [
            (&["for=192.0.2.7"][..], Some("192.0.2.7")),
            (&["for=6.6.6.6, For=\"[2001:db8::7]:4711\";proto=https;by=10.0.0.1"], Some("2001:db8::7")),
            (&["proto=https; for=192.0.2.7, for=10.0.0.9"], Some("192.0.2.7")),
            (&["for=caf\u{e9}, for=192.0.2.7, for=10.0.0.9"], Some("192.0.2.7")),
            (&["proto=https, for=10.0.0.9"], Some("10.0.0.9")),
            (&["for=\"_hidden\""], None),
            (&["proto=https"], None),
        ] {
            assert_eq!(client(ForwardedField::Forwarded, lines).as_deref(), expected, "{lines:?}");
        }
    }
}
