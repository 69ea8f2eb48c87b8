//! Nameservers on loopback that answer from a file: three, so that they can disagree; the first is also the resolver.

use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use anyhow::Context as _;
use async_trait::async_trait;
use hickory_server::Server;
use hickory_server::net::runtime::Time;
use hickory_server::proto::op::{HeaderCounts, Metadata, ResponseCode};
use hickory_server::proto::rr::rdata::{A, AAAA, CAA, CNAME, NS, SOA, TXT};
use hickory_server::proto::rr::{Name, RData, Record, RecordType};
use hickory_server::server::{Request, RequestHandler, ResponseHandler, ResponseInfo};
use hickory_server::zone_handler::MessageResponseBuilder;
use parking_lot::Mutex;
use tokio::net::{TcpListener, UdpSocket};

use super::zones::{Misbehaviour, SERVERS, Value, Zones};

/// How long a record may be cached, in seconds: briefly, so that a change is seen at once.
const TTL_SECONDS: u32 = 1;

/// CNAME records of a chain that are followed.
const CHAIN_MAX: usize = 8;

/// The longest idle time of a TCP client, and its buffer size.
const TCP_IDLE: Duration = Duration::from_secs(5);
const TCP_BUFFER: usize = 4_096;

/// Queries written to the log.
const QUESTIONS_LOGGED_MAX: u64 = 1_000_000;

/// Attempts to find a port that is free on every address.
const PORTS_TRIED: usize = 20;

/// The running nameservers.
pub(super) struct TestDns {
    address: SocketAddr,
    _servers: Vec<Server<Nameserver>>,
}

impl TestDns {
    /// Answers from this file on 127.0.0.1 to 127.0.0.3.
    pub(super) async fn start(file: PathBuf) -> anyhow::Result<Self> {
        let mut last = None;
        for _ in 0..PORTS_TRIED {
            match bind().await {
                Ok((address, sockets)) => return Self::serve(file, address, sockets),
                Err(error) => last = Some(error),
            }
        }
        let last = last.unwrap_or_else(|| anyhow::anyhow!("no free port found"));
        Err(last.context("no port is free for DNS"))
    }

    /// Answers from this file as one resolver for other machines.
    pub(super) async fn resolver(file: PathBuf, address: SocketAddr) -> anyhow::Result<Self> {
        let sockets = (UdpSocket::bind(address).await?, TcpListener::bind(address).await?);
        Self::serve(file, address, vec![sockets])
    }

    fn serve(file: PathBuf, address: SocketAddr, sockets: Vec<(UdpSocket, TcpListener)>) -> anyhow::Result<Self> {
        let log = std::fs::File::create(file.with_file_name("questions.log")).context("creating questions.log")?;
        let zones = Arc::new(ZoneFile { file, read: Mutex::default(), log: Mutex::new((log, 0)) });
        let serve = |(number, (udp, tcp))| {
            let mut server = Server::new(Nameserver { number, zones: zones.clone(), turn: AtomicUsize::new(0) });
            server.register_socket(udp);
            server.register_listener(tcp, TCP_IDLE, TCP_BUFFER);
            server
        };
        Ok(Self { address, _servers: (1..=SERVERS).zip(sockets).map(serve).collect() })
    }

    /// The address of the first nameserver, which is the resolver.
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }
}

/// The sockets of all nameservers, on one port.
async fn bind() -> anyhow::Result<(SocketAddr, Vec<(UdpSocket, TcpListener)>)> {
    let (mut port, mut sockets) = (0, Vec::new());
    for number in 1..=SERVERS {
        let udp = UdpSocket::bind((Ipv4Addr::new(127, 0, 0, number), port)).await?;
        port = udp.local_addr()?.port();
        let tcp = TcpListener::bind((Ipv4Addr::new(127, 0, 0, number), port)).await?;
        sockets.push((udp, tcp));
    }
    Ok((SocketAddr::from(([127, 0, 0, 1], port)), sockets))
}

/// The file, read again after each change.
struct ZoneFile {
    file: PathBuf,
    read: Mutex<(Option<SystemTime>, Arc<Zones>)>,
    /// Every query, and the number of queries.
    log: Mutex<(std::fs::File, u64)>,
}

impl ZoneFile {
    fn log_query(&self, name: &str, kind: RecordType, server: u8) {
        let mut log = self.log.lock();
        if log.1 < QUESTIONS_LOGGED_MAX {
            log.1 += 1;
            // A failed write only affects this log for people.
            let _ = writeln!(log.0, "{name} {kind} @{server}");
        }
    }

    fn now(&self) -> Arc<Zones> {
        let changed = std::fs::metadata(&self.file).and_then(|meta| meta.modified()).ok();
        let mut read = self.read.lock();
        if (read.0 != changed || changed.is_none())
            && let Ok(text) = std::fs::read_to_string(&self.file)
        {
            let (zones, wrong) = Zones::parse(&text);
            for line in wrong {
                tracing::warn!(file = %self.file.display(), line, "skipped a malformed line of the test world's zones");
            }
            *read = (changed, Arc::new(zones));
        }
        read.1.clone()
    }
}

/// One nameserver.
struct Nameserver {
    number: u8,
    zones: Arc<ZoneFile>,
    /// Answers so far: addresses rotate, as at real nameservers.
    turn: AtomicUsize,
}

/// The reply to send.
struct Answer {
    code: ResponseCode,
    authoritative: bool,
    answers: Vec<Record>,
    authority: Vec<Record>,
}

