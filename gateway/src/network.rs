//! What counts as one client wherever clients are counted.

use std::net::{IpAddr, Ipv6Addr};

/// An IPv4 address, also when written as IPv6, or the /64 of an IPv6 address, which is what one subscriber has.
pub fn network_of(client: IpAddr) -> IpAddr {
    match client.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
        address @ IpAddr::V4(_) => address,
    }
}
