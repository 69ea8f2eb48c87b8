//! Where a process listens.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::str::FromStr;

use ipnet::IpNet;

/// An address and a port; written as a network and a port, the address that this machine has in that network.
///
/// A container is on several networks and does not know its addresses beforehand. With a network it listens where it is
/// to be asked, and on none of the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listen(pub SocketAddr);

/// Why a text says no place to listen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoPlace {
    /// It has another form.
    #[error("use an address and a port, for example \"127.0.0.1:8080\"")]
    Form,
    /// There is no such network here.
    #[error("this machine has no address in {0}; use a network it is on, or an address and a port")]
    Elsewhere(IpNet),
}

impl FromStr for Listen {
    type Err = NoPlace;

    fn from_str(text: &str) -> Result<Self, NoPlace> {
        if let Ok(address) = text.parse() {
            return Ok(Self(address));
        }
        let (network, port) = text.rsplit_once(':').ok_or(NoPlace::Form)?;
        let network = network.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(network);
        let network: IpNet = network.parse().map_err(|_| NoPlace::Form)?;
        let port = port.parse().map_err(|_| NoPlace::Form)?;
        let own = own_address(network).ok_or(NoPlace::Elsewhere(network))?;
        Ok(Self(SocketAddr::new(own, port)))
    }
}

/// The address of this machine in a network. Connecting a datagram socket sends nothing: it asks the routing table which
/// of our addresses faces the other side.
fn own_address(network: IpNet) -> Option<IpAddr> {
    let any = match network {
        IpNet::V4(_) => IpAddr::from(Ipv4Addr::UNSPECIFIED),
        IpNet::V6(_) => IpAddr::from(Ipv6Addr::UNSPECIFIED),
    };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    // Any port: nothing is sent.
    socket.connect((network.hosts().next()?, 9)).ok()?;
    let own = socket.local_addr().ok()?.ip();
    network.contains(&own).then_some(own)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Result<String, NoPlace> {
        text.parse().map(|Listen(address)| address.to_string())
    }

    #[test]
    fn a_network_stands_for_our_address_in_it() {
        assert_eq!(at("127.0.0.1:8080").as_deref(), Ok("127.0.0.1:8080"));
        assert_eq!(at("[::1]:8080").as_deref(), Ok("[::1]:8080"));
        assert_eq!(at("127.0.0.0/8:8080").as_deref(), Ok("127.0.0.1:8080"));
        // Reserved (RFC 1112 section 4): no interface has such an address.
        assert_eq!(at("240.0.0.0/24:8080"), Err(NoPlace::Elsewhere("240.0.0.0/24".parse().unwrap())));
    }

    #[test]
    fn what_is_neither_is_refused_with_the_form() {
        for text in ["8080", "0.0.0.0", "localhost:1", "127.0.0.0/8", "127.0.0.0/8:x", "127.0.0.0/40:1", ""] {
            assert_eq!(at(text), Err(NoPlace::Form), "{text}");
        }
    }
}
