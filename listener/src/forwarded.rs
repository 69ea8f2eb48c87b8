//! Whom a balancer speaks for that ends TLS or HTTP itself: the client's address in `X-Forwarded-For` or `Forwarded`.
//!
//! Read from the right, since everybody appends: what trusted balancers have added is skipped, and the first address that is
//! none of theirs is the client. What stands left of it is the client's own word. Whose fields are believed is decided by
//! the door; here nothing is known of connections.

use std::net::{IpAddr, SocketAddr};

use http::{HeaderMap, HeaderName, header};
use ipnet::IpNet;

use crate::network::canonical;

contract::words! {
    /// Which field names the client.
    #[derive(Default)]
    pub enum ForwardedField {
        /// `X-Forwarded-For`.
        #[default]
        XForwardedFor = "x-forwarded-for",
        /// `Forwarded` (RFC 7239).
        Forwarded = "forwarded",
    }
}

/// Balancers whose word about clients counts, and in which field they give it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Forwarders {
    /// Their networks.
    pub networks: Vec<IpNet>,
    /// The field that each of them writes; the other one is the client's own word.
    pub field: ForwardedField,
}

impl Forwarders {
    /// Whether this is one of them.
    pub fn include(&self, address: IpAddr) -> bool {
        self.networks.iter().any(|network| network.contains(&address))
    }

    /// The client that they name; `None` when they name none.
    pub fn client(&self, headers: &HeaderMap) -> Option<IpAddr> {
        let name = match self.field {
            ForwardedField::XForwardedFor => HeaderName::from_static("x-forwarded-for"),
            ForwardedField::Forwarded => header::FORWARDED,
        };
        let mut client = None;
        for line in headers.get_all(name).iter().rev() {
            // Left of the last balancer stand the client's own words: any bytes.
            for hop in line.as_bytes().rsplit(|byte| *byte == b',') {
                let node = std::str::from_utf8(hop).ok().and_then(|hop| match self.field {
                    ForwardedField::XForwardedFor => Some(hop.trim()),
                    ForwardedField::Forwarded => of_pairs(hop),
                });
                // Behind what is no address (`unknown`, `_hidden`) nothing is known.
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

/// `for=` of one element of `Forwarded`. A quoted comma or semicolon cannot stand in an address.
fn of_pairs(element: &str) -> Option<&str> {
    let pairs = element.split(';').filter_map(|pair| pair.trim().split_once('='));
    let (_, node) = pairs.into_iter().find(|(name, _)| name.eq_ignore_ascii_case("for"))?;
    Some(node.trim_matches('"'))
}

/// An address with or without a port, whatever its number; with brackets where it is one of IPv6 with a port.
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
    fn the_client_is_the_last_one_that_is_no_balancer() {
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
