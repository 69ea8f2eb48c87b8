//! The network that counts as one client.

use std::net::{IpAddr, Ipv6Addr};

/// An IPv4 address, also when written as IPv6, or the /64 of an IPv6 address, which one subscriber has.
pub fn network_of(client: IpAddr) -> IpAddr {
    match client.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
        address @ IpAddr::V4(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_belongs_to_one_network() {
        for (address, network) in [
            ("192.0.2.1", "192.0.2.1"),
            ("::ffff:192.0.2.1", "192.0.2.1"),
            ("2001:db8:0:1:2:3:4:5", "2001:db8:0:1::"),
            ("::1", "::"),
        ] {
            assert_eq!(network_of(address.parse().unwrap()).to_string(), network, "{address}");
        }
    }
}
