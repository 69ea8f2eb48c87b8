//! Served names, and names that may share a connection.

use contract::feed::Entity;
use contract::plan::Plan;

use crate::world::client::{Ask, handshake};
use crate::world::entities::{certificate, project, site};
use crate::world::{BLOG, DEMO, DEMO_TOO, ORDERS, OTHER, SHOP, World, certificates};

/// Whether the handshake was refused for its name.
async fn is_refused(world: &World, sni: Option<&str>) -> bool {
    let refused = handshake(world.https, sni, certificates::client(&[b"http/1.1"])).await;
    refused.is_err_and(|error| {
        let alert = rustls::Error::AlertReceived(rustls::AlertDescription::UnrecognisedName);
        error.into_inner().and_then(|inner| inner.downcast::<rustls::Error>().ok()).is_some_and(|inner| *inner == alert)
    })
}

#[tokio::test]
async fn a_handshake_for_an_unknown_name_ends_with_an_alert() {
    let world = World::start().await;
    let unknown = "edge_tls_handshakes_total{outcome=\"unknown_name\"}";
    assert_eq!(world.admin.metric(unknown).await, 0);
    assert!(is_refused(&world, Some("unknown.example")).await);
    assert!(is_refused(&world, Some("unknown.tollhouse.localhost")).await, "covered by the wildcard, but no project");
    assert!(is_refused(&world, Some("tollhouse.localhost")).await);
    assert!(is_refused(&world, Some("a.demo.tollhouse.localhost")).await);
    world.admin.counts(unknown, 4).await;
    world.assert_upstreams_untouched();
    let served = world.ask(Ask::get(BLOG, "/")).await;
    world.log.line_of(served.request_id()).await;
    assert_eq!(world.log.lines().len(), 1, "scanners fill no log");
}

#[tokio::test]
async fn a_handshake_without_a_name_ends_with_an_alert() {
    let world = World::start().await;
    assert!(is_refused(&world, None).await);
}

#[tokio::test]
async fn a_customers_domain_is_served_with_its_own_certificate() {
    let world = World::start().await;
    // The client verifies the certificate for the name.
    let reply = world.ask(Ask::get(SHOP, ORDERS).key(&world.key.text)).await;
    assert_eq!(reply.status, 200);
    assert_eq!(world.orders.only_request().head.get("host"), Some(SHOP));
}

#[tokio::test]
async fn every_spelling_of_a_host_is_that_host() {
    let world = World::start().await;
    let mut client = world.tls(DEMO).await;
    for spelling in ["DEMO.Tollhouse.LocalHost", "demo.tollhouse.localhost.", "demo.tollhouse.localhost:8443"] {
        let mut ask = world.list();
        ask.host = spelling.to_owned();
        assert_eq!(client.ask(&ask).await.status, 200, "{spelling}");
    }
    let forwarded_hosts: Vec<_> =
        world.orders.requests().iter().map(|request| request.head.get("host").map(str::to_owned)).collect();
    let with_port = format!("{DEMO}:8443");
    assert_eq!(forwarded_hosts, [DEMO, DEMO, &with_port].map(|host| Some(host.to_owned())), "the port is the client's");
}

// promise: edge.9
#[tokio::test]
async fn a_request_for_another_tenant_on_this_connection_is_misdirected_in_http_1() {
    let world = World::start().await;
    let mut client = world.tls(DEMO).await;
    for (host, key) in [(OTHER, &world.other_key), (SHOP, &world.key)] {
        client.ask(&Ask::get(host, ORDERS).key(&key.text)).await.refused(421, "misdirected_request");
    }
    client.ask(&Ask::get("unknown.example", "/")).await.refused(421, "misdirected_request");
    world.assert_upstreams_untouched();
    // The connection still serves its own name.
    assert_eq!(client.ask(&world.list()).await.status, 200);
}

// promise: edge.9
#[tokio::test]
async fn a_request_for_another_tenant_on_this_connection_is_misdirected_in_http_2() {
    let world = World::start().await;
    let client = world.h2(DEMO).await;
    client.ask(&Ask::get(OTHER, ORDERS).key(&world.other_key.text)).await.refused(421, "misdirected_request");
    client.ask(&Ask::get(SHOP, ORDERS).key(&world.key.text)).await.refused(421, "misdirected_request");
    client.ask(&Ask::get("unknown.example", "/")).await.refused(421, "misdirected_request");
    world.assert_upstreams_untouched();
    assert_eq!(client.ask(&world.list()).await.status, 200);
}

