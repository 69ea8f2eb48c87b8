//! The primary domain and redirects to it.

use contract::feed::Entity;
use serde_json::{Value, json};

use crate::world::Platform;

fn path(name: &str) -> String {
    format!("/v1/projects/demo/domains/{name}")
}

/// Three active domains; `a` is the primary one.
async fn three() -> Platform {
    let platform = Platform::start().await;
    platform.project("demo", "pro").await;
    for name in ["a.localhost", "b.localhost", "c.localhost"] {
        platform.local_domain("demo", json!({ "name": name })).await;
    }
    platform
}

/// The edge's redirect of a name; `None` if the edge serves it.
async fn redirect_of(platform: &Platform, name: &str) -> Option<(String, Option<u16>)> {
    let site = platform.snapshot().await.into_iter().find_map(|entity| match entity {
        Entity::Site(site) if site.hostname.as_str() == name => Some(site),
        _ => None,
    });
    let redirect = site.expect("the name is served").redirect?;
    Some((redirect.to.to_string(), redirect.status.map(contract::site::RedirectStatus::code)))
}

async fn patch(platform: &Platform, name: &str, body: Value) -> crate::world::Answer {
    platform.owner("demo").send("PATCH", &path(name), body).await
}

// rule: 1.15
#[tokio::test]
async fn a_domain_redirects_to_the_primary_one_with_its_status() {
    let platform = three().await;
    for (given, published) in [
        (json!(301), Some(301)),
        (json!(302), Some(302)),
        (json!(307), Some(307)),
        (json!(308), Some(308)),
        (Value::Null, None),
    ] {
        let changed =
            patch(&platform, "b.localhost", json!({ "redirect": { "to": "primary", "status": given } })).await;
        assert_eq!((changed.status, &changed.body["redirect"]["status"]), (200, &given));
        assert_eq!(redirect_of(&platform, "b.localhost").await, Some(("a.localhost".to_owned(), published)));
    }
    patch(&platform, "b.localhost", json!({ "redirect": null })).await;
    assert_eq!(redirect_of(&platform, "b.localhost").await, None);
    for status in [300, 303, 200, 0] {
        let wrong = patch(&platform, "b.localhost", json!({ "redirect": { "to": "primary", "status": status } })).await;
        assert_eq!(wrong.code(), (400, "invalid_redirect_status"), "{status}");
    }
}

#[tokio::test]
async fn a_domain_can_be_added_as_a_redirect() {
    let platform = three().await;
    let body = json!({ "name": "old.localhost", "redirect": { "to": "primary", "status": 301 } });
    let added = platform.local_domain("demo", body).await;
    assert_eq!(added["primary"], false);
    assert_eq!(redirect_of(&platform, "old.localhost").await, Some(("a.localhost".to_owned(), Some(301))));
}

// promise: domains.25
#[tokio::test]
async fn redirects_follow_the_primary_domain_in_one_hop() {
    let platform = three().await;
    patch(&platform, "b.localhost", json!({ "redirect": { "to": "primary" } })).await;
    patch(&platform, "c.localhost", json!({ "redirect": { "to": "primary" } })).await;
    let changed = patch(&platform, "c.localhost", json!({ "primary": true })).await;
    assert_eq!((&changed.body["primary"], &changed.body["redirect"]), (&json!(true), &Value::Null));
    assert_eq!(redirect_of(&platform, "c.localhost").await, None);
    assert_eq!(redirect_of(&platform, "b.localhost").await, Some(("c.localhost".to_owned(), None)));
    assert_eq!(redirect_of(&platform, "a.localhost").await, None, "the old primary domain serves on");
    let old = platform.owner("demo").get(&path("a.localhost")).await;
    assert_eq!(old.body["primary"], false);
}

