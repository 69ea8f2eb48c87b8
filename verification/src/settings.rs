//! Settings of DNS queries.

use std::net::SocketAddr;

/// Settings of DNS queries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DnsConfig {
    /// Recursive resolvers; empty: the system's.
    pub nameservers: Vec<SocketAddr>,
    /// The source of a customer's records.
    pub mode: DnsMode,
    /// The port customers' nameservers listen on: 53, except in a test world.
    pub authoritative_port: u16,
    /// Whether to query nameservers at private addresses: never, except in a test world. Customers choose the addresses
    /// of their nameservers, and so the destination of our packets.
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
    /// The source of a customer's records.
    pub enum DnsMode {
        /// All authoritative nameservers of the zone: no stale cache, and partial propagation is detected.
        Authoritative = "authoritative",
        /// The configured resolvers, for networks that block port 53.
        Recursive = "recursive",
    }
}
