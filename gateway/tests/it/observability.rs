//! Logs and metrics: every request once, no label that a client chose, and no secret anywhere.

use std::sync::Arc;

use chassis::logs::{Format, Logs};
use chassis::secret::Secret;
use contract::ban::BanReason;
use contract::feed::{Effect, Entity};
use contract::plan::Plan;
use contract::usage::{KeyReport, USAGE_PROJECTS_MAX};

use crate::world::client::{Ask, Client, handshake, status_of};
use crate::world::credentials::{credential, name};
use crate::world::entities::{TestKey, project, site};
use crate::world::observed::Log;
use crate::world::upstream::{Act, response};
use crate::world::{BLOG, DEMO, MINUTE_END, ORDERS, World, certificates, eventually};

// promise: edge.29
#[tokio::test]
async fn no_request_creates_a_new_metric() {
    const ROUNDS: usize = 500;
    let world = World::start().await;
    let before: Vec<String> = world.admin.metrics().await.into_keys().collect();
    assert!(before.len() < 3_000, "{} series", before.len());
    let mut plain = world.plain().await;
    let mut tls = world.tls(BLOG).await;
    let h2 = world.h2(BLOG).await;
    for round in 0..ROUNDS {
        if round % 10 == 0 {
            // A connection that was used for more hosts than the gateway remembers is ended.
            plain = world.plain().await;
            tls = world.tls(BLOG).await;
        }
        let mut random = [0; 8];
        random.copy_from_slice(&chassis::random::bytes::<8>().unwrap());
        let name = format!("{:016x}", u64::from_le_bytes(random));
        assert_eq!(plain.ask(&Ask::get(&format!("{name}.example"), "/")).await.status, 404);
        let mut ask = Ask::get(BLOG, &format!("/{name}?{name}={name}")).field("User-Agent", &name);
        ask.method = format!("M{name}");
        assert_eq!(tls.ask(&ask).await.status, 200);
        assert_eq!(h2.ask(&ask).await.status, 200);
        ask.host = format!("{name}.tollhouse.localhost");
        assert_eq!(tls.ask(&ask).await.status, 421);
        if round % 50 == 0 {
            let hello = certificates::client(&[b"http/1.1"]);
            assert!(handshake(world.https, Some(&ask.host), hello).await.is_err());
        }
    }
    let answered = "edge_requests_total{blame=\"\",code=\"\",status_class=\"2xx\",surface=\"site\"}";
    world.admin.counts(answered, 1_000).await;
    let after: Vec<String> = world.admin.metrics().await.into_keys().collect();
    let new: Vec<&String> = after.iter().filter(|series| !before.contains(series)).collect();
    assert!(new.is_empty(), "{new:?}");
    assert_eq!(before.len(), after.len());
}

#[tokio::test]
async fn every_request_is_one_log_line_with_all_fields() {
    let world = World::start().await;
    let reply = world.ask(world.list()).await;
    let line = world.log.line_of(reply.request_id()).await;
    let expected = serde_json::json!({
        "timestamp": "2027-01-15T08:00:10.000Z",
        "request_id": reply.request_id(),
        "gateway": name(0),
        "node": line["node"],
        "client_ip": "127.0.0.1",
        "proto": "h1",
        "tls": "TLSv1_3",
        "surface": "api",
        "host": DEMO,
        "method": "GET",
        "path": ORDERS,
        "status": 200,
        "bytes_in": 0,
        "bytes_out": 2,
        "duration_us": 0,
        "upstream_us": 0,
        "attempts": 1,
        "upstream": "orders",
        "endpoint": world.orders.address.to_string(),
        "upstream_connection": "fresh h1",
        "project_id": "demo",
        "plan": "pro",
        "api_key_id": world.key.record.id.as_str(),
        "quota_limit": 300,
        "quota_remaining": 299,
        "quota_mode": "exact",
    });
    assert_eq!(line, expected);
    assert!(line["node"].as_str().is_some_and(|node| node.starts_with("gw-")));
}

