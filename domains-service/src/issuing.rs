//! Dependencies of DNS checks and certificate orders: DNS, issuers and authorities.

use std::net::IpAddr;
use std::sync::Arc;

use tokio::sync::Notify;
use verification::{Dns, DnsConfig};

use crate::domain::proof::Prover;
use crate::issuer::Authorities;

/// DNS, the expected records, and the issuers.
pub(crate) struct Issuing {
    pub(crate) dns: Arc<dyn Dns>,
    pub(crate) dns_config: DnsConfig,
    pub(crate) edge_addresses: Vec<IpAddr>,
    pub(crate) prover: Prover,
    pub(crate) authorities: Authorities,
    /// Wakes the worker: a domain is due.
    pub(crate) wake: Notify,
}
