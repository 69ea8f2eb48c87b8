//! What DNS said about a domain: data, gathered once, judged elsewhere.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{CaaRecord, DnsFailure};

/// Why a nameserver gave no usable answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    Timeout,
    ServFail,
    /// It answers, but not as an authority for the zone.
    Lame,
    /// This machine has no way to it, such as one without IPv6.
    Unreachable,
    /// The records are there, and DNSSEC says that they are false.
    Bogus,
    Malformed,
    /// It has no address, or only ones we do not send packets to.
    NoAddress,
}

impl From<DnsFailure> for Why {
    fn from(failure: DnsFailure) -> Self {
        match failure {
            DnsFailure::Timeout => Self::Timeout,
            DnsFailure::Unreachable => Self::Unreachable,
            DnsFailure::Malformed => Self::Malformed,
        }
    }
}

/// What one question brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer<T> {
    Is(T),
    /// No such record.
    Nothing,
    Failed(Why),
}

/// The zone the domain lies in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Zone {
    /// The zone's name; the domain is its apex when they are equal.
    Is(String),
    /// Not even the registrable name exists.
    Missing,
    Unknown(Why),
}

/// What one nameserver says about the domain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServerFacts {
    pub(crate) host: String,
    pub(crate) ip: Option<IpAddr>,
    pub(crate) cname: Answer<String>,
    /// Asked only where there is no CNAME.
    pub(crate) a: Vec<Ipv4Addr>,
    pub(crate) aaaa: Vec<Ipv6Addr>,
    pub(crate) ttl: Option<u32>,
    /// The wildcard whose records these are: the name has none of its own.
    pub(crate) wildcard: Option<String>,
}

/// The CAA records of one level of the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CaaLevel {
    pub(crate) name: String,
    /// The records, none being a possible answer; or why nobody knows.
    pub(crate) records: Result<Vec<CaaRecord>, Why>,
}

/// Everything DNS said about a domain.
#[derive(Clone, Debug)]
pub(crate) struct DnsFacts {
    pub(crate) zone: Zone,
    pub(crate) servers: Vec<ServerFacts>,
    /// The names that the CNAME chain of the domain leads through, as a resolver follows it; its end is last.
    pub(crate) chain: Vec<String>,
    /// The addresses of the project's CNAME target: what an ALIAS at an apex becomes.
    pub(crate) target_addresses: Vec<IpAddr>,
    /// The ownership texts; asked only when they may matter.
    pub(crate) texts: Option<Answer<Vec<String>>>,
    /// From the domain up to its top-level domain.
    pub(crate) caa: Vec<CaaLevel>,
    /// "authoritative" or "recursive": whom the answers came from.
    pub(crate) resolver: &'static str,
    pub(crate) queries: u32,
    pub(crate) duration_ms: u64,
}
