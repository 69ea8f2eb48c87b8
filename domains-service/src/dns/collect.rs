//! Asking DNS about a domain, in the right order and within bounds.
//!
//! The customer's own nameservers are asked, all of them, rather than a cache: the record is seen at once, partial
//! propagation is seen as such. Nameservers and their addresses are the customer's choice, so there is a limit to how
//! many are asked, and private addresses are never sent anything. What cannot be asked becomes a fact, never an error.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use chassis::clock::Clock;
use contract::hostname::Hostname;
use futures_util::future::join_all;

use super::facts::{Answer, CaaLevel, DnsFacts, ServerFacts, Why, Zone};
use super::networks::is_public;
use super::verdict::Claim;
use super::{Dns, DnsFailure, RecordData, RecordKind, Reply, ReplyCode};
use crate::config::{DnsConfig, DnsMode};
use crate::domain::proof::TEXT_LABEL;

/// Nameservers asked per domain.
const NAMESERVERS_MAX: usize = 6;

/// Addresses of nameservers asked per domain: with few nameservers two each, with many one.
const SERVERS_MAX: usize = 6;

/// Questions per verification; what is beyond counts as unanswered.
const QUERIES_MAX: u32 = 48;

/// The longest a verification takes.
const TIME_MAX: Duration = Duration::from_secs(5);

/// What to ask about.
pub(crate) struct Question<'a> {
    pub(crate) name: &'a Hostname,
    /// The part its owner registered: below it a missing zone is a missing record, at it a missing domain.
    pub(crate) registrable: &'a Hostname,
    /// The project's CNAME target.
    pub(crate) target: &'a Hostname,
    /// What is known of the ownership: whether its text is asked for.
    pub(crate) claim: Claim,
    /// Whether CAA matters.
    pub(crate) caa: bool,
}

/// Asks everything. Always answers within [`TIME_MAX`]; what is not known by then is unknown.
pub(crate) async fn collect(dns: &dyn Dns, config: &DnsConfig, clock: &dyn Clock, question: &Question<'_>) -> DnsFacts {
    let started = clock.monotonic();
    let asking = Asking { dns, config, queries: AtomicU32::new(0) };
    let mut facts = match tokio::time::timeout(TIME_MAX, asking.everything(question)).await {
        Ok(facts) => facts,
        Err(_) => unanswered(config),
    };
    facts.queries = asking.queries.load(Ordering::Relaxed);
    facts.duration_ms = u64::try_from(clock.monotonic().saturating_sub(started).as_millis()).unwrap_or(u64::MAX);
    facts
}

fn resolver(config: &DnsConfig) -> &'static str {
    match config.mode {
        DnsMode::Authoritative => "authoritative",
        DnsMode::Recursive => "recursive",
    }
}

fn unanswered(config: &DnsConfig) -> DnsFacts {
    DnsFacts {
        zone: Zone::Unknown(Why::Timeout),
        servers: Vec::new(),
        chain: Vec::new(),
        target_addresses: Vec::new(),
        texts: None,
        caa: Vec::new(),
        resolver: resolver(config),
        queries: 0,
        duration_ms: 0,
    }
}

/// One verification in progress.
struct Asking<'a> {
    dns: &'a dyn Dns,
    config: &'a DnsConfig,
    queries: AtomicU32,
}

/// A nameserver of the zone.
struct Nameserver {
    host: String,
    address: Result<IpAddr, Why>,
}

