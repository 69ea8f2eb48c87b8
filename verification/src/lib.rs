//! Domain verification: queries DNS and judges the answers.
//!
//! [`Dns`] has two queries: one to a recursive resolver, one to a nameserver of the customer. [`collect`] runs them in
//! the right order within bounds and returns [`facts::DnsFacts`]; [`verdict`] and [`caa`] judge facts without queries.
//! [`wire`] is the real network.
//!
//! If no server answers, the facts say so, and no domain changes its state.

mod settings;
pub mod problem;
pub mod facts;
pub mod networks;
mod race;
pub mod caa;
pub mod collect;
pub mod verdict;
pub mod wire;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use async_trait::async_trait;

pub use self::facts::NoAnswer;
pub use self::settings::{DnsConfig, DnsMode};

/// The label below the domain that holds the ownership text.
pub const TEXT_LABEL: &str = "_edge-verify";

/// The suggested lifetime of every record, in seconds (from the specification).
pub const TTL_SECONDS: u32 = 3_600;

contract::words! {
    /// The kinds of records that verification queries.
    pub enum RecordKind {
        /// An IPv4 address.
        A = "a",
        /// An IPv6 address.
        Aaaa = "aaaa",
        /// An alias of another name.
        Cname = "cname",
        /// A nameserver of the zone.
        Ns = "ns",
        /// The start of authority of the zone.
        Soa = "soa",
        /// Text.
        Txt = "txt",
        /// Authorities that may issue certificates.
        Caa = "caa",
    }
}

/// The content of a record. Names are lower case without the trailing dot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordData {
    /// An IPv4 address.
    A(Ipv4Addr),
    /// An IPv6 address.
    Aaaa(Ipv6Addr),
    /// An alias of another name.
    Cname(String),
    /// A nameserver of the zone.
    Ns(String),
    /// The start of authority of the zone.
    Soa,
    /// Text, its strings joined.
    Txt(String),
    /// Authorities that may issue certificates.
    Caa(CaaRecord),
}

impl RecordData {
    pub(crate) fn v4(&self) -> Option<Ipv4Addr> {
        if let Self::A(address) = self { Some(*address) } else { None }
    }

    pub(crate) fn v6(&self) -> Option<Ipv6Addr> {
        if let Self::Aaaa(address) = self { Some(*address) } else { None }
    }

    pub(crate) fn cname(&self) -> Option<String> {
        if let Self::Cname(target) = self { Some(target.clone()) } else { None }
    }

    pub(crate) fn nameserver(&self) -> Option<String> {
        if let Self::Ns(host) = self { Some(host.clone()) } else { None }
    }

    pub(crate) fn text(&self) -> Option<String> {
        if let Self::Txt(text) = self { Some(text.clone()) } else { None }
    }

    pub(crate) fn caa(&self) -> Option<CaaRecord> {
        if let Self::Caa(record) = self { Some(record.clone()) } else { None }
    }
}

/// A CAA record as received; its judge decides about leniency.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaaRecord {
    /// The flags; 128 means critical.
    pub flags: u8,
    /// The property, such as `issue`.
    pub tag: String,
    /// Its value.
    pub value: Vec<u8>,
}

/// One record of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DnsRecord {
    /// The name it belongs to, lower case without the trailing dot.
    pub owner: String,
    /// How long it may be cached, in seconds.
    pub ttl: u32,
    /// Its content.
    pub data: RecordData,
}

/// The response code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyCode {
    /// The name exists, whether or not it has such records.
    NoError,
    /// The name does not exist.
    NoSuchName,
    /// The server reported a failure (SERVFAIL).
    ServFail,
    /// The records exist, but fail DNSSEC validation.
    Bogus,
    /// The server refused to answer.
    Refused,
    /// Anything else.
    Other,
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DnsReply {
    /// The response code.
    pub code: ReplyCode,
    /// Whether the server says that it is authoritative for the name.
    pub authoritative: bool,
    /// The answer section.
    pub answers: Vec<DnsRecord>,
    /// The authority section: the zone's SOA in negative answers.
    pub authority: Vec<DnsRecord>,
}

impl DnsReply {
    /// Whether it answers the query, possibly with no such record.
    pub fn is_answer(&self) -> bool {
        matches!(self.code, ReplyCode::NoError | ReplyCode::NoSuchName)
    }
}

/// DNS queries. They fail if there is no answer in time, no route to the server, or no parsable answer.
#[async_trait]
pub trait Dns: Send + Sync {
    /// Queries a recursive resolver, which follows CNAMEs.
    async fn recurse(&self, name: &str, kind: RecordKind) -> Result<DnsReply, NoAnswer>;

    /// Queries this nameserver, without recursion.
    async fn ask(&self, server: IpAddr, name: &str, kind: RecordKind) -> Result<DnsReply, NoAnswer>;
}
