//! Every page in its states, as tenants and operators see it.

use std::net::IpAddr;

use serde_json::{Value, json};
use verification::RecordData;

use super::{Browser, Page};
use crate::world::Platform;

pub(super) const ALL: [&str; 5] = ["orders:read", "orders:write", "domains:read", "domains:write", "keys:write"];
pub(super) const DOMAINS: &str = "/projects/demo/domains";
const SHOP: &str = "shop.customer.test";

pub(super) async fn demo(plan: &str) -> Platform {
    let platform = Platform::start().await;
    platform.project("demo", plan).await;
    platform.dns.zone("customer.test", &["192.31.196.1", "192.31.196.2"]);
    platform
}

async fn target(platform: &Platform) -> String {
    let body = platform.operator("GET", "/projects/demo", Value::Null).await.body;
    body["cname_target"].as_str().unwrap().to_owned()
}

/// The requirements of every page.
#[track_caller]
pub(super) fn is_sound(page: &Page, path: &str) {
    assert_eq!(page.status, 200, "{path}: {}", page.words());
    assert!(page.text.len() < 50_000, "{path} has {} bytes", page.text.len());
    let policy = page.headers["content-security-policy"].to_str().unwrap();
    assert!(policy.starts_with("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
    for (name, value) in [
        ("x-content-type-options", "nosniff"),
        ("referrer-policy", "same-origin"),
        ("cache-control", "no-store"),
        ("content-type", "text/html; charset=utf-8"),
    ] {
        assert_eq!(page.headers[name], value, "{path}");
    }
    for forbidden in [" style=", "<style", " onclick=", "javascript:", "http://", "//cdn"] {
        assert!(!page.text.contains(forbidden), "{path} has {forbidden}");
    }
    let scripts = page.text.matches("<script").count();
    assert_eq!((scripts, page.text.matches("<script src=\"/assets/").count()), (1, 1), "{path}");
    for needed in ["<html lang=\"en\">", "<title>", "<main id=\"main\"", "<h1", "class=\"skip\"", "name=\"viewport\""] {
        assert!(page.text.contains(needed), "{path} lacks {needed}");
    }
}

#[tokio::test]
async fn every_page_is_small_has_the_strict_policy_and_explains_empty_lists() {
    let platform = demo("pro").await;
    let mut browser = Browser::signed_in(&platform, "demo", &ALL).await;
    for (path, words) in [
        (DOMAINS, "No domain yet"),
        ("/projects/demo/domains/new", "Enter the domain or subdomain"),
        ("/projects/demo/keys", "you are signed in with it"),
        ("/projects/demo/usage", "No request in the last 30 days."),
        ("/projects/demo/activity", "Project deployed"),
        ("/projects/demo/webhooks", "No webhook yet."),
    ] {
        let page = browser.get(path).await;
        is_sound(&page, path);
        page.says(words);
    }
    for file in ["app.css", "app.js", "icon.svg"] {
        let page = browser.get(&format!("/assets/1-{file}")).await;
        assert_eq!(
            (page.status, &page.headers["cache-control"]),
            (200, &"public, max-age=31536000, immutable".parse().unwrap())
        );
        assert!(page.text.len() < 20_000);
    }
    assert_eq!(browser.get("/assets/1-../Cargo.toml").await.status, 404);
}

#[tokio::test]
async fn a_project_without_a_plan_or_a_deploy_sees_the_missing_step() {
    let platform = demo("free").await;
    let mut browser = Browser::signed_in(&platform, "demo", &ALL).await;
    browser.get(DOMAINS).await.says("Custom domains come with the Pro plan");
    browser.get("/projects/demo/domains/new").await.says("Custom domains come with the Pro plan");
    let page = browser.post(DOMAINS, "/projects/demo/domains/new", &[("name", SHOP)]).await;
    assert_eq!(page.status, 403, "the form is refused as the API refuses");
    platform.operator("POST", "/projects", json!({ "id": "fresh", "plan": "pro" })).await;
    let mut browser = Browser::signed_in(&platform, "fresh", &ALL).await;
    browser.get("/projects/fresh/domains").await.says("Deploy first");
}

// rule: 1.10, 1.11
#[tokio::test]
async fn the_page_shows_the_requirements_before_a_domain_is_added() {
    let platform = demo("pro").await;
    let mut browser = Browser::signed_in(&platform, "demo", &ALL).await;
    let page = browser.get("/projects/demo/domains/new?name=https%3A%2F%2Fshop.customer.test%2Fcart").await;
    is_sound(&page, "check");
    page.says("This is a subdomain");
    page.says(&target(&platform).await);
    assert!(!page.words().contains("Problems"), "that nothing is there yet is how it begins");
    browser.get("/projects/demo/domains/new?name=customer.test").await.says("create an ALIAS or ANAME record");
    platform.dns.set("old.customer.test", RecordData::A("203.0.113.7".parse().unwrap()));
    let page = browser.get("/projects/demo/domains/new?name=old.customer.test").await;
    page.says("Problems");
    page.says("203.0.113.7");
    let page = browser.get("/projects/demo/domains/new?name=co.uk").await;
    assert_eq!(page.status, 400);
    page.says("public_suffix");
    let page = browser.get("/projects/demo/domains/new?name=%3Cb%3Ebold%3C%2Fb%3E.test").await;
    assert!(!page.text.contains("<b>bold"), "what was typed is escaped");
}

// rule: 1.8, 1.10, 1.12
#[tokio::test]
async fn a_domain_is_added_watched_verified_and_live() {
    let platform = demo("pro").await;
    let mut browser = Browser::signed_in(&platform, "demo", &ALL).await;
    let added = browser.post(DOMAINS, "/projects/demo/domains/new", &[("name", SHOP), ("primary", "yes")]).await;
    assert_eq!((added.status, added.location()), (303, "/projects/demo/domains/shop.customer.test"));
    platform.domain_when("demo", SHOP, |domain| !domain["checks"].is_null()).await;
    let path = format!("{DOMAINS}/{SHOP}");
    let page = browser.get(&path).await;
    is_sound(&page, &path);
    for words in ["Waiting for DNS", "You must act · DNS_NO_RECORD", "3600", "192.31.196.1", "No record yet", "Verify"]
    {
        page.says(words);
    }
    assert!(
        page.text.contains("<noscript><meta http-equiv=\"refresh\" content=\"15\"></noscript>"),
        "it reloads by itself"
    );
    assert!(page.text.contains("data-live=\"/projects/demo/live?domain=shop.customer.test\""));

    platform.dns.set_at("192.31.196.1", SHOP, RecordData::Cname(target(&platform).await));
    platform.clock.advance(std::time::Duration::from_secs(11));
    let verified = browser.post(&path, &format!("{path}/verify"), &[]).await;
    assert_eq!(verified.status, 303, "{}", verified.words());
    platform.domain_in("demo", SHOP, "propagating").await;
    browser.get(&path).await.says("1 of 2 of your nameservers answer correctly already");

    let again = browser.post(&path, &format!("{path}/verify"), &[]).await;
    assert_eq!(again.status, 429);
    again.says("A domain is checked once in ten seconds");

    platform.dns.set_at("192.31.196.2", SHOP, RecordData::Cname(target(&platform).await));
    platform.clock.advance(std::time::Duration::from_mins(1));
    browser.post(&path, &format!("{path}/verify"), &[]).await;
    platform.domain_in("demo", SHOP, "active").await;
    let page = browser.get(&path).await;
    is_sound(&page, &path);
    for words in
        ["Live", "Visitors reach your project here", "Deployed", "Certificate issued", "This is the primary domain"]
    {
        page.says(words);
    }
    assert!(!page.text.contains("http-equiv"), "there is nothing to wait for");
    let list = browser.get(DOMAINS).await;
    is_sound(&list, DOMAINS);
    list.says("1 of 10 in use");
    list.says("Primary");
}

// rule: 1.16
#[tokio::test]
async fn every_conflict_is_shown_with_its_cause_the_fix_and_who_must_act() {
    let platform = demo("pro").await;
    let mut browser = Browser::signed_in(&platform, "demo", &ALL).await;
    let address: IpAddr = "203.0.113.7".parse().unwrap();
    let IpAddr::V4(address) = address else { panic!() };
    for (name, record, code) in [
        ("a.customer.test", RecordData::A(address), "DNS_CONFLICTING_A"),
        ("aaaa.customer.test", RecordData::Aaaa("2001:db8::7".parse().unwrap()), "DNS_CONFLICTING_AAAA"),
        ("cname.customer.test", RecordData::Cname("elsewhere.example.net".to_owned()), "DNS_CNAME_MISMATCH"),
    ] {
        platform.dns.set(name, record);
        browser.post(DOMAINS, "/projects/demo/domains/new", &[("name", name)]).await;
        platform.domain_in("demo", name, "action_required").await;
        let page = browser.get(&format!("{DOMAINS}/{name}")).await;
        is_sound(&page, name);
        for words in ["Needs you", "Problems", "Expected", "Observed", "What to do", "Re-verify"] {
            page.says(words);
        }
        page.says(&format!("You must act · {code}"));
        page.says("stuck");
    }
}

// rule: 1.15, 1.19
#[tokio::test]
async fn redirects_primaries_and_removal_have_buttons() {
    let platform = demo("pro").await;
    let mut browser = Browser::signed_in(&platform, "demo", &ALL).await;
    for name in ["www.localhost", "old.localhost"] {
        platform.local_domain("demo", json!({ "name": name })).await;
    }
    let (www, old) = (format!("{DOMAINS}/www.localhost"), format!("{DOMAINS}/old.localhost"));
    assert_eq!(browser.post(&www, &format!("{www}/primary"), &[]).await.status, 303);
    browser.get(&www).await.says("This is the primary domain");
    let saved = browser.post(&old, &format!("{old}/redirect"), &[("to", "primary"), ("status", "301")]).await;
    assert_eq!((saved.status, saved.location()), (303, format!("{old}?saved").as_str()));
    browser.get(&format!("{old}?saved")).await.says("Redirects to the primary domain (301)");
    let refused = browser.post(&www, &format!("{www}/primary"), &[("off", "yes")]).await;
    assert_eq!(refused.status, 409);
    refused.says("primary_in_use");

    let question = browser.get(&format!("{www}/remove")).await;
    is_sound(&question, "remove");
    question.says("Remove www.localhost?");
    question.says("old.localhost");
    let held = browser.post(&www, &format!("{www}/remove"), &[]).await;
    assert_eq!(held.status, 409);
    let (question, yes) = (format!("{www}/remove"), [("with_redirects", "yes")]);
    let removed = platform.while_following("gw-1", browser.post(&question, &question, &yes)).await;
    is_sound(&removed, "removed");
    removed.says("Domain removed");
    removed.says("Traffic stopped on the only gateway");
    assert_eq!(browser.get(&www).await.status, 404);
    browser.get(DOMAINS).await.says("No domain yet");
}

#[tokio::test]
async fn a_key_is_made_shown_once_rotated_and_revoked() {
    let platform = demo("pro").await;
    let mut browser = Browser::signed_in(&platform, "demo", &["domains:read", "keys:write", "orders:read"]).await;
    let keys = "/projects/demo/keys";
    browser.get(keys).await.says("your own key lacks it");
    let none = browser.post(keys, keys, &[("label", "empty")]).await;
    assert_eq!(none.status, 400);
    none.says("needs at least one scope");
    let more = browser.post(keys, keys, &[("label", "greedy"), ("scope", "orders:write")]).await;
    assert_eq!(more.status, 403);
    let form = [("label", "checkout <1>"), ("scope", "orders:read"), ("days", "30")];
    let made = browser.post_and_follow(keys, keys, &form).await;
    is_sound(&made, keys);
    made.says("Copy the key now");
    let secret = made.between("data-copy=\"th_live_", "\"").to_owned();
    let id = made.between("data-id=\"", "\"").to_owned();
    let listed = browser.get(keys).await;
    listed.says("checkout &#60;1&#62;");
    listed.says("Expires in 30 days");
    assert!(!listed.text.contains(&secret), "it is shown once");
    // To the session that made it alone: the cookie is worth nothing beside another.
    let led = browser.post(keys, keys, &[("label", "second"), ("scope", "orders:read")]).await;
    let mut another = Browser::signed_in(&platform, "demo", &["keys:write"]).await;
    let session = another.cookie.clone().unwrap();
    let made = led.headers["set-cookie"].to_str().unwrap().split(';').next().unwrap();
    another.cookie = Some(format!("{session}; {made}"));
    let shown = another.get(led.location()).await;
    assert!(shown.status == 200 && !shown.text.contains("data-copy=\"th_live_"), "{}", shown.words());
    browser.get(led.location()).await.says("Copy the key now");
    // Loading the page again makes no second key.
    let again = browser.get(&format!("{keys}?made")).await;
    again.says("The key was shown once.");
    assert!(!again.text.contains(&secret));
    assert_eq!(again.text.matches("checkout &#60;1&#62;</p>").count(), 1, "{}", again.words());
    let rotated = browser.post_and_follow(keys, &format!("{keys}/{id}/rotate"), &[("overlap", "3600")]).await;
    rotated.says("Copy the key now");
    rotated.says("Expires in 60 minutes");
    let revoked = browser.post(keys, &format!("{keys}/{id}/revoke"), &[]).await;
    assert_eq!((revoked.status, revoked.location()), (303, "/projects/demo/keys?revoked"));
    browser.get(&format!("{keys}?revoked")).await.says("Revoked and expired (1)");
}

#[tokio::test]
async fn usage_is_the_sum_of_gateways_reports() {
    let platform = demo("pro").await;
    let uid = platform.identity(&"demo".parse().unwrap()).await;
    let token = platform.gateway().await;
    let day = crate::world::START.to_seconds().0 / 86_400;
    let minute = day * 1_440;
    let report = async |node: &str, day: i64, minute: i64, counts: [u64; 4]| {
        let [admitted, refused, banned, in_minute] = counts;
        let project = json!({
            "project": uid, "day": day, "admitted": admitted, "refused": refused, "banned": banned,
            "minute": minute, "in_minute": in_minute,
        });
        let request = platform.client.post(format!("{}/internal/edge/usage", platform.internal)).bearer_auth(&token);
        request.json(&json!({ "node": node, "projects": [project] })).send().await.unwrap().status().as_u16()
    };
    assert_eq!(report("gw-1", day, minute, [100, 7, 3, 40]).await, 204);
    assert_eq!(report("gw-2", day, minute, [50, 0, 0, 2]).await, 204);
    assert_eq!(report("gw-1", day, minute, [100, 7, 3, 40]).await, 204, "the same again is the same");
    assert_eq!(report("gw-1", day, minute, [90, 7, 3, 30]).await, 204, "what is older changes nothing");
    assert_eq!(report("gw-0", day - 3, minute - 4_320, [1_000, 0, 0, 1]).await, 204);
    let mut browser = Browser::signed_in(&platform, "demo", &ALL).await;
    let page = browser.get("/projects/demo/usage").await;
    is_sound(&page, "usage");
    let words = page.words();
    for text in [
        "This minute 42 of 300 258 left",
        "Today 150 of 10 000 9 850 left",
        "1 150 requests admitted, 7 refused because a limit was reached, 3 refused",
    ] {
        assert!(words.contains(text), "{text} is not in {words}");
    }
    assert!(words.contains("2026-06-12 1 000 0 0") && words.contains("your plan"));
    let token_missing =
        platform.client.post(format!("{}/internal/edge/usage", platform.internal)).send().await.unwrap();
    assert_eq!(token_missing.status(), 401);
}

#[tokio::test]
async fn webhooks_are_added_shown_switched_and_removed() {
    let platform = demo("pro").await;
    let mut browser = Browser::signed_in(&platform, "demo", &ALL).await;
    let list = "/projects/demo/webhooks";
    let wrong = browser.post(list, list, &[("url", "ftp://receiver.test/")]).await;
    assert_eq!(wrong.status, 400);
    wrong.says("invalid_webhook_url");
    let form = [("url", "https://receiver.test/hook"), ("event", "domain.active")];
    let made = browser.post_and_follow(list, list, &form).await;
    made.says("Copy the signing secret now");
    browser.get(list).await.says("https://receiver.test/hook");
    let id = browser.get(list).await.between("/projects/demo/webhooks/wh_", "\"").to_owned();
    let one = format!("{list}/wh_{id}");
    let page = browser.get(&one).await;
    page.says("Nothing has been sent yet.");
    assert!(!page.text.contains("whsec_"), "the secret is shown once");
    let tested = browser.post_and_follow(&one, &format!("{one}/test"), &[]).await;
    is_sound(&tested, "tested");
    tested.says("Sending a test message.");
    assert!(tested.text.contains("&#34;type&#34;: &#34;webhook.test&#34;"), "what was sent is shown: {}", tested.text);
    browser.post(&one, &format!("{one}/change"), &[("action", "off")]).await;
    browser.get(&one).await.says("Switched off.");
    let rotated = browser.post_and_follow(&one, &format!("{one}/change"), &[("action", "rotate")]).await;
    rotated.says("Copy the signing secret now");
    assert!(
        !browser.get(&format!("{one}?made")).await.text.contains("whsec_"),
        "a reload shows nothing, and makes nothing"
    );
    assert_eq!(browser.get(list).await.text.matches("receiver.test/hook</a>").count(), 1);
    let removed = browser.post(&one, &format!("{one}/change"), &[("action", "remove")]).await;
    assert_eq!(removed.location(), "/projects/demo/webhooks?removed");
    assert_eq!(browser.get(&one).await.status, 404);
}

#[tokio::test]
async fn checking_a_name_puts_no_token_into_the_address() {
    let platform = demo("pro").await;
    let mut browser = Browser::signed_in(&platform, "demo", &ALL).await;
    let page = browser.get("/projects/demo/domains/new").await;
    let form = page.between("<form method=\"get\"", "</form>");
    assert!(!form.contains("type=\"hidden\"") && form.contains("formmethod=\"post\" name=\"csrf\""), "{form}");
}

#[tokio::test]
async fn an_open_page_is_updated_when_its_domain_changes() {
    let platform = demo("pro").await;
    let mut browser = Browser::signed_in(&platform, "demo", &ALL).await;
    browser.post(DOMAINS, "/projects/demo/domains/new", &[("name", SHOP)]).await;
    platform.domain_when("demo", SHOP, |domain| !domain["checks"].is_null()).await;
    let shown = browser.get(&format!("{DOMAINS}/{SHOP}")).await.between("data-state=\"", "\"").to_owned();
    let mut stream = browser.open(&format!("/projects/demo/live?domain={SHOP}")).await;
    let first = stream.event().await;
    assert_eq!(first, shown, "the first event repeats what the page shows");
    platform.operator("DELETE", &format!("/projects/demo/domains/{SHOP}"), Value::Null).await;
    assert_ne!(stream.event().await, first);
}

#[tokio::test]
async fn one_project_does_not_take_the_live_pages_of_another() {
    let platform = demo("pro").await;
    platform.project("other", "pro").await;
    let live = async |browser: &Browser, project: &str| {
        browser.request("GET", &format!("/projects/{project}/live")).await.send().await.unwrap()
    };
    let greedy = Browser::signed_in(&platform, "demo", &ALL).await;
    let mut open = Vec::new();
    for _ in 0..32 {
        open.push(greedy.open("/projects/demo/live").await);
    }
    assert_eq!(live(&greedy, "demo").await.status(), 503, "its share is used up");
    let again = Browser::signed_in(&platform, "demo", &ALL).await;
    assert_eq!(live(&again, "demo").await.status(), 503, "in another session as well");
    let other = Browser::signed_in(&platform, "other", &ALL).await;
    assert_eq!(live(&other, "other").await.status(), 200);
}
