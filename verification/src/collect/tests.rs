//! Verifications in worlds with DNS faults.

mod lossy;

use std::net::IpAddr;

use async_trait::async_trait;
use chassis::clock::SystemClock;

use super::*;
use crate::DnsRecord;
use crate::caa::CaaIdentity;
use crate::problem::{Severity, Who};
use crate::verdict::{self, Caa, Expectation, Judgement, Records};

const NAME: &str = "shop.customer.test";
const TARGET: &str = "abcdefgh.edge.tollhouse.dev";
const NEWS: [&str; 2] = ["192.31.196.1", "192.31.196.2"];

/// The answer of a resolver or a nameserver.
pub(super) type Answered = Result<DnsReply, NoAnswer>;
pub(super) struct World<R, S> {
    resolver: R,
    server: S,
}

#[async_trait]
impl<R, S> Dns for World<R, S>
where
    R: Fn(&str, RecordKind) -> Answered + Send + Sync,
    S: Fn(IpAddr, &str, RecordKind) -> Answered + Send + Sync,
{
    async fn recurse(&self, name: &str, kind: RecordKind) -> Answered {
        (self.resolver)(name, kind)
    }

    async fn ask(&self, server: IpAddr, name: &str, kind: RecordKind) -> Answered {
        (self.server)(server, name, kind)
    }
}

pub(super) fn record(owner: &str, data: RecordData) -> DnsRecord {
    DnsRecord { owner: owner.to_owned(), ttl: 300, data }
}

pub(super) fn said(answers: Vec<DnsRecord>) -> DnsReply {
    DnsReply { code: ReplyCode::NoError, authoritative: true, answers, authority: Vec::new() }
}

pub(super) fn denied(zone: &str) -> DnsReply {
    DnsReply { authority: vec![record(zone, RecordData::Soa)], ..said(Vec::new()) }
}

pub(super) fn cname(owner: &str, target: &str) -> DnsRecord {
    record(owner, RecordData::Cname(target.to_owned()))
}

fn ns(zone: &str, hosts: &[&str]) -> Vec<DnsRecord> {
    hosts.iter().map(|host| record(zone, RecordData::Ns((*host).to_owned()))).collect()
}

fn a(owner: &str, address: &str) -> DnsRecord {
    record(owner, RecordData::A(address.parse().unwrap()))
}

/// A resolver's answers about a zone with two nameservers.
pub(super) fn resolver(name: &str, kind: RecordKind) -> DnsReply {
    match (name, kind) {
        ("customer.test", RecordKind::Soa) => said(vec![record(name, RecordData::Soa)]),
        ("customer.test", RecordKind::Ns) => said(ns(name, &["ns1.dns.test", "ns2.dns.test"])),
        ("ns1.dns.test", RecordKind::A) => said(vec![a(name, NEWS[0])]),
        ("ns2.dns.test", RecordKind::A) => said(vec![a(name, NEWS[1])]),
        (TARGET, RecordKind::A) => said(vec![a(name, "203.0.113.10")]),
        (TARGET, _) => denied("tollhouse.dev"),
        _ if name.ends_with(".dns.test") => denied("dns.test"),
        _ => denied("customer.test"),
    }
}

fn identity() -> CaaIdentity {
    CaaIdentity { domain: "ca.example".to_owned(), account_uri: None, methods: vec!["http-01".to_owned()] }
}

pub(super) async fn check(dns: &dyn Dns, config: &DnsConfig, name: &str, delegable: &str) -> (DnsFacts, Judgement) {
    let (name, target) = (name.parse().unwrap(), TARGET.parse().unwrap());
    let registrable = delegable.parse().unwrap();
    let subject = Subject { name: &name, registrable: &registrable, target: &target, claim: Claim::Open, caa: true };
    let facts = collect(dns, config, &SystemClock::new(), &subject).await;
    let authorities = [identity()];
    let expected = Expectation {
        name: &name,
        target: &target,
        edge: &[],
        text: "edge-verify=right",
        claim: Claim::Open,
        authorities: &authorities,
    };
    let judged = verdict::judge(&facts, &expected);
    (facts, judged)
}

async fn seen(
    resolver: impl Fn(&str, RecordKind) -> Answered + Send + Sync,
    server: impl Fn(IpAddr, &str, RecordKind) -> Answered + Send + Sync,
) -> (DnsFacts, Judgement) {
    check(&World { resolver, server }, &DnsConfig::default(), NAME, "customer.test").await
}