#[tokio::test]
async fn a_refusal_of_the_listener_looks_like_any_other_refusal() {
    let world = World::start().await;
    let key = &world.key.text;
    let cases = [
        ("GET / HTTP/1.1\r\nHost: a.example\r\nHost: b.example\r\n\r\n".to_owned(), 400, "bad_host"),
        (format!("GET /?key={key} HTTP/1.1\r\nHost: {BLOG}\r\nContent_Length: 1\r\n\r\n"), 400, "underscore_header"),
        (format!("POST / HTTP/1.1\r\nHost: {BLOG}\r\nContent-Length: 1, 1\r\n\r\nx"), 400, "bad_framing"),
        (format!("POST / HTTP/1.1\r\nHost: {BLOG}\r\nTransfer-Encoding: gzip\r\n\r\n"), 501, "not_implemented"),
        (format!("GET / HTTP/3.0\r\nHost: {BLOG}\r\n\r\n"), 505, "version_not_supported"),
        (format!("GET /{} HTTP/1.1\r\nHost: {BLOG}\r\n\r\n", "x".repeat(8_192)), 414, "uri_too_long"),
        (format!("GET / HTTP/1.1\r\nHost: {BLOG}\r\nX: {}\r\n\r\n", "x".repeat(8_192)), 431, "headers_too_large"),
    ];
    for (bytes, status, code) in cases {
        for mut client in [world.plain().await, world.tls(BLOG).await] {
            client.send(&bytes).await;
            let reply = client.reply("GET").await.expect("a response");
            reply.refused(status, code);
            assert_eq!(client.rest().await, b"", "the connection ends");
            let line = world.log.line_of(reply.request_id()).await;
            assert_eq!(
                (&line["code"], &line["status"], &line["surface"], &line["gateway"]),
                (&code.into(), &status.into(), &"listener".into(), &name(0).into())
            );
        }
        let class = status / 100;
        let series = format!(
            "edge_requests_total{{blame=\"client\",code=\"{code}\",status_class=\"{class}xx\",surface=\"listener\"}}"
        );
        assert_eq!(world.admin.metric(&series).await, 2);
    }
    world.assert_upstreams_untouched();
    assert!(!world.log.text().contains(key));
}

// promise: edge.15, edge.30
#[tokio::test]
async fn no_secret_reaches_a_log_a_metric_an_error_or_the_operators_view() {
    let log = Log::default();
    // The whole process's log, with the lines of every part.
    let logs = Arc::new(Logs::start(Format::Json, "info", log.clone()).expect("this is the one test that starts it"));
    let world = World::with(|setup| setup.logs = Some(logs)).await;
    let key = world.key.text.clone();
    let canary = "canary-3e1f";
    let wrong = format!("th_live_{canary}");
    let mut bodies = String::new();
    let dressed = |ask: Ask| {
        ask.field("Cookie", &format!("session={canary}"))
            .field("X-Request-Id", "0123456789abcdef")
            .field("X-Note", canary)
    };
    let h2 = world.h2(DEMO).await;
    for target in [ORDERS, "/nowhere", "/v1/store/orders/..", "/v2/orders"] {
        let target = format!("{target}?token={canary}&key={key}");
        for method in ["GET", "POST", "DELETE", "OPTIONS"] {
            for key in [&key, &wrong, &world.other_key.text] {
                let ask = dressed(Ask::new(method, DEMO, &target)).key(key);
                bodies += h2.ask(&ask).await.text();
                bodies += world.ask(ask.clone().body(canary)).await.text();
                bodies += world.ask_plain(ask).await.text();
            }
        }
    }
    let basic = Ask::get(BLOG, "/").field("Authorization", &format!("Basic {canary}"));
    for act in [Act::AnswerAndClose(canary.as_bytes().to_vec()), Act::AnswerAndReset(Vec::new())] {
        world.blog.next(act);
        bodies += world.ask(dressed(basic.clone())).await.text();
    }
    world.blog.next(Act::Answer(response("200 OK", &format!("Set-Cookie: {canary}\r\n"), "").into_bytes()));
    let last = world.ask(dressed(basic)).await;
    let mut malformed = world.tls(BLOG).await;
    malformed.send(format!("GET /?{canary} HTTP/1.1\r\nHost: x y\r\nCookie: {canary}\r\n\r\n")).await;
    let refused = malformed.reply("GET").await.expect("a response");
    bodies += refused.text();
    for reply in [&last, &refused] {
        log.line_of(reply.request_id()).await;
    }

    let mut seen = log.text() + &bodies;
    for path in [
        "/metrics",
        "/status",
        "/readyz",
        "/bans",
        "/usage/demo",
        "/hosts/demo.tollhouse.localhost",
        "/hosts/shop.example",
    ] {
        let (status, text) = world.admin.get(path).await;
        assert_eq!(status, 200, "{path}");
        seen += &text;
    }
    assert!(log.lines().len() > 100, "every line is JSON");
    for secret in [
        canary,
        &key,
        &world.other_key.text,
        "PRIVATE KEY",
        &credential(0),
        &Secret::parse(&credential(0)).unwrap().to_token(),
        crate::world::SEALING_SECRET,
    ] {
        let place = seen.find(secret).map(|at| &seen[at.saturating_sub(200)..at]);
        assert_eq!(place, None, "{secret} was seen");
    }
}

