//! DNS over UDP and TCP.
//!
//! Each query uses its own socket with a random port, a random identifier and randomly cased letters in its name. The
//! answer must repeat all of them, which makes it hard to forge. Nothing is cached, because verification needs the
//! current records. A truncated answer is requested again over TCP, a lost query is sent again soon, and if a resolver
//! fails or is silent the next one is asked.

mod exchange;

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use anyhow::Context as _;
use async_trait::async_trait;
use hickory_resolver::proto::op::{Message, ResponseCode};
use hickory_resolver::proto::rr::{Name, RData, Record, RecordType};

use self::exchange::{QueryOptions, exchange};
use super::race::first_good;
use super::{CaaRecord, Dns, DnsRecord, DnsReply, NoAnswer, RecordData, RecordKind, ReplyCode};
use crate::DnsConfig;

/// The longest wait for one nameserver.
const ASK_TIME_MAX: Duration = Duration::from_millis(2_500);

/// The longest wait for one recursive resolver, which may have to query many servers.
const RECURSE_TIME_MAX: Duration = Duration::from_secs(3);

/// After this long the next resolver is asked too.
const NEXT_RESOLVER_AFTER: Duration = Duration::from_millis(500);

/// DNS over the network.
pub struct WireDns {
    resolvers: Vec<SocketAddr>,
    authoritative_port: u16,
}

impl WireDns {
    /// Uses the configured resolvers, or the system's.
    pub fn new(config: &DnsConfig) -> anyhow::Result<Self> {
        let resolvers = if config.nameservers.is_empty() { system_resolvers()? } else { config.nameservers.clone() };
        Ok(Self { resolvers, authoritative_port: config.authoritative_port })
    }
}

fn system_resolvers() -> anyhow::Result<Vec<SocketAddr>> {
    let (config, _) = hickory_resolver::system_conf::read_system_conf().context("reading the system's resolvers")?;
    let mut resolvers: Vec<SocketAddr> =
        config.name_servers().iter().map(|server| SocketAddr::new(server.ip, 53)).collect();
    resolvers.dedup();
    anyhow::ensure!(!resolvers.is_empty(), "the system configures no DNS resolver; set dns.nameservers");
    Ok(resolvers)
}

impl WireDns {
    async fn resolve(&self, asked: QueryOptions<'_>) -> Result<DnsReply, NoAnswer> {
        let try_one = async |resolver| exchange(resolver, asked, RECURSE_TIME_MAX).await.map(|message| reply(&message));
        let tries: Vec<_> = self.resolvers.iter().copied().map(try_one).collect();
        let is_good = |outcome: &Result<DnsReply, NoAnswer>| outcome.as_ref().is_ok_and(DnsReply::is_answer);
        first_good(tries, NEXT_RESOLVER_AFTER, is_good).await.unwrap_or_else(|failed| {
            // A resolver's failure is more informative than another's silence.
            failed
                .into_iter()
                .reduce(|best, next| if best.is_ok() { best } else { next })
                .unwrap_or(Err(NoAnswer::Timeout))
        })
    }

    /// Whether the resolvers fail because of DNSSEC: with checking disabled they have an answer, and with checking they
    /// still have none.
    async fn is_bogus(&self, asked: QueryOptions<'_>) -> bool {
        let unchecked = self.resolve(QueryOptions { unchecked: true, ..asked }).await;
        unchecked.is_ok_and(|reply| reply.is_answer())
            && self.resolve(asked).await.is_ok_and(|reply| reply.code == ReplyCode::ServFail)
    }
}

#[async_trait]
impl Dns for WireDns {
    async fn recurse(&self, name: &str, kind: RecordKind) -> Result<DnsReply, NoAnswer> {
        let asked = QueryOptions { name, kind, recursion: true, unchecked: false };
        let mut reply = self.resolve(asked).await?;
        if reply.code == ReplyCode::ServFail && self.is_bogus(asked).await {
            reply.code = ReplyCode::Bogus;
        }
        Ok(reply)
    }

    async fn ask(&self, server: IpAddr, name: &str, kind: RecordKind) -> Result<DnsReply, NoAnswer> {
        let asked = QueryOptions { name, kind, recursion: false, unchecked: false };
        let message = exchange(SocketAddr::new(server, self.authoritative_port), asked, ASK_TIME_MAX).await?;
        Ok(reply(&message))
    }
}

/// Parses a message as an answer. For the fuzzing crate.
pub fn read(bytes: &[u8]) -> Result<DnsReply, NoAnswer> {
    Message::from_vec(bytes).map(|message| reply(&message)).map_err(|_| NoAnswer::Malformed)
}

/// Whether a message repeats this query; `None` if it repeats none. For the fuzzing crate.
pub fn repeats(bytes: &[u8], name: &str, kind: RecordKind) -> Option<bool> {
    let message = Message::from_vec(bytes).ok()?;
    let query = message.queries.first()?;
    Some(text_of(&query.name) == name && query.query_type == record_type(kind))
}

fn reply(message: &Message) -> DnsReply {
    DnsReply {
        code: match message.metadata.response_code {
            ResponseCode::NoError => ReplyCode::NoError,
            ResponseCode::NXDomain => ReplyCode::NoSuchName,
            ResponseCode::ServFail => ReplyCode::ServFail,
            ResponseCode::Refused => ReplyCode::Refused,
            _ => ReplyCode::Other,
        },
        authoritative: message.metadata.authoritative,
        answers: message.answers.iter().filter_map(record).collect(),
        authority: message.authorities.iter().filter_map(record).collect(),
    }
}

fn record(record: &Record) -> Option<DnsRecord> {
    let data = match &record.data {
        RData::A(address) => RecordData::A(address.0),
        RData::AAAA(address) => RecordData::Aaaa(address.0),
        RData::CNAME(name) => RecordData::Cname(text_of(&name.0)),
        RData::NS(name) => RecordData::Ns(text_of(&name.0)),
        RData::SOA(_) => RecordData::Soa,
        RData::TXT(text) => RecordData::Txt(String::from_utf8_lossy(&text.txt_data.concat()).into_owned()),
        RData::CAA(caa) => {
            RecordData::Caa(CaaRecord { flags: caa.flags(), tag: caa.tag.clone(), value: caa.value.clone() })
        }
        _ => return None,
    };
    Some(DnsRecord { owner: text_of(&record.name), ttl: record.ttl, data })
}

fn text_of(name: &Name) -> String {
    let text = name.to_ascii().to_ascii_lowercase();
    text.strip_suffix('.').map_or(text.clone(), ToOwned::to_owned)
}

fn record_type(kind: RecordKind) -> RecordType {
    match kind {
        RecordKind::A => RecordType::A,
        RecordKind::Aaaa => RecordType::AAAA,
        RecordKind::Cname => RecordType::CNAME,
        RecordKind::Ns => RecordType::NS,
        RecordKind::Soa => RecordType::SOA,
        RecordKind::Txt => RecordType::TXT,
        RecordKind::Caa => RecordType::CAA,
    }
}

#[cfg(test)]
mod tests;
