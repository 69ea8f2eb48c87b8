//! Records at other names that explain those of the domain: a wildcard that answers for it, or its record with the
//! zone's name added once more.

use super::zone::Nameserver;
use super::{Role, Subject, Verification, ancestors, is_at_or_above, of_name, records_of};
use crate::facts::{DnsAnswer, ServerFacts, Zone};
use crate::{DnsReply, RecordData, RecordKind};

/// A label below a domain that should not exist: if it has records, they come from a wildcard.
const WILDCARD_PROBE_LABEL: &str = "tollhouse-asks-for-wildcards";

impl Verification<'_> {
    /// The wildcard that the records come from, if the name has no records of its own: then a non-existent name below
    /// it has the same records.
    pub(super) async fn wildcard(
        &self,
        server: &Nameserver,
        zone: &Zone,
        name: &str,
        kind: RecordKind,
        seen: &DnsReply,
    ) -> Option<String> {
        let Zone::Is(zone) = zone else { return None };
        let seen = records_of(seen, name);
        if seen.is_empty() || zone == name {
            return None;
        }
        let probe = format!("{WILDCARD_PROBE_LABEL}.{name}");
        if records_of(&self.ask(server, &probe, kind).await.ok()?, &probe) != seen {
            return None;
        }
        for above in ancestors(name).take_while(|above| is_at_or_above(zone, above)) {
            let owner = format!("*.{above}");
            if !records_of(&self.ask(server, &owner, kind).await.ok()?, &owner).is_empty() {
                return Some(owner);
            }
        }
        None
    }

    /// The name with its zone added once more, if the CNAME is there and the name itself has no record: a slip in a
    /// provider's form.
    pub(super) async fn doubled(
        &self,
        answers: &[ServerFacts],
        zone: &Zone,
        servers: &[Nameserver],
        subject: &Subject<'_>,
    ) -> Option<String> {
        let Zone::Is(zone) = zone else { return None };
        let has_none =
            |facts: &ServerFacts| facts.cname == DnsAnswer::Nothing && facts.a.is_empty() && facts.aaaa.is_empty();
        if answers.is_empty() || !answers.iter().all(has_none) {
            return None;
        }
        let doubled = format!("{}.{zone}", subject.name);
        let reply = self.first(servers, &doubled, RecordKind::Cname, Role::Knows).await.ok()?;
        let target = RecordData::Cname(subject.target.to_string());
        let leads_here = of_name(&reply.answers, &doubled).any(|record| record.data == target);
        leads_here.then_some(doubled)
    }
}
