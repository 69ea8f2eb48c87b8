//! How DNS is asked.

use std::net::SocketAddr;

/// How DNS is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DnsConfig {
    /// Recursive resolvers; empty: those of the system.
    pub nameservers: Vec<SocketAddr>,
    /// Whom to believe.
    pub mode: DnsMode,
    /// The port customers' nameservers listen on: 53, except in a test world.
    pub authoritative_port: u16,
    /// Whether nameservers at private addresses are asked: never, except in a test world. A customer chooses the
    /// addresses of their nameservers, and with them where our packets go.
    pub allow_private_nameservers: bool,
}

impl Default for DnsConfig {
    fn default() -> Self {
        Self {
            nameservers: Vec::new(),
            mode: DnsMode::Authoritative,
            authoritative_port: 53,
            allow_private_nameservers: false,
        }
    }
}

contract::words! {
    /// Whom to believe about a customer's records.
    pub enum DnsMode {
        /// All authoritative nameservers of the zone: no cache lies, partial propagation is seen.
        Authoritative = "authoritative",
        /// The configured resolvers, where port 53 is closed.
        Recursive = "recursive",
    }
}
