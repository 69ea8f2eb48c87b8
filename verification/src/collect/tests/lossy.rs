//! Verifications over real sockets and a network that loses packets.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use futures_util::StreamExt as _;
use hickory_resolver::proto::op::{Message, ResponseCode};
use hickory_resolver::proto::rr::{Name, RData, Record, RecordType, rdata};
use parking_lot::Mutex;
use tokio::net::UdpSocket;

use super::*;
use crate::wire::WireDns;

/// Lost packets of a hundred in each direction.
const LOST_PERCENT: u64 = 2;

/// Verifications, and how many run concurrently.
const CHECKS: usize = 100;
const AT_ONCE: usize = 25;

/// Which packets are lost: depends on the query and its repetition, never on the time.
#[derive(Default)]
struct Network {
    sent: Mutex<HashMap<String, u64>>,
}

impl Network {
    fn loses(&self, packet: String) -> bool {
        let mut sent = self.sent.lock();
        let count = sent.entry(packet.clone()).or_default();
        *count += 1;
        let mut hasher = DefaultHasher::new();
        (packet, *count).hash(&mut hasher);
        hasher.finish() % 100 < LOST_PERCENT
    }
}

/// A resolver and two nameservers, all on one port.
async fn servers() -> (u16, Vec<UdpSocket>) {
    loop {
        let first = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = first.local_addr().unwrap().port();
        if let Ok(second) = UdpSocket::bind(("127.0.0.2", port)).await {
            return (port, vec![first, second]);
        }
    }
}

fn fqdn(name: &str) -> Name {
    Name::from_ascii(format!("{name}.")).unwrap()
}

fn on_the_wire(record: &DnsRecord) -> Option<Record> {
    let data = match &record.data {
        RecordData::A(address) => RData::A(rdata::A(*address)),
        RecordData::Cname(target) => RData::CNAME(rdata::CNAME(fqdn(target))),
        RecordData::Ns(host) => RData::NS(rdata::NS(fqdn(host))),
        RecordData::Soa => {
            RData::SOA(rdata::SOA::new(fqdn("ns1.dns.test"), fqdn("hostmaster.dns.test"), 1, 60, 60, 60, 60))
        }
        _ => return None,
    };
    Some(Record::from_rdata(fqdn(&record.owner), record.ttl, data))
}

/// The answer of the resolver (0) or a nameserver.
fn answer(server: usize, name: &str, kind: RecordKind) -> DnsReply {
    match (server, name, kind) {
        (0, "ns1.dns.test" | "ns2.dns.test", RecordKind::A) => {
            said(vec![record(name, RecordData::A(Ipv4Addr::new(127, 0, 0, 2)))])
        }
        (0, ..) => resolver(name, kind),
        (_, _, RecordKind::Cname) => said(vec![cname(name, TARGET)]),
        _ => denied("customer.test"),
    }
}

async fn serve(number: usize, socket: UdpSocket, network: Arc<Network>) {
    let mut buffer = vec![0; 2_000];
    loop {
        let (length, from) = socket.recv_from(&mut buffer).await.unwrap();
        let subject = Message::from_vec(&buffer[..length]).unwrap();
        let query = subject.queries[0].clone();
        let name = query.name.to_ascii().to_ascii_lowercase();
        let name = name.trim_end_matches('.');
        let packet = |direction: &str| format!("{direction} {number} {name} {}", query.query_type);
        if network.loses(packet("there")) || network.loses(packet("back")) {
            continue;
        }
        let kind = match query.query_type {
            RecordType::A => RecordKind::A,
            RecordType::CNAME => RecordKind::Cname,
            RecordType::NS => RecordKind::Ns,
            RecordType::SOA => RecordKind::Soa,
            RecordType::AAAA => RecordKind::Aaaa,
            RecordType::CAA => RecordKind::Caa,
            _ => RecordKind::Txt,
        };
        let said = answer(number, name, kind);
        let mut reply = Message::response(subject.metadata.id, subject.metadata.op_code);
        reply.metadata.authoritative = said.authoritative;
        reply.metadata.response_code = ResponseCode::NoError;
        reply.add_answers(said.answers.iter().filter_map(on_the_wire));
        reply.add_authorities(said.authority.iter().filter_map(on_the_wire));
        reply.add_query(query);
        socket.send_to(&reply.to_vec().unwrap(), from).await.unwrap();
    }
}

// promise: domains.8
#[tokio::test]
async fn with_two_percent_of_packets_lost_99_of_100_verifications_are_right_at_once() {
    let (port, sockets) = servers().await;
    let network = Arc::new(Network::default());
    for (number, socket) in sockets.into_iter().enumerate() {
        tokio::spawn(serve(number, socket, network.clone()));
    }
    let config = DnsConfig {
        nameservers: vec![SocketAddr::from((Ipv4Addr::LOCALHOST, port))],
        authoritative_port: port,
        allow_private_nameservers: true,
        ..DnsConfig::default()
    };
    let dns = WireDns::new(&config).unwrap();
    let checks = (0..CHECKS).map(|number| {
        let (dns, config) = (&dns, &config);
        async move { check(dns, config, &format!("shop-{number}.customer.test"), "customer.test").await.1 }
    });
    let judged: Vec<Judgement> = futures_util::stream::iter(checks).buffer_unordered(AT_ONCE).collect().await;
    let right = judged.iter().filter(|judged| judged.passes() && judged.problems.is_empty()).count();
    assert!(right >= 99, "{right} of {CHECKS} were right: {judged:?}");
}
