//! The conflict matrix, apexes, ownership and CAA, as verdicts.

use super::*;
use crate::CaaRecord;
use crate::facts::{CaaLevel, NoAnswer, ServerFacts};

const TARGET: &str = "abcdefghijklmnop.edge.tollhouse.dev";
const EDGE: &str = "203.0.113.10";

fn server(host: &str, cname: DnsAnswer<&str>) -> ServerFacts {
    let cname = match cname {
        DnsAnswer::Is(name) => DnsAnswer::Is(name.to_owned()),
        DnsAnswer::Nothing => DnsAnswer::Nothing,
        DnsAnswer::Failed(why) => DnsAnswer::Failed(why),
    };
    ServerFacts {
        host: host.to_owned(),
        ip: None,
        cname,
        a: Vec::new(),
        aaaa: Vec::new(),
        ttl: Some(3_600),
        wildcard: None,
    }
}

fn addressed(host: &str, addresses: &[&str]) -> ServerFacts {
    let mut server = server(host, DnsAnswer::Nothing);
    for address in addresses {
        match address.parse().unwrap() {
            IpAddr::V4(address) => server.a.push(address),
            IpAddr::V6(address) => server.aaaa.push(address),
        }
    }
    server
}

fn facts(zone: &str, servers: Vec<ServerFacts>) -> DnsFacts {
    DnsFacts {
        zone: Zone::Is(zone.to_owned()),
        servers,
        chain: Vec::new(),
        doubled: None,
        target_addresses: vec![EDGE.parse().unwrap()],
        texts: None,
        caa: Vec::new(),
        resolver_answers: true,
        resolver: "authoritative",
        queries: 1,
        duration_ms: 1,
    }
}

struct Case {
    name: Hostname,
    target: Hostname,
    claim: Claim,
    authorities: Vec<CaaIdentity>,
}

impl Case {
    fn of(name: &str) -> Self {
        Self {
            name: name.parse().unwrap(),
            target: TARGET.parse().unwrap(),
            claim: Claim::Open,
            authorities: Vec::new(),
        }
    }

    fn judge(&self, facts: &DnsFacts) -> Judgement {
        judge(facts, &self.expectation())
    }

    fn expectation(&self) -> Expectation<'_> {
        Expectation {
            name: &self.name,
            target: &self.target,
            edge: &[],
            text: "edge-verify=right",
            claim: self.claim,
            authorities: &self.authorities,
        }
    }
}

fn codes(judged: &Judgement) -> Vec<&'static str> {
    judged.problems.iter().map(|problem| problem.code.as_str()).collect()
}

/// One row: the answers of all nameservers of `customer.com` about `shop.customer.com`.
fn shop(servers: Vec<ServerFacts>) -> Judgement {
    Case::of("shop.customer.com").judge(&facts("customer.com", servers))
}

