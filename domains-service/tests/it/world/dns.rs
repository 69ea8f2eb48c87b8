//! A scripted DNS.

use std::collections::HashMap;
use std::net::IpAddr;

use async_trait::async_trait;
use parking_lot::Mutex;
use verification::{Dns, DnsRecord, DnsReply, NoAnswer, RecordData, RecordKind, ReplyCode};

/// The behaviour of a nameserver.
#[derive(Clone, Debug)]
pub(crate) enum Behaviour {
    Answers,
    Silent,
    ServFail,
    /// Answers without authority.
    Lame,
}

/// A scripted DNS. The recursive resolver sees the first nameserver's records.
#[derive(Default)]
pub(crate) struct FakeDns {
    state: Mutex<FakeState>,
}

#[derive(Default)]
struct FakeState {
    /// Zones and the addresses of their nameservers.
    zones: HashMap<String, Vec<IpAddr>>,
    /// Records, by nameserver; `None`: the same everywhere.
    records: Vec<(Option<IpAddr>, String, RecordData)>,
    behaviour: HashMap<IpAddr, Behaviour>,
    resolver_down: bool,
    /// Zones with silent nameservers.
    silent: Vec<String>,
    asked: Vec<(Option<IpAddr>, String, RecordKind)>,
}

impl FakeDns {
    /// A zone with nameservers at these addresses.
    pub(crate) fn zone(&self, name: &str, servers: &[&str]) {
        let servers = servers.iter().map(|server| server.parse().unwrap()).collect();
        self.state.lock().zones.insert(name.to_owned(), servers);
    }

    /// A record at every nameserver.
    pub(crate) fn set(&self, name: &str, data: RecordData) {
        self.state.lock().records.push((None, name.to_owned(), data));
    }

    /// Takes over another one's script.
    pub(crate) fn take_over(&self, other: &Self) {
        let other = other.state.lock();
        let mut state = self.state.lock();
        state.zones.clone_from(&other.zones);
        state.records.clone_from(&other.records);
    }

    /// A record at one nameserver.
    pub(crate) fn set_at(&self, server: &str, name: &str, data: RecordData) {
        self.state.lock().records.push((Some(server.parse().unwrap()), name.to_owned(), data));
    }

    /// Removes the records of a name.
    pub(crate) fn clear(&self, name: &str) {
        self.state.lock().records.retain(|(_, owner, _)| owner != name);
    }

    pub(crate) fn behave(&self, server: &str, behaviour: Behaviour) {
        self.state.lock().behaviour.insert(server.parse().unwrap(), behaviour);
    }

    /// The nameservers of a zone are silent, or answer again.
    pub(crate) fn zone_is_silent(&self, zone: &str, is_silent: bool) {
        let silent = &mut self.state.lock().silent;
        silent.retain(|one| one != zone);
        silent.extend(is_silent.then(|| zone.to_owned()));
    }

    pub(crate) fn resolver_down(&self, down: bool) {
        self.state.lock().resolver_down = down;
    }

    /// Number of queries about a name, at all servers.
    pub(crate) fn asked(&self, name: &str) -> usize {
        self.state.lock().asked.iter().filter(|(_, asked, _)| asked == name).count()
    }

    /// The nameservers that got a query.
    pub(crate) fn servers_asked(&self) -> Vec<IpAddr> {
        self.state.lock().asked.iter().filter_map(|(server, ..)| *server).collect()
    }
}

fn kind_of(data: &RecordData) -> RecordKind {
    match data {
        RecordData::A(_) => RecordKind::A,
        RecordData::Aaaa(_) => RecordKind::Aaaa,
        RecordData::Cname(_) => RecordKind::Cname,
        RecordData::Ns(_) => RecordKind::Ns,
        RecordData::Soa => RecordKind::Soa,
        RecordData::Txt(_) => RecordKind::Txt,
        RecordData::Caa(_) => RecordKind::Caa,
    }
}

