//! Finds the zone of a name and its nameservers.
//!
//! A cache may hold old nameservers, so the nameservers of the parent zone are queried for the current ones. If they do
//! not answer, the resolver's answer counts.

use std::net::IpAddr;

use futures_util::future::join_all;

use super::{Role, Subject, Verification, ancestors, is_at_or_above, of_name, values};
use crate::DnsMode;
use crate::facts::{NoAnswer, Zone};
use crate::networks::is_public;
use crate::{DnsRecord, RecordData, RecordKind};

/// Nameservers queried per domain.
const NAMESERVERS_MAX: usize = 6;

/// Nameserver addresses queried per domain: two each with few nameservers, one each with many.
const SERVERS_MAX: usize = 6;

/// Nameservers of the parent zone that are queried.
const PARENT_SERVERS_MAX: usize = 2;

/// A nameserver of a zone.
pub(super) struct Nameserver {
    pub(super) host: String,
    pub(super) address: Result<IpAddr, NoAnswer>,
}

/// The zone from which the domain's zone is delegated.
pub(super) struct Parent {
    pub(super) apex: String,
    pub(super) servers: Vec<Nameserver>,
}

/// The location of the domain in DNS.
pub(super) struct ZoneServers {
    pub(super) zone: Zone,
    pub(super) servers: Vec<Nameserver>,
    pub(super) parent: Option<Parent>,
}

impl ZoneServers {
    fn nowhere(zone: Zone) -> Self {
        Self { zone, servers: Vec::new(), parent: None }
    }
}

