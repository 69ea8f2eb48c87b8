//! Headers for the upstream, their origin, and the response headers that reach the client.

use contract::identity::{Caller, Identity};
use contract::key::{Environment, Scopes};
use contract::plan::Plan;
use contract::time::UnixSeconds;

use crate::world::client::Ask;
use crate::world::credentials::identities;
use crate::world::upstream::{Act, Received, response};
use crate::world::{BLOG, DEMO, NOW, ORDERS, SHOP, World};

/// One field of each kind by which a client could pretend to be the gateway or another client.
const FORGED: [(&str, &str); 39] = [
    ("Tollhouse-Identity-Token", "e30.e30.forged"),
    ("Tollhouse-Anything", "x"),
    ("TOLLHOUSE-Role", "admin"),
    ("X-Tollhouse-Key-Id", "key_forged"),
    ("X-Tollhouse-Project", "other"),
    ("X-Tollhouse-Plan", "enterprise"),
    ("X-Tollhouse-Anything", "x"),
    ("X-Forwarded-For", "192.0.2.1, 192.0.2.2"),
    ("X-Forwarded-Host", "evil.example"),
    ("X-Forwarded-Proto", "http"),
    ("X-Forwarded-Port", "1"),
    ("X-Forwarded-Prefix", "/evil"),
    ("X-Forwarded-User", "root"),
    ("X-Forwarded", "for=192.0.2.1"),
    ("Forwarded", "for=192.0.2.1"),
    ("Proxy", "http://evil.example"),
    ("X-Real-IP", "192.0.2.1"),
    ("Client-IP", "192.0.2.1"),
    ("True-Client-IP", "192.0.2.1"),
    ("X-Cluster-Client-IP", "192.0.2.1"),
    ("CF-Connecting-IP", "192.0.2.1"),
    ("CF-Access-Authenticated-User-Email", "root@evil.example"),
    ("Remote-User", "root"),
    ("X-Remote-User", "root"),
    ("X-WebAuth-User", "root"),
    ("X-Auth-Request-User", "root"),
    ("X-Authenticated-User", "root"),
    ("X-SSL-Client-Verify", "SUCCESS"),
    ("SSL-Client-Cert", "x"),
    ("Client-Cert", ":x:"),
    ("X-Original-URL", "/admin"),
    ("X-Original-Host", "evil.example"),
    ("X-Rewrite-URL", "/admin"),
    ("X-Host", "evil.example"),
    ("X-Envoy-Internal", "true"),
    ("X-Accel-Mapping", "/=/etc"),
    ("X-Script-Name", "/evil"),
    ("Front-End-Https", "on"),
    ("X-Request-Id", "forged-request-id-0001"),
];

/// Fields that an API with rules about methods does not get either.
const OVERRIDES: [(&str, &str); 3] =
    [("X-HTTP-Method-Override", "DELETE"), ("X-HTTP-Method", "DELETE"), ("X-Method-Override", "DELETE")];

/// The header that continues a trace.
const TRACES: [(&str, &str); 3] = [
    ("traceparent", "00-00000000000000000000000000000001-0000000000000001-01"),
    ("tracestate", "vendor=1"),
    ("baggage", "tenant=other"),
];

/// Fields that look like the gateway's and belong to the application.
const OWN: [(&str, &str); 12] = [
    ("x-account-id", "1"),
    ("x-auth-token", "2"),
    ("x-b3-traceid", "3"),
    ("x-custom", "kept"),
    ("x-key-id", "4"),
    ("x-plan", "5"),
    ("x-planet", "6"),
    ("x-project-id", "7"),
    ("x-tenant-id", "8"),
    ("x-user-agent", "9"),
    ("x-user-id", "10"),
    ("x-user-name", "11"),
];

/// Fields that the gateway adds for the upstream of an API.
const ADDED_TO_API: [&str; 13] = [
    "host",
    "tollhouse-identity-token",
    "via",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-port",
    "x-forwarded-prefix",
    "x-forwarded-proto",
    "x-real-ip",
    "x-request-id",
    "x-tollhouse-key-id",
    "x-tollhouse-plan",
    "x-tollhouse-project",
];

fn identity_of(request: &Received) -> Identity {
    let field = |name: &str| request.head.get(name).expect(name);
    let token = field("tollhouse-identity-token");
    let claims = identities().verify(token, &["orders"], UnixSeconds(NOW)).expect("a good signature");
    claims.into_identity(field("x-request-id").to_owned(), field("x-forwarded-for").parse().unwrap())
}

