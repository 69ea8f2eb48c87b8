//! Paths, methods and bodies that an API accepts, decided before its upstream sees a request.

use crate::world::client::{Ask, Reply, status_of};
use crate::world::upstream::{Act, response};
use crate::world::{BLOG, DEMO, MINUTE_END, ORDERS, World};

/// Asserts a refusal that was charged to the caller.
#[track_caller]
fn assert_refused_and_charged(reply: &Reply, status: u16, code: &str, left: i64) {
    reply.refused(status, code);
    assert_eq!(reply.rate_limit_headers(), (300, left, MINUTE_END));
}

// rule: 4.0.2, 7.404
#[tokio::test]
async fn an_unknown_path_is_404_with_a_key_and_401_without() {
    let world = World::start().await;
    let mut client = world.tls(DEMO).await;
    let paths =
        ["/", "/v1", "/v1/store/orders/", "/v1//store/orders", "/V1/store/orders", "/v1/store/orders/1/2", "/metrics"];
    for (left, path) in (0..300).rev().zip(paths) {
        let ask = Ask::get(DEMO, path);
        client.ask(&ask).await.refused(401, "missing_api_key");
        assert_refused_and_charged(&client.ask(&ask.key(&world.key.text)).await, 404, "not_found", left);
    }
    world.assert_upstreams_untouched();
}

// rule: 4.1.1, 4.2.1
#[tokio::test]
async fn an_unsupported_method_is_405_with_the_supported_ones() {
    let world = World::start().await;
    let mut client = world.tls(DEMO).await;
    let cases = [
        ("POST", ORDERS, "GET, HEAD, OPTIONS"),
        ("DELETE", ORDERS, "GET, HEAD, OPTIONS"),
        ("PATCH", "/v2/orders", "GET, HEAD, POST, OPTIONS"),
        ("GET", "/v1/store/orders/1", "DELETE, OPTIONS"),
        ("HEAD", "/v1/store/orders/1", "DELETE, OPTIONS"),
        ("TRACE", ORDERS, "GET, HEAD, OPTIONS"),
        ("FOO", ORDERS, "GET, HEAD, OPTIONS"),
    ];
    for (left, (method, path, allow)) in (0..300).rev().zip(cases) {
        let reply = client.ask(&Ask::new(method, DEMO, path)).await;
        assert_eq!((reply.status, reply.header("allow")), (401, None), "strangers learn nothing about routes");
        let reply = client.ask(&Ask::new(method, DEMO, path).key(&world.key.text)).await;
        assert_eq!((reply.status, reply.header("allow")), (405, Some(allow)), "{method} {path}");
        if method != "HEAD" {
            assert_refused_and_charged(&reply, 405, "method_not_allowed", left);
        }
    }
    world.assert_upstreams_untouched();
}

// rule: 4.1.3, 4.2.3
#[tokio::test]
async fn an_unexpected_body_is_refused_before_the_upstream_is_contacted() {
    let world = World::start().await;
    let chunked = |ask: Ask| {
        let mut ask = ask.field("Transfer-Encoding", "chunked");
        ask.body = b"3\r\nabc\r\n0\r\n\r\n".to_vec();
        ask
    };
    let cases = [
        Ask::get(DEMO, ORDERS).body("{}"),
        chunked(Ask::get(DEMO, ORDERS)),
        Ask::new("HEAD", DEMO, ORDERS).body("{}"),
        Ask::new("DELETE", DEMO, "/v1/store/orders/1").body("{}"),
        chunked(Ask::new("DELETE", DEMO, "/v1/store/orders/1")),
    ];
    for (left, ask) in (0..300).rev().zip(cases) {
        let reply = world.ask(ask.clone()).await;
        assert_eq!(reply.status, 401, "strangers learn nothing about routes");
        let reply = world.ask(ask.clone().key(&world.key.text)).await;
        assert_eq!(reply.status, 400);
        if ask.method != "HEAD" {
            assert_refused_and_charged(&reply, 400, "body_not_allowed", left);
        }
    }
    let h2 = world.h2(DEMO).await;
    let mut ask = Ask::get(DEMO, ORDERS).key(&world.key.text);
    ask.body = b"{}".to_vec();
    h2.ask(&ask).await.refused(400, "body_not_allowed");
    world.assert_upstreams_untouched();
    // An empty body counts as no body.
    assert_eq!(world.ask(world.list().body("")).await.status, 200);
}