impl Asking<'_> {
    async fn everything(&self, question: &Question<'_>) -> DnsFacts {
        let ((zone, servers), target_addresses, chain, caa) = tokio::join!(
            self.zone_and_servers(question),
            self.addresses(question.target.as_str()),
            self.chain(question.name.as_str()),
            self.caa(question),
        );
        let asked = servers.iter().map(|server| self.ask_about(server, question.name.as_str()));
        let (mut answers, texts) = tokio::join!(join_all(asked), self.texts(question, &zone, &servers));
        answers.sort_by(|left, right| left.host.cmp(&right.host));
        DnsFacts {
            zone,
            servers: answers,
            chain,
            target_addresses,
            texts,
            caa,
            resolver: resolver(self.config),
            queries: 0,
            duration_ms: 0,
        }
    }

    /// The zone the name lies in, and its nameservers.
    async fn zone_and_servers(&self, question: &Question<'_>) -> (Zone, Vec<Nameserver>) {
        let zone = match self.zone_of(question).await {
            Ok(Some(zone)) => zone,
            Ok(None) => return (Zone::Missing, Vec::new()),
            Err(why) => return (Zone::Unknown(why), Vec::new()),
        };
        if self.config.mode == DnsMode::Recursive {
            // The resolver stands in for all nameservers.
            let address = Err(Why::NoAddress);
            return (Zone::Is(zone), vec![Nameserver { host: "resolver".to_owned(), address }]);
        }
        match self.recurse(&zone, RecordKind::Ns).await {
            Err(why) => (Zone::Unknown(why), Vec::new()),
            Ok(reply) => {
                let mut hosts: Vec<String> = reply
                    .answers
                    .iter()
                    .filter_map(|record| match &record.data {
                        RecordData::Ns(host) => Some(host.clone()),
                        _ => None,
                    })
                    .collect();
                hosts.sort();
                hosts.dedup();
                hosts.truncate(NAMESERVERS_MAX);
                if hosts.is_empty() {
                    return (Zone::Unknown(Why::Lame), Vec::new());
                }
                let each = if hosts.len() * 2 > SERVERS_MAX { 1 } else { 2 };
                let servers = join_all(hosts.into_iter().map(|host| self.nameserver(host, each))).await;
                (Zone::Is(zone), servers.into_iter().flatten().collect())
            }
        }
    }

    /// The name of the zone, from the SOA record of the answer or of its denial. `None`: there is no such domain.
    async fn zone_of(&self, question: &Question<'_>) -> Result<Option<String>, Why> {
        let name = question.name.as_str();
        let reply = self.recurse(name, RecordKind::Soa).await?;
        let soa = |record: &&super::DnsRecord| record.data == RecordData::Soa;
        // Only a SOA of the name itself makes it an apex: one behind a CNAME belongs to another name.
        if reply.answers.iter().filter(soa).any(|record| record.owner == name) {
            return Ok(Some(name.to_owned()));
        }
        // Behind a CNAME the denial is that of the target's zone; the zone of the name is then found from its parents.
        let followed = reply.answers.iter().any(|record| matches!(record.data, RecordData::Cname(_)));
        let denial = reply.authority.iter().find(soa).map(|record| record.owner.clone());
        if let Some(zone) = denial.filter(|zone| !followed && is_at_or_above(zone, name)) {
            let registrable = question.registrable.as_str();
            // A denial by the registry's own zone: the domain itself does not exist.
            return Ok(is_at_or_above(registrable, &zone).then_some(zone));
        }
        if followed {
            return self.zone_above(name, question.registrable.as_str()).await;
        }
        Err(Why::ServFail)
    }

    /// The closest ancestor of the name that is the apex of a zone.
    async fn zone_above(&self, name: &str, registrable: &str) -> Result<Option<String>, Why> {
        let mut candidate = name;
        while let Some((_, parent)) = candidate.split_once('.') {
            if !is_at_or_above(registrable, parent) {
                break;
            }
            let reply = self.recurse(parent, RecordKind::Soa).await?;
            let here = |record: &super::DnsRecord| record.data == RecordData::Soa && record.owner == parent;
            if reply.answers.iter().any(here) {
                return Ok(Some(parent.to_owned()));
            }
            candidate = parent;
        }
        Ok(None)
    }

    async fn nameserver(&self, host: String, addresses_max: usize) -> Vec<Nameserver> {
        let addresses = self.addresses(&host).await;
        let allowed = |address: &IpAddr| self.config.allow_private_nameservers || is_public(*address);
        let addresses: Vec<IpAddr> = addresses.into_iter().filter(allowed).take(addresses_max).collect();
        if addresses.is_empty() {
            return vec![Nameserver { host, address: Err(Why::NoAddress) }];
        }
        addresses.into_iter().map(|address| Nameserver { host: host.clone(), address: Ok(address) }).collect()
    }

    /// The addresses of a name, IPv4 first: more machines can send to those.
    async fn addresses(&self, name: &str) -> Vec<IpAddr> {
        let (v4, v6) = tokio::join!(self.recurse(name, RecordKind::A), self.recurse(name, RecordKind::Aaaa));
        let v4 = v4.map(|reply| addresses_v4(&reply, None)).unwrap_or_default();
        let v6 = v6.map(|reply| addresses_v6(&reply, None)).unwrap_or_default();
        v4.into_iter().map(IpAddr::V4).chain(v6.into_iter().map(IpAddr::V6)).collect()
    }

    /// What one nameserver says: the CNAME first, since asking for addresses would follow it.
    async fn ask_about(&self, server: &Nameserver, name: &str) -> ServerFacts {
        let mut facts = ServerFacts {
            host: server.host.clone(),
            ip: server.address.ok(),
            cname: Answer::Nothing,
            a: Vec::new(),
            aaaa: Vec::new(),
            ttl: None,
        };
        let reply = match self.ask(server, name, RecordKind::Cname).await {
            Ok(reply) => reply,
            Err(why) => return ServerFacts { cname: Answer::Failed(why), ..facts },
        };
        let cname = reply.answers.iter().find_map(|record| match &record.data {
            RecordData::Cname(target) if record.owner == name => Some((target.clone(), record.ttl)),
            _ => None,
        });
        if let Some((target, ttl)) = cname {
            return ServerFacts { cname: Answer::Is(target), ttl: Some(ttl), ..facts };
        }
        let (v4, v6) = tokio::join!(self.ask(server, name, RecordKind::A), self.ask(server, name, RecordKind::Aaaa));
        match (v4, v6) {
            (Ok(v4), Ok(v6)) => {
                facts.ttl = v4.answers.first().or(v6.answers.first()).map(|record| record.ttl);
                facts.a = addresses_v4(&v4, Some(name));
                facts.aaaa = addresses_v6(&v6, Some(name));
            }
            (Err(why), _) | (_, Err(why)) => facts.cname = Answer::Failed(why),
        }
        facts
    }

    /// The ownership texts, from the first nameserver that answers.
    async fn texts(&self, question: &Question<'_>, zone: &Zone, servers: &[Nameserver]) -> Option<Answer<Vec<String>>> {
        let is_apex = matches!(zone, Zone::Is(zone) if zone == question.name.as_str());
        if !question.claim.may_ask_for_text(is_apex) {
            return None;
        }
        let place = format!("{TEXT_LABEL}.{}", question.name);
        let mut answer = Answer::Failed(Why::Timeout);
        for server in servers {
            match self.ask(server, &place, RecordKind::Txt).await {
                Ok(reply) => {
                    let texts = reply.answers.into_iter().filter_map(|record| match record.data {
                        RecordData::Txt(text) => Some(text),
                        _ => None,
                    });
                    let texts: Vec<String> = texts.collect();
                    return Some(if texts.is_empty() { Answer::Nothing } else { Answer::Is(texts) });
                }
                Err(why) => answer = Answer::Failed(why),
            }
        }
        Some(answer)
    }

    /// The names that the CNAME chain of the name leads through, as a resolver follows it.
    async fn chain(&self, name: &str) -> Vec<String> {
        let Ok(reply) = self.recurse(name, RecordKind::A).await else { return Vec::new() };
        let mut chain: Vec<String> = Vec::new();
        // It is at most as long as the answer has records, so a loop ends too.
        for _ in 0..reply.answers.len() {
            let end = chain.last().map_or(name, String::as_str);
            let next = reply.answers.iter().find_map(|record| match &record.data {
                RecordData::Cname(target) if record.owner == end => Some(target.clone()),
                _ => None,
            });
            match next {
                Some(next) => chain.push(next),
                None => break,
            }
        }
        chain
    }

    /// The CAA records of the name and all its ancestors, asked at once.
    async fn caa(&self, question: &Question<'_>) -> Vec<CaaLevel> {
        if !question.caa {
            return Vec::new();
        }
        let name = question.name.as_str();
        let ancestors = std::iter::successors(Some(name), |name| name.split_once('.').map(|(_, parent)| parent));
        let levels = ancestors.map(|name| async move {
            let reply = self.recurse(name, RecordKind::Caa).await;
            let records = reply.map(|reply| {
                let records = reply.answers.into_iter().filter_map(|record| match record.data {
                    RecordData::Caa(caa) => Some(caa),
                    _ => None,
                });
                records.collect()
            });
            CaaLevel { name: name.to_owned(), records }
        });
        join_all(levels).await
    }

    /// Whether one more question may be asked.
    fn count(&self) -> Result<(), Why> {
        let asked = self.queries.fetch_add(1, Ordering::Relaxed);
        if asked < QUERIES_MAX { Ok(()) } else { Err(Why::Timeout) }
    }

    async fn recurse(&self, name: &str, kind: RecordKind) -> Result<Reply, Why> {
        self.count()?;
        usable(self.dns.recurse(name, kind).await)
    }

    async fn ask(&self, server: &Nameserver, name: &str, kind: RecordKind) -> Result<Reply, Why> {
        if self.config.mode == DnsMode::Recursive {
            return self.recurse(name, kind).await;
        }
        self.count()?;
        let reply = self.dns.ask(server.address?, name, kind).await;
        match usable(reply) {
            Ok(reply) if !reply.authoritative => Err(Why::Lame),
            other => other,
        }
    }
}

fn usable(reply: Result<Reply, DnsFailure>) -> Result<Reply, Why> {
    let reply = reply?;
    match reply.code {
        ReplyCode::NoError | ReplyCode::NoSuchName => Ok(reply),
        ReplyCode::Refused => Err(Why::Lame),
        ReplyCode::ServFail | ReplyCode::Other => Err(Why::ServFail),
    }
}

fn is_at_or_above(ancestor: &str, name: &str) -> bool {
    name.strip_suffix(ancestor).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}

fn addresses_v4(reply: &Reply, owner: Option<&str>) -> Vec<Ipv4Addr> {
    let fitting = reply.answers.iter().filter(|record| owner.is_none_or(|owner| record.owner == owner));
    fitting
        .filter_map(|record| match record.data {
            RecordData::A(address) => Some(address),
            _ => None,
        })
        .collect()
}

fn addresses_v6(reply: &Reply, owner: Option<&str>) -> Vec<Ipv6Addr> {
    let fitting = reply.answers.iter().filter(|record| owner.is_none_or(|owner| record.owner == owner));
    fitting
        .filter_map(|record| match record.data {
            RecordData::Aaaa(address) => Some(address),
            _ => None,
        })
        .collect()
}
