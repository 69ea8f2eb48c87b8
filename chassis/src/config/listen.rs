//! The address of a listener.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::str::FromStr;

use ipnet::IpNet;

/// An address and a port. If written as a network and a port: this machine's address in that network.
///
/// A container is on several networks and does not know its addresses in advance. With a network it listens only there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listen(pub SocketAddr);

/// Why a text is not a listen address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoPlace {
    /// The syntax is wrong.
    #[error("use an address and a port, for example \"127.0.0.1:8080\"")]
    Form,
    /// This machine has no address in the network.
    #[error("this machine has no address in {0}; use one of its networks, or an address and a port")]
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

/// This machine's address in a network. Connecting a datagram socket sends nothing: it asks the routing table which of
/// our addresses is used for that network.
fn own_address(network: IpNet) -> Option<IpAddr> {
    let any = match network {
        IpNet::V4(_) => IpAddr::from(Ipv4Addr::UNSPECIFIED),
        IpNet::V6(_) => IpAddr::from(Ipv6Addr::UNSPECIFIED),
    };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    // Any port: no packet is sent.
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
    fn a_network_means_this_machines_address_in_it() {
        assert_eq!(at("127.0.0.1:8080").as_deref(), Ok("127.0.0.1:8080"));
        assert_eq!(at("[::1]:8080").as_deref(), Ok("[::1]:8080"));
        assert_eq!(at("127.0.0.0/8:8080").as_deref(), Ok("127.0.0.1:8080"));
        // Reserved (RFC 1112 section 4): no interface has such an address.
        assert_eq!(at("240.0.0.0/24:8080"), Err(NoPlace::Elsewhere("240.0.0.0/24".parse().unwrap())));
    }

    #[test]
    fn other_text_is_refused_with_the_right_form() {
        for text in ["8080", "0.0.0.0", "localhost:1", "127.0.0.0/8", "127.0.0.0/8:x", "127.0.0.0/40:1", ""] {
            assert_eq!(at(text), Err(NoPlace::Form), "{text}");
        }
    }
}