fn with_fields(ask: Ask, fields: &[(&str, &str)]) -> Ask {
    fields.iter().fold(ask, |ask, (name, value)| ask.field(name, value))
}

fn with_forgeries(ask: Ask) -> Ask {
    let ask = [&FORGED[..], &OVERRIDES, &TRACES, &OWN].into_iter().fold(ask, with_fields);
    ask.field("Accept", "application/json").field("User-Agent", "tests")
}

/// Asserts that exactly these fields arrived: those listed, and the client's own end-to-end fields.
#[track_caller]
fn assert_fields(request: &Received, added: &[&str]) {
    let mut expected: Vec<&str> = added.iter().copied().chain(["accept", "user-agent"]).collect();
    expected.extend(OWN.iter().map(|(name, _)| *name));
    expected.sort_unstable();
    assert_eq!(request.head.names(), expected, "{}", request.raw_head);
    for (name, value) in OWN {
        assert_eq!(request.head.get(name), Some(value));
    }
    for (name, value) in FORGED {
        assert!(!request.head.all(name).contains(&value), "{name}: {value} arrived");
    }
}

// promise: edge.10
#[tokio::test]
async fn an_api_learns_the_caller_and_clients_cannot_forge_one() {
    let world = World::start().await;
    let h2 = world.h2(DEMO).await;
    let ask = with_forgeries(Ask::get(DEMO, "/v1/store/orders?x=%2F").key(&world.key.text));
    let replies = [world.ask(ask.clone()).await, h2.ask(&ask).await];
    for (reply, request) in replies.iter().zip(world.orders.requests()) {
        assert_eq!(reply.status, 200);
        assert_fields(&request, &ADDED_TO_API);
        let head = &request.head;
        assert_eq!(head.first_line, "GET /v1/store/orders?x=%2F HTTP/1.1");
        assert_eq!(head.get("host"), Some(DEMO));
        assert_eq!(head.get("x-forwarded-host"), Some(DEMO));
        assert_eq!(head.get("x-forwarded-for"), Some("127.0.0.1"));
        assert_eq!(head.get("x-forwarded-proto"), Some("https"));
        assert_eq!(head.get("x-tollhouse-key-id"), Some(world.key.record.id.as_str()));
        assert_eq!(head.get("x-tollhouse-project"), Some("demo"));
        assert_eq!(head.get("x-tollhouse-plan"), Some("pro"));
        assert_eq!(head.get("x-request-id"), Some(reply.request_id()), "the id the client can quote");
        assert_eq!(head.get("x-real-ip"), Some("127.0.0.1"));
        assert_eq!(head.get("x-forwarded-port"), Some("443"));
        assert_eq!(head.get("x-forwarded-prefix"), Some("/"));
        assert_eq!(
            identity_of(&request),
            Identity {
                request_id: reply.request_id().to_owned(),
                client: [127, 0, 0, 1].into(),
                site_project: Some("demo".parse().unwrap()),
                caller: Some(Caller {
                    key: world.key.record.id.clone(),
                    project: "demo".parse().unwrap(),
                    project_uid: "demo".parse().unwrap(),
                    plan: Plan::Pro,
                    scopes: Scopes::all(),
                    environment: Environment::Live,
                }),
                issued_at: UnixSeconds(NOW),
            }
        );
        assert!(!request.raw_head.contains(&world.key.text), "the key has done its work");
    }
    let line = world.log.line_of(replies[0].request_id()).await;
    assert_eq!(line["client_request_id"], "forged-request-id-0001", "kept for the log alone");
}

#[tokio::test]
async fn a_public_site_keeps_its_own_authorization_and_cookies() {
    let world = World::start().await;
    let ask = Ask::get(BLOG, "/").field("Authorization", "Basic dXNlcjpwYXNz").field("Cookie", "session=1");
    let reply = world.ask(with_forgeries(ask)).await;
    assert_eq!(reply.status, 200);
    let request = world.blog.only_request();
    let names = OVERRIDES.map(|(name, _)| name.to_ascii_lowercase());
    let overrides = names.iter().map(String::as_str);
    let traces = TRACES.iter().map(|(name, _)| *name);
    // This upstream is not configured to get identities.
    let added = ADDED_TO_API[..10].iter().copied().filter(|name| !name.starts_with("tollhouse-"));
    let added = added.chain(overrides).chain(traces).chain(["authorization", "cookie"]);
    assert_fields(&request, &added.collect::<Vec<_>>());
    for (name, value) in TRACES {
        assert_eq!(request.head.get(name), Some(value), "the application's own trace continues");
    }
    assert_eq!(request.head.get("authorization"), Some("Basic dXNlcjpwYXNz"));
}