// rule: 1.15
// promise: domains.25
#[tokio::test]
async fn loops_chains_and_dangling_redirects_are_refused() {
    let platform = three().await;
    patch(&platform, "b.localhost", json!({ "redirect": { "to": "a.localhost" } })).await;
    for (name, to, code) in [
        ("a.localhost", "primary", "primary_in_use"),
        ("a.localhost", "b.localhost", "primary_in_use"),
        ("c.localhost", "c.localhost", "redirect_loop"),
        ("c.localhost", "b.localhost", "redirect_loop"),
        ("c.localhost", "none.localhost", "redirect_target_inactive"),
    ] {
        let refused = patch(&platform, name, json!({ "redirect": { "to": to } })).await;
        assert_eq!(refused.code(), (409, code), "{name} -> {to}: {refused:?}");
    }
    // A redirect's target cannot redirect, even if it is not the primary domain.
    patch(&platform, "c.localhost", json!({ "primary": true })).await;
    let chain = patch(&platform, "a.localhost", json!({ "redirect": { "to": "primary" } })).await;
    assert_eq!(chain.code(), (409, "redirect_loop"));
    let both = patch(&platform, "b.localhost", json!({ "primary": true, "redirect": { "to": "primary" } })).await;
    assert_eq!(both.code(), (409, "redirect_loop"));
}

#[tokio::test]
async fn only_an_active_domain_is_redirected_to_or_primary() {
    let platform = three().await;
    let owner = platform.owner("demo");
    owner.send("POST", "/v1/projects/demo/domains", json!({ "name": "new.customer.test" })).await;
    let to_it = patch(&platform, "b.localhost", json!({ "redirect": { "to": "new.customer.test" } })).await;
    assert_eq!(to_it.code(), (409, "redirect_target_inactive"));
    let primary = patch(&platform, "new.customer.test", json!({ "primary": true })).await;
    assert_eq!(primary.code(), (409, "redirect_target_inactive"));
}

#[tokio::test]
async fn a_domain_added_as_primary_becomes_it_when_it_is_active() {
    let platform = three().await;
    patch(&platform, "b.localhost", json!({ "redirect": { "to": "primary" } })).await;
    platform.local_domain("demo", json!({ "name": "new.localhost", "primary": true })).await;
    assert_eq!(redirect_of(&platform, "b.localhost").await, Some(("new.localhost".to_owned(), None)));
    let old = platform.owner("demo").get(&path("a.localhost")).await;
    assert_eq!(old.body["primary"], false);
}

#[tokio::test]
async fn the_primary_domain_cannot_be_taken_from_those_that_redirect_to_it() {
    let platform = three().await;
    patch(&platform, "b.localhost", json!({ "redirect": { "to": "primary" } })).await;
    let unset = patch(&platform, "a.localhost", json!({ "primary": false })).await;
    assert_eq!(unset.code(), (409, "primary_in_use"));
    patch(&platform, "b.localhost", json!({ "redirect": null })).await;
    let unset = patch(&platform, "a.localhost", json!({ "primary": false })).await;
    assert_eq!((unset.status, &unset.body["primary"]), (200, &json!(false)));
    let to_none = patch(&platform, "b.localhost", json!({ "redirect": { "to": "primary" } })).await;
    assert_eq!(to_none.code(), (409, "redirect_target_inactive"));
}

#[tokio::test]
async fn a_removed_primary_domain_has_a_successor() {
    let platform = three().await;
    patch(&platform, "b.localhost", json!({ "redirect": { "to": "c.localhost" } })).await;
    let owner = platform.owner("demo");
    assert_eq!(owner.send("DELETE", &path("a.localhost"), Value::Null).await.status, 204);
    assert_eq!(owner.get(&path("c.localhost")).await.body["primary"], true, "the first that does not redirect");
    let events = owner.get(&format!("{}/events", path("c.localhost"))).await.body;
    assert_eq!(events["events"][0]["type"], "domain.primary_changed");
    // Without another one the next that becomes active is it.
    let gone = owner.send("DELETE", &format!("{}?with_redirects=true", path("c.localhost")), Value::Null).await;
    assert_eq!(gone.status, 204);
    assert_eq!(platform.local_domain("demo", json!({ "name": "a.localhost" })).await["primary"], true);
}

