//! The address of a server: of TCP, or of a Unix socket on this machine.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

/// Where a server accepts connections.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EndpointAddress {
    /// An IP address and a port.
    Tcp(SocketAddr),
    /// The file of a Unix socket.
    Unix(Arc<Path>),
}

impl EndpointAddress {
    /// The IP address, if it has one.
    pub fn ip(&self) -> Option<IpAddr> {
        match self {
            Self::Tcp(address) => Some(address.ip()),
            Self::Unix(_) => None,
        }
    }

    /// Whether it is on this machine.
    pub fn is_loopback(&self) -> bool {
        self.ip().is_none_or(|ip| ip.is_loopback())
    }
}

impl fmt::Display for EndpointAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl From<SocketAddr> for EndpointAddress {
    fn from(address: SocketAddr) -> Self {
        Self::Tcp(address)
    }
}