#[tokio::test]
async fn settings_pass_and_drop_headers_of_an_upstream() {
    let world = World::with(|setup| {
        setup.blog = "pass_headers = [\"X-Authenticated-*\", \"X-Real-IP\"]\ndrop_headers = [\"X-User-*\"]";
    })
    .await;
    let h2 = world.h2(BLOG).await;
    let ask = with_fields(Ask::get(BLOG, "/"), &FORGED);
    let ask = with_fields(ask, &OWN);
    for reply in [world.ask(ask.clone()).await, h2.ask(&ask).await] {
        assert_eq!(reply.status, 200);
    }
    for Received { head, .. } in world.blog.requests() {
        assert_eq!(head.get("x-authenticated-user"), Some("root"), "its own proxy sets it");
        assert_eq!((head.get("x-user-id"), head.get("x-user-agent")), (None, None));
        assert_eq!(head.get("x-auth-token"), Some("2"));
        assert_eq!(head.get("x-real-ip"), Some("127.0.0.1"), "fields of the gateway replace those of the client");
    }
}

#[tokio::test]
async fn the_port_that_a_client_uses_survives() {
    let world = World::start().await;
    let (mut h1, h2) = (world.tls(BLOG).await, world.h2(BLOG).await);
    for (port, host, forwarded_port) in
        [("", BLOG.to_owned(), "443"), (":443", BLOG.to_owned(), "443"), (":8443", format!("{BLOG}:8443"), "8443")]
    {
        let ask = Ask::get(&format!("{BLOG}{port}"), "/");
        let post = Ask { method: "POST".to_owned(), ..ask.clone().body("x") };
        for reply in [h1.ask(&ask).await, h1.ask(&post).await, h2.ask(&ask).await] {
            assert_eq!(reply.status, 200);
        }
        let requests = world.blog.requests();
        for Received { head, .. } in requests.iter().rev().take(3) {
            assert_eq!((head.get("host"), head.get("x-forwarded-host")), (Some(&*host), Some(&*host)));
            assert_eq!(head.get("x-forwarded-port"), Some(forwarded_port), "{port:?}");
        }
    }
    assert_eq!(world.blog.requests().len(), 9);
}

#[tokio::test]
async fn the_gateways_headers_cannot_be_stripped_by_naming_them_in_connection() {
    let world = World::start().await;
    for names in ["tollhouse-identity-token", "close, X-Forwarded-For", "x-tollhouse-project", "Authorization", "Host"]
    {
        let reply = world.ask(world.list().field("Connection", names)).await;
        reply.refused(400, "bad_connection_header");
    }
    world.assert_upstreams_untouched();
}

#[tokio::test]
async fn connection_fields_are_not_forwarded() {
    let world = World::start().await;
    let ask = world
        .list()
        .field("Connection", "keep-alive, te")
        .field("Keep-Alive", "timeout=5")
        .field("TE", "gzip")
        .field("Proxy-Authorization", "Basic x")
        .field("Proxy-Connection", "keep-alive");
    assert_eq!(world.ask(ask).await.status, 200);
    assert_eq!(world.orders.only_request().head.names(), ADDED_TO_API);
}

#[tokio::test]
async fn an_absolute_target_is_forwarded_as_a_path() {
    let world = World::start().await;
    let mut ask = world.list();
    ask.target = format!("https://{DEMO}{ORDERS}?a=b");
    assert_eq!(world.ask(ask).await.status, 200);
    let request = world.orders.only_request();
    assert_eq!(request.head.first_line, "GET /v1/store/orders?a=b HTTP/1.1");
    assert_eq!(identity_of(&request).site_project, Some("demo".parse().unwrap()));
}

#[tokio::test]
async fn an_upstream_cannot_set_the_gateways_fields() {
    let world = World::start().await;
    let fields = "Server: secret/1.0\r\nX-RateLimit-Limit: 9\r\nX-RateLimit-Remaining: 9\r\nX-RateLimit-Reset: 9\r\n\
                  RateLimit: \"x\";r=9\r\nRateLimit-Policy: \"x\";q=9\r\nX-Request-Id: forged\r\n\
                  Tollhouse-Identity-Token: forged\r\nETag: \"kept\"\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2\r\n";
    for reply in [
        {
            world.orders.next(Act::Answer(response("200 OK", fields, "[1]").into_bytes()));
            world.ask(world.list()).await
        },
        {
            world.orders.next(Act::Answer(response("200 OK", fields, "[1]").into_bytes()));
            world.h2(DEMO).await.ask(&world.list()).await
        },
    ] {
        assert_eq!((reply.status, reply.text()), (200, "[1]"));
        assert_eq!(reply.number("x-ratelimit-limit"), 300);
        assert!(reply.header("ratelimit").is_some_and(|field| field.starts_with("\"minute\"")));
        assert_eq!(reply.header("tollhouse-identity-token"), None);
        assert_eq!(reply.header("etag"), Some("\"kept\""));
        assert_eq!(reply.head.all("set-cookie"), ["a=1", "b=2"]);
        assert_eq!(reply.header("strict-transport-security"), Some("max-age=31536000"));
        assert_eq!(reply.header("x-content-type-options"), Some("nosniff"));
    }
}

