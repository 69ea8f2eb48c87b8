//! Our own edge does not answer the authority: the fault is ours, and the name pays nothing.

use super::*;

async fn oldest_wait(platform: &Platform) -> i64 {
    let metrics = platform.metrics().await;
    let line = metrics.lines().find_map(|line| line.strip_prefix("domains_certificate_wait_oldest_timestamp_seconds "));
    line.unwrap().parse().unwrap()
}

#[tokio::test]
async fn without_a_live_gateway_no_order_is_made_and_the_first_gateway_ends_the_wait() {
    let ca = FakeCa::start().await;
    let platform = without_gateway(&[("one", &ca)]).await;
    add(&platform, SHOP).await;
    let waits = failed(&platform, "EDGE_UNAVAILABLE").await;
    let problem = &waits["problems"][0];
    assert_eq!((&problem["who"], &problem["severity"]), (&json!("us"), &json!("warning")));
    assert_eq!((&waits["status"], &waits["certificate"]["status"]), (&json!("issuing"), &json!("queued")));
    let start = crate::world::START.to_seconds().0;
    assert_eq!(oldest_wait(&platform).await, start);
    // Its owner need not act, however long it takes.
    platform.clock.advance(Duration::from_hours(3));
    let verified = platform.operator("POST", &format!("/projects/demo/domains/{SHOP}/verify"), Value::Null).await.body;
    assert_eq!((&verified["status"], verified["problems"].as_array().unwrap().len()), (&json!("issuing"), 1));
    assert_eq!((ca.requests(), &verified["certificate"]["attempts"]), (0, &json!(0)));
    assert_eq!(oldest_wait(&platform).await, start, "the alert is about the oldest name");
    platform.lives("live").await;
    platform.domain_in("demo", SHOP, "active").await;
    assert_eq!((oldest_wait(&platform).await, ca.orders()), (0, 1));
    // It dies without a goodbye.
    platform.dies("live").await;
    add(&platform, "later.customer.test").await;
    let waits = |domain: &Value| domain["problems"][0]["code"] == "EDGE_UNAVAILABLE";
    platform.domain_when("demo", "later.customer.test", waits).await;
    assert_eq!(ca.orders(), 1);
    let events = platform.operator("GET", &format!("/projects/demo/domains/{SHOP}/events"), Value::Null).await.body;
    let recorded =
        |kind: &str| events["events"].as_array().unwrap().iter().filter(|event| event["type"] == kind).count();
    assert_eq!((recorded("domain.certificate.waiting"), recorded("domain.certificate.failed")), (1, 0));
}

#[tokio::test]
async fn each_cause_of_a_failed_proof_names_the_party_that_must_act() {
    let ca = FakeCa::start().await;
    let platform = platform(&[("one", &ca)]).await;
    for (number, (kind, detail, code, who, attempts)) in [
        ("connection", "203.0.113.10: Fetching http://x/: Connection refused", "EDGE_UNAVAILABLE", "us", 0),
        ("connection", "dial tcp 203.0.113.10:80: connect: connection refused", "EDGE_UNAVAILABLE", "us", 0),
        ("connection", "198.51.100.7: Fetching http://x/: Connection refused", "CHALLENGE_UNREACHABLE", "you", 1),
        ("unauthorized", "203.0.113.10: Invalid response: 404", "CHALLENGE_UNREACHABLE", "you", 1),
        ("dns", "DNS problem: SERVFAIL looking up CAA", "CHALLENGE_UNREACHABLE", "you", 1),
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("shop{number}.customer.test");
        ca.fail(&name, Some((kind, detail)));
        add(&platform, &name).await;
        let domain = platform.domain_when("demo", &name, |domain| domain["problems"][0]["code"] == code).await;
        let problem = &domain["problems"][0];
        assert_eq!((&problem["who"], &domain["certificate"]["attempts"]), (&json!(who), &json!(attempts)), "{detail}");
        assert_eq!(problem["severity"], if who == "us" { "warning" } else { "error" }, "{detail}");
        let wait = platform.seconds_until(&domain["certificate"]["next_attempt_at"]);
        assert!(if who == "us" { (900..920).contains(&wait) } else { (40..80).contains(&wait) }, "{detail}: {wait}");
        // As soon as the edge answers again, the certificate comes by itself.
        ca.fail(&name, None);
        platform.clock.advance(Duration::from_mins(16));
        platform.domain_in("demo", &name, "active").await;
    }
}

#[tokio::test]
async fn while_the_authority_cannot_connect_to_us_one_name_at_a_time_tries() {
    let ca = FakeCa::start().await;
    let platform = platform(&[("one", &ca)]).await;
    let names: Vec<String> = (0..8).map(|number| format!("shop{number}.customer.test")).collect();
    for name in &names {
        ca.fail(name, Some(("connection", "203.0.113.10: Fetching http://x/: Connection refused")));
    }
    let waits = |domain: &Value| {
        let next = &domain["certificate"]["next_attempt_at"];
        let is_later = next.is_string() && platform.seconds_until(next) > 0;
        domain["problems"][0]["code"] == "EDGE_UNAVAILABLE" && is_later
    };
    add(&platform, &names[0]).await;
    platform.domain_when("demo", &names[0], waits).await;
    for name in &names[1..] {
        add(&platform, name).await;
        platform.domain_when("demo", name, waits).await;
    }
    assert_eq!(ca.orders(), 1, "the others wait for its end without an order");
    for _ in 0..12 {
        platform.clock.advance(Duration::from_mins(5));
        for name in &names {
            platform.domain_when("demo", name, waits).await;
        }
    }
    assert!(ca.orders() <= 14, "{} orders in an hour", ca.orders());
    for name in &names {
        ca.fail(name, None);
    }
    platform.clock.advance(Duration::from_mins(16));
    // The others wait for the one that tries.
    for _ in 0..3 {
        for name in &names {
            platform.domain_when("demo", name, |domain| domain["status"] == "active" || waits(domain)).await;
        }
        platform.clock.advance(Duration::from_mins(1));
    }
    for name in &names {
        platform.domain_in("demo", name, "active").await;
    }
}