#[tokio::test]
async fn two_names_of_one_tenant_share_a_connection_as_browsers_do() {
    let world = World::start().await;
    let h2 = world.h2(DEMO).await;
    assert_eq!(h2.ask(&Ask::get(DEMO_TOO, ORDERS).key(&world.key.text)).await.status, 200);
    assert_eq!(h2.ask(&world.list()).await.status, 200);
    let mut h1 = world.tls(DEMO_TOO).await;
    assert_eq!(h1.ask(&world.list()).await.status, 200);
}

#[tokio::test]
async fn a_name_with_its_own_certificate_shares_no_connection() {
    let world = World::start().await;
    let client = world.h2(SHOP).await;
    // The same tenant, but the certificate the client saw does not cover this name.
    client.ask(&world.list()).await.refused(421, "misdirected_request");
    // A name below the wildcard shares connections with others there while it has no certificate of its own.
    let own = "own.tollhouse.localhost";
    world.control.put(site(own, "demo")).await;
    let ask = Ask::get(own, ORDERS).key(&world.key.text);
    assert_eq!(world.h2(DEMO).await.ask(&ask).await.status, 200);
    // A domain of the same tenant that waits for its certificate is not below the wildcard.
    let waits = "waits.example";
    world.control.put(site(waits, "demo")).await;
    let of_domain = Ask::get(waits, ORDERS).key(&world.key.text);
    world.h2(DEMO).await.ask(&of_domain).await.refused(421, "misdirected_request");
    world.control.put(certificate(own)).await;
    let asked = world.orders.requests().len();
    world.h2(DEMO).await.ask(&ask).await.refused(421, "misdirected_request");
    let client = world.h2(own).await;
    client.ask(&world.list()).await.refused(421, "misdirected_request");
    assert_eq!(world.orders.requests().len(), asked);
    assert_eq!(client.ask(&ask).await.status, 200, "for its own name");
}

#[tokio::test]
async fn a_connection_with_too_many_hosts_is_closed() {
    let world = World::start().await;
    let mut client = world.plain().await;
    let mut asked = 0;
    loop {
        let reply = client.ask(&Ask::get(&format!("host-{asked}.example"), "/")).await;
        reply.refused(404, "unknown_host");
        asked += 1;
        if reply.header("connection") == Some("close") {
            break;
        }
        assert!(asked < 100, "for ever");
    }
    assert!(asked > 10, "browsers share connections between a few names: {asked}");
    assert_eq!(client.rest().await, b"");
}

#[tokio::test]
async fn an_unpublished_host_is_unknown() {
    let world = World::start().await;
    let reply = world.ask_plain(Ask::get("unknown.example", "/?token=secret")).await;
    reply.refused(404, "unknown_host");
    assert_eq!(reply.header("x-ratelimit-limit"), None, "an unknown host has no limit to show");
    let line = world.log.line_of(reply.request_id()).await;
    assert_eq!(
        (&line["host"], &line["code"], &line["status"]),
        (&"unknown.example".into(), &"unknown_host".into(), &404.into())
    );
    world.assert_upstreams_untouched();
}

#[tokio::test]
async fn a_suspended_project_is_answered_on_all_its_hosts_and_never_forwarded() {
    let world = World::start().await;
    let mut suspended = project("demo", Plan::Pro);
    suspended.suspended = true;
    world.control.put(Entity::Project(suspended)).await;
    for host in [DEMO, DEMO_TOO, SHOP] {
        world.ask(Ask::get(host, ORDERS).key(&world.key.text)).await.refused(403, "project_suspended");
    }
    world.assert_upstreams_untouched();
    world.control.put(Entity::Project(project("demo", Plan::Pro))).await;
    assert_eq!(world.ask(world.list()).await.status, 200);
}

#[tokio::test]
async fn a_host_published_while_the_gateway_runs_is_served_at_once() {
    let world = World::start().await;
    assert!(is_refused(&world, Some("fresh.tollhouse.localhost")).await);
    world.control.put(site("fresh.tollhouse.localhost", "blog")).await;
    assert_eq!(world.ask(Ask::get("fresh.tollhouse.localhost", "/")).await.status, 200);
}

#[tokio::test]
async fn a_public_site_needs_no_key_and_accepts_every_path_and_method() {
    let world = World::start().await;
    let reply = world.ask(Ask::new("PROPFIND", BLOG, "/any%2Fpath//?x=%0a").body("<xml/>")).await;
    assert_eq!(reply.status, 200);
    assert_eq!(reply.header("x-ratelimit-limit"), None, "limits are of the API");
    let request = world.blog.only_request();
    assert_eq!(request.head.first_line, "PROPFIND /any%2Fpath//?x=%0a HTTP/1.1");
    assert_eq!(request.body, b"<xml/>");
}