/// On a site all fields are the application's, except those that only the gateway can know.
#[tokio::test]
async fn a_sites_own_response_fields_reach_the_client() {
    let world = World::start().await;
    let own = [
        ("server", "theirs/1.0"),
        ("x-request-id", "theirs"),
        ("x-ratelimit-limit", "9"),
        ("ratelimit", "\"x\";r=9"),
        ("access-control-allow-origin", "https://app.example"),
        ("access-control-allow-credentials", "true"),
        ("access-control-expose-headers", "X-Theirs"),
        ("strict-transport-security", "max-age=1"),
        ("date", "Tue, 15 Nov 1994 08:12:31 GMT"),
    ];
    let fields: String = own.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let fields = format!("{fields}Tollhouse-Identity-Token: forged\r\n");
    let ask = Ask::get(BLOG, "/");
    let posted = Ask { method: "POST".to_owned(), ..ask.clone().body("x") };
    for (sent, is_proxied) in [(ask, false), (posted, true)] {
        world.blog.next(Act::Answer(response("200 OK", &fields, "").into_bytes()));
        let mut client = world.tls(BLOG).await;
        client.send(sent.to_bytes()).await;
        let head = client.head().await;
        for (name, value) in own {
            // The library of requests with a body writes the time itself.
            if !(is_proxied && name == "date") {
                assert_eq!(head.all(name), [value], "{name}: {head:?}");
            }
        }
        assert_eq!(head.get("tollhouse-identity-token"), None);
    }
    // The gateway adds the fields that the upstream omits.
    world.ask(Ask::get(BLOG, "/")).await.check();
}

#[tokio::test]
async fn an_upstreams_connection_fields_do_not_reach_the_client() {
    let world = World::start().await;
    let fields =
        "Connection: close, X-Internal\r\nX-Internal: 1\r\nKeep-Alive: timeout=5\r\nProxy-Authenticate: Basic\r\n";
    world.orders.next(Act::AnswerAndClose(response("200 OK", fields, "[]").into_bytes()));
    let mut client = world.tls(DEMO).await;
    let reply = client.ask(&world.list()).await;
    assert_eq!((reply.status, reply.text()), (200, "[]"));
    assert_eq!((reply.header("keep-alive"), reply.header("x-internal")), (None, None), "{reply:?}");
    // The client's own connection lives on.
    assert_eq!(client.ask(&world.list()).await.status, 200);
}

#[tokio::test]
async fn statuses_of_the_upstream_are_passed_on_and_charged() {
    let world = World::start().await;
    let mut client = world.tls(DEMO).await;
    let statuses = ["304 Not Modified", "404 Not Found", "409 Conflict", "500 Internal Server Error", "503 Busy"];
    for (left, status) in (0..300).rev().zip(statuses) {
        let body = if status.starts_with("304") { "" } else { "{\"code\":\"theirs\"}" };
        world.orders.next(Act::body(status, body));
        let reply = client.ask(&world.list()).await;
        assert!(status.starts_with(&reply.status.to_string()));
        assert_eq!((reply.text(), reply.number("x-ratelimit-remaining")), (body, left));
    }
}

#[tokio::test]
async fn interim_responses_of_the_upstream_do_not_confuse_the_final_one() {
    let world = World::start().await;
    let text = format!("HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n{}", response("200 OK", "", "[]"));
    world.orders.next(Act::Answer(text.into_bytes()));
    let mut client = world.tls(DEMO).await;
    client.send(world.list().to_bytes()).await;
    let mut head = client.head().await;
    while head.first_line.starts_with("HTTP/1.1 1") {
        head = client.head().await;
    }
    assert_eq!(head.first_line, "HTTP/1.1 200 OK");
    assert_eq!(head.get("x-ratelimit-remaining"), Some("299"));
    assert_eq!(client.wire.exactly(2).await, b"[]");
    assert_eq!(world.ask(Ask::get(SHOP, ORDERS).key(&world.key.text)).await.status, 200);
}
