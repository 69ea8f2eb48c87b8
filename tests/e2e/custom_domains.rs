//! Custom domains with a real certificate authority, real DNS queries and three gateways: from the DNS record to TLS,
//! and the removal.

mod fleet;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::task::JoinSet;

use self::fleet::{Fleet, GATEWAYS};
use crate::world::until;

/// A count: small in a run of all tests, or from the environment for a long run
/// (`bench/run domains-proof`).
#[expect(clippy::disallowed_methods, reason = "how long a test is, not a setting of a process")]
fn count(variable: &str, usual: usize) -> usize {
    std::env::var(variable).map_or(usual, |text| text.parse().expect("a whole number"))
}

/// Most names that are added until the authority has queried every gateway: one in a million runs needs more.
const MORE_NAMES_MAX: usize = 36;

// rule: 1.11
// promise: domains.20
#[tokio::test(flavor = "multi_thread")]
async fn every_domain_is_attached_at_the_first_try_through_any_gateway() {
    let fleet = Fleet::start("strict").await;
    let mut names: Vec<String> =
        (0..count("DOMAINS", 12)).map(|number| format!("shop.customer{number}.test")).collect();
    // Longer than a common name may be. (Neither pebble nor the test world's DNS carries names beyond 130 characters
    // over UDP; longer ones are tested with another authority.)
    names.push(format!("shop.{}.{}.test", "a".repeat(63), "b".repeat(40)));
    for (number, name) in names.iter().enumerate() {
        if number % 2 == 1 {
            // The owner allows one challenge type per name, so both are used.
            let zone = name.strip_prefix("shop.").unwrap();
            fleet.dns_set(zone, "CAA", "0 issue \"pebble.example; validationmethods=tls-alpn-01\"");
        }
        fleet.point_here(name);
    }
    let began = Instant::now();
    for name in &names {
        fleet.platform.json(&["domain", "add", "site", name]);
    }
    let mut seconds = Vec::new();
    for name in &names {
        fleet.active(name).await;
        seconds.push(began.elapsed().as_secs_f64());
    }
    for name in &names {
        let events = fleet.events(name);
        let of = |kind: &str| events.iter().filter(|event| event["type"] == kind).count();
        assert_eq!((of("domain.certificate.issued"), of("domain.certificate.failed")), (1, 0), "{name}: {events:?}");
        for gateway in 0..GATEWAYS {
            let answer = fleet.client(gateway).get(fleet.url(name)).send().await;
            assert_eq!(answer.unwrap().status(), 200, "{name} at gateway {gateway}");
        }
    }
    println!("{} domains active, the last after {:.1} s", names.len(), seconds.last().unwrap());
    // The authority chooses an address at random: names are added until it has queried every gateway.
    let mut unasked: BTreeSet<u8> = (0..GATEWAYS).collect();
    for number in 0..MORE_NAMES_MAX {
        let mut asked = BTreeSet::new();
        for gateway in &unasked {
            if fleet.proofs_shown(*gateway).await > 0 {
                asked.insert(*gateway);
            }
        }
        unasked = &unasked - &asked;
        if unasked.is_empty() {
            return;
        }
        let name = format!("more.customer{number}.test");
        fleet.point_here(&name);
        fleet.platform.json(&["domain", "add", "site", &name]);
        fleet.active(&name).await;
    }
    panic!("the authority has never asked {unasked:?}");
}

/// One fleet for all steps. The first step counts all queries; the others use different names.
#[tokio::test(flavor = "multi_thread")]
async fn unknown_names_wrong_records_and_removals_are_handled_on_every_gateway() {
    let fleet = Arc::new(Fleet::start("gentle").await);
    unknown_names_cause_no_query_to_dns_or_the_authority(&fleet).await;
    whatever_dns_says_over_the_wire_the_domain_says_what_is_wrong(&fleet).await;
    after_a_removal_is_acknowledged_no_gateway_serves_the_name_on_any_connection(&fleet).await;
}

