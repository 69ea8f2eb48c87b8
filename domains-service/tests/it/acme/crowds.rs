//! Many domains, many workers, and a long outage of the authority.

use std::sync::Arc;

use super::*;

/// New orders per account in three hours at Let's Encrypt.
const ORDERS_MAX: usize = 300;

// promise: domains.24
#[tokio::test]
async fn domains_added_all_at_once_never_meet_the_authoritys_limit() {
    let ca = FakeCa::start().await;
    ca.orders_max(ORDERS_MAX);
    let platform = platform(&[("one", &ca)]).await;
    let (projects, each) = (8, 50);
    for project in 0..projects {
        let project = format!("tenant{project}");
        platform.project(&project, "enterprise").await;
        for number in 0..each {
            add_to(&platform, &project, &format!("shop.{project}-{number}.test")).await;
        }
    }
    let (mut active, mut waiting) = (0, 0);
    for project in 0..projects {
        let project = format!("tenant{project}");
        for number in 0..each {
            let name = format!("shop.{project}-{number}.test");
            let limited = |domain: &Value| domain["certificate"]["queue"].is_object();
            let settled = |domain: &Value| domain["status"] == "active" || limited(domain);
            let domain = platform.domain_when(&project, &name, settled).await;
            active += usize::from(domain["status"] == "active");
            waiting += usize::from(limited(&domain));
        }
    }
    assert_eq!((active, waiting), (ORDERS_MAX, projects * each - ORDERS_MAX));
    assert_eq!((ca.orders(), ca.refused()), (ORDERS_MAX, 0), "we wait before we are refused");
    // One more order every 36 seconds: all of them have their turn in an hour, and a twentieth more.
    ca.orders_max(projects * each);
    for step in 1..=3 {
        platform.clock.advance(Duration::from_mins(21));
        let turns = (ORDERS_MAX + 35 * step - 1).min(projects * each);
        eventually(async || {
            let metrics = platform.metrics().await;
            let active = metrics.lines().find_map(|line| line.strip_prefix("domains_state{state=\"active\"} "));
            let active: usize = active.and_then(|count| count.parse().ok()).unwrap_or(0);
            if active >= turns { Ok(()) } else { Err(format!("{active} of {turns} have a certificate")) }
        })
        .await;
    }
    assert_eq!((ca.orders(), ca.refused()), (projects * each, 0));
}

// promise: domains.18
#[tokio::test]
async fn after_an_outage_orders_continue_within_minutes_and_no_attempt_is_counted() {
    let ca = FakeCa::start().await;
    let platform = platform(&[("one", &ca)]).await;
    // The account is created before the outage.
    add(&platform, SHOP).await;
    platform.domain_in("demo", SHOP, "active").await;
    ca.refuse(&vec![(500, "serverInternal", None); 1_000]);
    let names: Vec<String> = (0..5).map(|number| format!("shop.customer{number}.test")).collect();
    for name in &names {
        add(&platform, name).await;
    }
    for name in &names {
        platform.domain_when("demo", name, |domain| domain["problems"][0]["code"] == "CA_UNAVAILABLE").await;
    }
    let asked = ca.requests();
    for round in 0..72 {
        platform.clock.advance(Duration::from_mins(5));
        let name = &names[round % names.len()];
        // An impatient owner makes it no worse.
        platform.operator("POST", &format!("/projects/demo/domains/{name}/verify"), Value::Null).await;
    }
    for name in &names {
        let domain = platform.domain_in("demo", name, "issuing").await;
        assert_eq!((&domain["certificate"]["attempts"], &domain["problems"][0]["who"]), (&json!(0), &json!("us")));
    }
    let asked = ca.requests() - asked;
    assert!(asked <= 72 * 4, "an authority that is away was asked {asked} times in six hours");
    ca.refuse(&[]);
    for _ in 0..14 {
        platform.clock.advance(Duration::from_secs(30));
        let settled = |domain: &Value| {
            let is_later = |time: &Value| time.is_string() && platform.seconds_until(time) > 0;
            let certificate = &domain["certificate"];
            let waits = is_later(&certificate["next_attempt_at"]) || is_later(&certificate["queue"]["at"]);
            domain["status"] == "active" || waits
        };
        for name in &names {
            platform.domain_when("demo", name, settled).await;
        }
    }
    for name in &names {
        platform.domain_in("demo", name, "active").await;
    }
}

