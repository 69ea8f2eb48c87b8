//! Removing domains: confirmed by every live gateway, or answered with the names of the others.

use contract::feed::{Effect, EntityName};
use serde_json::{Value, json};

use crate::world::Platform;

const SHOP: &str = "/v1/projects/demo/domains/shop.localhost";

async fn with_shop() -> (Platform, u64) {
    let platform = Platform::start().await;
    platform.project("demo", "pro").await;
    platform.local_domain("demo", json!({ "name": "shop.localhost" })).await;
    let revision = platform.follow(0).await.snapshot().await.1;
    (platform, revision)
}

// rule: 1.19
#[tokio::test]
async fn a_removal_is_answered_when_every_live_gateway_has_applied_it() {
    let (platform, revision) = with_shop().await;
    for node in ["a", "b", "c"] {
        platform.report(node, revision).await;
    }
    let mut stream = platform.follow(revision).await;
    let gateways = async {
        let mut last = revision;
        let mut removed = Vec::new();
        while removed.len() < 2 {
            let change = stream.change().await;
            last = change.revision.0;
            if let Effect::Remove(name) = change.effect {
                removed.push(name);
            }
        }
        for node in ["a", "b", "c"] {
            platform.report(node, last).await;
        }
        removed
    };
    let owner = platform.owner("demo");
    let (answer, removed) = tokio::join!(owner.send("DELETE", SHOP, Value::Null), gateways);
    assert_eq!(answer.status, 204, "{answer:?}");
    assert_eq!(answer.header("x-edge-ack").split_once(';').unwrap().0, "3/3");
    assert!(removed.contains(&EntityName::Site("shop.localhost".parse().unwrap())));
    assert!(removed.contains(&EntityName::Certificate("shop.localhost".parse().unwrap())));
    assert_eq!(owner.get(SHOP).await.code(), (404, "domain_not_found"));
    let events = owner.get(&format!("{SHOP}/events")).await;
    assert_eq!((events.status, &events.body["events"][0]["type"]), (200, &json!("domain.removed")));
}

// promise: domains.2, faults.18
#[tokio::test]
async fn a_lagging_gateway_is_named_and_the_removal_ends_when_it_has_caught_up() {
    let (platform, revision) = with_shop().await;
    platform.report("slow", revision).await;
    let owner = platform.owner("demo");
    let answer = platform.while_following("quick", owner.send("DELETE", SHOP, Value::Null)).await;
    assert_eq!((answer.status, &answer.body), (202, &json!({ "lagging": ["tests/slow"] })));
    assert!(answer.header("x-edge-ack").starts_with("1/2; "));
    assert_eq!(owner.get(SHOP).await.body["status"], "removing");
    let again = owner.send("POST", "/v1/projects/demo/domains", json!({ "name": "shop.localhost" })).await;
    assert_eq!(again.code(), (409, "removal_in_progress"));
    let verified = owner.send("POST", &format!("{SHOP}/verify"), Value::Null).await;
    assert_eq!(verified.code(), (409, "removal_in_progress"));
    let again = owner.send("DELETE", SHOP, Value::Null).await;
    assert_eq!(
        (again.status, &again.body),
        (202, &json!({ "lagging": ["tests/slow"] })),
        "asked again, answered the same way"
    );
    for node in ["quick", "slow"] {
        platform.report(node, platform.newest_revision().await).await;
    }
    platform.domain_when("demo", "shop.localhost", |domain| domain["code"] == "domain_not_found").await;
}

#[tokio::test]
async fn a_redirects_target_is_removed_only_together_with_the_redirects() {
    let (platform, _) = with_shop().await;
    let body = json!({ "name": "old.localhost", "redirect": { "to": "shop.localhost" } });
    platform.local_domain("demo", body).await;
    let owner = platform.owner("demo");
    let refused = owner.send("DELETE", SHOP, Value::Null).await;
    assert_eq!(refused.code(), (409, "primary_in_use"));
    assert_eq!(refused.body["details"], json!({ "redirecting": ["old.localhost"] }));
    let both = owner.send("DELETE", &format!("{SHOP}?with_redirects=true"), Value::Null).await;
    assert_eq!(both.status, 204);
    assert_eq!(owner.get("/v1/projects/demo/domains").await.body["domains"], json!([]));
    let wrong = owner.send("DELETE", &format!("{SHOP}?with_redirects=perhaps"), Value::Null).await;
    assert_eq!(wrong.code(), (400, "invalid_query"));
}

// promise: domains.5
#[tokio::test]
async fn a_removed_domain_is_not_renewed_and_can_be_added_again() {
    let (platform, _) = with_shop().await;
    let owner = platform.owner("demo");
    assert_eq!(owner.send("DELETE", SHOP, Value::Null).await.status, 204);
    let revision = platform.follow(0).await.snapshot().await.1;
    platform.clock.advance(std::time::Duration::from_hours(90 * 24));
    let mut stream = platform.follow(revision).await;
    // The worker claims everything due when it reconciles the next one, and has finished before the one after that.
    for later in ["later.localhost", "last.localhost", "shop.localhost"] {
        platform.local_domain("demo", json!({ "name": later })).await;
        for _ in 0..2 {
            let change = stream.change().await;
            let text = serde_json::to_string(&change.effect).unwrap();
            assert!(text.contains(later), "{text}");
        }
    }
}