#[tokio::test]
async fn a_redirect_to_a_primary_domain_that_is_not_active_yet_can_be_prepared() {
    let platform = Platform::start().await;
    platform.project("demo", "pro").await;
    platform.dns.zone("customer.test", &["192.31.196.1"]);
    let add = async |body| platform.operator("POST", "/projects/demo/domains", body).await;
    let to_primary = json!({ "to": "primary", "status": 308 });
    let alone = add(json!({ "name": "www.localhost", "redirect": to_primary })).await;
    assert_eq!(alone.code(), (409, "redirect_target_inactive"), "nothing will ever be the primary domain");
    assert_eq!(add(json!({ "name": "shop.customer.test" })).await.status, 201);
    platform.local_domain("demo", json!({ "name": "www.localhost", "redirect": to_primary })).await;
    assert_eq!(redirect_of(&platform, "www.localhost").await, None, "until then it serves by itself");
    let project = platform.operator("GET", "/projects/demo", Value::Null).await.body;
    let target = project["cname_target"].as_str().unwrap().to_owned();
    platform.dns.set("shop.customer.test", verification::RecordData::Cname(target));
    platform.clock.advance(std::time::Duration::from_hours(1));
    assert_eq!(platform.domain_in("demo", "shop.customer.test", "active").await["primary"], true);
    assert_eq!(redirect_of(&platform, "www.localhost").await, Some(("shop.customer.test".to_owned(), Some(308))));
}

#[tokio::test]
async fn a_change_with_a_stale_revision_is_refused() {
    let platform = three().await;
    let owner = platform.owner("demo");
    let seen = owner.get(&path("b.localhost")).await;
    let tag = seen.header("etag").to_owned();
    let body = json!({ "redirect": { "to": "primary" } });
    let first = owner.send_with("PATCH", &path("b.localhost"), body.clone(), &[("if-match", &tag)]).await;
    assert_eq!(first.status, 200);
    assert_ne!(first.header("etag"), tag);
    let second =
        owner.send_with("PATCH", &path("b.localhost"), json!({ "redirect": null }), &[("if-match", &tag)]).await;
    assert_eq!(second.code(), (412, "stale_revision"));
    let any = owner.send_with("PATCH", &path("b.localhost"), json!({ "redirect": null }), &[("if-match", "*")]).await;
    assert_eq!(any.status, 200);
    let same = owner.send("PATCH", &path("b.localhost"), json!({})).await;
    assert_eq!(same.header("etag"), any.header("etag"), "nothing changed");
}

#[tokio::test]
async fn a_removal_with_a_stale_revision_is_refused() {
    let platform = three().await;
    let owner = platform.owner("demo");
    let tag = owner.get(&path("b.localhost")).await.header("etag").to_owned();
    let body = json!({ "redirect": { "to": "primary" } });
    assert_eq!(owner.send("PATCH", &path("b.localhost"), body).await.status, 200);
    let stale = owner.send_with("DELETE", &path("b.localhost"), Value::Null, &[("if-match", &tag)]).await;
    assert_eq!(stale.code(), (412, "stale_revision"));
    let seen = owner.get(&path("b.localhost")).await.header("etag").to_owned();
    assert_ne!(seen, tag);
    let removed = owner.send_with("DELETE", &path("b.localhost"), Value::Null, &[("if-match", &seen)]).await;
    assert_eq!(removed.status, 204);
}

#[tokio::test]
async fn adding_a_domain_again_with_other_settings_is_a_conflict() {
    let platform = three().await;
    let owner = platform.owner("demo");
    let add = async |body| owner.send("POST", "/v1/projects/demo/domains", body).await;
    assert_eq!(add(json!({ "name": "b.localhost" })).await.status, 200);
    let redirect = add(json!({ "name": "b.localhost", "redirect": { "to": "primary" } })).await;
    assert_eq!(redirect.code(), (409, "domain_exists"));
    assert_eq!(add(json!({ "name": "b.localhost", "primary": true })).await.code(), (409, "domain_exists"));
}
