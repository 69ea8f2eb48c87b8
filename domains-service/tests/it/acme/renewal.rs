//! Renewal: on the authority's advice, with a reference to the replaced certificate.

use super::*;

/// Days after [`crate::world::START`], in seconds since the epoch.
fn day(number: i64) -> i64 {
    crate::world::START.to_seconds().0 + number * 86_400
}

async fn serial(platform: &Platform) -> Value {
    platform.domain_in("demo", SHOP, "active").await["certificate"]["serial"].clone()
}

// promise: domains.22
#[tokio::test]
async fn a_window_that_moves_into_the_past_renews_at_the_next_question() {
    let ca = FakeCa::start().await;
    ca.window(Some((day(50), day(52))));
    let platform = platform(&[("one", &ca)]).await;
    add(&platform, SHOP).await;
    let first = serial(&platform).await;
    // The first request for advice follows after an hour, the next six hours later.
    platform.clock.advance(Duration::from_mins(61));
    let advised = |domain: &Value| {
        domain["certificate"]["renew_at"].as_str().unwrap_or_default() > "2026-08-03"
            && domain["certificate"]["renew_at"].as_str().unwrap_or_default() < "2026-08-07"
    };
    platform.domain_when("demo", SHOP, advised).await;
    ca.window(Some((day(-2), day(-1))));
    platform.clock.advance(Duration::from_hours(6));
    platform.domain_when("demo", SHOP, |domain| domain["certificate"]["serial"] != first).await;
    assert_eq!(ca.replaced().len(), 1, "the new order says which certificate it replaces");
    assert_eq!(ca.orders(), 2);
}

// promise: domains.22
#[tokio::test]
async fn a_certificate_that_has_a_successor_already_is_renewed_like_any_other() {
    let ca = FakeCa::start().await;
    ca.window(Some((day(50), day(52))));
    ca.already_replaced();
    let platform = platform(&[("one", &ca)]).await;
    add(&platform, SHOP).await;
    let first = serial(&platform).await;
    platform.clock.advance(Duration::from_hours(61 * 24));
    platform.domain_when("demo", SHOP, |domain| domain["certificate"]["serial"] != first).await;
    assert_eq!((ca.replaced().len(), ca.orders()), (1, 2));
}

// promise: domains.22
#[tokio::test]
async fn an_authority_without_advice_is_renewed_from_by_the_rule() {
    let ca = FakeCa::start().await;
    let platform = platform(&[("one", &ca)]).await;
    add(&platform, SHOP).await;
    let first = serial(&platform).await;
    platform.clock.advance(Duration::from_hours(61 * 24));
    platform.domain_when("demo", SHOP, |domain| domain["certificate"]["serial"] != first).await;
    assert_eq!((ca.replaced().len(), ca.orders()), (0, 2));
}
