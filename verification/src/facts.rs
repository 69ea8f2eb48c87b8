//! What DNS said about a domain: data, gathered once, judged elsewhere.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{CaaRecord, DnsFailure};

/// Why a nameserver gave no usable answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// No answer in time.
    Timeout,
    /// It could not find out.
    ServFail,
    /// It answers, but not as an authority for the zone.
    Lame,
    /// This machine has no way to it, such as one without IPv6.
    Unreachable,
    /// The records are there, and DNSSEC says that they are false.
    Bogus,
    /// Its answer cannot be read.
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
pub enum Answer<T> {
    /// This.
    Is(T),
    /// No such record.
    Nothing,
    /// There was no usable answer.
    Failed(Why),
}

/// The zone the domain lies in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Zone {
    /// The zone's name; the domain is its apex when they are equal.
    Is(String),
    /// Not even the registrable name exists.
    Missing,
    /// No nameserver gave a usable answer.
    Unknown(Why),
}

/// What one nameserver says about the domain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerFacts {
    /// Its name.
    pub host: String,
    /// The address that was asked; absent where it has none.
    pub ip: Option<IpAddr>,
    /// Where the domain leads by CNAME.
    pub cname: Answer<String>,
    /// Asked only where there is no CNAME.
    pub a: Vec<Ipv4Addr>,
    /// IPv6 addresses, asked as `a` is.
    pub aaaa: Vec<Ipv6Addr>,
    /// Seconds that the records may be kept.
    pub ttl: Option<u32>,
    /// The wildcard whose records these are: the name has none of its own.
    pub wildcard: Option<String>,
}

/// The CAA records of one level of the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaaLevel {
    /// The name they stand at.
    pub name: String,
    /// The records, none being a possible answer; or why nobody knows.
    pub records: Result<Vec<CaaRecord>, Why>,
}

/// Everything DNS said about a domain.
#[derive(Clone, Debug)]
pub struct DnsFacts {
    /// The zone of the domain.
    pub zone: Zone,
    /// Every nameserver of the zone.
    pub servers: Vec<ServerFacts>,
    /// The names that the CNAME chain of the domain leads through, as a resolver follows it; its end is last.
    pub chain: Vec<String>,
    /// The addresses of the project's CNAME target: what an ALIAS at an apex becomes.
    pub target_addresses: Vec<IpAddr>,
    /// The ownership texts; asked only when they may matter.
    pub texts: Option<Answer<Vec<String>>>,
    /// From the domain up to its top-level domain.
    pub caa: Vec<CaaLevel>,
    /// "authoritative" or "recursive": whom the answers came from.
    pub resolver: &'static str,
    /// Questions that were sent.
    pub queries: u32,
    /// Milliseconds that all of them took.
    pub duration_ms: u64,
}