// rule: 1.16, 1.17
#[test]
fn the_conflict_matrix_names_each_case_exactly() {
    let one = |server| shop(vec![server]);
    let foreign = "other.host.example";
    let rows: Vec<(&str, Judgement, Records, Vec<&str>)> = vec![
        ("1 A only", one(addressed("ns1", &["198.51.100.7"])), Records::Wrong, vec!["DNS_CONFLICTING_A"]),
        ("2 AAAA only", one(addressed("ns1", &["2001:db8::7"])), Records::Wrong, vec!["DNS_CONFLICTING_AAAA"]),
        (
            "3 A and AAAA",
            one(addressed("ns1", &["198.51.100.7", "2001:db8::7"])),
            Records::Wrong,
            vec!["DNS_CONFLICTING_A", "DNS_CONFLICTING_AAAA"],
        ),
        ("4 wrong CNAME", one(server("ns1", DnsAnswer::Is(foreign))), Records::Wrong, vec!["DNS_CNAME_MISMATCH"]),
        ("5 right CNAME in capitals", one(server("ns1", DnsAnswer::Is(&TARGET.to_uppercase()))), Records::Pass, vec![]),
        ("6 chained CNAME", chained(), Records::Wrong, vec!["DNS_CNAME_CHAINED"]),
        ("7 nothing", one(server("ns1", DnsAnswer::Nothing)), Records::Missing, vec!["DNS_NO_RECORD"]),
        (
            "8 SERVFAIL",
            one(server("ns1", DnsAnswer::Failed(NoAnswer::ServFail))),
            Records::Unknown,
            vec!["DNS_SERVFAIL"],
        ),
        ("9 timeout", one(server("ns1", DnsAnswer::Failed(NoAnswer::Timeout))), Records::Unknown, vec!["DNS_TIMEOUT"]),
        ("10 lame", one(server("ns1", DnsAnswer::Failed(NoAnswer::Lame))), Records::Unknown, vec!["DNS_LAME_NS"]),
        ("11 proxied", one(addressed("ns1", &["104.16.1.1"])), Records::Wrong, vec!["DNS_PROXIED"]),
        ("12 no zone", no_zone(), Records::Missing, vec!["DNS_ZONE_MISSING"]),
    ];
    for (row, judged, records, expected) in rows {
        assert_eq!((judged.records, codes(&judged)), (records, expected), "{row}");
        for problem in &judged.problems {
            assert!(!problem.fix.is_empty() && problem.message.ends_with('.'), "{row}: {problem:?}");
        }
    }
}

fn chained() -> Judgement {
    let mut facts = facts("customer.com", vec![server("ns1", DnsAnswer::Is("alias.customer.com"))]);
    facts.chain = vec!["alias.customer.com".to_owned(), TARGET.to_owned()];
    Case::of("shop.customer.com").judge(&facts)
}

#[test]
fn an_old_record_at_one_nameserver_is_wrong_although_another_is_right() {
    let servers = vec![
        server("ns1", DnsAnswer::Is(TARGET)),
        server("ns2", DnsAnswer::Is("old.example.net")),
        addressed("ns3", &[]),
    ];
    let mut facts = facts("customer.com", servers);
    // The resolver asked the correct one.
    facts.chain = vec![TARGET.to_owned()];
    let judged = Case::of("shop.customer.com").judge(&facts);
    assert_eq!((judged.records, codes(&judged)), (Records::Partial, vec!["DNS_PARTIAL"]));
    assert_eq!(judged.problems[0].observed, ["ns2: CNAME old.example.net", "ns3: nothing"]);
}

fn no_zone() -> Judgement {
    let mut facts = facts("customer.com", Vec::new());
    facts.zone = Zone::Missing;
    Case::of("shop.customer.com").judge(&facts)
}

#[test]
fn usual_slips_in_a_providers_form_are_recognised() {
    let judged = shop(vec![server("ns1", DnsAnswer::Is(&format!("{TARGET}.customer.com")))]);
    let problem = &judged.problems[0];
    assert_eq!(problem.code, ProblemCode::DnsCnameMismatch);
    assert!(problem.message.contains("without its final dot"), "{problem:?}");
    assert!(problem.fix.contains(&format!("{TARGET}. with the dot")), "{problem:?}");
    let mut facts = facts("customer.com", vec![addressed("ns1", &[])]);
    facts.doubled = Some("shop.customer.com.customer.com".to_owned());
    let judged = Case::of("shop.customer.com").judge(&facts);
    let problem = &judged.problems[0];
    assert_eq!((judged.records, problem.code), (Records::Missing, ProblemCode::DnsNoRecord));
    assert!(problem.message.contains("shop.customer.com.customer.com has the one for it"), "{problem:?}");
}

