//! Facts about a domain: the state of its ownership, and the answers of DNS. Data, collected once and judged elsewhere.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::CaaRecord;

/// The state of a name's ownership before DNS is queried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Claim {
    /// The project holds the name and it is served: ownership was proven, and the records have pointed at us ever
    /// since.
    Proven,
    /// No other project has it. A CNAME to the project's own target proves it; addresses do not, because all projects
    /// share the edge's addresses.
    Open,
    /// Another project has it, or had it: only the TXT record proves it.
    Contested,
}

impl Claim {
    /// Whether the ownership TXT record may matter for a name that is (or is not) the apex of its zone.
    pub fn may_ask_for_text(self, is_apex: bool) -> bool {
        self == Self::Contested || (self == Self::Open && is_apex)
    }
}

contract::words! {
    /// Why a nameserver gave no usable answer.
    pub enum NoAnswer {
        /// No answer in time, or the port is closed.
        Timeout = "timeout",
        /// It reported a failure (SERVFAIL).
        ServFail = "servfail",
        /// It answers, but not authoritatively for the zone.
        Lame = "lame",
        /// This machine has no route to it, for example without IPv6.
        Unreachable = "unreachable",
        /// The records exist, but fail DNSSEC validation.
        Bogus = "dnssec_bogus",
        /// Its answer cannot be parsed.
        Malformed = "malformed",
        /// It has no address, or only addresses to which we send no packets.
        NoAddress = "no_address",
    }
}

/// The result of one query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DnsAnswer<T> {
    /// This value.
    Is(T),
    /// No such record.
    Nothing,
    /// There was no usable answer.
    Failed(NoAnswer),
}

/// The zone of the domain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Zone {
    /// The zone's name; the domain is its apex when they are equal.
    Is(String),
    /// The registrable name does not exist.
    Missing,
    /// No nameserver gave a usable answer.
    Unknown(NoAnswer),
}

/// The answers of one nameserver about the domain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerFacts {
    /// Its name.
    pub host: String,
    /// The queried address; absent if it has none.
    pub ip: Option<IpAddr>,
    /// The target of the domain's CNAME.
    pub cname: DnsAnswer<String>,
    /// Queried only if there is no CNAME.
    pub a: Vec<Ipv4Addr>,
    /// IPv6 addresses, queried like `a`.
    pub aaaa: Vec<Ipv6Addr>,
    /// How long the records may be cached, in seconds.
    pub ttl: Option<u32>,
    /// The wildcard that the records come from: the name has none of its own.
    pub wildcard: Option<String>,
}

/// The CAA records of one name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaaLevel {
    /// The name.
    pub name: String,
    /// The records, possibly none; or why they are unknown.
    pub records: Result<Vec<CaaRecord>, NoAnswer>,
}

/// All answers of DNS about a domain.
#[derive(Clone, Debug)]
pub struct DnsFacts {
    /// The zone of the domain.
    pub zone: Zone,
    /// Every nameserver of the zone.
    pub servers: Vec<ServerFacts>,
    /// The names of the domain's CNAME chain, as a resolver follows it; its end is last.
    pub chain: Vec<String>,
    /// A name that has the domain's CNAME in its place: the domain's with its zone added once more. Queried only if the
    /// domain has no record.
    pub doubled: Option<String>,
    /// The addresses of the project's CNAME target, which an ALIAS at an apex resolves to.
    pub target_addresses: Vec<IpAddr>,
    /// The ownership TXT records; queried only if they may matter.
    pub texts: Option<DnsAnswer<Vec<String>>>,
    /// From the domain up to its top-level domain.
    pub caa: Vec<CaaLevel>,
    /// Whether a resolver of ours answered any question. If none did, missing answers say nothing about the zone.
    pub resolver_answers: bool,
    /// The source of the answers: "authoritative" or "recursive".
    pub resolver: &'static str,
    /// Number of queries sent.
    pub queries: u32,
    /// Duration of all queries in milliseconds.
    pub duration_ms: u64,
}