impl FakeState {
    fn zone_of(&self, name: &str) -> Option<(String, Vec<IpAddr>)> {
        let mut candidate = name;
        loop {
            if let Some(servers) = self.zones.get(candidate) {
                return Some((candidate.to_owned(), servers.clone()));
            }
            candidate = candidate.split_once('.')?.1;
        }
    }

    fn lookup(&self, server: Option<IpAddr>, name: &str, kind: RecordKind, follow: bool) -> DnsReply {
        let mut answers = Vec::new();
        let mut owner = name.to_owned();
        for _ in 0..8 {
            let here: Vec<&RecordData> = self
                .records
                .iter()
                .filter(|(at, record_owner, _)| *record_owner == owner && (at.is_none() || *at == server))
                .map(|(.., data)| data)
                .collect();
            let record = |data: &RecordData| DnsRecord { owner: owner.clone(), ttl: 300, data: data.clone() };
            answers.extend(here.iter().filter(|data| kind_of(data) == kind).map(|data| record(data)));
            let cname = here.iter().find_map(|data| match data {
                RecordData::Cname(target) => Some((record(data), target.clone())),
                _ => None,
            });
            match cname {
                Some((cname, target)) if follow && kind != RecordKind::Cname => {
                    answers.push(cname);
                    owner = target;
                }
                _ => break,
            }
        }
        let mut authority = Vec::new();
        if answers.is_empty()
            && let Some((zone, servers)) = self.zone_of(name)
        {
            let soa = DnsRecord { owner: zone.clone(), ttl: 300, data: RecordData::Soa };
            match kind {
                RecordKind::Soa if zone == name => answers.push(soa),
                RecordKind::Ns if zone == name => {
                    answers.extend(servers.iter().map(|server| DnsRecord {
                        owner: zone.clone(),
                        ttl: 300,
                        data: RecordData::Ns(host_of(*server)),
                    }));
                }
                _ => authority.push(soa),
            }
        }
        DnsReply { code: ReplyCode::NoError, authoritative: true, answers, authority }
    }
}

/// The name of the nameserver at an address.
fn host_of(address: IpAddr) -> String {
    format!("ns-{}.dns.net", address.to_string().replace(['.', ':'], "-"))
}

#[async_trait]
impl Dns for FakeDns {
    async fn recurse(&self, name: &str, kind: RecordKind) -> Result<DnsReply, NoAnswer> {
        let mut state = self.state.lock();
        state.asked.push((None, name.to_owned(), kind));
        let is_silent = |zone: &String| name == zone || name.ends_with(&format!(".{zone}"));
        if state.resolver_down || state.silent.iter().any(is_silent) {
            return Err(NoAnswer::Timeout);
        }
        if let Some(address) = name.strip_prefix("ns-").and_then(|rest| rest.strip_suffix(".dns.net")) {
            let answers = match (address.replace('-', ".").parse::<std::net::Ipv4Addr>(), kind) {
                (Ok(v4), RecordKind::A) => {
                    vec![DnsRecord { owner: name.to_owned(), ttl: 300, data: RecordData::A(v4) }]
                }
                _ => Vec::new(),
            };
            return Ok(DnsReply { code: ReplyCode::NoError, authoritative: false, answers, authority: Vec::new() });
        }
        let first = state.zone_of(name).and_then(|(_, servers)| servers.first().copied());
        Ok(state.lookup(first, name, kind, true))
    }

    async fn ask(&self, server: IpAddr, name: &str, kind: RecordKind) -> Result<DnsReply, NoAnswer> {
        let mut state = self.state.lock();
        state.asked.push((Some(server), name.to_owned(), kind));
        let reply = state.lookup(Some(server), name, kind, false);
        match state.behaviour.get(&server).unwrap_or(&Behaviour::Answers) {
            Behaviour::Answers => Ok(reply),
            Behaviour::Silent => Err(NoAnswer::Timeout),
            Behaviour::ServFail => Ok(DnsReply { code: ReplyCode::ServFail, ..reply }),
            Behaviour::Lame => Ok(DnsReply { authoritative: false, ..reply }),
        }
    }
}