#[test]
fn an_apex_is_reported_as_pointing_here_only_if_it_does() {
    for (server, leads_here) in [
        (addressed("ns1", &[]), false),
        (addressed("ns1", &["198.51.100.7"]), false),
        (addressed("ns1", &[EDGE]), true),
    ] {
        let mut facts = facts("customer.com", vec![server]);
        facts.texts = Some(DnsAnswer::Nothing);
        let judged = Case::of("customer.com").judge(&facts);
        let of_text = |problem: &&Problem| problem.code == ProblemCode::OwnershipTxtMissing;
        let problem = judged.problems.iter().find(of_text).unwrap();
        assert_eq!(problem.message.contains("points at addresses of the platform"), leads_here, "{problem:?}");
    }
}

// rule: 1.16
#[test]
fn a_conflicting_record_says_what_to_delete_and_what_to_add() {
    let judged = shop(vec![addressed("ns1.provider.net", &["198.51.100.7"])]);
    let problem = &judged.problems[0];
    assert_eq!(problem.message, "shop.customer.com has an A record 198.51.100.7, which blocks the CNAME.");
    assert_eq!(
        problem.fix,
        format!("Delete the A record of shop.customer.com, then add: shop.customer.com 3600 CNAME {TARGET}")
    );
    assert_eq!(
        (problem.observed.as_slice(), problem.place.as_str()),
        (&["198.51.100.7".to_owned()][..], "ns1.provider.net")
    );
    let ours = shop(vec![addressed("ns1", &[EDGE])]);
    assert!(ours.problems[0].message.contains("The address is ours"), "{:?}", ours.problems);
}

#[test]
fn nameservers_that_disagree_are_propagation() {
    let judged = shop(vec![
        server("ns1", DnsAnswer::Is(TARGET)),
        server("ns2", DnsAnswer::Is(TARGET)),
        server("ns3", DnsAnswer::Nothing),
    ]);
    assert_eq!(judged.records, Records::Partial);
    assert_eq!(judged.problems[0].message, "2 of 3 of your nameservers already answer correctly.");
    assert_eq!(judged.problems[0].observed, ["ns3: nothing"]);
    let stale = shop(vec![server("ns1", DnsAnswer::Is(TARGET)), addressed("ns2", &["198.51.100.7"])]);
    assert_eq!(stale.records, Records::Partial);
}

#[test]
fn an_unreachable_nameserver_is_a_warning_if_another_one_answers() {
    let judged = shop(vec![server("ns1", DnsAnswer::Is(TARGET)), server("ns2", DnsAnswer::Failed(NoAnswer::Timeout))]);
    assert_eq!((judged.records, codes(&judged)), (Records::Pass, vec!["DNS_TIMEOUT"]));
    let wrong = shop(vec![server("ns1", DnsAnswer::Nothing), server("ns2", DnsAnswer::Failed(NoAnswer::ServFail))]);
    assert_eq!(wrong.records, Records::Missing);
}

// rule: 1.12
#[test]
fn an_apex_passes_only_with_our_addresses() {
    let apex = |servers| Case::of("customer.com").judge(&facts("customer.com", servers));
    assert_eq!(apex(vec![addressed("ns1", &[EDGE])]).records, Records::Pass);
    assert_eq!(apex(vec![addressed("ns1", &[EDGE])]).is_apex, Some(true));
    for foreign in [&[EDGE, "198.51.100.7"][..], &[EDGE, "2001:db8::7"], &["198.51.100.7"], &["2001:db8::7"]] {
        let judged = apex(vec![addressed("ns1", foreign)]);
        assert_eq!((judged.records, codes(&judged)), (Records::Wrong, vec!["DNS_APEX_ADDRESS_MISMATCH"]));
        assert!(!judged.problems[0].observed.contains(&EDGE.to_owned()), "only addresses of others are named");
    }
    let missing = apex(vec![server("ns1", DnsAnswer::Nothing)]);
    assert!(missing.problems[0].fix.contains("ALIAS"), "{:?}", missing.problems);
    let cname = apex(vec![server("ns1", DnsAnswer::Is(TARGET))]);
    assert_eq!((cname.records, codes(&cname)), (Records::Pass, vec!["DNS_APEX_NEEDS_ALIAS"]));
}