fn codes(judged: &Judgement) -> Vec<&str> {
    judged.problems.iter().map(|problem| problem.code.as_str()).collect()
}

fn right(name: &str, kind: RecordKind) -> DnsReply {
    if name == NAME && kind == RecordKind::Cname { said(vec![cname(NAME, TARGET)]) } else { denied("customer.test") }
}

// promise: domains.9
#[tokio::test]
async fn denials_without_a_soa_are_understood() {
    // systemd-resolved omits the authority section.
    let stub = |name: &str, kind| Ok(DnsReply { authority: Vec::new(), ..resolver(name, kind) });
    let (facts, judged) = seen(stub, |_, _, _| Ok(denied("customer.test"))).await;
    assert_eq!(facts.zone, Zone::Is("customer.test".to_owned()));
    assert_eq!((judged.records, codes(&judged)), (Records::Missing, vec!["DNS_NO_RECORD"]));
    let nothing = |_: &str, _| Ok(DnsReply { code: ReplyCode::NoSuchName, ..said(Vec::new()) });
    let (_, judged) = seen(nothing, |_, _, _| Err(NoAnswer::Timeout)).await;
    assert_eq!(codes(&judged), ["DNS_ZONE_MISSING"]);
}

// promise: domains.9
#[tokio::test]
async fn without_ipv6_a_healthy_nameserver_is_not_reported_as_silent() {
    for failure in [NoAnswer::Unreachable, NoAnswer::Timeout] {
        let both = |name: &str, kind| {
            Ok(match (name, kind) {
                ("ns1.dns.test" | "ns2.dns.test", RecordKind::Aaaa) => {
                    said(vec![record(name, RecordData::Aaaa("2620:4f:8000::1".parse().unwrap()))])
                }
                ("ns2.dns.test", RecordKind::A) => denied("dns.test"),
                _ => resolver(name, kind),
            })
        };
        let v4_only =
            |server: IpAddr, name: &str, kind| if server.is_ipv6() { Err(failure) } else { Ok(right(name, kind)) };
        let (facts, judged) = seen(both, v4_only).await;
        assert_eq!((judged.records, codes(&judged)), (Records::Pass, Vec::new()), "{failure}");
        let hosts: Vec<_> = facts.servers.iter().map(|server| (server.host.as_str(), server.cname.clone())).collect();
        let expected = [
            ("ns1.dns.test", DnsAnswer::Is(TARGET.to_owned())),
            ("ns2.dns.test", DnsAnswer::Failed(NoAnswer::Unreachable)),
        ];
        assert_eq!(hosts, expected, "{failure}");
    }
}

// promise: domains.7
#[tokio::test]
async fn the_parent_zones_nameservers_are_queried_despite_a_cache() {
    // The registry has the new servers; the resolver still has the old ones.
    let cache = |name: &str, kind| {
        Ok(match (name, kind) {
            ("customer.test", RecordKind::Ns) => said(ns(name, &["old.dns.test"])),
            ("old.dns.test", RecordKind::A) => said(vec![a(name, "192.31.196.9")]),
            ("test", RecordKind::Ns) => said(ns(name, &["a.registry.test"])),
            ("a.registry.test", RecordKind::A) => said(vec![a(name, "192.31.196.53")]),
            _ => resolver(name, kind),
        })
    };
    let servers = |server: IpAddr, name: &str, kind| {
        Ok(match (server.to_string().as_str(), kind) {
            ("192.31.196.53", RecordKind::Ns) => {
                let authority = ns("customer.test", &["ns1.dns.test", "ns2.dns.test"]);
                DnsReply { authoritative: false, authority, ..said(Vec::new()) }
            }
            ("192.31.196.9", _) => denied("customer.test"),
            _ => right(name, kind),
        })
    };
    let (facts, judged) = seen(cache, servers).await;
    assert_eq!((judged.records, codes(&judged)), (Records::Pass, Vec::new()), "{facts:?}");
}

fn forbids() -> DnsRecord {
    let caa = CaaRecord { flags: 0, tag: "issue".to_owned(), value: b"other.example".to_vec() };
    record("customer.test", RecordData::Caa(caa))
}

