//! Queries DNS about a domain, in the right order and within bounds.
//!
//! All of the customer's own nameservers are queried, not a cache, so that a new record is seen at once and partial
//! propagation is detected. Customers choose their nameservers and the addresses, so the number of queried nameservers
//! is bounded, and private addresses never receive a packet. A failed query becomes a fact, not an error.

mod elsewhere;
mod zone;

use std::iter;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use chassis::clock::Clock;
use contract::hostname::Hostname;
use futures_util::future::join_all;
use tokio::time::Instant;

use self::zone::{Nameserver, Parent, ZoneServers};
use super::facts::{CaaLevel, Claim, DnsAnswer, DnsFacts, NoAnswer, ServerFacts, Zone};
use super::race::first_good;
use super::{CaaRecord, Dns, DnsRecord, DnsReply, RecordData, RecordKind, ReplyCode};
use crate::TEXT_LABEL;
use crate::{DnsConfig, DnsMode};

/// Queries per verification; further ones count as unanswered. A name of seven labels in a zone of six nameservers
/// needs about 60.
const QUERIES_MAX: u32 = 80;

/// The longest duration of a verification. Open queries then count as unanswered; received answers count.
const TIME_MAX: Duration = Duration::from_secs(7);

/// After this long without an answer, another nameserver with the same data is queried too.
const NEXT_SERVER_AFTER: Duration = Duration::from_millis(700);

/// The subject of a verification.
pub struct Subject<'a> {
    /// The domain.
    pub name: &'a Hostname,
    /// The part registered with a public registry: below it a missing zone means a missing record, at it a missing
    /// domain.
    pub registrable: &'a Hostname,
    /// The project's CNAME target.
    pub target: &'a Hostname,
    /// The state of the ownership, which decides whether the TXT record is queried.
    pub claim: Claim,
    /// Whether to query CAA.
    pub caa: bool,
}

/// Runs all queries. Always returns within `TIME_MAX`; unanswered queries become unknown facts.
pub async fn collect(dns: &dyn Dns, config: &DnsConfig, clock: &dyn Clock, subject: &Subject<'_>) -> DnsFacts {
    let started = clock.monotonic();
    let until = Instant::now() + TIME_MAX;
    let asking = Verification { dns, config, queries: AtomicU32::new(0), answered: AtomicBool::new(false), until };
    let mut facts = asking.run(subject).await;
    facts.resolver_answers = asking.answered.load(Ordering::Relaxed);
    facts.queries = asking.queries.load(Ordering::Relaxed);
    facts.duration_ms = u64::try_from(clock.monotonic().saturating_sub(started).as_millis()).unwrap_or(u64::MAX);
    facts
}

/// The expected role of a nameserver.
#[derive(Clone, Copy)]
enum Role {
    /// Authoritative: it must know the answer.
    Knows,
    /// Parent: it may refer to other nameservers.
    Refers,
}

/// One verification in progress.
struct Verification<'a> {
    dns: &'a dyn Dns,
    config: &'a DnsConfig,
    queries: AtomicU32,
    /// Whether a resolver answered any question: those about our own target do not depend on the customer's servers.
    answered: AtomicBool,
    until: Instant,
}

