//! The queue of orders: places by arrival, for as long as the name waits, and through outages.

use super::*;

/// New orders of one project in three hours: a room every three minutes.
const PROJECT_ORDERS: usize = 60;
const ROOM: Duration = Duration::from_mins(3);

fn name(number: usize) -> String {
    format!("shop.customer{number}.test")
}

/// A platform whose project `many` has used up its orders, and then adds `waiting` names more, in this order.
async fn with_queue(ca: &FakeCa, waiting: usize) -> Platform {
    let platform = platform(&[("one", ca)]).await;
    platform.project("many", "enterprise").await;
    for number in 0..PROJECT_ORDERS {
        add_to(&platform, "many", &name(number)).await;
    }
    for number in 0..PROJECT_ORDERS {
        platform.domain_in("many", &name(number), "active").await;
    }
    for number in PROJECT_ORDERS..PROJECT_ORDERS + waiting {
        add_to(&platform, "many", &name(number)).await;
        let place = number - PROJECT_ORDERS + 1;
        platform.domain_when("many", &name(number), |domain| domain["certificate"]["queue"]["number"] == place).await;
    }
    platform
}

/// Waits until a name has this place: it waits for a gateway first if none was live at that moment.
async fn has_place(platform: &Platform, number: usize, place: usize) {
    platform.domain_when("many", &name(number), |domain| domain["certificate"]["queue"]["number"] == place).await;
}

async fn verify(platform: &Platform, number: usize) -> Value {
    let path = format!("/projects/many/domains/{}/verify", name(number));
    let answer = platform.operator("POST", &path, Value::Null).await;
    assert!(matches!(answer.status, 200 | 202 | 429), "{answer:?}");
    answer.body
}

async fn active(platform: &Platform, number: usize) -> Value {
    platform.domain_in("many", &name(number), "active").await
}

// promise: domains.24
#[tokio::test]
async fn verify_shows_the_place_in_the_queue_and_does_not_change_it() {
    let ca = FakeCa::start().await;
    let platform = with_queue(&ca, 3).await;
    let [first, second, third] = [PROJECT_ORDERS, PROJECT_ORDERS + 1, PROJECT_ORDERS + 2];
    let domain = verify(&platform, third).await;
    assert_eq!((&domain["status"], &domain["certificate"]["status"]), (&json!("issuing"), &json!("queued")));
    assert_eq!(domain["certificate"]["queue"]["number"], 3);
    let turn = platform.seconds_until(&domain["certificate"]["queue"]["at"]);
    assert!((3 * 180 - 2..=3 * 180).contains(&turn), "{turn}");
    assert_eq!(domain["problems"][0]["code"], "CERT_QUEUED");
    assert_eq!(
        (&domain["problems"][0]["severity"], &domain["certificate"]["attempts"]),
        (&json!("warning"), &json!(0))
    );
    // The room is there, and the third in line asks before anybody else.
    platform.clock.advance(ROOM);
    verify(&platform, third).await;
    active(&platform, first).await;
    has_place(&platform, second, 1).await;
    has_place(&platform, third, 2).await;
    platform.clock.advance(ROOM);
    active(&platform, second).await;
    has_place(&platform, third, 1).await;
    platform.clock.advance(ROOM);
    active(&platform, third).await;
    let events = platform.operator("GET", &format!("/projects/many/domains/{}/events", name(third)), Value::Null).await;
    let recorded: Vec<&str> =
        events.body["events"].as_array().unwrap().iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert!(!recorded.contains(&"domain.certificate.failed"), "{recorded:?}");
    assert!(recorded.contains(&"domain.certificate.waiting"), "{recorded:?}");
}

#[tokio::test]
async fn places_of_removed_names_are_free_at_once() {
    let ca = FakeCa::start().await;
    let platform = with_queue(&ca, 12).await;
    let last = PROJECT_ORDERS + 11;
    for number in PROJECT_ORDERS..last {
        let removed =
            platform.operator("DELETE", &format!("/projects/many/domains/{}", name(number)), Value::Null).await;
        assert!(matches!(removed.status, 202 | 204), "{removed:?}");
    }
    has_place(&platform, last, 1).await;
    platform.clock.advance(ROOM);
    active(&platform, last).await;
}

