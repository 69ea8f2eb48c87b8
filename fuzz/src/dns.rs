//! Answers of nameservers.

use std::net::{IpAddr, Ipv4Addr};

use async_trait::async_trait;
use chassis::clock::SystemClock;
use contract::hostname::Hostname;
use futures_util::FutureExt as _;
use parking_lot::Mutex;
use verification::caa::CaaIdentity;
use verification::collect::{Subject, collect};
use verification::facts::Claim;
use verification::verdict::{self, Expectation};
use verification::{Dns, DnsConfig, DnsMode, DnsRecord, DnsReply, NoAnswer, RecordData, RecordKind, ReplyCode, wire};

use crate::cut;

/// The domain.
const NAME: &str = "shop.customer.example";

/// The required CNAME target.
const TARGET: &str = "th-target.edge.example";

/// An address of the edge.
const EDGE: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 77);

/// The TXT value that proves ownership, if it is contested or the records are only addresses.
const TEXT: &str = "tollhouse-proof=1";

/// Answers of nameservers: a domain passes only if an answer names its target.
pub fn dns(bytes: &[u8]) {
    let outcome = passes(bytes);
    assert!(outcome.is_some(), "it waits or fails");
    let label = TARGET.split('.').next().unwrap_or_default().as_bytes();
    let leads = |window: &[u8]| window.eq_ignore_ascii_case(label);
    let (_, messages) = cut(bytes);
    let named = messages.windows(label.len()).any(leads) || messages.windows(4).any(|window| window == EDGE.octets());
    assert!(named || outcome == Some(false), "it passes without an answer that leads to the edge");
}

/// Whether the domain passes. The first byte selects the question, the others are the answers. `None` if the work waits
/// or fails.
pub fn passes(bytes: &[u8]) -> Option<bool> {
    let (choice, messages) = cut(bytes);
    let case = Case { authoritative: choice & 1 != 0, contested: choice & 2 != 0, caa: choice & 4 != 0 };
    alone(verify(case, messages)).flatten()
}

/// The result of work that never waits.
fn alone<T>(work: impl Future<Output = T>) -> Option<T> {
    thread_local! {
        static RUNTIME: Option<tokio::runtime::Runtime> =
            tokio::runtime::Builder::new_current_thread().enable_time().build().ok();
    }
    RUNTIME.with(|runtime| {
        let _entered = runtime.as_ref()?.enter();
        work.now_or_never()
    })
}

/// The kind of verification.
#[derive(Clone, Copy, Debug)]
struct Case {
    /// Query the zone's nameservers, not a resolver.
    authoritative: bool,
    /// Another project has the domain.
    contested: bool,
    /// The authorities check CAA.
    caa: bool,
}

/// Whether the domain passes if its queries are answered with these messages, each after two bytes with its length. A
/// query gets the first remaining message that repeats it, else the first that repeats no query, else no answer.
/// Queries about the target are answered correctly. `None` if a name of this module is invalid, or the result cannot be
/// serialised.
async fn verify(case: Case, messages: &[u8]) -> Option<bool> {
    let name = Hostname::parse(NAME).ok()?;
    let (registrable, target) = (Hostname::parse("customer.example").ok()?, Hostname::parse(TARGET).ok()?);
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
    serde_json::to_string(&verdict::checks(&facts, &expected, &judged, 0)).ok()?;
    serde_json::to_string(&judged.problems).ok()?;
    Some(judged.passes())
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
    fn next(&self, name: &str, kind: RecordKind) -> Result<DnsReply, NoAnswer> {
        let mut left = self.0.lock();
        let of = |wanted: Option<bool>| left.iter().position(|message| wire::repeats(message, name, kind) == wanted);
        let place = of(Some(true)).or_else(|| of(None)).ok_or(NoAnswer::Timeout)?;
        let message = left.remove(place);
        drop(left);
        wire::read(message)
    }
}

#[async_trait]
impl Dns for Answers<'_> {
    async fn recurse(&self, name: &str, kind: RecordKind) -> Result<DnsReply, NoAnswer> {
        if name != TARGET {
            return self.next(name, kind);
        }
        let record = DnsRecord { owner: name.to_owned(), ttl: 60, data: RecordData::A(EDGE) };
        let answers = if kind == RecordKind::A { vec![record] } else { Vec::new() };
        Ok(DnsReply { code: ReplyCode::NoError, authoritative: false, answers, authority: Vec::new() })
    }

    async fn ask(&self, _server: IpAddr, name: &str, kind: RecordKind) -> Result<DnsReply, NoAnswer> {
        self.next(name, kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn addresses_of_the_edge_pass_only_with_the_text() {
        let case = Case { authoritative: false, contested: false, caa: false };
        let apex: &[u8] = include_bytes!("../corpus/dns/apex");
        let proven: &[u8] = include_bytes!("../corpus/dns/apex-proven");
        // The first byte selects the case.
        assert_eq!(verify(case, &apex[1..]).await, Some(false));
        assert_eq!(verify(case, &proven[1..]).await, Some(true));
    }
}
