//! The world's DNS over UDP and TCP.
//!
//! Each question is its own socket with its own random port, its own random identifier and randomly cased letters in
//! its name, all of which the answer must repeat: that is what makes an answer hard to forge. Nothing is cached:
//! verification wants to see what is there now. A truncated answer is asked for again over TCP.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use anyhow::Context as _;
use async_trait::async_trait;
use hickory_resolver::proto::op::{Edns, Message, MessageType, OpCode, Query, ResponseCode};
use hickory_resolver::proto::rr::{Name, RData, Record, RecordType};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UdpSocket};

use super::{CaaRecord, Dns, DnsFailure, DnsRecord, RecordData, RecordKind, Reply, ReplyCode};
use crate::config::DnsConfig;

/// One try with one server.
const TRY_TIME_MAX: Duration = Duration::from_millis(800);

/// Tries with a recursive resolver, which may have to ask the whole world first.
const RECURSE_TIME_MAX: Duration = Duration::from_secs(2);

/// The largest UDP answer accepted: what passes every network unfragmented.
const UDP_BYTES_MAX: u16 = 1_232;

/// DNS as it is.
pub(crate) struct WireDns {
    resolvers: Vec<SocketAddr>,
    authoritative_port: u16,
}

impl WireDns {
    /// With the configured resolvers, or those of the system.
    pub(crate) fn new(config: &DnsConfig) -> anyhow::Result<Self> {
        let resolvers = if config.nameservers.is_empty() { system_resolvers()? } else { config.nameservers.clone() };
        Ok(Self { resolvers, authoritative_port: config.authoritative_port })
    }
}

fn system_resolvers() -> anyhow::Result<Vec<SocketAddr>> {
    let (config, _) = hickory_resolver::system_conf::read_system_conf().context("reading the system's resolvers")?;
    let mut resolvers: Vec<SocketAddr> =
        config.name_servers().iter().map(|server| SocketAddr::new(server.ip, 53)).collect();
    resolvers.dedup();
    anyhow::ensure!(!resolvers.is_empty(), "the system names no DNS resolver; set dns.nameservers");
    Ok(resolvers)
}

#[async_trait]
impl Dns for WireDns {
    async fn recurse(&self, name: &str, kind: RecordKind) -> Result<Reply, DnsFailure> {
        let mut failure = DnsFailure::Timeout;
        for resolver in &self.resolvers {
            match exchange(*resolver, name, kind, true, RECURSE_TIME_MAX).await {
                Ok(reply) => return Ok(reply),
                Err(error) => failure = error,
            }
        }
        Err(failure)
    }

    async fn ask(&self, server: IpAddr, name: &str, kind: RecordKind) -> Result<Reply, DnsFailure> {
        let server = SocketAddr::new(server, self.authoritative_port);
        match exchange(server, name, kind, false, TRY_TIME_MAX).await {
            // A lost packet is not a dead server: one more try.
            Err(DnsFailure::Timeout) => exchange(server, name, kind, false, TRY_TIME_MAX).await,
            other => other,
        }
    }
}

async fn exchange(
    server: SocketAddr,
    name: &str,
    kind: RecordKind,
    recursion: bool,
    time: Duration,
) -> Result<Reply, DnsFailure> {
    let question = question(name, kind, recursion)?;
    let bytes = question.to_vec().map_err(|_| DnsFailure::Malformed)?;
    let answer = tokio::time::timeout(time, async {
        let answer = over_udp(server, &question, &bytes).await?;
        if answer.metadata.truncation { over_tcp(server, &question, &bytes).await } else { Ok(answer) }
    });
    let answer = answer.await.map_err(|_| DnsFailure::Timeout)??;
    Ok(reply(&answer))
}

