//! Canonical client addresses.

use std::net::SocketAddr;

use ipnet::{IpNet, Ipv4Net};

/// Bits of `::ffff:0:0/96`: a socket for both versions reports IPv4 addresses in it.
const MAPPED_BITS: u8 = 96;

/// The canonical form of an address: `::ffff:192.0.2.1` becomes 192.0.2.1. Every address from a socket or a balancer
/// passes here, so that limits, logs, headers and lists use one spelling.
pub fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// The same for a network in which addresses are looked up.
pub fn canonical_network(network: IpNet) -> IpNet {
    let mapped = match network {
        IpNet::V6(v6) => v6.addr().to_ipv4_mapped().zip(v6.prefix_len().checked_sub(MAPPED_BITS)),
        IpNet::V4(_) => None,
    };
    mapped.and_then(|(address, bits)| Ipv4Net::new(address, bits).ok()).map_or(network, IpNet::V4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_networks_have_one_spelling() {
        for (address, expected) in [
            ("[::ffff:192.0.2.1]:80", "192.0.2.1:80"),
            ("192.0.2.1:80", "192.0.2.1:80"),
            ("[2001:db8::1]:80", "[2001:db8::1]:80"),
            ("[::1]:80", "[::1]:80"),
        ] {
            assert_eq!(canonical(address.parse().unwrap()).to_string(), expected);
        }
        for (network, expected) in [
            ("::ffff:10.0.0.0/104", "10.0.0.0/8"),
            ("::ffff:192.0.2.1/128", "192.0.2.1/32"),
            ("::ffff:0.0.0.0/96", "0.0.0.0/0"),
            ("10.0.0.0/8", "10.0.0.0/8"),
            ("fd00::/8", "fd00::/8"),
            ("::/0", "::/0"),
        ] {
            assert_eq!(canonical_network(network.parse().unwrap()).to_string(), expected);
        }
    }
}
