//! Certificates by ACME, with a misbehaving authority and interruptions at every step.

mod authority;
mod crashes;
mod crowds;
mod edge;
mod pebble;
mod queue;
mod renewal;
mod requested;

use std::time::Duration;

use contract::feed::Entity;
use domains_service::Authorities;
use serde_json::{Value, json};
use verification::RecordData;

use self::authority::FakeCa;
use crate::world::{Bend, Platform, eventually, local_authority};

const SHOP: &str = "shop.customer.test";

/// A platform with these authorities, a live gateway and a project.
async fn platform(authorities: &[(&str, &FakeCa)]) -> Platform {
    let platform = without_gateway(authorities).await;
    platform.lives("live").await;
    platform
}

/// The same without a gateway.
async fn without_gateway(authorities: &[(&str, &FakeCa)]) -> Platform {
    let acme = authorities.iter().map(|(name, ca)| ca.settings(name)).collect();
    let ours = Authorities { local: Some(local_authority()), public: Vec::new() };
    let platform = Platform::bent(Bend { authorities: Some(ours), acme, ..Bend::default() }).await;
    platform.project("demo", "pro").await;
    platform
}

/// Adds a domain with a correct DNS record.
async fn add(platform: &Platform, name: &str) {
    add_to(platform, "demo", name).await;
}

async fn add_to(platform: &Platform, project: &str, name: &str) {
    let owner = platform.operator("GET", &format!("/projects/{project}"), Value::Null).await.body;
    let zone = name.rsplitn(3, '.').take(2).collect::<Vec<_>>();
    platform.dns.zone(&format!("{}.{}", zone[1], zone[0]), &["192.31.196.1"]);
    platform.dns.set(name, RecordData::Cname(owner["cname_target"].as_str().unwrap().to_owned()));
    // On a busy machine a crowd of orders may keep the database's writer for longer than a request waits.
    eventually(async || {
        let added = platform.operator("POST", &format!("/projects/{project}/domains"), json!({ "name": name })).await;
        assert!(matches!(added.status, 201 | 503), "{added:?}");
        if added.status == 201 { Ok(()) } else { Err(format!("{added:?}")) }
    })
    .await;
}

/// The chain that gateways serve for a name.
async fn published(platform: &Platform, name: &str) -> Option<String> {
    let entities = platform.snapshot().await;
    entities.into_iter().find_map(|entity| match entity {
        Entity::Certificate(bundle) if bundle.hostname.as_str() == name => Some(bundle.chain_pem),
        _ => None,
    })
}

async fn open_challenges(platform: &Platform) -> usize {
    let entities = platform.snapshot().await;
    entities.iter().filter(|entity| matches!(entity, Entity::Challenge(_))).count()
}

async fn failed(platform: &Platform, code: &str) -> Value {
    platform.domain_when("demo", SHOP, |domain| domain["problems"][0]["code"] == code).await
}

#[tokio::test]
async fn a_certificate_is_issued_and_nothing_of_the_order_stays_open() {
    let ca = FakeCa::start().await;
    let platform = platform(&[("one", &ca)]).await;
    add(&platform, SHOP).await;
    let domain = platform.domain_in("demo", SHOP, "active").await;
    assert_eq!((&domain["certificate"]["ca"], &domain["certificate"]["status"]), (&json!("one"), &json!("deployed")));
    assert!(published(&platform, SHOP).await.is_some());
    assert_eq!((ca.orders(), ca.certificates(), open_challenges(&platform).await), (1, 1, 0));
}

// promise: domains.30
#[tokio::test]
async fn a_name_of_two_hundred_characters_has_a_certificate_like_any_other() {
    let ca = FakeCa::start().await;
    let platform = platform(&[("one", &ca)]).await;
    let name = format!("{}.{}.{}.long.test", "a".repeat(63), "b".repeat(63), "c".repeat(62));
    assert_eq!(name.len(), 200);
    add(&platform, &name).await;
    platform.domain_in("demo", &name, "active").await;
    assert!(published(&platform, &name).await.is_some());
}

// promise: domains.24
#[tokio::test]
async fn an_authority_that_limits_us_gets_no_request_for_as_long_as_it_says() {
    let ca = FakeCa::start().await;
    ca.refuse(&[(429, "rateLimited", Some(3_600))]);
    let platform = platform(&[("one", &ca)]).await;
    add(&platform, SHOP).await;
    let domain = failed(&platform, "CA_RATE_LIMITED").await;
    assert!(domain["certificate"]["rate_limited_until"].is_string(), "{domain:#}");
    let requests = ca.requests();
    platform.clock.advance(Duration::from_mins(55));
    platform.domain_when("demo", SHOP, |domain| domain["checks"]["at"].as_str().unwrap() > "2026-06-15T00:50").await;
    assert_eq!(ca.requests(), requests, "not before its time");
    platform.clock.advance(Duration::from_mins(10));
    platform.domain_in("demo", SHOP, "active").await;
}

// promise: domains.19
#[tokio::test]
async fn another_authority_is_asked_where_the_first_limits_us_or_refuses_the_name() {
    for refusal in [(429, "rateLimited", Some(3_600)), (400, "rejectedIdentifier", None), (403, "caa", None)] {
        let (one, two) = (FakeCa::start().await, FakeCa::start().await);
        one.refuse(&[refusal]);
        let platform = platform(&[("one", &one), ("two", &two)]).await;
        add(&platform, SHOP).await;
        let domain = platform.domain_in("demo", SHOP, "active").await;
        assert_eq!(domain["certificate"]["ca"], "two", "{refusal:?}");
    }
}