#[tokio::test]
async fn a_body_over_the_routes_limit_is_413_and_the_response_arrives() {
    let world = World::start().await;
    let ask = |body: &str| Ask::new("POST", DEMO, "/v2/orders").key(&world.key.text).body(body);
    world.ask(Ask::new("POST", DEMO, "/v2/orders").body(&"x".repeat(101))).await.refused(401, "missing_api_key");
    assert_refused_and_charged(&world.ask(ask(&"x".repeat(101))).await, 413, "body_too_large", 299);
    // Much more than fits into any buffer on the way.
    assert_refused_and_charged(&world.ask(ask(&"x".repeat(200_000))).await, 413, "body_too_large", 298);
    world.assert_upstreams_untouched();
    assert_eq!(world.ask(ask(&"x".repeat(100))).await.status, 200);
    assert_eq!(world.orders.only_request().body.len(), 100);
}

#[tokio::test]
async fn a_body_without_a_stated_length_is_cut_off_where_it_becomes_too_large() {
    let world = World::start().await;
    let mut ask = Ask::new("POST", DEMO, "/v2/orders").key(&world.key.text).field("Transfer-Encoding", "chunked");
    ask.body = format!("65\r\n{}\r\n0\r\n\r\n", "x".repeat(0x65)).into_bytes();
    assert_refused_and_charged(&world.ask(ask.clone()).await, 413, "body_too_large", 299);
    assert!(world.orders.requests().iter().all(|request| !request.complete), "never a whole request");
    ask.body = format!("64\r\n{}\r\n0\r\n\r\n", "x".repeat(0x64)).into_bytes();
    assert_eq!(world.ask(ask).await.status, 200);
}

#[tokio::test]
async fn a_path_with_two_readings_is_refused_and_others_are_forwarded_as_sent() {
    let world = World::start().await;
    for path in [
        "/v1/store/orders/..",
        "/v1/store/../store/orders",
        "/v1/store/orders/%2e%2E",
        "/./v1/store/orders",
        "/v1/store/orders/1%00",
    ] {
        world.ask(Ask::get(DEMO, path).key(&world.key.text)).await.refused(400, "bad_target");
    }
    world.assert_upstreams_untouched();
    let mut client = world.tls(DEMO).await;
    for target in ["/v1/store/orders/%2F", "/v1/store/orders/1%0a", "/v1/store/orders/a|b?x=%0a&&"] {
        assert_eq!(client.ask(&Ask::new("DELETE", DEMO, target).key(&world.key.text)).await.status, 200);
        let request = world.orders.requests().pop().expect("a request");
        assert_eq!(request.head.first_line, format!("DELETE {target} HTTP/1.1"));
    }
}

#[tokio::test]
async fn head_is_get_without_the_body() {
    let world = World::start().await;
    world.orders.next(Act::Answer(b"HTTP/1.1 200 OK\r\nContent-Length: 1234\r\nETag: \"x\"\r\n\r\n".to_vec()));
    let mut client = world.tls(DEMO).await;
    let mut head = world.list();
    head.method = "HEAD".to_owned();
    let reply = client.ask(&head).await;
    assert_eq!(
        (reply.status, reply.header("content-length"), reply.header("etag")),
        (200, Some("1234"), Some("\"x\""))
    );
    assert_eq!(reply.number("x-ratelimit-remaining"), 299);
    // No byte of the body disturbs the next response.
    assert_eq!(client.ask(&world.list()).await.text(), "[]");
    assert_eq!(world.orders.requests()[0].head.first_line, "HEAD /v1/store/orders HTTP/1.1");
}

