//! Certificates: issued, renewed long before they expire, and never replaced by a worse one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use contract::feed::Entity;
use domains_service::{Authorities, CaaIdentity, IssueError, IssueRequest, Issued, Issuer};
use parking_lot::Mutex;
use serde_json::{Value, json};
use verification::{CaaRecord, RecordData};

use crate::world::{Bend, Platform, local_authority};

const SHOP: &str = "shop.customer.test";

/// A scripted authority.
struct FakeAuthority {
    name: &'static str,
    inner: Arc<dyn Issuer>,
    /// The results of the next orders; it issues when this is empty.
    failures: Mutex<Vec<IssueError>>,
    /// A name that it issues for instead of the ordered one.
    confused: Mutex<Option<&'static str>>,
    orders: AtomicU32,
}

impl FakeAuthority {
    fn new(name: &'static str) -> Arc<Self> {
        let (failures, confused) = (Mutex::default(), Mutex::default());
        Arc::new(Self { name, inner: local_authority(), failures, confused, orders: AtomicU32::new(0) })
    }

    fn orders(&self) -> u32 {
        self.orders.load(Ordering::SeqCst)
    }
}

#[async_trait]
impl Issuer for FakeAuthority {
    fn name(&self) -> &str {
        self.name
    }

    fn caa(&self) -> Option<CaaIdentity> {
        Some(CaaIdentity { domain: self.name.to_owned(), account_uri: None, methods: vec!["http-01".to_owned()] })
    }

    async fn issue(&self, request: &IssueRequest) -> Result<Issued, IssueError> {
        self.orders.fetch_add(1, Ordering::SeqCst);
        if let Some(failure) = self.failures.lock().pop() {
            return Err(failure);
        }
        let confused = *self.confused.lock();
        let hostname = confused.map_or(request.hostname.clone(), |name| name.parse().unwrap());
        self.inner.issue(&IssueRequest { hostname, ..request.clone() }).await
    }
}

/// A platform with these public authorities, and a project with a domain and its correct record.
async fn with(authorities: &[&Arc<FakeAuthority>]) -> Platform {
    let public = authorities.iter().map(|authority| (*authority).clone() as Arc<dyn Issuer>).collect();
    let authorities = Authorities { local: Some(local_authority()), public };
    let platform = Platform::bent(Bend { authorities: Some(authorities), ..Bend::default() }).await;
    platform.project("demo", "pro").await;
    let project = platform.operator("GET", "/projects/demo", Value::Null).await.body;
    platform.dns.zone("customer.test", &["192.31.196.1"]);
    platform.dns.set(SHOP, RecordData::Cname(project["cname_target"].as_str().unwrap().to_owned()));
    platform
}

async fn add(platform: &Platform) {
    let added = platform.operator("POST", "/projects/demo/domains", json!({ "name": SHOP })).await;
    assert_eq!(added.status, 201);
}

fn caa(value: &str) -> RecordData {
    RecordData::Caa(CaaRecord { flags: 0, tag: "issue".to_owned(), value: value.as_bytes().to_vec() })
}

async fn published(platform: &Platform) -> Option<i64> {
    platform.snapshot().await.into_iter().find_map(|entity| match entity {
        Entity::Certificate(bundle) => Some(bundle.not_after.0),
        _ => None,
    })
}

#[tokio::test]
async fn no_certificate_is_ordered_before_every_check_passes() {
    let authority = FakeAuthority::new("one.ca");
    let platform = with(&[&authority]).await;
    platform.dns.clear(SHOP);
    add(&platform).await;
    platform.domain_when("demo", SHOP, |domain| !domain["checks"].is_null()).await;
    platform.dns.set("customer.test", caa("two.ca"));
    let target = platform.operator("GET", "/projects/demo", Value::Null).await.body["cname_target"].clone();
    platform.dns.set(SHOP, RecordData::Cname(target.as_str().unwrap().to_owned()));
    platform.clock.advance(Duration::from_secs(30));
    let blocked = platform.domain_in("demo", SHOP, "action_required").await;
    assert_eq!(blocked["problems"][0]["code"], "CAA_FORBIDS");
    assert_eq!(blocked["problems"][0]["fix"], "Add: customer.test CAA 0 issue \"one.ca\"");
    assert_eq!(authority.orders(), 0);
    platform.dns.set("customer.test", caa("one.ca"));
    platform.clock.advance(Duration::from_mins(2));
    let active = platform.domain_in("demo", SHOP, "active").await;
    assert_eq!((&active["certificate"]["ca"], authority.orders()), (&json!("one.ca"), 1));
}