// promise: domains.19
#[tokio::test]
async fn an_unreachable_authority_is_tried_twice_and_then_replaced() {
    let (one, two) = (FakeCa::start().await, FakeCa::start().await);
    one.refuse(&[(500, "serverInternal", None); 3]);
    let platform = platform(&[("one", &one), ("two", &two)]).await;
    add(&platform, SHOP).await;
    let domain = failed(&platform, "CA_UNAVAILABLE").await;
    assert_eq!((two.requests(), &domain["certificate"]["attempts"]), (0, &json!(0)));
    let wait = platform.seconds_until(&domain["certificate"]["next_attempt_at"]);
    platform.clock.advance(Duration::from_secs(wait.unsigned_abs() + 1));
    let domain = platform.domain_in("demo", SHOP, "active").await;
    assert_eq!(domain["certificate"]["ca"], "two");
}

#[tokio::test]
async fn a_failed_proof_shows_the_authoritys_reason_and_starts_over() {
    let ca = FakeCa::start().await;
    for kind in ["dns", "unauthorized"] {
        ca.fail(SHOP, Some((kind, "the proof was not there")));
        let platform = platform(&[("one", &ca)]).await;
        let before = ca.orders();
        add(&platform, SHOP).await;
        let domain = failed(&platform, "CHALLENGE_UNREACHABLE").await;
        let problem = &domain["problems"][0];
        assert!(
            problem["observed"].as_str().unwrap_or_default().contains("the proof was not there")
                || problem.to_string().contains("the proof was not there"),
            "{problem:#}"
        );
        assert_eq!(open_challenges(&platform).await, 0);
        ca.fail(SHOP, None);
        platform.clock.advance(Duration::from_secs(75));
        platform.domain_in("demo", SHOP, "active").await;
        assert_eq!(ca.orders(), before + 2, "a failed order is over");
    }
}

// promise: domains.28, faults.26
#[tokio::test]
async fn a_certificate_for_another_name_replaces_nothing_and_is_ordered_again() {
    let ca = FakeCa::start().await;
    ca.confuse(Some("evil.customer.test"));
    let platform = platform(&[("one", &ca)]).await;
    add(&platform, SHOP).await;
    failed(&platform, "CA_UNAVAILABLE").await;
    assert_eq!(published(&platform, SHOP).await, None);
    ca.confuse(None);
    platform.clock.advance(Duration::from_secs(75));
    platform.domain_in("demo", SHOP, "active").await;
    assert_eq!(ca.orders(), 2);
}

// promise: domains.24
#[tokio::test]
async fn a_project_that_adds_hundreds_of_names_leaves_the_authority_to_others() {
    let ca = FakeCa::start().await;
    let platform = platform(&[("one", &ca)]).await;
    platform.project("many", "enterprise").await;
    // More than a project's part of the account's orders, each of another registered domain.
    for number in 0..62 {
        add_to(&platform, "many", &format!("shop.customer{number}.test")).await;
    }
    let waits = |domain: &Value| domain["problems"][0]["code"] == "CERT_QUEUED";
    let mut limited = 0;
    for number in 0..62 {
        let name = format!("shop.customer{number}.test");
        let domain = platform.domain_when("many", &name, |domain| domain["status"] == "active" || waits(domain)).await;
        limited += usize::from(waits(&domain));
    }
    assert!((1..=2).contains(&limited), "{limited} wait");
    platform.project("other", "pro").await;
    add_to(&platform, "other", "a.elsewhere.test").await;
    platform.domain_in("other", "a.elsewhere.test", "active").await;
}

// promise: domains.6
#[tokio::test]
async fn no_order_is_made_for_an_unproven_name() {
    let ca = FakeCa::start().await;
    let platform = platform(&[("one", &ca)]).await;
    platform.operator("POST", "/projects/demo/domains", json!({ "name": SHOP })).await;
    platform.dns.zone("customer.test", &["192.31.196.1"]);
    platform.clock.advance(Duration::from_hours(1));
    failed(&platform, "DNS_NO_RECORD").await;
    assert_eq!(ca.requests(), 0);
}

// promise: domains.5
#[tokio::test]
async fn authorizations_of_a_removed_name_are_deactivated() {
    let ca = FakeCa::start().await;
    let platform = platform(&[("one", &ca)]).await;
    add(&platform, SHOP).await;
    platform.domain_in("demo", SHOP, "active").await;
    let removed = platform.operator("DELETE", &format!("/projects/demo/domains/{SHOP}"), Value::Null).await;
    assert!(matches!(removed.status, 202 | 204), "{removed:?}");
    eventually(async || match ca.deactivated() {
        1 => Ok(()),
        count => Err(format!("{count} authorizations are deactivated")),
    })
    .await;
    let orders = ca.orders();
    platform.clock.advance(Duration::from_hours(90 * 24));
    // The worker has claimed everything due before these names have their certificates, one after the other.
    for later in ["later.customer.test", "last.customer.test"] {
        add(&platform, later).await;
        platform.domain_in("demo", later, "active").await;
    }
    assert_eq!((ca.orders(), ca.deactivated()), (orders + 2, 1), "nothing is asked about the removed name");
}