// promise: domains.1
async fn after_a_removal_is_acknowledged_no_gateway_serves_the_name_on_any_connection(fleet: &Arc<Fleet>) {
    let name = "till.customer.test";
    fleet.point_here(name);
    fleet.platform.json(&["domain", "add", "site", name]);
    fleet.active(name).await;
    let gone = Arc::new(AtomicBool::new(false));
    let (served, late) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let ending = Arc::new(AtomicBool::new(false));
    let mut visitors = JoinSet::new();
    for gateway in 0..GATEWAYS {
        for client in [fleet.client(gateway), fleet.old_client(gateway)] {
            let (gone, served, late, ending) = (gone.clone(), served.clone(), late.clone(), ending.clone());
            let url = fleet.url(name);
            visitors.spawn(async move {
                while !ending.load(Ordering::SeqCst) {
                    // Read before the request is sent: only what was sent after the acknowledgement counts.
                    let was_gone = gone.load(Ordering::SeqCst);
                    let Ok(response) = client.get(&url).send().await else { continue };
                    if response.status().is_success() {
                        served.fetch_add(1, Ordering::SeqCst);
                        late.fetch_add(u32::from(was_gone), Ordering::SeqCst);
                    }
                }
            });
        }
    }
    until("every visitor is served", async || served.load(Ordering::SeqCst) >= 300).await;
    let began = Instant::now();
    let removed = fleet.platform.command(&["domain", "remove", "site", name]);
    gone.store(true, Ordering::SeqCst);
    println!("removed in {:?}, command included", began.elapsed());
    let text = String::from_utf8_lossy(&removed.stdout);
    assert!(text.contains("no longer served on any gateway"), "{text}");
    let after = served.load(Ordering::SeqCst);
    // The same number of attempts as before the removal.
    tokio::time::timeout(Duration::from_secs(30), async {
        for gateway in 0..GATEWAYS {
            for _ in 0..20 {
                let answer = fleet.client(gateway).get(fleet.url(name)).send().await;
                assert!(!answer.is_ok_and(|answer| answer.status().is_success()), "a new connection is not served");
            }
        }
    })
    .await
    .unwrap();
    ending.store(true, Ordering::SeqCst);
    while visitors.join_next().await.is_some() {}
    assert_eq!(late.load(Ordering::SeqCst), 0, "{after} were served before");
}

/// Handshakes during which certificates are renewed, at least.
const HANDSHAKES_MIN: u32 = 100;

// rule: 1.13
// promise: domains.26
#[tokio::test(flavor = "multi_thread")]
async fn certificates_are_renewed_under_load_without_one_failed_handshake() {
    let fleet = Arc::new(Fleet::start("brief").await);
    let names: Vec<String> = (0..count("RENEWALS", 4)).map(|number| format!("shop.customer{number}.test")).collect();
    for name in &names {
        fleet.point_here(name);
        fleet.platform.json(&["domain", "add", "site", name]);
    }
    for name in &names {
        fleet.active(name).await;
    }
    let serials = |fleet: &Fleet| -> BTreeMap<String, Value> {
        let serial = |name: &String| fleet.domain(name)["certificate"]["serial"].clone();
        names.iter().map(|name| (name.clone(), serial(name))).collect()
    };
    let first = serials(&fleet);
    let (ending, shaken) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
    let mut visitors = JoinSet::new();
    for gateway in 0..GATEWAYS {
        let (fleet, ending, shaken, names) = (fleet.clone(), ending.clone(), shaken.clone(), names.clone());
        visitors.spawn(async move {
            for name in names.iter().cycle() {
                if ending.load(Ordering::SeqCst) {
                    return;
                }
                // A new client for each request, so that each has a handshake.
                let answer = fleet.client(gateway).get(fleet.url(name)).send().await;
                let answer = answer.unwrap_or_else(|error| panic!("{name} at gateway {gateway}: {error:?}"));
                assert_eq!(answer.status(), 200);
                shaken.fetch_add(1, Ordering::SeqCst);
            }
        });
    }
    until("every certificate has a successor, and visitors came", async || {
        let now = serials(&fleet);
        shaken.load(Ordering::SeqCst) >= HANDSHAKES_MIN && first.iter().all(|(name, serial)| now[name] != *serial)
    })
    .await;
    ending.store(true, Ordering::SeqCst);
    while let Some(visitor) = visitors.join_next().await {
        visitor.unwrap();
    }
    println!("{} certificates renewed during {} handshakes", names.len(), shaken.load(Ordering::SeqCst));
}

// promise: domains.6, edge.25
async fn unknown_names_cause_no_query_to_dns_or_the_authority(fleet: &Arc<Fleet>) {
    // One known name first, so that all caches are warm.
    fleet.point_here("shop.customer.test");
    fleet.platform.json(&["domain", "add", "site", "shop.customer.test"]);
    fleet.active("shop.customer.test").await;
    let asked = || {
        let lines = |log: &str| std::fs::read_to_string(fleet.platform.path(log)).unwrap().lines().count();
        (lines("test-world/pebble.log"), lines("test-world/questions.log"))
    };
    let before = asked();
    let next = Arc::new(AtomicU32::new(0));
    let unknown = u32::try_from(count("UNKNOWN", 1_000)).unwrap();
    let mut strangers = JoinSet::new();
    for gateway in 0..GATEWAYS {
        for _ in 0..4 {
            let (fleet, next) = (fleet.clone(), next.clone());
            strangers.spawn(async move {
                loop {
                    let number = next.fetch_add(1, Ordering::SeqCst);
                    if number >= unknown {
                        return;
                    }
                    let name = format!("shop{number}.stranger{number}.test");
                    let answer = fleet.client(gateway).get(fleet.url(&name)).send().await;
                    assert!(answer.is_err(), "{name} is served");
                }
            });
        }
    }
    while let Some(stranger) = strangers.join_next().await {
        stranger.unwrap();
    }
    assert_eq!(asked(), before, "lines of the authority's log, and questions to DNS");
    let answer = fleet.client(0).get(fleet.url("shop.customer.test")).send().await;
    assert_eq!(answer.unwrap().status(), 200);
}