/// A question with a random identifier and randomly cased letters.
fn question(name: &str, kind: RecordKind, recursion: bool) -> Result<Message, DnsFailure> {
    let random = chassis::random::bytes::<34>().map_err(|_| DnsFailure::Malformed)?;
    let [high, low, coins @ ..] = random;
    let coin =
        |index: usize| coins.get(index % coins.len()).is_some_and(|byte| byte >> (index / coins.len() % 8) & 1 == 1);
    let cased: String = name
        .chars()
        .enumerate()
        .map(|(index, letter)| if coin(index) { letter.to_ascii_uppercase() } else { letter })
        .collect();
    let name = Name::from_ascii(format!("{cased}.")).map_err(|_| DnsFailure::Malformed)?;
    let mut message = Message::new(u16::from_be_bytes([high, low]), MessageType::Query, OpCode::Query);
    message.metadata.recursion_desired = recursion;
    message.add_query(Query::query(name, record_type(kind)));
    let mut edns = Edns::new();
    edns.set_max_payload(UDP_BYTES_MAX);
    message.set_edns(edns);
    Ok(message)
}

async fn over_udp(server: SocketAddr, question: &Message, bytes: &[u8]) -> Result<Message, DnsFailure> {
    let local: IpAddr = if server.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((local, 0)).await.map_err(|_| DnsFailure::Unreachable)?;
    // Connected: answers from other addresses never reach us.
    socket.connect(server).await.map_err(|_| DnsFailure::Unreachable)?;
    socket.send(bytes).await.map_err(|_| DnsFailure::Unreachable)?;
    let mut buffer = vec![0; usize::from(UDP_BYTES_MAX) * 4];
    loop {
        let length = socket.recv(&mut buffer).await.map_err(|_| DnsFailure::Unreachable)?;
        // A forged or foreign answer is waited past, not believed and not given up on.
        if let Ok(answer) = Message::from_vec(buffer.get(..length).unwrap_or_default())
            && answers(question, &answer)
        {
            return Ok(answer);
        }
    }
}

async fn over_tcp(server: SocketAddr, question: &Message, bytes: &[u8]) -> Result<Message, DnsFailure> {
    let failed = |_: std::io::Error| DnsFailure::Unreachable;
    let mut stream = TcpStream::connect(server).await.map_err(failed)?;
    let length = u16::try_from(bytes.len()).map_err(|_| DnsFailure::Malformed)?;
    stream.write_all(&[&length.to_be_bytes(), bytes].concat()).await.map_err(failed)?;
    let length = stream.read_u16().await.map_err(failed)?;
    let mut buffer = vec![0; usize::from(length)];
    stream.read_exact(&mut buffer).await.map_err(failed)?;
    let answer = Message::from_vec(&buffer).map_err(|_| DnsFailure::Malformed)?;
    if answers(question, &answer) { Ok(answer) } else { Err(DnsFailure::Malformed) }
}

/// Whether a message answers our question: same identifier, same question, letters cased alike.
fn answers(question: &Message, answer: &Message) -> bool {
    answer.metadata.id == question.metadata.id
        && answer.metadata.message_type == MessageType::Response
        && match (question.queries.as_slice(), answer.queries.as_slice()) {
            ([asked], [answered]) => asked.query_type == answered.query_type && asked.name.eq_case(&answered.name),
            // Some servers leave the question out of a refusal.
            (_, []) => answer.answers.is_empty(),
            _ => false,
        }
}

/// What is made of a message that answers some question of ours.
///
/// # Errors
/// When it is no message.
pub(super) fn read(bytes: &[u8]) -> Result<Reply, DnsFailure> {
    Message::from_vec(bytes).map(|message| reply(&message)).map_err(|_| DnsFailure::Malformed)
}

fn reply(message: &Message) -> Reply {
    Reply {
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
        RData::TXT(text) => {
            let bytes: Vec<u8> = text.txt_data.iter().flat_map(|part| part.iter().copied()).collect();
            RecordData::Txt(String::from_utf8_lossy(&bytes).into_owned())
        }
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
#[path = "wire/tests.rs"]
mod tests;