impl Verification<'_> {
    async fn run(&self, subject: &Subject<'_>) -> DnsFacts {
        let asked = async {
            let ZoneServers { zone, servers, parent } = self.zone_and_servers(subject).await;
            let answers = async {
                let answers = self.ask_all(&servers, &zone, subject).await;
                let doubled = self.doubled(&answers, &zone, &servers, subject).await;
                (answers, doubled)
            };
            let ((answers, doubled), texts, caa) = tokio::join!(
                answers,
                self.texts(subject, &zone, &servers),
                self.caa(subject, &zone, &servers, parent.as_ref()),
            );
            (zone, answers, doubled, texts, caa)
        };
        let (target_addresses, chain, (zone, answers, doubled, texts, caa)) =
            tokio::join!(self.addresses(subject.target.as_str(), 2), self.chain(subject.name.as_str()), asked);
        DnsFacts {
            zone,
            servers: answers,
            chain,
            doubled,
            target_addresses,
            texts,
            caa,
            resolver_answers: false,
            resolver: self.config.mode.as_str(),
            queries: 0,
            duration_ms: 0,
        }
    }

    /// Queries all nameservers. If no IPv6 address answered, an IPv6 failure does not count against a nameserver that
    /// has another address: the control plane may lack IPv6.
    async fn ask_all(&self, servers: &[Nameserver], zone: &Zone, subject: &Subject<'_>) -> Vec<ServerFacts> {
        let mut answers = join_all(servers.iter().map(|server| self.ask_about(server, zone, subject))).await;
        let is_v6 = |facts: &ServerFacts| facts.ip.is_some_and(|ip| ip.is_ipv6());
        let answered =
            |facts: &ServerFacts| !matches!(facts.cname, DnsAnswer::Failed(NoAnswer::Timeout | NoAnswer::Unreachable));
        let has_v6 = answers.iter().any(|facts| is_v6(facts) && answered(facts));
        let answering: Vec<String> =
            answers.iter().filter(|facts| answered(facts)).map(|facts| facts.host.clone()).collect();
        if !has_v6 && !answering.is_empty() {
            answers.retain(|facts| answered(facts) || !is_v6(facts) || !answering.contains(&facts.host));
            for facts in answers.iter_mut().filter(|facts| is_v6(facts)) {
                facts.cname = DnsAnswer::Failed(NoAnswer::Unreachable);
            }
        }
        answers.sort_by(|left, right| left.host.cmp(&right.host));
        answers
    }

    /// Queries one nameserver: the CNAME first, because a query for addresses would follow it.
    async fn ask_about(&self, server: &Nameserver, zone: &Zone, subject: &Subject<'_>) -> ServerFacts {
        let name = subject.name.as_str();
        let mut facts = ServerFacts {
            host: server.host.clone(),
            ip: server.address.ok(),
            cname: DnsAnswer::Nothing,
            a: Vec::new(),
            aaaa: Vec::new(),
            ttl: None,
            wildcard: None,
        };
        let reply = match self.ask(server, name, RecordKind::Cname).await {
            Ok(reply) => reply,
            Err(why) => return ServerFacts { cname: DnsAnswer::Failed(why), ..facts },
        };
        let cname = of_name(&reply.answers, name).find_map(|record| Some((record.data.cname()?, record.ttl)));
        if let Some((target, ttl)) = cname {
            if target != subject.target.as_str() {
                facts.wildcard = self.wildcard(server, zone, name, RecordKind::Cname, &reply).await;
            }
            return ServerFacts { cname: DnsAnswer::Is(target), ttl: Some(ttl), ..facts };
        }
        let (v4, v6) = tokio::join!(self.ask(server, name, RecordKind::A), self.ask(server, name, RecordKind::Aaaa));
        match (v4, v6) {
            (Ok(v4), Ok(v6)) => {
                facts.ttl = v4.answers.first().or(v6.answers.first()).map(|record| record.ttl);
                facts.a = values(of_name(&v4.answers, name), RecordData::v4);
                facts.aaaa = values(of_name(&v6.answers, name), RecordData::v6);
                let (kind, seen) = if facts.a.is_empty() { (RecordKind::Aaaa, &v6) } else { (RecordKind::A, &v4) };
                facts.wildcard = self.wildcard(server, zone, name, kind, seen).await;
            }
            (Err(why), _) | (_, Err(why)) => facts.cname = DnsAnswer::Failed(why),
        }
        facts
    }

    /// Queries the ownership TXT records.
    async fn texts(
        &self,
        subject: &Subject<'_>,
        zone: &Zone,
        servers: &[Nameserver],
    ) -> Option<DnsAnswer<Vec<String>>> {
        let is_apex = matches!(zone, Zone::Is(zone) if zone == subject.name.as_str());
        if !subject.claim.may_ask_for_text(is_apex) {
            return None;
        }
        let place = format!("{TEXT_LABEL}.{}", subject.name);
        let reply = match self.first(servers, &place, RecordKind::Txt, Role::Knows).await {
            Ok(reply) => reply,
            Err(why) => return Some(DnsAnswer::Failed(why)),
        };
        let texts = values(&reply.answers, RecordData::text);
        Some(if texts.is_empty() { DnsAnswer::Nothing } else { DnsAnswer::Is(texts) })
    }

    /// The names of the domain's CNAME chain, as a resolver follows it.
    async fn chain(&self, name: &str) -> Vec<String> {
        let Ok(reply) = self.recurse(name, RecordKind::A).await else { return Vec::new() };
        let mut chain: Vec<String> = Vec::new();
        // The chain is at most as long as the answer's records, so a loop ends too.
        for _ in 0..reply.answers.len() {
            let end = chain.last().map_or(name, String::as_str);
            let Some(next) = of_name(&reply.answers, end).find_map(|record| record.data.cname()) else { break };
            chain.push(next);
        }
        chain
    }

    /// Queries the CAA records of the name and all its ancestors concurrently: those of its zone and of the parent zone
    /// at their nameservers, so that a recent change is seen.
    async fn caa(
        &self,
        subject: &Subject<'_>,
        zone: &Zone,
        servers: &[Nameserver],
        parent: Option<&Parent>,
    ) -> Vec<CaaLevel> {
        if !subject.caa {
            return Vec::new();
        }
        let name = subject.name.as_str();
        let levels = iter::once(name).chain(ancestors(name)).map(|name| async move {
            let servers = match (zone, parent) {
                (Zone::Is(zone), _) if is_at_or_above(zone, name) => servers,
                (_, Some(parent)) if is_at_or_above(&parent.apex, name) => &parent.servers,
                _ => &[],
            };
            CaaLevel { name: name.to_owned(), records: self.caa_at(name, servers).await }
        });
        join_all(levels).await
    }

    /// The CAA records of one name, from its nameservers, else from a resolver.
    async fn caa_at(&self, name: &str, servers: &[Nameserver]) -> Result<Vec<CaaRecord>, NoAnswer> {
        let asked = self.first(servers, name, RecordKind::Caa, Role::Knows).await;
        let caa_in = |reply: &DnsReply| values(&reply.answers, RecordData::caa);
        let Ok(reply) = asked else { return Ok(caa_in(&self.recurse(name, RecordKind::Caa).await?)) };
        let found = caa_in(&reply);
        match reply.answers.iter().rev().find_map(|record| record.data.cname()) {
            // The records of a CNAME's target count as the name's own.
            Some(target) if found.is_empty() => Ok(caa_in(&self.recurse(&target, RecordKind::Caa).await?)),
            _ => Ok(found),
        }
    }

    /// The first usable answer of servers with the same data.
    async fn first(
        &self,
        servers: &[Nameserver],
        name: &str,
        kind: RecordKind,
        from: Role,
    ) -> Result<DnsReply, NoAnswer> {
        let try_one = |server| async move {
            match from {
                Role::Knows => self.ask(server, name, kind).await,
                Role::Refers => self.refer(server, name, kind).await,
            }
        };
        let tries: Vec<_> = servers.iter().map(try_one).collect();
        let answer = first_good(tries, NEXT_SERVER_AFTER, Result::is_ok).await;
        answer.unwrap_or_else(|failed| failed.into_iter().next().unwrap_or(Err(NoAnswer::NoAddress)))
    }

    /// The result of a query within the remaining time, unless the limit of queries is reached.
    async fn within(&self, asking: impl Future<Output = Result<DnsReply, NoAnswer>>) -> Result<DnsReply, NoAnswer> {
        if self.queries.fetch_add(1, Ordering::Relaxed) >= QUERIES_MAX {
            return Err(NoAnswer::Timeout);
        }
        tokio::time::timeout_at(self.until, asking).await.unwrap_or(Err(NoAnswer::Timeout))
    }

    async fn recurse(&self, name: &str, kind: RecordKind) -> Result<DnsReply, NoAnswer> {
        let reply = self.within(self.dns.recurse(name, kind)).await?;
        if reply.is_answer() || reply.code == ReplyCode::Bogus {
            self.answered.store(true, Ordering::Relaxed);
        }
        match reply.code {
            ReplyCode::NoError | ReplyCode::NoSuchName => Ok(reply),
            ReplyCode::Bogus => Err(NoAnswer::Bogus),
            ReplyCode::Refused | ReplyCode::ServFail | ReplyCode::Other => Err(NoAnswer::ServFail),
        }
    }

    /// Queries an authoritative nameserver.
    async fn ask(&self, server: &Nameserver, name: &str, kind: RecordKind) -> Result<DnsReply, NoAnswer> {
        if self.config.mode == DnsMode::Recursive {
            return self.recurse(name, kind).await;
        }
        let reply = self.refer(server, name, kind).await?;
        if reply.authoritative { Ok(reply) } else { Err(NoAnswer::Lame) }
    }

    /// Queries a nameserver that may refer to another.
    async fn refer(&self, server: &Nameserver, name: &str, kind: RecordKind) -> Result<DnsReply, NoAnswer> {
        let reply = self.within(self.dns.ask(server.address?, name, kind)).await?;
        match reply.code {
            ReplyCode::NoError | ReplyCode::NoSuchName => Ok(reply),
            ReplyCode::Refused => Err(NoAnswer::Lame),
            ReplyCode::ServFail | ReplyCode::Bogus | ReplyCode::Other => Err(NoAnswer::ServFail),
        }
    }
}

/// The records of a name.
fn of_name<'a>(records: impl IntoIterator<Item = &'a DnsRecord>, name: &'a str) -> impl Iterator<Item = &'a DnsRecord> {
    records.into_iter().filter(move |record| record.owner == name)
}

/// The contents of the records of one kind.
fn values<'a, T>(records: impl IntoIterator<Item = &'a DnsRecord>, of_kind: fn(&RecordData) -> Option<T>) -> Vec<T> {
    records.into_iter().filter_map(|record| of_kind(&record.data)).collect()
}

/// The ancestors of a name, the closest first.
fn ancestors(name: &str) -> impl Iterator<Item = &str> {
    iter::successors(Some(name), |name| name.split_once('.').map(|(_, parent)| parent)).skip(1)
}

/// The records of a name, in an order independent of the nameserver's.
fn records_of(reply: &DnsReply, name: &str) -> Vec<String> {
    let mut said: Vec<String> = of_name(&reply.answers, name).map(|record| format!("{:?}", record.data)).collect();
    said.sort();
    said
}

fn is_at_or_above(ancestor: &str, name: &str) -> bool {
    name.strip_suffix(ancestor).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}

#[cfg(test)]
mod tests;