// promise: domains.7
#[tokio::test]
async fn caa_records_that_were_just_corrected_are_seen() {
    let cache = |name: &str, kind| {
        let forbidding = name == "customer.test" && kind == RecordKind::Caa;
        Ok(if forbidding { said(vec![forbids()]) } else { resolver(name, kind) })
    };
    let (_, judged) = seen(cache, |_, name, kind| Ok(right(name, kind))).await;
    assert_eq!((judged.caa, codes(&judged)), (Caa::Allowed, Vec::new()));
    let added = |_, name: &str, kind| {
        let forbidding = name == "customer.test" && kind == RecordKind::Caa;
        Ok(if forbidding { said(vec![forbids()]) } else { right(name, kind) })
    };
    let (_, judged) = seen(|name, kind| Ok(resolver(name, kind)), added).await;
    assert_eq!((judged.caa, codes(&judged)), (Caa::Forbidden, vec!["CAA_FORBIDS"]));
}

// promise: domains.10
#[tokio::test]
async fn a_wildcard_is_named_as_one_and_blocks_no_record() {
    for (data, kind) in [
        (RecordData::A("192.0.2.33".parse().unwrap()), RecordKind::A),
        (RecordData::Aaaa("2001:db8::33".parse().unwrap()), RecordKind::Aaaa),
        (RecordData::Cname("elsewhere.test".to_owned()), RecordKind::Cname),
    ] {
        let wildcard = |_, name: &str, asked| {
            let covered = name.ends_with(".customer.test") && asked == kind;
            Ok(if covered { said(vec![record(name, data.clone())]) } else { denied("customer.test") })
        };
        let (_, judged) = seen(|name, kind| Ok(resolver(name, kind)), wildcard).await;
        assert_eq!((judged.records, codes(&judged)), (Records::Missing, vec!["DNS_NO_RECORD"]), "{kind:?}");
        let problem = &judged.problems[0];
        assert!(problem.message.contains("the wildcard record *.customer.test"), "{}", problem.message);
        assert_eq!(
            problem.fix,
            format!("Create the record: {NAME} 3600 CNAME {TARGET}. The wildcard record can stay.")
        );
        // A record of the name itself blocks, whatever wildcards exist.
        let own = |_, name: &str, asked| {
            Ok(if name == NAME && asked == kind {
                said(vec![record(name, data.clone())])
            } else {
                denied("customer.test")
            })
        };
        let (_, judged) = seen(|name, kind| Ok(resolver(name, kind)), own).await;
        assert_eq!(judged.records, Records::Wrong, "{kind:?}");
    }
}

// promise: domains.9
#[tokio::test]
async fn six_nameservers_and_seven_labels_are_within_the_limit() {
    const LONG: &str = "a.b.c.d.e.customer.test";
    let hosts = ["n1.dns.test", "n2.dns.test", "n3.dns.test", "n4.dns.test", "n5.dns.test", "n6.dns.test"];
    // The worst resolver: its negative answers do not name the zone.
    let stub = |name: &str, kind| {
        let reply = match (name, kind) {
            ("customer.test", RecordKind::Ns) => said(ns(name, &hosts)),
            ("test", RecordKind::Ns) => said(ns(name, &["n1.dns.test", "n2.dns.test"])),
            _ if hosts.contains(&name) && kind == RecordKind::Aaaa => {
                said(vec![record(name, RecordData::Aaaa("2620:4f:8000::1".parse().unwrap()))])
            }
            _ => resolver(name, kind),
        };
        Ok(DnsReply { authority: Vec::new(), ..reply })
    };
    let server = |_, name: &str, kind| {
        let delegates = name == "customer.test" && kind == RecordKind::Ns;
        Ok(if delegates { said(ns(name, &hosts)) } else { denied("customer.test") })
    };
    let world = World { resolver: stub, server };
    let (facts, judged) = check(&world, &DnsConfig::default(), LONG, "customer.test").await;
    assert!(facts.queries <= QUERIES_MAX, "{}", facts.queries);
    assert_eq!(facts.servers.len(), 6);
    assert!(facts.servers.iter().all(|server| server.cname == DnsAnswer::Nothing), "{:?}", facts.servers);
    assert!(facts.caa.iter().all(|level| level.records.is_ok()), "{:?}", facts.caa);
    assert_eq!(codes(&judged), ["DNS_NO_RECORD"]);
}