// promise: domains.19
#[tokio::test]
async fn the_authority_that_caa_permits_and_that_answers_is_chosen() {
    let (one, two) = (FakeAuthority::new("one.ca"), FakeAuthority::new("two.ca"));
    let platform = with(&[&one, &two]).await;
    platform.dns.set("customer.test", caa("two.ca"));
    add(&platform).await;
    let active = platform.domain_in("demo", SHOP, "active").await;
    assert_eq!((&active["certificate"]["ca"], one.orders(), two.orders()), (&json!("two.ca"), 0, 1));
    // Without CAA the first authority is tried, and the second when it fails.
    let platform = with(&[&one, &two]).await;
    one.failures.lock().push(IssueError::RateLimited { until: None, message: "too many orders".to_owned() });
    add(&platform).await;
    let active = platform.domain_in("demo", SHOP, "active").await;
    assert_eq!((&active["certificate"]["ca"], one.orders(), two.orders()), (&json!("two.ca"), 1, 2));
}

// rule: 1.18
#[tokio::test]
async fn without_a_certificate_after_thirty_minutes_the_owner_must_act() {
    let authority = FakeAuthority::new("one.ca");
    for _ in 0..50 {
        authority.failures.lock().push(IssueError::Unreachable("connection refused".to_owned()));
    }
    let platform = with(&[&authority]).await;
    add(&platform).await;
    let issuing = platform.domain_when("demo", SHOP, |domain| domain["certificate"]["status"] == "failed").await;
    assert_eq!(
        (&issuing["status"], &issuing["problems"][0]["code"]),
        (&json!("issuing"), &json!("CHALLENGE_UNREACHABLE"))
    );
    assert!(issuing["certificate"]["next_attempt_at"].is_string());
    platform.clock.advance(Duration::from_mins(31));
    let delayed = platform.domain_in("demo", SHOP, "action_required").await;
    let codes: Vec<&Value> = delayed["problems"].as_array().unwrap().iter().map(|problem| &problem["code"]).collect();
    assert!(codes.contains(&&json!("CERT_DELAYED")), "{codes:?}");
    // Re-verify starts afresh, and this time the authority gets through.
    authority.failures.lock().clear();
    platform.clock.advance(Duration::from_secs(11));
    platform.operator("POST", &format!("/projects/demo/domains/{SHOP}/verify"), Value::Null).await;
    let active = platform.domain_in("demo", SHOP, "active").await;
    assert_eq!(active["problems"], json!([]));
}

#[tokio::test]
async fn failed_orders_are_repeated_after_growing_pauses() {
    let authority = FakeAuthority::new("one.ca");
    for _ in 0..50 {
        let words = "tcp connect error: Connection refused (os error 111)".to_owned();
        authority.failures.lock().push(IssueError::Unavailable(words));
    }
    let platform = with(&[&authority]).await;
    add(&platform).await;
    let failed = platform.domain_when("demo", SHOP, |domain| domain["certificate"]["attempts"] == 1).await;
    assert_eq!(failed["certificate"]["last_error"], "the certificate authority is not available");
    let events = platform.operator("GET", &format!("/projects/demo/domains/{SHOP}/events"), Value::Null).await;
    for read in [&failed, &events.body] {
        assert!(!read.to_string().contains("os error"), "what the system said is for operators: {read}");
    }
    for (attempts, minutes) in [(1, 1), (2, 10), (3, 100), (4, 24 * 60)] {
        let failed = |domain: &Value| domain["certificate"]["attempts"] == attempts;
        let domain = platform.domain_when("demo", SHOP, failed).await;
        assert_eq!(authority.orders(), attempts);
        // Spread by a fifth either way, and given in whole seconds.
        let wait = platform.seconds_until(&domain["certificate"]["next_attempt_at"]);
        assert!((minutes * 48 - 1..=minutes * 72).contains(&wait), "{wait} s after attempt {attempts}");
        platform.clock.advance(Duration::from_secs(wait.unsigned_abs() + 1));
    }
}