#[tokio::test]
async fn an_operator_can_inspect_hosts_usage_and_status() {
    let world = World::start().await;
    assert_eq!(world.ask(world.list()).await.status, 200);
    let view = async |path: &str| {
        let (status, text) = world.admin.get(path).await;
        assert_eq!(status, 200, "{text}");
        serde_json::from_str::<serde_json::Value>(&text).unwrap()
    };
    let host = view("/hosts/SHOP.example").await;
    assert_eq!((&host["certificate"], &host["project"]["plan"]), (&"own".into(), &"pro".into()));
    assert_eq!(view(&format!("/hosts/{DEMO}")).await["certificate"], "platform");
    assert_eq!(world.admin.get("/hosts/unknown.example").await.0, 404);
    let usage = view("/usage/demo").await;
    let minute = serde_json::json!({ "limit": 300, "used": 1, "remaining": 299, "resets_at": MINUTE_END });
    assert_eq!((&usage["minute"], &usage["mode"]), (&minute, &"exact".into()));
    assert_eq!(world.admin.get("/usage/unknown").await.0, 404);
    let status = view("/status").await;
    assert_eq!((&status["draining"], &status["revision"]), (&false.into(), &1.into()));
    let names: Vec<&str> =
        status["upstreams"].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect();
    assert!(names.contains(&"orders") && names.contains(&"blog"));
}

#[tokio::test]
async fn the_control_plane_gets_used_and_banned_keys() {
    let world = World::start().await;
    let id = &world.key.record.id;
    let said_of = |report: &KeyReport| report.used.iter().find(|used| used.key == *id).map(|used| used.minute);
    // Reports that the control plane misses are repeated later.
    world.control.die().await;
    assert_eq!(world.ask(world.list()).await.status, 200);
    world.control.revive();
    let report = world.control.reported_keys("the use of a key", |report| said_of(report).is_some()).await;
    assert_eq!(said_of(&report), Some(MINUTE_END / 60 - 1));
    assert_eq!((report.bans.len(), report.bans_total), (0, 0));

    let token = world.operator();
    let path = format!("/bans/{id}");
    assert_eq!(world.admin.ask("POST", &format!("{path}?seconds=600"), &token).await.0, 200);
    let report = world.control.reported_keys("the ban", |report| report.bans_total == 1).await;
    assert_eq!((&report.bans[0].key, report.bans[0].reason), (id, BanReason::Operator));
    assert_eq!(world.admin.ask("DELETE", &path, &token).await.0, 200);
    // A key in use is reported again in the next minute, and without a ban.
    world.clock.advance(std::time::Duration::from_mins(1));
    assert_eq!(world.ask(world.list()).await.status, 200);
    let is_later = |report: &KeyReport| said_of(report).is_some_and(|minute| minute == MINUTE_END / 60);
    let report = world.control.reported_keys("the next minute's use", is_later).await;
    assert_eq!((report.bans.len(), report.bans_total), (0, 0));
}

/// Usage of one project that the control plane has no room for keeps that of no other from it.
#[tokio::test]
async fn a_refused_usage_report_delays_no_other() {
    const PROJECTS: usize = USAGE_PROJECTS_MAX + 5;
    let world = World::start().await;
    world.control.has_no_room();
    for number in 0..PROJECTS {
        let id = format!("p{number:02}");
        let key = TestKey::new(&id, 7);
        let host = format!("{id}.tollhouse.localhost");
        world.control.publish(Effect::Put(Entity::Project(project(&id, Plan::Pro))));
        world.control.publish(Effect::Put(key.entity()));
        world.control.put(site(&host, &id)).await;
        assert_eq!(world.ask(Ask::get(&host, ORDERS).key(&key.text)).await.status, 200, "{id}");
    }
    let expected: std::collections::BTreeSet<String> = (0..PROJECTS).map(|number| format!("p{number:02}")).collect();
    eventually("usage of every project", async || (world.control.reported_usage() == expected).then_some(())).await;
}

/// A page in an operator's browser may resolve its own name to this address (DNS rebinding); it gets no data.
#[tokio::test]
async fn the_admin_listener_answers_only_to_its_own_names() {
    let world = World::with(|setup| setup.listen = "admin_hosts = [\"gateway-1\"]").await;
    for host in ["127.0.0.1", "127.0.0.1:9901", "localhost", "LOCALHOST:1", "[::1]:9901", "gateway-1", "gateway-1:9901"]
    {
        assert_eq!(asked_for(&world, "/status", &format!("Host: {host}\r\n")).await.0, 200, "{host}");
    }
    assert_eq!(asked_for(&world, "/status", "").await.0, 200, "a request without Host is not from a browser");
    for target in ["/status", "/metrics", "/readyz", "/livez", "/nowhere"] {
        for host in ["evil.example", "gateway-2", "127.0.0.1.evil.example", "localhost.evil.example", ""] {
            let (status, body) = asked_for(&world, target, &format!("Host: {host}\r\n")).await;
            assert_eq!(status, 421, "{host} {target}");
            assert!(body.contains("misdirected_request"), "{body}");
        }
    }
}

async fn asked_for(world: &World, target: &str, host: &str) -> (u16, String) {
    let mut client = Client::plain(world.admin.0).await;
    let version = if host.is_empty() { "HTTP/1.0" } else { "HTTP/1.1" };
    client.send(format!("GET {target} {version}\r\n{host}Connection: close\r\n\r\n")).await;
    let head = client.head().await;
    (status_of(&head), String::from_utf8(client.rest().await).unwrap())
}