// promise: domains.30
#[tokio::test]
async fn a_name_directly_below_a_private_suffix_is_in_the_zone_of_the_suffix() {
    let resolver = |name: &str, kind| {
        Ok(match (name, kind) {
            ("is-a.dev", RecordKind::Ns) => said(ns(name, &["ns1.dns.test"])),
            ("ns1.dns.test", RecordKind::A) => said(vec![a(name, NEWS[0])]),
            (TARGET, RecordKind::A) => said(vec![a(name, "203.0.113.10")]),
            _ => denied("is-a.dev"),
        })
    };
    let server = |_, name: &str, kind| {
        let here = name == "foo.is-a.dev" && kind == RecordKind::Cname;
        Ok(if here { said(vec![cname(name, TARGET)]) } else { denied("is-a.dev") })
    };
    // As in the public suffix list: a project below `is-a.dev`, in the zone of `is-a.dev`.
    let world = World { resolver, server };
    let (_, judged) = check(&world, &DnsConfig::default(), "foo.is-a.dev", "is-a.dev").await;
    assert!(judged.passes(), "{:?}", judged.problems);
}

// promise: domains.10
#[tokio::test]
async fn a_dnssec_failure_is_reported_as_such() {
    let bogus = |_: &str, _| Ok(DnsReply { code: ReplyCode::Bogus, ..said(Vec::new()) });
    let (_, judged) = seen(bogus, |_, name, kind| Ok(right(name, kind))).await;
    assert_eq!((judged.records, codes(&judged)[0]), (Records::Unknown, "DNS_DNSSEC"));
    assert!(judged.problems[0].message.contains("DNSSEC of shop.customer.test is broken"), "{:?}", judged.problems);
}

#[tokio::test]
async fn a_zone_without_answers_is_the_owners_fault_and_a_dead_resolver_is_ours() {
    let of_zone = |name: &str| name.ends_with("customer.test");
    let failing = || DnsReply { code: ReplyCode::ServFail, ..said(Vec::new()) };
    for (silent, code, message) in [
        (Err(NoAnswer::Timeout), "DNS_TIMEOUT", "The nameservers of shop.customer.test do not answer."),
        (Ok(failing()), "DNS_SERVFAIL", "The nameservers of shop.customer.test give resolvers no usable answer."),
    ] {
        let alive = |name: &str, kind| if of_zone(name) { silent.clone() } else { Ok(resolver(name, kind)) };
        let (_, judged) = seen(alive, |_, name, kind| Ok(right(name, kind))).await;
        let problem = &judged.problems[0];
        assert_eq!((problem.message.as_str(), problem.severity, problem.who), (message, Severity::Error, Who::You));
        assert_eq!((judged.records, judged.resolver_down, codes(&judged)[0]), (Records::Unknown, false, code));
        let (_, judged) = seen(|_: &str, _| silent.clone(), |_, name, kind| Ok(right(name, kind))).await;
        let problem = &judged.problems[0];
        assert_eq!((judged.resolver_down, problem.who), (true, Who::Us), "{message}");
        assert!(problem.message.starts_with("Our own DNS resolver"), "{problem:?}");
    }
}

// promise: domains.8
#[tokio::test(start_paused = true)]
async fn a_silent_server_fails_only_its_own_query() {
    struct Silent;
    #[async_trait]
    impl Dns for Silent {
        async fn recurse(&self, name: &str, kind: RecordKind) -> Answered {
            if name == TARGET && kind == RecordKind::Aaaa {
                std::future::pending().await
            } else {
                Ok(resolver(name, kind))
            }
        }
        async fn ask(&self, server: IpAddr, name: &str, kind: RecordKind) -> Answered {
            let silent = server.to_string() == NEWS[1];
            if silent { std::future::pending().await } else { Ok(right(name, kind)) }
        }
    }
    let (_, judged) = check(&Silent, &DnsConfig::default(), NAME, "customer.test").await;
    assert_eq!((judged.records, judged.caa, codes(&judged)), (Records::Pass, Caa::Allowed, vec!["DNS_TIMEOUT"]));
    assert_eq!(judged.problems[0].message, "ns2.dns.test (192.31.196.2) did not answer in time.");
}