#[tokio::test]
async fn a_browsers_preflight_needs_no_key_and_costs_nothing() {
    let world = World::start().await;
    let mut client = world.tls(DEMO).await;
    for path in [ORDERS, "/nowhere"] {
        let ask = Ask::new("OPTIONS", DEMO, path)
            .field("Origin", "https://app.example")
            .field("Access-Control-Request-Method", "DELETE")
            .field("Access-Control-Request-Headers", "authorization,x-requested-with,sentry-trace");
        let reply = client.ask(&ask).await;
        assert_eq!(reply.status, 204);
        assert_eq!(reply.header("access-control-allow-origin"), Some("*"));
        assert_eq!(reply.header("access-control-allow-methods"), Some("GET, HEAD, POST, PUT, PATCH, DELETE"));
        assert_eq!(
            reply.header("access-control-allow-headers"),
            Some("authorization,x-requested-with,sentry-trace"),
            "a preflight of a page"
        );
        assert_eq!(reply.header("access-control-max-age"), Some("600"));
        let depends_on = "Origin, Access-Control-Request-Method, Access-Control-Request-Headers";
        assert_eq!(reply.header("vary"), Some(depends_on));
        assert!(reply.header("x-ratelimit-limit").is_some(), "every API response shows limits");
        assert_eq!(reply.header("content-length"), None);
    }
    world.assert_upstreams_untouched();
    assert_eq!(client.ask(&world.list()).await.number("x-ratelimit-remaining"), 299);
}

#[tokio::test]
async fn options_with_a_key_lists_the_methods_of_a_path() {
    let world = World::start().await;
    let mut client = world.tls(DEMO).await;
    client.ask(&Ask::new("OPTIONS", DEMO, ORDERS)).await.refused(401, "missing_api_key");
    let reply = client.ask(&Ask::new("OPTIONS", DEMO, ORDERS).key(&world.key.text)).await;
    assert_eq!((reply.status, reply.header("allow")), (204, Some("GET, HEAD, OPTIONS")));
    assert_eq!(reply.number("x-ratelimit-remaining"), 299);
    let reply = client.ask(&Ask::new("OPTIONS", DEMO, "/nowhere").key(&world.key.text)).await;
    assert_refused_and_charged(&reply, 404, "not_found", 298);
    world.assert_upstreams_untouched();
    // On a public site OPTIONS belongs to the application.
    world.blog.next(Act::Answer(response("204 No Content", "Allow: GET\r\n", "").into_bytes()));
    let reply = world.ask(Ask::new("OPTIONS", BLOG, "/")).await;
    assert_eq!((reply.status, reply.header("allow")), (204, Some("GET")));
}

#[tokio::test]
async fn only_the_gateway_sends_100_continue() {
    let world = World::start().await;
    let mut client = world.tls(DEMO).await;
    let ask = Ask::new("POST", DEMO, "/v2/orders").key(&world.key.text).body("{\"petId\":1}");
    let mut ask = ask.field("Expect", "100-continue");
    let body = std::mem::take(&mut ask.body);
    client.send(ask.to_bytes()).await;
    assert_eq!(status_of(&client.head().await), 100);
    client.send(&body).await;
    assert_eq!(client.reply("POST").await.expect("a response").status, 200);
    let request = world.orders.only_request();
    assert_eq!((request.head.get("expect"), request.body), (None, body));
}

#[tokio::test]
async fn a_refused_client_that_expects_100_continue_sends_no_body() {
    let world = World::start().await;
    for (ask, status, code) in [
        (Ask::new("POST", DEMO, "/v2/orders").body("{}"), 401, "missing_api_key"),
        (Ask::new("POST", DEMO, "/v2/orders").key(&world.key.text).body(&"x".repeat(101)), 413, "body_too_large"),
        (Ask::get(DEMO, ORDERS).key(&world.key.text), 417, "expectation_failed"),
    ] {
        let mut ask = ask.field("Expect", "100-continue");
        ask.body.clear();
        // The first head is the refusal, not 100.
        world.tls(DEMO).await.try_ask(&ask).await.expect("a response").refused(status, code);
    }
    world.assert_upstreams_untouched();
}