#[test]
fn the_apex_of_a_delegated_zone_is_recognised_by_its_zone_not_by_its_name() {
    let judged = Case::of("shop.customer.com").judge(&facts("shop.customer.com", vec![addressed("ns1", &[EDGE])]));
    assert_eq!((judged.records, judged.is_apex), (Records::Pass, Some(true)));
}

// promise: domains.14
#[test]
fn addresses_prove_nothing_because_all_projects_share_them() {
    let judged = |claim, servers, texts| {
        let mut facts = facts("customer.com", servers);
        facts.texts = texts;
        Case { claim, ..Case::of("customer.com") }.judge(&facts)
    };
    let ours = || vec![addressed("ns1", &[EDGE])];
    let text = || Some(DnsAnswer::Is(vec!["edge-verify=right".to_owned()]));
    let without = judged(Claim::Open, ours(), Some(DnsAnswer::Nothing));
    assert_eq!((without.records, without.ownership), (Records::Pass, Ownership::Missing));
    assert_eq!((without.passes(), codes(&without)), (false, vec!["OWNERSHIP_TXT_MISSING"]));
    assert!(without.problems[0].message.contains("which all projects share"), "{:?}", without.problems);
    assert!(!judged(Claim::Open, ours(), None).passes(), "the text is unknown");
    assert!(judged(Claim::Open, ours(), text()).passes());
    assert!(judged(Claim::Proven, ours(), None).passes(), "it was proven, and has pointed here since");
    assert!(!judged(Claim::Contested, ours(), Some(DnsAnswer::Nothing)).passes());
    // A CNAME to the project's target needs no TXT record; if one nameserver has an address, the TXT record is needed.
    let specific = || server("ns1", DnsAnswer::Is(TARGET));
    assert!(judged(Claim::Open, vec![specific()], Some(DnsAnswer::Nothing)).passes());
    assert!(!judged(Claim::Open, vec![specific(), addressed("ns2", &[EDGE])], Some(DnsAnswer::Nothing)).passes());
    // Without any record, both are requested at once.
    let nothing = judged(Claim::Open, vec![server("ns1", DnsAnswer::Nothing)], Some(DnsAnswer::Nothing));
    assert_eq!(codes(&nothing), ["DNS_NO_RECORD", "OWNERSHIP_TXT_MISSING"]);
}

#[test]
fn contested_names_need_their_text() {
    let case = Case { claim: Claim::Contested, ..Case::of("shop.customer.com") };
    let with = |texts| {
        let mut facts = facts("customer.com", vec![server("ns1", DnsAnswer::Is(TARGET))]);
        facts.texts = texts;
        case.judge(&facts)
    };
    let found = with(Some(DnsAnswer::Is(vec!["other".to_owned(), "edge-verify=right".to_owned()])));
    assert!(found.passes(), "one of several texts suffices");
    let missing = with(Some(DnsAnswer::Nothing));
    assert_eq!((missing.ownership, codes(&missing)), (Ownership::Missing, vec!["OWNERSHIP_TXT_MISSING"]));
    assert!(missing.problems[0].fix.contains("_edge-verify.shop.customer.com 3600 TXT \"edge-verify=right\""));
    let other = with(Some(DnsAnswer::Is(vec!["edge-verify=wrong".to_owned()])));
    assert_eq!((other.ownership, codes(&other)), (Ownership::Missing, vec!["OWNERSHIP_TXT_MISMATCH"]));
    assert_eq!(with(Some(DnsAnswer::Failed(NoAnswer::Timeout))).ownership, Ownership::Unknown);
    assert_eq!(with(None).ownership, Ownership::Unknown);
}

fn authority(domain: &str) -> CaaIdentity {
    CaaIdentity { domain: domain.to_owned(), account_uri: None, methods: vec!["http-01".to_owned()] }
}