impl Nameserver {
    /// `None`: no reply is sent.
    fn answer(&self, zones: &Zones, name: &str, kind: RecordType) -> Option<Answer> {
        let empty = |code, authoritative| Answer { code, authoritative, answers: Vec::new(), authority: Vec::new() };
        let Some(zone) = zones.zone_of(name) else { return Some(empty(ResponseCode::NoError, true)) };
        match zones.misbehaviour(&zone, self.number) {
            Some(Misbehaviour::Silent) => return None,
            Some(Misbehaviour::ServFail) => return Some(empty(ResponseCode::ServFail, false)),
            Some(Misbehaviour::Refused) => return Some(empty(ResponseCode::Refused, false)),
            Some(Misbehaviour::Lame) => return Some(empty(ResponseCode::NoError, false)),
            None => {}
        }
        let mut answer = empty(ResponseCode::NoError, true);
        if name == zone && kind == RecordType::SOA {
            answer.answers.extend(soa(&zone));
            return Some(answer);
        }
        if name == zone && kind == RecordType::NS {
            let server = |number| record(&zone, RData::NS(NS(fqdn(&format!("ns{number}.{zone}"))?)));
            answer.answers.extend((1..=SERVERS).filter_map(server));
            return Some(answer);
        }
        if let Some(address) = nameserver_address(name, &zone) {
            if kind == RecordType::A {
                answer.answers.extend(record(name, RData::A(A(address))));
            }
        } else {
            self.collect(zones, name, kind, &mut answer.answers);
        }
        if answer.answers.is_empty() {
            answer.authority.extend(soa(&zone));
            if name != zone && nameserver_address(name, &zone).is_none() && !zones.exists(name, self.number) {
                answer.code = ResponseCode::NXDomain;
            }
        }
        Some(answer)
    }

    /// The records of a name, and of the targets of its CNAME records.
    fn collect(&self, zones: &Zones, name: &str, kind: RecordType, answers: &mut Vec<Record>) {
        let mut owner = name.to_owned();
        for _ in 0..CHAIN_MAX {
            let values = zones.records(&owner, self.number);
            let mut target = None;
            let turn = self.turn.fetch_add(1, Ordering::Relaxed) % values.len().max(1);
            for value in values.iter().cycle().skip(turn).take(values.len()) {
                let data = data(value);
                if data.as_ref().is_some_and(|data| data.record_type() == kind) {
                    answers.extend(data.and_then(|data| record(&owner, data)));
                } else if let Value::Cname(to) = value {
                    answers.extend(data.and_then(|data| record(&owner, data)));
                    target = Some(to.clone());
                }
            }
            match target {
                Some(next) => owner = next,
                None => return,
            }
        }
    }
}

fn fqdn(name: &str) -> Option<Name> {
    let mut name = Name::from_ascii(name).ok()?;
    name.set_fqdn(true);
    Some(name)
}

fn record(owner: &str, data: RData) -> Option<Record> {
    Some(Record::from_rdata(fqdn(owner)?, TTL_SECONDS, data))
}

fn soa(zone: &str) -> Option<Record> {
    let (server, mailbox) = (fqdn(&format!("ns1.{zone}"))?, fqdn(&format!("hostmaster.{zone}"))?);
    record(zone, RData::SOA(SOA::new(server, mailbox, 1, 60, 60, 60, TTL_SECONDS)))
}

/// The address of `ns1` to `ns3` of a zone.
fn nameserver_address(name: &str, zone: &str) -> Option<Ipv4Addr> {
    let number = name.strip_suffix(zone)?.strip_suffix('.')?.strip_prefix("ns")?.parse().ok()?;
    (1..=SERVERS).contains(&number).then(|| Ipv4Addr::new(127, 0, 0, number))
}

fn data(value: &Value) -> Option<RData> {
    Some(match value {
        Value::A(address) => RData::A(A(*address)),
        Value::Aaaa(address) => RData::AAAA(AAAA(*address)),
        Value::Cname(to) => RData::CNAME(CNAME(fqdn(to)?)),
        Value::Txt(text) => RData::TXT(TXT::new(vec![text.clone()])),
        Value::Caa(flags, tag, value) => {
            // Raw bytes, so that a test may write records that no library writes.
            let mut caa = CAA::new_issue(flags & 128 != 0, None, Vec::new());
            caa.reserved_flags = flags & 127;
            caa.tag.clone_from(tag);
            caa.value = value.clone().into_bytes();
            RData::CAA(caa)
        }
    })
}

#[async_trait]
impl RequestHandler for Nameserver {
    async fn handle_request<R: ResponseHandler, T: Time>(&self, request: &Request, mut handle: R) -> ResponseInfo {
        let mut metadata = Metadata::response_from_request(&request.metadata);
        let nothing_sent = |metadata| {
            ResponseInfo::from(hickory_server::proto::op::Header { metadata, counts: HeaderCounts::default() })
        };
        let Ok(info) = request.request_info() else {
            metadata.response_code = ResponseCode::FormErr;
            return nothing_sent(metadata);
        };
        let name = info.query.name().to_string();
        let name = name.trim_end_matches('.').to_ascii_lowercase();
        self.zones.log_query(&name, info.query.query_type(), self.number);
        let Some(answer) = self.answer(&self.zones.now(), &name, info.query.query_type()) else {
            return nothing_sent(metadata);
        };
        metadata.authoritative = answer.authoritative;
        metadata.recursion_available = true;
        metadata.response_code = answer.code;
        let response = MessageResponseBuilder::from_message_request(request).build(
            metadata,
            &answer.answers,
            &answer.authority,
            [],
            [],
        );
        match handle.send_response(response).await {
            Ok(info) => info,
            Err(error) => {
                tracing::debug!(%error, "cannot send a DNS response");
                nothing_sent(metadata)
            }
        }
    }
}