// rule: 1.13
#[tokio::test]
async fn certificates_are_renewed_with_a_third_of_their_life_left() {
    let authority = FakeAuthority::new("one.ca");
    let platform = with(&[&authority]).await;
    add(&platform).await;
    let first = platform.domain_in("demo", SHOP, "active").await["certificate"]["serial"].clone();
    let ends = published(&platform).await.unwrap();
    platform.clock.advance(Duration::from_hours(54 * 24));
    platform.domain_when("demo", SHOP, |domain| domain["checks"]["at"].as_str().unwrap() > "2026-08-07").await;
    assert_eq!(authority.orders(), 1, "not before its time");
    platform.clock.advance(Duration::from_hours(7 * 24));
    let renewed = platform.domain_when("demo", SHOP, |domain| domain["certificate"]["serial"] != first).await;
    assert_eq!((&renewed["status"], authority.orders()), (&json!("active"), 2));
    assert!(published(&platform).await.unwrap() > ends);
}

#[tokio::test]
async fn a_renewal_waits_while_the_name_points_elsewhere() {
    let authority = FakeAuthority::new("one.ca");
    let platform = with(&[&authority]).await;
    add(&platform).await;
    platform.domain_in("demo", SHOP, "active").await;
    platform.dns.clear(SHOP);
    platform.clock.advance(Duration::from_hours(65 * 24));
    platform.domain_when("demo", SHOP, |domain| domain["problems"][0]["code"] == "DNS_NO_RECORD").await;
    assert_eq!(authority.orders(), 1, "no renewal for a name that points elsewhere");
}

// promise: domains.28
#[tokio::test]
async fn a_wrong_certificate_replaces_nothing() {
    let authority = FakeAuthority::new("one.ca");
    let platform = with(&[&authority]).await;
    add(&platform).await;
    platform.domain_in("demo", SHOP, "active").await;
    let ends = published(&platform).await.unwrap();
    *authority.confused.lock() = Some("evil.customer.test");
    platform.clock.advance(Duration::from_hours(61 * 24));
    let failed = platform.domain_when("demo", SHOP, |domain| domain["certificate"]["status"] == "failed").await;
    assert_eq!(failed["status"], "active", "what works stays");
    assert!(failed["certificate"]["last_error"].as_str().unwrap().contains("is not for shop.customer.test"));
    assert_eq!(published(&platform).await, Some(ends));
}

#[tokio::test]
async fn without_an_authority_domains_wait_with_a_problem() {
    let platform = Platform::bent(Bend { authorities: Some(Authorities::default()), ..Bend::default() }).await;
    platform.project("demo", "pro").await;
    platform.operator("POST", "/projects/demo/domains", json!({ "name": "shop.localhost" })).await;
    let domain =
        platform.domain_when("demo", "shop.localhost", |domain| domain["certificate"]["status"] == "failed").await;
    assert_eq!((&domain["status"], &domain["problems"][0]["code"]), (&json!("issuing"), &json!("CA_UNAVAILABLE")));
    assert_eq!(domain["problems"][0]["who"], "us");
    let fix = domain["problems"][0]["fix"].as_str().unwrap();
    assert!(fix.contains("configure a certificate authority"), "{fix}");
}

#[tokio::test]
async fn our_names_in_caa_records_are_published() {
    let authority = FakeAuthority::new("one.ca");
    let platform = with(&[&authority]).await;
    let account = platform.owner("demo").get("/v1/acme-account").await;
    assert_eq!(account.body["accounts"][0]["caa"], "0 issue \"one.ca\"");
}