#[tokio::test]
async fn a_name_that_only_waits_in_the_queue_is_not_checked() {
    let ca = FakeCa::start().await;
    let platform = with_queue(&ca, 8).await;
    let last = PROJECT_ORDERS + 7;
    let asked = platform.dns.asked(&name(last));
    for served in 0..7 {
        platform.clock.advance(ROOM);
        active(&platform, PROJECT_ORDERS + served).await;
    }
    has_place(&platform, last, 1).await;
    assert_eq!(platform.dns.asked(&name(last)), asked);
    platform.clock.advance(ROOM);
    active(&platform, last).await;
}

#[tokio::test]
async fn a_name_whose_record_disappears_leaves_the_queue() {
    let ca = FakeCa::start().await;
    let platform = with_queue(&ca, 2).await;
    let [first, second] = [PROJECT_ORDERS, PROJECT_ORDERS + 1];
    platform.dns.clear(&name(first));
    platform.clock.advance(ROOM);
    platform.domain_in("many", &name(first), "pending_dns").await;
    active(&platform, second).await;
    let gone = platform.domain_in("many", &name(first), "pending_dns").await;
    assert_eq!((&gone["certificate"]["queue"], &gone["certificate"]["status"]), (&Value::Null, &json!("none")));
}

#[tokio::test]
async fn a_name_that_the_authority_refuses_at_its_turn_gives_up_its_place() {
    let ca = FakeCa::start().await;
    let platform = with_queue(&ca, 3).await;
    let [first, second, third] = [PROJECT_ORDERS, PROJECT_ORDERS + 1, PROJECT_ORDERS + 2];
    ca.refuse(&[(429, "rateLimited", Some(86_400))]);
    platform.clock.advance(ROOM);
    let is_limited = |domain: &Value| domain["problems"][0]["code"] == "CA_RATE_LIMITED";
    let limited = platform.domain_when("many", &name(first), is_limited).await;
    assert_eq!(limited["certificate"]["queue"], Value::Null);
    // Longer than its admission lasts.
    platform.clock.advance(2 * ROOM);
    active(&platform, second).await;
    active(&platform, third).await;
}

// promise: domains.18
#[tokio::test]
async fn an_outage_ends_by_an_answer_only_and_a_turn_that_fell_into_it_stays_the_first() {
    let ca = FakeCa::start().await;
    let platform = with_queue(&ca, 2).await;
    let [first, second] = [PROJECT_ORDERS, PROJECT_ORDERS + 1];
    let refusals = vec![(500, "serverInternal", None); 1_000];
    ca.refuse(&refusals);
    platform.clock.advance(ROOM);
    let away = |domain: &Value| domain["problems"][0]["code"] == "CA_UNAVAILABLE";
    let waits = platform.domain_when("many", &name(first), away).await;
    assert_eq!((&waits["certificate"]["status"], &waits["certificate"]["attempts"]), (&json!("queued"), &json!(0)));
    // Names of another project wait for the authority too, without a request of their own.
    platform.project("other", "enterprise").await;
    for number in 0..5 {
        add_to(&platform, "other", &format!("shop.other{number}.test")).await;
    }
    for number in 0..5 {
        platform.domain_when("other", &format!("shop.other{number}.test"), away).await;
    }
    let asked = ca.requests();
    for _ in 0..2 {
        platform.clock.advance(Duration::from_secs(29));
        // This name waits for its turn, so its request says nothing about the authority.
        verify(&platform, second).await;
    }
    let asked = ca.requests() - asked;
    assert!(asked <= 2 * 4, "an authority that is away was asked {asked} times");
    // The authority is back. One name at a time tests it, and the others follow within 40 seconds.
    ca.refuse(&[]);
    let tested = |domain: &Value| {
        let next = &domain["certificate"]["next_attempt_at"];
        domain["status"] == "active" || (next.is_string() && platform.seconds_until(next) > 0)
    };
    for _ in 0..6 {
        platform.clock.advance(Duration::from_secs(42));
        platform.domain_when("many", &name(first), tested).await;
    }
    active(&platform, first).await;
    // An outage longer than a lease costs the first name a second unit.
    platform.clock.advance(ROOM);
    active(&platform, second).await;
}
