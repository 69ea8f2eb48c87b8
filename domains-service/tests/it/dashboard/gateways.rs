//! Reports of gateways about keys, as the owners of the keys and the operators read them.

use chassis::clock::Clock as _;
use serde_json::{Value, json};

use super::{Browser, browser};
use crate::world::Platform;

const KEYS: &str = "/projects/demo/keys";

/// A gateway's report of keys; the status it is answered with.
async fn report(platform: &Platform, node: &str, used: &[(&str, i64)], bans: &[Value], total: u64) -> u16 {
    let used: Vec<Value> = used.iter().map(|(key, minute)| json!({ "key": key, "minute": minute })).collect();
    let body = json!({ "node": node, "used": used, "bans": bans, "bans_total": total });
    let request = platform.client.post(format!("{}/internal/edge/keys", platform.internal));
    let request = request.bearer_auth(platform.gateway().await).json(&body);
    request.send().await.unwrap().status().as_u16()
}

fn now(platform: &Platform) -> i64 {
    platform.clock.now_seconds().0
}

fn ban(platform: &Platform, key: &str, seconds: i64, reason: &str, shadow: bool) -> Value {
    let since = now(platform);
    json!({ "key": key, "since": since, "until": since + seconds, "reason": reason, "level": 2, "shadow": shadow })
}

async fn demo() -> Platform {
    let platform = Platform::start().await;
    platform.project("demo", "pro").await;
    platform
}

/// A key of the project, by its label.
async fn key(platform: &Platform, label: &str) -> String {
    let body = json!({ "label": label, "scopes": ["orders:read"] });
    let made = platform.operator("POST", KEYS, body).await;
    made.body["id"].as_str().unwrap().to_owned()
}

async fn operator(platform: &Platform) -> Browser<'_> {
    let link = platform.operator("POST", "/dashboard-links", Value::Null).await;
    let secret = link.body["path"].as_str().unwrap().strip_prefix("/enter?link=").unwrap().to_owned();
    let mut browser = Browser::new(platform);
    let entered = browser.send("POST", "/enter", &[("link", &secret)], &[("origin", &browser::origin())]).await;
    assert_eq!(entered.status, 303);
    browser
}

#[tokio::test]
async fn a_key_shows_its_last_use() {
    let platform = demo().await;
    let id = key(&platform, "checkout").await;
    let mut browser = Browser::signed_in(&platform, "demo", &["domains:read", "keys:write"]).await;
    let page = browser.get(KEYS).await;
    page.says("Never used");
    page.says("Used less than a minute ago"); // the one that somebody just signed in with
    let listed = async || {
        let keys = platform.operator("GET", KEYS, Value::Null).await.body;
        let keys = keys["keys"].as_array().unwrap().clone();
        keys.iter().find(|key| key["id"] == id.as_str()).unwrap()["last_used_at"].clone()
    };
    assert_eq!(listed().await, Value::Null);

    let minute = now(&platform) / 60;
    assert_eq!(report(&platform, "gw-1", &[(&id, minute)], &[], 0).await, 204);
    assert_eq!(listed().await, "2026-06-15T00:00:00Z");
    platform.clock.advance(std::time::Duration::from_secs(5 * 60 + 10));
    assert_eq!(report(&platform, "gw-2", &[(&id, minute - 7)], &[], 0).await, 204);
    assert_eq!(listed().await, "2026-06-15T00:00:00Z", "another gateway saw it earlier: that changes nothing");
    browser.get(KEYS).await.says("Used 5 minutes ago");
    assert_eq!(report(&platform, "gw-2", &[(&id, minute + 1_000)], &[], 0).await, 204);
    assert_eq!(listed().await, "2026-06-15T00:05:00Z", "a time in the future is ignored");
    assert_eq!(report(&platform, "gw-2", &[("key_aaaaaaaaaaaaaaaa", minute)], &[], 0).await, 204, "it may be gone");

    platform.operator("DELETE", &format!("{KEYS}/{id}"), Value::Null).await;
    let page = browser.get(KEYS).await;
    let (_, gone) = page.text.split_once("id=\"gone\"").unwrap();
    assert!(gone.contains("less than a minute ago"), "a revoked key says so too: {gone}");
}

#[tokio::test]
async fn bans_are_shown_to_operators_and_to_owners_of_the_key() {
    let platform = demo().await;
    let (checkout, robot) = (key(&platform, "checkout").await, key(&platform, "").await);
    let mut owner = Browser::signed_in(&platform, "demo", &["domains:read", "keys:write"]).await;
    let mut operator = operator(&platform).await;
    operator.get("/operator").await.says("No banned keys.");

    let bans = [
        ban(&platform, &checkout, 300, "strikes", false),
        ban(&platform, &robot, 60, "operator", false),
        ban(&platform, "key_aaaaaaaaaaaaaaaa", 30, "strikes", true),
    ];
    for node in ["gw-1", "gw-2"] {
        assert_eq!(report(&platform, node, &[], &bans, 3).await, 204, "gateways that share a store say the same");
    }
    let page = operator.get("/operator").await;
    for words in [
        "checkout demo · went on sending after 429, for the second time in a day · until 2026-06-15 00:05 UTC, in 5 minutes",
        "banned by an operator",
        "a key that is gone · went on sending after 429, for the second time in a day; not refused, because bans are in shadow mode",
    ] {
        page.says(words);
    }
    assert_eq!(page.text.matches(&format!("data-copy=\"tollhouse ban lift {checkout}\"")).count(), 1, "once");
    let page = owner.get(KEYS).await;
    page.says("! Banned");
    page.says("Let it wait as Retry-After says. The ban ends at 2026-06-15 00:05 UTC, in 5 minutes");
    page.says("Banned for a while by the operator of the platform.");

    // Bans end at their time, and when their gateway reports them no more.
    platform.clock.advance(std::time::Duration::from_secs(25));
    assert_eq!(report(&platform, "gw-1", &[], &bans[..2], 2).await, 204);
    platform.clock.advance(std::time::Duration::from_secs(10));
    let page = operator.get("/operator").await;
    page.says("banned by an operator");
    assert!(!page.words().contains("shadow mode"), "it ended after 30 seconds");
    assert_eq!(report(&platform, "gw-1", &[], &[], 0).await, 204);
    operator.get("/operator").await.says("No banned keys.");
    let words = owner.get(KEYS).await.words();
    assert!(!words.contains("Banned"), "{words}");
}

#[tokio::test]
async fn the_list_of_bans_is_bounded_and_all_are_counted() {
    let platform = demo().await;
    let id = |number: usize| format!("key_{number:016}");
    let bans: Vec<Value> = (0..50)
        .map(|number| ban(&platform, &id(number), 600 - i64::try_from(number).unwrap(), "strikes", false))
        .collect();
    assert_eq!(report(&platform, "gw-1", &[], &bans, 8_000).await, 204);
    assert_eq!(report(&platform, "gw-2", &[], &bans[..20], 20).await, 204);
    let page = operator(&platform).await.get("/operator").await;
    page.says("Showing 20 of 8000. All: tollhouse ban list");
    assert!(page.text.contains(&id(0)) && page.text.contains(&id(19)) && !page.text.contains(&id(20)), "the longest");
    assert!(page.text.len() < 50_000);

    let more: Vec<Value> = bans.iter().cloned().chain([bans[0].clone()]).collect();
    assert_eq!(report(&platform, "gw-1", &[], &more, 51).await, 400, "a report has a bound");
    let token_missing = platform.client.post(format!("{}/internal/edge/keys", platform.internal)).send().await.unwrap();
    assert_eq!(token_missing.status(), 401);
}
