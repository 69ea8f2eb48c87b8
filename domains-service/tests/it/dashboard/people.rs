//! Unusual visits: late returns, searches, downgrades, and names with and without www.

use std::time::Duration;

use serde_json::{Value, json};

use super::browser::new_key;
use super::pages::{ALL, DOMAINS, demo, is_sound};
use super::{Browser, origin};

#[tokio::test]
async fn a_form_of_a_session_that_has_ended_changes_nothing_and_asks_to_sign_in() {
    let platform = demo("pro").await;
    let mut browser = Browser::signed_in(&platform, "demo", &ALL).await;
    let (keys, origin) = ("/projects/demo/keys", origin());
    let ours = [("origin", origin.as_str())];
    let csrf = browser.get(keys).await.csrf().to_owned();
    platform.clock.advance(Duration::from_mins(61));
    let form = [("label", "warehouse"), ("scope", "orders:read"), ("csrf", csrf.as_str())];
    let ended = browser.send("POST", keys, &form, &ours).await;
    assert_eq!((ended.status, ended.location()), (303, "/sign-in"));
    assert!(!ended.text.contains(&csrf), "the token of a form ends with its session");
    // Signing in redirects to the project's domains, with any other field in the form.
    let key = new_key(&platform, "demo", &ALL).await;
    let more = [("kept-action", "https://evil.example/"), ("kept.a", "b"), ("key", key.as_str())];
    assert_eq!(browser.send("POST", "/sign-in", &more, &ours).await.location(), DOMAINS);
    assert!(!browser.get(keys).await.words().contains("warehouse"), "no key was made");
    let again = browser.send("POST", keys, &form, &ours).await;
    assert_eq!(again.status, 403, "the form of the earlier session is stale");
}

#[tokio::test]
async fn domains_are_searched_and_each_has_a_menu() {
    let platform = demo("business").await;
    for number in 0..7 {
        platform.local_domain("demo", json!({ "name": format!("shop{number}.localhost") })).await;
    }
    let mut browser = Browser::signed_in(&platform, "demo", &ALL).await;
    let page = browser.get(DOMAINS).await;
    is_sound(&page, "domains");
    assert!(page.text.contains("aria-label=\"Menu: shop3.localhost\""), "{}", page.text);
    page.says("Re-verify");
    let found = browser.get(&format!("{DOMAINS}?name=SHOP3&status=active")).await;
    is_sound(&found, "found");
    assert!(found.text.contains("shop3.localhost") && !found.text.contains("shop4.localhost"), "{}", found.words());
    assert!(found.text.contains("/live?name=SHOP3"), "what is live is this page: {}", found.text);
    browser.get(&format!("{DOMAINS}?status=pending_dns")).await.says("No matching domains.");
    assert_eq!(browser.get(&format!("{DOMAINS}?status=nonsense")).await.status, 400);
    let verified = browser.post(DOMAINS, &format!("{DOMAINS}/shop3.localhost/verify"), &[]).await;
    assert_eq!(verified.status, 303);
    let all = platform.owner("demo").get("/v1/projects/demo/domains?name=shop5").await;
    assert_eq!(all.body["domains"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn the_days_after_a_downgrade_are_announced() {
    let platform = demo("pro").await;
    platform.local_domain("demo", json!({ "name": "shop.localhost" })).await;
    assert_eq!(platform.operator("GET", "/projects/demo", Value::Null).await.body["domains_until"], Value::Null);
    let free = platform.operator("PATCH", "/projects/demo", json!({ "plan": "free" })).await;
    let until = free.body["domains_until"].as_str().expect("a moment").to_owned();
    let mut browser = Browser::signed_in(&platform, "demo", &ALL).await;
    let page = browser.get(DOMAINS).await;
    is_sound(&page, "downgraded");
    page.says("Existing ones are served until");
    assert!(page.text.contains(until.get(..10).unwrap()), "{until}: {}", page.text);
    platform.operator("PATCH", "/projects/demo", json!({ "plan": "pro" })).await;
    assert!(!browser.get(DOMAINS).await.words().contains("are served until"));
}

#[tokio::test]
async fn www_and_apex_are_offered_as_a_pair() {
    let platform = demo("pro").await;
    let mut browser = Browser::signed_in(&platform, "demo", &ALL).await;
    let add = "/projects/demo/domains/new";
    let page = browser.get(&format!("{add}?name=customer.test")).await;
    is_sound(&page, "pair");
    assert!(page.text.contains("name=\"pair\" value=\"www.customer.test\" form=\"add\""), "{}", page.text);
    let of_www = browser.get(&format!("{add}?name=www.customer.test")).await;
    assert!(of_www.text.contains("name=\"pair\" value=\"customer.test\""), "{}", of_www.text);
    assert!(!browser.get(&format!("{add}?name=shop.customer.test")).await.text.contains("name=\"pair\""));
    let form = [("name", "customer.test"), ("pair", "www.customer.test")];
    assert_eq!(browser.post(add, add, &form).await.location(), "/projects/demo/domains/customer.test");
    browser.get(DOMAINS).await.says("www.customer.test");
    let strange = [("name", "shop.customer.test"), ("pair", "other.customer.test")];
    browser.post(add, add, &strange).await;
    assert!(!browser.get(DOMAINS).await.words().contains("other.customer.test"), "a pair is one");
}
