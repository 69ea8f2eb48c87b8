//! DNS: asking, and making sense of the answers.
//!
//! [`Dns`] is the world: two questions, one to a recursive resolver, one to a nameserver of the customer's.
//! [`collect`] asks them in the right order within bounds and gives [`facts::DnsFacts`]; [`verdict`] and [`caa`] judge
//! facts and ask nobody. [`wire`] is the world as it is.
//!
//! When nobody answers, the facts say so, and no domain moves.

mod settings;
pub mod problem;
pub mod facts;
pub mod networks;
mod race;
pub mod caa;
pub mod collect;
pub mod verdict;
pub mod wire;
pub mod trial;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use async_trait::async_trait;

pub use self::settings::{DnsConfig, DnsMode};

/// The label below the domain that holds the ownership text.
pub const TEXT_LABEL: &str = "_edge-verify";

/// The lifetime every record is suggested with, in seconds: the specification's.
pub const TTL_SECONDS: u32 = 3_600;

contract::words! {
    /// The kinds of records verification asks for.
    pub enum RecordKind {
        /// An IPv4 address.
        A = "a",
        /// An IPv6 address.
        Aaaa = "aaaa",
        /// Another name for it.
        Cname = "cname",
        /// A nameserver of the zone.
        Ns = "ns",
        /// The zone's head.
        Soa = "soa",
        /// Text.
        Txt = "txt",
        /// Who may issue certificates.
        Caa = "caa",
    }
}

/// What a record says. Names are lower case without the trailing dot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordData {
    /// An IPv4 address.
    A(Ipv4Addr),
    /// An IPv6 address.
    Aaaa(Ipv6Addr),
    /// Another name for it.
    Cname(String),
    /// A nameserver of the zone.
    Ns(String),
    /// The zone's head.
    Soa,
    /// Text, its strings joined.
    Txt(String),
    /// Who may issue certificates.
    Caa(CaaRecord),
}

/// A CAA record, as raw as it came: leniency is the judge's business.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaaRecord {
    /// The flags, 128 meaning critical.
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
    /// Seconds it may be kept.
    pub ttl: u32,
    /// What it says.
    pub data: RecordData,
}

/// The response code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyCode {
    /// The name exists, whether or not it has such records.
    NoError,
    /// The name does not exist.
    NoSuchName,
    /// The server could not find out.
    ServFail,
    /// The records are there, and DNSSEC says that they are false.
    Bogus,
    /// The server does not want to say.
    Refused,
    /// Anything else.
    Other,
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The response code.
    pub code: ReplyCode,
    /// Whether the server says it is an authority for the name.
    pub authoritative: bool,
    /// The answer section.
    pub answers: Vec<DnsRecord>,
    /// The authority section: the zone's SOA in negative answers.
    pub authority: Vec<DnsRecord>,
}

impl Reply {
    /// Whether it answers the question, be it that there is no such record.
    pub fn is_answer(&self) -> bool {
        matches!(self.code, ReplyCode::NoError | ReplyCode::NoSuchName)
    }
}

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DnsFailure {
    /// Nobody answered in time, or nobody listens.
    #[error("no answer in time")]
    Timeout,
    /// This machine has no way there, such as one without IPv6.
    #[error("the nameserver cannot be reached from here")]
    Unreachable,
    /// Something answered that is no answer.
    #[error("the answer cannot be read")]
    Malformed,
}

impl DnsFailure {
    /// The word in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Timeout => "timeout",
            Self::Unreachable => "unreachable",
            Self::Malformed => "malformed",
        }
    }
}

/// The world's DNS.
#[async_trait]
pub trait Dns: Send + Sync {
    /// Asks a recursive resolver, which follows CNAMEs.
    async fn recurse(&self, name: &str, kind: RecordKind) -> Result<Reply, DnsFailure>;

    /// Asks this nameserver, without recursion.
    async fn ask(&self, server: IpAddr, name: &str, kind: RecordKind) -> Result<Reply, DnsFailure>;
}