/// Writes the DNS records of a zone, from its shop's name and the target of its CNAME.
type Write = fn(&Fleet, &str, &str);

/// A zone, its records, and the expected status and problem; empty matches any.
type Row = (&'static str, Write, &'static str, &'static str);

fn rows() -> [Row; 12] {
    [
        ("a-only", |fleet, name, _| fleet.dns_set(name, "A", "203.0.113.9"), "action_required", "DNS_CONFLICTING_A"),
        (
            "aaaa-only",
            |fleet, name, _| fleet.dns_set(name, "AAAA", "2001:db8::9"),
            "action_required",
            "DNS_CONFLICTING_AAAA",
        ),
        (
            "both",
            |fleet, name, _| {
                fleet.dns_set(name, "A", "203.0.113.9");
                fleet.dns_set(name, "AAAA", "2001:db8::9");
            },
            "action_required",
            "DNS_CONFLICTING_A",
        ),
        (
            "elsewhere",
            |fleet, name, _| fleet.dns_set(name, "CNAME", "other.provider.test"),
            "action_required",
            "DNS_CNAME_MISMATCH",
        ),
        (
            "shouting",
            |fleet, name, target| fleet.dns_set(name, "CNAME", &format!("{}.", target.to_uppercase())),
            "active",
            "",
        ),
        (
            "chained",
            |fleet, name, target| {
                let between = format!("between.{}", name.strip_prefix("shop.").unwrap());
                fleet.dns_set(&between, "CNAME", target);
                fleet.dns_set(name, "CNAME", &between);
            },
            "action_required",
            "DNS_CNAME_CHAINED",
        ),
        ("missing", |_, _, _| {}, "pending_dns", "DNS_NO_RECORD"),
        (
            "failing",
            |fleet, name, target| {
                fleet.dns_set(name, "CNAME", target);
                fleet.dns_line(&format!("! {} servfail @2", name.strip_prefix("shop.").unwrap()));
            },
            "",
            "DNS_SERVFAIL",
        ),
        (
            "silent",
            |fleet, name, target| {
                fleet.dns_set(name, "CNAME", target);
                fleet.dns_line(&format!("! {} silent @3", name.strip_prefix("shop.").unwrap()));
            },
            "",
            "DNS_TIMEOUT",
        ),
        (
            "lame",
            |fleet, name, target| {
                fleet.dns_set(name, "CNAME", target);
                fleet.dns_line(&format!("! {} lame @2", name.strip_prefix("shop.").unwrap()));
            },
            "",
            "DNS_LAME_NS",
        ),
        (
            "partial",
            |fleet, name, target| {
                for server in 1..=2 {
                    fleet.dns_line(&format!("{name} CNAME {target} @{server}"));
                }
            },
            "",
            "DNS_PARTIAL",
        ),
        (
            "forbidden",
            |fleet, name, target| {
                fleet.dns_set(name, "CNAME", target);
                fleet.dns_set(name.strip_prefix("shop.").unwrap(), "CAA", "0 issue \"other.example\"");
            },
            "",
            "CAA_FORBIDS",
        ),
    ]
}

// rule: 1.10
// promise: domains.12
async fn whatever_dns_says_over_the_wire_the_domain_says_what_is_wrong(fleet: &Fleet) {
    let target = fleet.target();
    let rows = rows();
    for (zone, write, ..) in &rows {
        write(fleet, &format!("shop.{zone}.test"), &target);
    }
    for (zone, _, status, code) in &rows {
        let name = format!("shop.{zone}.test");
        fleet.platform.json(&["domain", "add", "site", &name]);
        let mut domain = Value::Null;
        until(&format!("{name} is judged"), async || {
            domain = fleet.domain(&name);
            let codes: Vec<&str> =
                domain["problems"].as_array().unwrap().iter().filter_map(|one| one["code"].as_str()).collect();
            (status.is_empty() || domain["status"] == *status) && (code.is_empty() || codes.contains(code))
        })
        .await;
        for problem in domain["problems"].as_array().unwrap() {
            for part in ["who", "message", "fix"] {
                assert!(!problem[part].as_str().unwrap().is_empty(), "{problem:#}");
            }
        }
    }
}