// promise: domains.21
#[tokio::test]
async fn two_control_planes_over_one_database_ask_for_one_certificate_per_name() {
    let ca = FakeCa::start().await;
    let first = platform(&[("one", &ca)]).await;
    let ours = Authorities { local: Some(local_authority()), public: Vec::new() };
    let bend = Bend {
        directory: Some(Arc::clone(&first.directory)),
        authorities: Some(ours),
        acme: vec![ca.settings("one")],
        ..Bend::default()
    };
    let second = Platform::bent(bend).await;
    second.lives("live").await;
    second.project("other", "enterprise").await;
    for number in 0..20 {
        let name = format!("shop.customer{number}.test");
        add_to(&second, "other", &name).await;
    }
    first.dns.take_over(&second.dns);
    for number in 0..20 {
        let name = format!("shop.customer{number}.test");
        // Each may have checked before the other's DNS was scripted; on request it checks again.
        second.operator("POST", &format!("/projects/other/domains/{name}/verify"), Value::Null).await;
        first.domain_in("other", &name, "active").await;
    }
    assert_eq!((ca.orders(), ca.certificates()), (20, 20));
}

// promise: domains.23
#[tokio::test]
async fn a_project_whose_orders_hang_delays_no_other_project() {
    let ca = FakeCa::start().await;
    // From here on the authority accepts requests and answers none.
    ca.stop_at(1, false);
    let platform = platform(&[("one", &ca)]).await;
    platform.project("many", "enterprise").await;
    for number in 0..40 {
        add_to(&platform, "many", &format!("shop.customer{number}.test")).await;
    }
    let waits = |domain: &Value| domain["status"] == "issuing";
    platform.domain_when("many", "shop.customer0.test", waits).await;
    // Another project's name gets its first check at once, and a local name its certificate.
    add(&platform, SHOP).await;
    platform.domain_when("demo", SHOP, waits).await;
    platform.local_domain("demo", json!({ "name": "shop.localhost" })).await;
    assert_eq!(ca.certificates(), 0);
}

// promise: domains.16
#[tokio::test]
async fn proofs_that_failed_use_up_no_certificates() {
    let ca = FakeCa::start().await;
    ca.fail(SHOP, Some(("unauthorized", "the proof was not there")));
    let platform = platform(&[("one", &ca)]).await;
    add(&platform, SHOP).await;
    // As many orders as an exact name may have certificates in a week, with room for failures in between.
    for attempt in 1..=6 {
        // The schedule and the owner may both have caused an attempt, so there may be more.
        let tried = |domain: &Value| domain["certificate"]["attempts"].as_u64() >= Some(attempt);
        platform.domain_when("demo", SHOP, tried).await;
        platform.clock.advance(Duration::from_mins(15));
        if attempt == 6 {
            ca.fail(SHOP, None);
        }
        platform.operator("POST", &format!("/projects/demo/domains/{SHOP}/verify"), Value::Null).await;
    }
    platform.domain_in("demo", SHOP, "active").await;
}

// promise: domains.15
#[tokio::test]
async fn a_restart_remembers_which_account_caa_records_name() {
    let ca = FakeCa::start().await;
    let mut first = platform(&[("one", &ca)]).await;
    add(&first, SHOP).await;
    first.domain_in("demo", SHOP, "active").await;
    let account = first.owner("demo").get("/v1/acme-account").await.body["accounts"][0]["account_uri"].clone();
    assert!(account.is_string(), "{account}");
    first.stop().await;
    let bend = Bend {
        directory: Some(first.directory.clone()),
        authorities: Some(Authorities { local: Some(local_authority()), public: Vec::new() }),
        acme: vec![ca.settings("one")],
        ..Bend::default()
    };
    let second = Platform::bent(bend).await;
    second.lives("live").await;
    second.dns.take_over(&first.dns);
    let line = format!("one.example; accounturi={}", account.as_str().unwrap());
    let record = verification::CaaRecord { flags: 0, tag: "issue".to_owned(), value: line.into_bytes() };
    second.dns.set("customer.test", RecordData::Caa(record));
    second.clock.advance(Duration::from_hours(25));
    let looked = |domain: &Value| domain["checks"]["at"].as_str().unwrap_or_default() > "2026-06-16";
    let domain = second.domain_when("demo", SHOP, looked).await;
    assert_eq!((&domain["status"], &domain["problems"]), (&json!("active"), &json!([])));
}

// promise: domains.18
#[tokio::test]
async fn an_authority_that_fails_twice_delays_and_loses_nothing() {
    let ca = FakeCa::start().await;
    ca.refuse(&[(500, "serverInternal", None); 2]);
    let platform = platform(&[("one", &ca)]).await;
    add(&platform, SHOP).await;
    let domain = failed(&platform, "CA_UNAVAILABLE").await;
    assert_eq!((&domain["status"], &domain["problems"][0]["who"]), (&json!("issuing"), &json!("us")));
    let first = domain["certificate"]["next_attempt_at"].clone();
    platform.clock.advance(Duration::from_secs(30));
    platform.domain_when("demo", SHOP, |domain| domain["certificate"]["next_attempt_at"] != first).await;
    platform.clock.advance(Duration::from_mins(1));
    let domain = platform.domain_in("demo", SHOP, "active").await;
    assert_eq!(domain["problems"], json!([]), "what is solved is not shown any more");
}