// rule: 1.18
#[test]
fn caa_that_blocks_names_the_level_and_the_record_to_add() {
    let case = Case { authorities: vec![authority("letsencrypt.org")], ..Case::of("shop.customer.com") };
    let mut facts = facts("customer.com", vec![server("ns1", DnsAnswer::Is(TARGET))]);
    let digicert = CaaRecord { flags: 0, tag: "issue".to_owned(), value: b"digicert.com".to_vec() };
    facts.caa = vec![
        CaaLevel { name: "shop.customer.com".to_owned(), records: Ok(Vec::new()) },
        CaaLevel { name: "customer.com".to_owned(), records: Ok(vec![digicert]) },
    ];
    let judged = case.judge(&facts);
    assert_eq!((judged.caa, codes(&judged)), (Caa::Forbidden, vec!["CAA_FORBIDS"]));
    assert_eq!(judged.problems[0].place, "customer.com");
    assert_eq!(judged.problems[0].fix, "Add: customer.com CAA 0 issue \"letsencrypt.org\"");
    assert_eq!(judged.problems[0].observed, ["customer.com CAA 0 issue \"digicert.com\""]);
    // A second authority that is allowed is used instead.
    let two = Case { authorities: vec![authority("letsencrypt.org"), authority("digicert.com")], ..case };
    let judged = two.judge(&facts);
    assert_eq!(judged.caa, Caa::Allowed);
    assert_eq!(judged.permitted[0].0, "digicert.com");
    facts.caa = vec![CaaLevel { name: "shop.customer.com".to_owned(), records: Err(NoAnswer::ServFail) }];
    let judged = two.judge(&facts);
    assert_eq!((judged.caa, codes(&judged)), (Caa::Unknown, vec!["CAA_LOOKUP_FAILED"]));
}

// promise: domains.10
#[test]
fn the_remedy_for_a_critical_caa_record_works_when_followed() {
    let case = Case { authorities: vec![authority("letsencrypt.org")], ..Case::of("shop.customer.com") };
    let record =
        |flags, tag: &str, value: &str| CaaRecord { flags, tag: tag.to_owned(), value: value.as_bytes().to_vec() };
    let judged = |records: &[CaaRecord]| {
        let mut facts = facts("customer.com", vec![server("ns1", DnsAnswer::Is(TARGET))]);
        facts.caa = vec![CaaLevel { name: "customer.com".to_owned(), records: Ok(records.to_vec()) }];
        case.judge(&facts)
    };
    let (critical, digicert, ours) =
        (record(128, "tbs", "x"), record(0, "issue", "digicert.com"), record(0, "issue", "letsencrypt.org"));
    let alone = judged(std::slice::from_ref(&critical));
    assert_eq!(codes(&alone), ["CAA_FORBIDS"]);
    assert_eq!(alone.problems[0].fix, "Delete: customer.com CAA 128 tbs \"x\"");
    assert_eq!(judged(&[]).caa, Caa::Allowed);
    let both = judged(&[critical, digicert.clone()]);
    assert_eq!(
        both.problems[0].fix,
        "Delete: customer.com CAA 128 tbs \"x\". Then add: customer.com CAA 0 issue \"letsencrypt.org\""
    );
    assert_eq!(judged(&[digicert, ours]).caa, Caa::Allowed);
}

#[test]
fn the_view_shows_the_answer_of_each_nameserver() {
    let case = Case::of("shop.customer.com");
    let facts =
        facts("customer.com", vec![server("ns1", DnsAnswer::Is("x.example")), addressed("ns2", &["192.0.2.1"])]);
    let judged = case.judge(&facts);
    let view = checks(&facts, &case.expectation(), &judged, 5);
    let verdicts: Vec<&str> = view.nameservers.iter().map(|server| server.verdict.as_str()).collect();
    assert_eq!(verdicts, ["cname_mismatch", "conflicting_a"]);
    assert_eq!((view.record, view.zone.as_deref()), (Records::Wrong, Some("customer.com")));
}
