//! Nameserver answers as functions of bytes, for the fuzzing crate. The running service does not use this module.

use std::net::{IpAddr, Ipv4Addr};

use async_trait::async_trait;
use chassis::clock::SystemClock;
use contract::hostname::Hostname;
use parking_lot::Mutex;

use super::caa::CaaIdentity;
use super::collect::{Subject, collect};
use super::facts::Claim;
use super::verdict::{self, Expectation};
use super::{Dns, DnsFailure, DnsRecord, DnsReply, RecordData, RecordKind, ReplyCode, wire};
use crate::{DnsConfig, DnsMode};

/// The domain.
pub const NAME: &str = "shop.customer.example";

/// The required CNAME target.
pub const TARGET: &str = "th-target.edge.example";

/// An address of the edge.
pub const EDGE: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 77);

/// The TXT value that proves ownership, if it is contested or the records are only addresses.
pub const TEXT: &str = "tollhouse-proof=1";

/// The kind of verification.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// Query the zone's nameservers, not a resolver.
    pub authoritative: bool,
    /// Another project has the domain.
    pub contested: bool,
    /// The authorities check CAA.
    pub caa: bool,
}

/// Whether the domain passes if its queries are answered with these messages, each after two bytes with its length. A
/// query gets the first remaining message that repeats it, else the first that repeats no query, else no answer.
/// Queries about the target are answered correctly.
///
/// # Errors
/// If a name of this module is invalid, or the result cannot be serialised.
pub async fn passes(case: Case, messages: &[u8]) -> anyhow::Result<bool> {
    let name = Hostname::parse(NAME)?;
    let (registrable, target) = (Hostname::parse("customer.example")?, Hostname::parse(TARGET)?);
    let mode = if case.authoritative { DnsMode::Authoritative } else { DnsMode::Recursive };
    let config = DnsConfig { mode, ..DnsConfig::default() };
    let authority = CaaIdentity {
        domain: "ca.example".to_owned(),
        account_uri: Some("https://ca.example/account/1".to_owned()),
        methods: vec!["http-01".to_owned()],
    };
    let authorities = if case.caa { vec![authority] } else { Vec::new() };
    let answers = Answers(Mutex::new(split(messages)));
    let claim = if case.contested { Claim::Contested } else { Claim::Open };
    let subject = Subject { name: &name, registrable: &registrable, target: &target, claim, caa: case.caa };
    let facts = collect(&answers, &config, &SystemClock::new(), &subject).await;
    let expected = Expectation {
        name: &name,
        target: &target,
        edge: &[IpAddr::V4(EDGE)],
        text: TEXT,
        claim,
        authorities: &authorities,
    };
    let judged = verdict::judge(&facts, &expected);
    serde_json::to_string(&verdict::checks(&facts, &expected, &judged, 0))?;
    serde_json::to_string(&judged.problems)?;
    Ok(judged.passes())
}

/// Splits into messages, each after its length.
fn split(mut messages: &[u8]) -> Vec<&[u8]> {
    let mut all = Vec::new();
    while let Some((length, rest)) = messages.split_first_chunk() {
        let (message, rest) = rest.split_at(usize::from(u16::from_be_bytes(*length)).min(rest.len()));
        all.push(message);
        messages = rest;
    }
    all
}

/// A DNS that answers with the given messages.
struct Answers<'a>(Mutex<Vec<&'a [u8]>>);

impl Answers<'_> {
    fn next(&self, name: &str, kind: RecordKind) -> Result<DnsReply, DnsFailure> {
        let mut left = self.0.lock();
        let of = |wanted: Option<bool>| left.iter().position(|message| wire::repeats(message, name, kind) == wanted);
        let place = of(Some(true)).or_else(|| of(None)).ok_or(DnsFailure::Timeout)?;
        let message = left.remove(place);
        drop(left);
        wire::read(message)
    }
}

#[async_trait]
impl Dns for Answers<'_> {
    async fn recurse(&self, name: &str, kind: RecordKind) -> Result<DnsReply, DnsFailure> {
        if name != TARGET {
            return self.next(name, kind);
        }
        let record = DnsRecord { owner: name.to_owned(), ttl: 60, data: RecordData::A(EDGE) };
        let answers = if kind == RecordKind::A { vec![record] } else { Vec::new() };
        Ok(DnsReply { code: ReplyCode::NoError, authoritative: false, answers, authority: Vec::new() })
    }

    async fn ask(&self, _server: IpAddr, name: &str, kind: RecordKind) -> Result<DnsReply, DnsFailure> {
        self.next(name, kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn addresses_of_the_edge_pass_only_with_the_text() {
        let case = Case { authoritative: false, contested: false, caa: false };
        let apex: &[u8] = include_bytes!("../../fuzz/corpus/dns/apex");
        let proven: &[u8] = include_bytes!("../../fuzz/corpus/dns/apex-proven");
        // The first byte selects the case.
        assert!(!passes(case, &apex[1..]).await.unwrap());
        assert!(passes(case, &proven[1..]).await.unwrap());
    }
}
