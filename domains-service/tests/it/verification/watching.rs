//! Checks of a domain for as long as it is attached: every day, and when a visitor comes.

use chassis::clock::Clock as _;
use domains_api::moment::rfc3339;

use super::*;

#[tokio::test]
async fn a_name_is_checked_every_day_for_as_long_as_it_is_attached() {
    let platform = with_zone().await;
    add(&platform, "demo", SHOP).await;
    for day in 0..20 {
        platform.clock.advance(Duration::from_hours(29));
        let looks_again = |domain: &Value| {
            let next = &domain["next_check_at"];
            next.is_string() && (1..=29 * 3_600).contains(&platform.seconds_until(next))
        };
        let domain = platform.domain_when("demo", SHOP, looks_again).await;
        assert_eq!(domain["status"], "pending_dns", "day {day}");
    }
    platform.dns.set(SHOP, RecordData::Cname(target(&platform, "demo").await));
    platform.clock.advance(Duration::from_hours(29));
    platform.domain_in("demo", SHOP, "active").await;
}

#[tokio::test]
async fn a_handshake_for_a_domain_that_waits_for_its_records_makes_it_due_at_most_once_a_minute() {
    let platform = with_zone().await;
    add(&platform, "demo", SHOP).await;
    // Days later it is looked at rarely.
    for _ in 0..9 {
        platform.clock.advance(Duration::from_hours(29));
        let looks_again = |domain: &Value| {
            let next = &domain["next_check_at"];
            next.is_string() && platform.seconds_until(next) > 0
        };
        platform.domain_when("demo", SHOP, looks_again).await;
    }
    platform.clock.advance(Duration::from_mins(10));
    let handshakes = async |names: &[&str]| {
        let body = json!({ "node": "edge", "applied": 0, "version": "1", "unserved": names });
        assert_eq!(platform.edge("nodes", body).await.status, 204);
    };
    let count = async |result: &str| {
        let metrics = platform.metrics().await;
        let name = format!("domains_handshake_checks_total{{result=\"{result}\"}} ");
        metrics.lines().find_map(|line| line.strip_prefix(&name)).unwrap().parse::<u64>().unwrap()
    };
    let before = platform.dns.asked(SHOP);
    handshakes(&[SHOP, "unknown.example", "other.customer.test"]).await;
    let again = |domain: &Value| domain["checks"]["at"] == json!(rfc3339(platform.clock.now()));
    let domain = platform.domain_when("demo", SHOP, again).await;
    assert_eq!((&domain["status"], count("due").await, count("not_due").await), (&json!("pending_dns"), 1, 2));
    let asked = platform.dns.asked(SHOP);
    assert!(asked > before);
    handshakes(&[SHOP]).await;
    assert_eq!((count("due").await, count("not_due").await), (1, 3), "not again within a minute");
    platform.dns.set(SHOP, RecordData::Cname(target(&platform, "demo").await));
    platform.clock.advance(Duration::from_mins(1));
    handshakes(&[SHOP]).await;
    platform.domain_in("demo", SHOP, "active").await;
    handshakes(&[SHOP]).await;
    assert_eq!(count("due").await, 2, "an active domain is not looked at");
}