impl Verification<'_> {
    /// Finds the name's zone and its nameservers.
    pub(super) async fn zone_and_servers(&self, subject: &Subject<'_>) -> ZoneServers {
        let zone = match self.zone_of(subject).await {
            Ok(Some(zone)) => zone,
            Ok(None) => return ZoneServers::nowhere(Zone::Missing),
            Err(why) => return ZoneServers::nowhere(Zone::Unknown(why)),
        };
        if self.config.mode == DnsMode::Recursive {
            // The resolver replaces all nameservers.
            let resolver = Nameserver { host: "resolver".to_owned(), address: Err(NoAnswer::NoAddress) };
            return ZoneServers { zone: Zone::Is(zone), servers: vec![resolver], parent: None };
        }
        let (kept, parent) = tokio::join!(self.recurse(&zone, RecordKind::Ns), self.parent_of(&zone));
        let mut hosts = match &parent {
            Some(parent) => self.delegation(parent, &zone).await,
            None => Vec::new(),
        };
        if hosts.is_empty() {
            hosts = match kept {
                Ok(reply) => hosts_in(&reply.answers, &zone),
                Err(why) => return ZoneServers::nowhere(Zone::Unknown(why)),
            };
        }
        hosts.truncate(NAMESERVERS_MAX);
        if hosts.is_empty() {
            return ZoneServers::nowhere(Zone::Unknown(NoAnswer::Lame));
        }
        let each = if hosts.len() * 2 > SERVERS_MAX { 1 } else { 2 };
        let servers = join_all(hosts.into_iter().map(|host| self.nameserver(host, each))).await;
        ZoneServers { zone: Zone::Is(zone), servers: servers.into_iter().flatten().collect(), parent }
    }

    /// The name of the zone, from the SOA record of the answer or of the negative answer. `None`: the domain does not
    /// exist.
    async fn zone_of(&self, subject: &Subject<'_>) -> Result<Option<String>, NoAnswer> {
        let (name, registrable) = (subject.name.as_str(), subject.registrable.as_str());
        let reply = self.recurse(name, RecordKind::Soa).await?;
        let soa = |record: &&DnsRecord| record.data == RecordData::Soa;
        // Only a SOA of the name itself makes it an apex: a SOA after a CNAME belongs to another name.
        if reply.answers.iter().filter(soa).any(|record| record.owner == name) {
            return Ok(Some(name.to_owned()));
        }
        // After a CNAME, the negative answer comes from the target's zone. Some resolvers, such as systemd's, omit it.
        let followed = reply.answers.iter().any(|record| matches!(record.data, RecordData::Cname(_)));
        let denial = reply.authority.iter().find(soa).map(|record| record.owner.clone());
        match denial.filter(|zone| !followed && is_at_or_above(zone, name)) {
            // A negative answer from the registry's own zone: the domain itself does not exist.
            Some(zone) => Ok(is_at_or_above(registrable, &zone).then_some(zone)),
            None => self.zone_above(name, registrable).await,
        }
    }

    /// The closest ancestor of the name that is the apex of a zone.
    async fn zone_above(&self, name: &str, registrable: &str) -> Result<Option<String>, NoAnswer> {
        for above in ancestors(name).take_while(|above| is_at_or_above(registrable, above)) {
            let reply = self.recurse(above, RecordKind::Soa).await?;
            if of_name(&reply.answers, above).any(|record| record.data == RecordData::Soa) {
                return Ok(Some(above.to_owned()));
            }
        }
        Ok(None)
    }

    /// The parent zone and some of its nameservers; `None` if it cannot be found.
    async fn parent_of(&self, zone: &str) -> Option<Parent> {
        for above in ancestors(zone) {
            let mut hosts = hosts_in(&self.recurse(above, RecordKind::Ns).await.ok()?.answers, above);
            if !hosts.is_empty() {
                hosts.truncate(PARENT_SERVERS_MAX);
                let servers = join_all(hosts.into_iter().map(|host| self.nameserver(host, 1))).await;
                return Some(Parent { apex: above.to_owned(), servers: servers.into_iter().flatten().collect() });
            }
        }
        None
    }

    /// The nameservers listed by the parent zone; empty if it does not answer.
    async fn delegation(&self, parent: &Parent, zone: &str) -> Vec<String> {
        let referral = self.first(&parent.servers, zone, RecordKind::Ns, Role::Refers).await;
        // A referral lists them in the authority section; a server of both zones lists them in the answer.
        referral.map_or_else(|_| Vec::new(), |reply| hosts_in(reply.answers.iter().chain(&reply.authority), zone))
    }

    async fn nameserver(&self, host: String, addresses_max: usize) -> Vec<Nameserver> {
        let addresses = self.addresses(&host, addresses_max).await;
        let allowed = |address: &IpAddr| self.config.allow_private_nameservers || is_public(*address);
        let addresses: Vec<IpAddr> = addresses.into_iter().filter(allowed).collect();
        // One address of each family rather than two of one, because their failures are independent.
        let of = |v6: bool| addresses.iter().copied().filter(move |address| address.is_ipv6() == v6);
        let chosen: Vec<IpAddr> =
            of(false).take(1).chain(of(true)).chain(of(false).skip(1)).take(addresses_max).collect();
        if chosen.is_empty() {
            return vec![Nameserver { host, address: Err(NoAnswer::NoAddress) }];
        }
        chosen.into_iter().map(|address| Nameserver { host: host.clone(), address: Ok(address) }).collect()
    }

    /// The addresses of a name, IPv4 first, because more machines can reach those. If one suffices, IPv6 is queried
    /// only if there is no IPv4 address.
    pub(super) async fn addresses(&self, name: &str, wanted: usize) -> Vec<IpAddr> {
        let v4 = async { self.recurse(name, RecordKind::A).await.map(|reply| values(&reply.answers, RecordData::v4)) };
        let v6 =
            async { self.recurse(name, RecordKind::Aaaa).await.map(|reply| values(&reply.answers, RecordData::v6)) };
        let (v4, v6) = if wanted > 1 {
            tokio::join!(v4, v6)
        } else {
            match v4.await {
                Ok(found) if !found.is_empty() => (Ok(found), Ok(Vec::new())),
                none => (none, v6.await),
            }
        };
        let (v4, v6) = (v4.unwrap_or_default(), v6.unwrap_or_default());
        v4.into_iter().map(IpAddr::V4).chain(v6.into_iter().map(IpAddr::V6)).collect()
    }
}

/// The nameservers of a zone in these records.
fn hosts_in<'a>(records: impl IntoIterator<Item = &'a DnsRecord>, zone: &'a str) -> Vec<String> {
    let mut hosts = values(of_name(records, zone), RecordData::nameserver);
    hosts.sort();
    hosts.dedup();
    hosts
}
