//! Redirects to https and to the primary domain, in exactly one hop.

use contract::site::RedirectStatus;

use crate::world::client::{Ask, Client, Reply};
use crate::world::entities::{certificate, redirecting};
use crate::world::{BLOG, DEMO, ORDERS, SHOP, World};

const WWW: &str = "www.shop.example";

/// Paths and queries that something on the way might be tempted to improve.
const TARGETS: [&str; 8] =
    ["/", "/a%2Fb%2f", "//evil.example//x", "/?", "/x?", "/a%0a%0D?b=%0a", "/a|b?c={d}", "/%E4%BD%A0?q=%FF&&="];

/// A world in which WWW redirects to SHOP with this status.
async fn world_with(status: Option<RedirectStatus>) -> World {
    let world = World::start().await;
    world.control.put(certificate(WWW)).await;
    world.control.put(redirecting(WWW, "demo", Some((SHOP, status)))).await;
    world
}

#[track_caller]
fn assert_leads(reply: &Reply, status: u16, location: &str) {
    assert_eq!((reply.status, reply.header("location")), (status, Some(location)), "{reply:?}");
    assert_eq!((reply.header("content-length"), reply.text()), (Some("0"), ""));
    assert_eq!(reply.header("x-ratelimit-limit"), None, "moving house costs nothing and shows no limits");
    let cached = matches!(status, 301 | 308).then_some("max-age=300");
    assert_eq!(reply.header("cache-control"), cached);
}

// rule: 1.15
// promise: domains.25
#[tokio::test]
async fn a_secondary_domain_redirects_to_the_primary_one_with_the_configured_status() {
    for (chosen, status) in [
        (RedirectStatus::MovedPermanently, 301),
        (RedirectStatus::Found, 302),
        (RedirectStatus::TemporaryRedirect, 307),
        (RedirectStatus::PermanentRedirect, 308),
    ] {
        let world = world_with(Some(chosen)).await;
        let port = world.https.port();
        for method in ["GET", "POST"] {
            for target in TARGETS {
                let location = format!("https://{SHOP}:{port}{target}");
                // Straight to the end, also from http.
                assert_leads(&world.ask(Ask::new(method, WWW, target)).await, status, &location);
                assert_leads(&world.ask_plain(Ask::new(method, WWW, target)).await, status, &location);
            }
        }
        world.assert_upstreams_untouched();
        // The redirect ends there: the primary domain serves the project.
        world.ask(Ask::get(SHOP, ORDERS)).await.refused(401, "missing_api_key");
        world.end().await;
    }
}

// rule: 1.15
#[tokio::test]
async fn by_default_get_and_head_redirect_with_301_and_other_methods_with_308() {
    let world = world_with(None).await;
    let location = format!("https://{SHOP}:{}/x", world.https.port());
    for (method, status) in
        [("GET", 301), ("HEAD", 301), ("POST", 308), ("DELETE", 308), ("PUT", 308), ("OPTIONS", 308)]
    {
        assert_leads(&world.ask(Ask::new(method, WWW, "/x")).await, status, &location);
        assert_leads(&world.ask_plain(Ask::new(method, WWW, "/x")).await, status, &location);
    }
}

#[tokio::test]
async fn over_http_2_redirects_are_the_same() {
    let world = world_with(None).await;
    let client = world.h2(WWW).await;
    let reply = client.ask(&Ask::get(WWW, "//x%2F?a|b")).await;
    assert_leads(&reply, 301, &format!("https://{SHOP}:{}//x%2F?a|b", world.https.port()));
}

// promise: domains.25
#[tokio::test]
async fn plain_http_redirects_to_https_in_one_hop_with_the_port() {
    let world = World::start().await;
    let port = world.https.port();
    for host in [BLOG, DEMO, SHOP] {
        for target in TARGETS {
            let reply = world.ask_plain(Ask::get(host, target)).await;
            assert_leads(&reply, 301, &format!("https://{host}:{port}{target}"));
            assert_eq!(reply.header("strict-transport-security"), None, "never sent over plain HTTP");
        }
    }
    let reply = world.ask_plain(Ask::new("POST", BLOG, "/form").body("a=b")).await;
    assert_leads(&reply, 308, &format!("https://{BLOG}:{port}/form"));
    world.assert_upstreams_untouched();
}

#[tokio::test]
async fn a_redirect_omits_the_default_port() {
    let world = World::with(|setup| setup.listen = "public_https_port = 443").await;
    assert_leads(&world.ask_plain(Ask::get(BLOG, "/x?y")).await, 301, &format!("https://{BLOG}/x?y"));
}

#[tokio::test]
async fn the_host_of_a_redirect_never_comes_from_the_request() {
    let world = World::start().await;
    let mut ask = Ask::get("BLOG.tollhouse.localhost.:80", "/x");
    ask.fields.push(("X-Forwarded-Host".to_owned(), "evil.example".to_owned()));
    let reply = world.ask_plain(ask).await;
    assert_leads(&reply, 301, &format!("https://{BLOG}:{}/x", world.https.port()));
}

#[tokio::test]
async fn a_redirect_needs_no_key_and_costs_no_quota() {
    let world = world_with(None).await;
    let reply = world.ask(Ask::get(WWW, ORDERS).key(&world.key.text)).await;
    assert_eq!(reply.status, 301);
    let reply = world.ask(world.list()).await;
    assert_eq!(reply.number("x-ratelimit-remaining"), 299, "the first that was charged");
}

// rule: 5.2
#[tokio::test]
async fn a_key_sent_without_encryption_is_refused_and_its_exposure_is_noted() {
    let world = world_with(None).await;
    for ask in [
        world.list(),
        Ask::new("DELETE", DEMO, "/v1/store/orders/1").key(&world.key.text),
        Ask::get(WWW, ORDERS).key(&world.key.text),
        // On a public site only credentials that look like our keys.
        Ask::get(BLOG, "/").field("Authorization", &format!("Basic th_{}", world.key.text)),
    ] {
        let reply = world.ask_plain(ask.clone()).await;
        reply.refused(403, "https_required");
        assert_eq!(reply.header("location"), None, "a redirect would teach clients to continue like this");
        let line = world.log.line_of(reply.request_id()).await;
        let is_ours = ask.fields[0].1.starts_with("Bearer");
        assert_eq!(line["event"] == "key_exposed_in_plain_http", is_ours, "{line}");
        assert_eq!(line["api_key_id"] == world.key.record.id.as_str(), is_ours, "{line}");
    }
    world.assert_upstreams_untouched();
    assert!(!world.log.text().contains(&world.key.text));
    assert_eq!(world.ask(world.list()).await.number("x-ratelimit-remaining"), 299, "nothing was charged");
}

#[tokio::test]
async fn another_authorization_scheme_over_plain_http_is_redirected() {
    let world = World::start().await;
    let reply = world.ask_plain(Ask::get(BLOG, "/").field("Authorization", "Basic dXNlcjpwYXNz")).await;
    assert_eq!(reply.status, 301);
}

#[tokio::test]
async fn the_connection_can_be_used_again_after_a_redirect() {
    let world = World::start().await;
    let mut client = Client::plain(world.http).await;
    for target in ["/1", "/2", "/3"] {
        assert_eq!(client.ask(&Ask::get(BLOG, target)).await.status, 301);
    }
}
