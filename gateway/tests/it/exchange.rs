//! One exchange for both versions: clients, upstreams and logs see no difference. Request bodies are in
//! [`crate::bodies`].

use std::future::poll_fn;

use contract::site::RedirectStatus;
use serde_json::{Value, json};

use crate::world::client::{Ask, Reply};
use crate::world::entities::{certificate, redirecting};
use crate::world::upstream::{Act, response};
use crate::world::{BLOG, DEMO, ORDERS, SHOP, World, within};

const WWW: &str = "www.shop.example";

/// Log fields with the time and place of the answer.
const VARYING: [&str; 4] = ["timestamp", "request_id", "gateway", "node"];

/// The log line of a reply without [`VARYING`]. Unexpected and missing fields are both seen.
async fn logged(world: &World, reply: &Reply) -> Value {
    let mut line = world.log.line_of(reply.request_id()).await;
    without(&mut line, &VARYING);
    line
}

/// `line` with these fields as well, or with other values.
fn with(mut line: Value, more: Value) -> Value {
    let Value::Object(more) = more else { panic!("{more} is not an object") };
    line.as_object_mut().unwrap().extend(more);
    line
}

/// The expected fields of a response, a line each, as [`loose`] gives them.
pub(crate) fn expected_fields(lines: &[&str]) -> Vec<(String, String)> {
    let lines = lines.iter().flat_map(|lines| lines.lines()).map(str::trim).filter(|line| !line.is_empty());
    let split = |line: &str| line.split_once(": ").map(|(name, value)| (name.to_owned(), value.to_owned()));
    let mut fields: Vec<_> = lines.map(|line| split(line).unwrap_or_else(|| panic!("invalid: {line:?}"))).collect();
    fields.sort();
    fields
}

/// The expected answer of the gateway itself, over either version.
struct Own {
    ask: Ask,
    status: u16,
    fields: Vec<(String, String)>,
    body: String,
    /// Fields of the log line that differ between cases.
    log: Value,
}

const CORS: &str = "access-control-allow-origin: *
    access-control-expose-headers: X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Reset, Retry-After, RateLimit, \
RateLimit-Policy, Deprecation, Sunset, Link, X-Request-Id, ETag, Location, Idempotency-Replayed, X-API-Stability";

/// Fields of every response of an API with a known project.
const OF_AN_API: &str = "strict-transport-security: max-age=31536000
    x-content-type-options: nosniff";

/// On every response to a request that was charged: the limits of the plan, and the end of the minute.
const OF_A_QUOTA: &str = "x-ratelimit-limit: 300
    x-ratelimit-reset: 1800000060
    ratelimit-policy: \"minute\";q=300;w=60, \"day\";q=10000;w=86400";

/// Fields of every response to a request without a valid key: the limit of its address.
const OF_AN_ADDRESS: &str = "x-ratelimit-limit: 60
    x-ratelimit-reset: 1800000060
    ratelimit-policy: \"minute\";q=60;w=60";

/// On a refusal.
pub(crate) const REFUSAL: &str = "content-type: application/json
    cache-control: no-store";

/// Fields of the gateway's answer to a preflight.
const PREFLIGHT: &str =
    "access-control-allow-headers: Authorization, Content-Type, Idempotency-Key, If-Match, If-None-Match, \
X-Request-Id
    access-control-allow-methods: GET, HEAD, POST, PUT, PATCH, DELETE
    access-control-max-age: 600
    vary: Origin, Access-Control-Request-Method, Access-Control-Request-Headers";

/// The refusal of a request without a valid key, with this `WWW-Authenticate`.
fn unauthorized(ask: Ask, code: &str, message: &str, challenge: &'static str) -> Own {
    refused(ask, 401, code, message, &[OF_AN_ADDRESS, challenge], json!({ "quota_limit": 60 }))
}

fn refused(ask: Ask, status: u16, code: &str, message: &str, fields: &[&str], log: Value) -> Own {
    let body = json!({ "code": code, "message": message, "status": status }).to_string();
    let length = format!("content-length: {}", body.len());
    let fields = [[CORS, OF_AN_API, REFUSAL, length.as_str()].as_slice(), fields].concat();
    let body = if ask.method == "HEAD" { String::new() } else { body };
    let log = with(json!({ "surface": "api", "code": code, "blame": "client" }), log);
    Own { ask, status, fields: expected_fields(&fields), body, log }
}

fn own_cases(world: &World) -> Vec<Own> {
    const MISSING: &str = "Send your API key: Authorization: Bearer <API_KEY>.";
    const NO_KEY: &str = "Incomplete or mistyped API key. Copy it again: it begins with th_live_ or th_test_.";
    const METHOD: &str = "The method is not allowed here; the Allow header lists those that are.";
    let key = |ask: Ask| ask.key(&world.key.text);
    let known = json!({ "quota_limit": 300, "quota_mode": "exact", "api_key_id": world.key.record.id.as_str() });
    let (bearer, invalid) = (
        "www-authenticate: Bearer realm=\"tollhouse\"",
        "www-authenticate: Bearer realm=\"tollhouse\", error=\"invalid_token\"",
    );
    let preflight = Ask::new("OPTIONS", DEMO, ORDERS)
        .field("Origin", "https://a.example")
        .field("Access-Control-Request-Method", "GET");
    let led = format!("location: https://shop.example:{}/a?b=c", world.https.port());
    vec![
        unauthorized(Ask::get(DEMO, ORDERS), "missing_api_key", MISSING, bearer),
        unauthorized(Ask::new("HEAD", DEMO, ORDERS), "missing_api_key", MISSING, bearer),
        unauthorized(Ask::get(DEMO, ORDERS).key("x"), "invalid_api_key", NO_KEY, invalid),
        unauthorized(Ask::get(SHOP, "/"), "missing_api_key", MISSING, bearer),
        refused(
            key(Ask::get(DEMO, "/nowhere")),
            404,
            "not_found",
            "There is nothing at this path.",
            &[OF_A_QUOTA],
            known.clone(),
        ),
        refused(
            key(Ask::new("PUT", DEMO, ORDERS)),
            405,
            "method_not_allowed",
            METHOD,
            &[OF_A_QUOTA, "allow: GET, HEAD, OPTIONS"],
            known,
        ),
        Own {
            ask: preflight,
            status: 204,
            fields: expected_fields(&[CORS, OF_AN_API, OF_AN_ADDRESS, PREFLIGHT]),
            body: String::new(),
            log: json!({ "surface": "api", "quota_limit": 60 }),
        },
        Own {
            ask: Ask::get(WWW, "/a?b=c"),
            status: 301,
            fields: expected_fields(&["cache-control: max-age=300", "content-length: 0", led.as_str()]),
            body: String::new(),
            log: json!({ "surface": "redirect" }),
        },
    ]
}

/// Takes fields from a line that differ from case to case. Each must be there: a name that the gateway does not write
/// is a mistake of the test.
#[track_caller]
fn without(line: &mut Value, names: &[&str]) {
    for name in names {
        assert!(line.as_object_mut().unwrap().remove(*name).is_some(), "a log line has no field {name}: {line}");
    }
}

#[tokio::test]
async fn the_gateways_own_answers_are_the_same_over_both_versions() {
    let world = World::start().await;
    world.control.put(certificate(WWW)).await;
    world.control.put(redirecting(WWW, "demo", Some((SHOP, Some(RedirectStatus::MovedPermanently))))).await;
    for Own { ask, status, fields, body, log } in own_cases(&world) {
        let (mut old, new) = (world.tls(&ask.host).await, world.h2(&ask.host).await);
        for (version, reply) in [("h1", old.ask(&ask).await), ("h2", new.ask(&ask).await)] {
            assert_eq!((reply.status, reply.text()), (status, body.as_str()), "{version}: {ask:?}");
            assert_eq!(loose(&reply), fields, "{version}: {ask:?}");
            let expected = with(
                json!({
                    "client_ip": "127.0.0.1", "proto": version, "tls": "TLSv1_3", "host": ask.host, "method": ask.method,
                    "path": ask.target.split('?').next(), "status": status, "bytes_in": 0, "bytes_out": body.len(),
                    "duration_us": 0, "project_id": "demo", "plan": "pro",
                }),
                log.clone(),
            );
            let mut line = logged(&world, &reply).await;
            if expected.get("quota_limit").is_some() {
                without(&mut line, &["quota_remaining"]);
            }
            assert_eq!(line, expected, "{version}: {ask:?}");
        }
        // Both connections continue, also after an announced empty body.
        let announced = ask.clone().field("Content-Length", "0");
        assert_eq!((old.ask(&announced).await.status, new.ask(&ask).await.status), (status, status));
    }
    world.assert_upstreams_untouched();
    world.end().await;
}

/// The request as the upstream got it, without fields that differ between requests.
pub(crate) fn forwarded_head(head: &crate::world::wire::Head) -> (String, Vec<(String, String)>) {
    // Via names the client's version.
    let own = ["x-request-id", "traceparent", "tollhouse-identity-token", "content-length", "via"];
    let fields = head.fields.iter().map(|(name, value)| (name.to_ascii_lowercase(), value.clone()));
    let mut fields: Vec<_> = fields.filter(|(name, _)| !own.contains(&name.as_str())).collect();
    fields.sort();
    (head.first_line.clone(), fields)
}

/// Fields without their order and spelling, which HTTP does not care about, and the coding of the body.
pub(crate) fn loose(reply: &Reply) -> Vec<(String, String)> {
    // The last three are of HTTP/1.1 alone.
    let own =
        ["x-request-id", "date", "x-ratelimit-remaining", "ratelimit", "connection", "keep-alive", "transfer-encoding"];
    let fields = reply.head.fields.iter().map(|(name, value)| (name.to_ascii_lowercase(), value.clone()));
    let mut fields: Vec<_> = fields.filter(|(name, _)| !own.contains(&name.as_str())).collect();
    fields.sort();
    fields
}

/// A request, the upstream's answer, and the client's expected response over either version.
struct Case {
    method: &'static str,
    act: Act,
    status: u16,
    /// Fields of the response, in addition to those of every response.
    fields: Vec<&'static str>,
    /// `None`: the response breaks off. The amount that arrives depends on timing: over HTTP/2 a reset overtakes
    /// waiting data.
    body: Option<String>,
    /// Fields of the log line that differ between cases.
    log: Value,
}

impl Case {
    fn new(method: &'static str, act: Act, status: u16, fields: &'static str, body: &str) -> Self {
        Self { method, act, status, fields: vec![CORS, fields], body: Some(body.to_owned()), log: json!({}) }
    }

    /// An upstream without a valid response, and the error in the log.
    fn invalid(act: Act, error: &str) -> Self {
        let body = json!({
            "code": "upstream_invalid",
            "message": "The service behind this site sent an invalid response.",
            "status": 502,
        });
        Self {
            fields: vec![CORS, REFUSAL, "content-length: 107", "retry-after: 1"],
            ..Self::new("GET", act, 502, "", &body.to_string()).and_logged(error)
        }
    }

    fn and_logged(self, error: &str) -> Self {
        let log = json!({ "code": "upstream_invalid", "blame": "upstream", "error": error });
        Self { log, ..self }
    }
}

fn cases() -> Vec<Case> {
    let answer = |text: &str| Act::Answer(text.as_bytes().to_vec());
    let and_close = |text: &str| Act::AnswerAndClose(text.as_bytes().to_vec());
    let chunks =
        "HTTP/1.1 200 OK\r\nX-A: 1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n[1\r\n2;x=y\r\n,2\r\n1\r\n]\r\n0\r\n\r\n";
    let forged = "X-RateLimit-Limit: 1\r\nServer: s\r\nX-Request-Id: mine\r\nConnection: x-own\r\nX-Own: 1\r\n\
        Access-Control-Allow-Origin: https://app.example\r\nKeep-Alive: 5\r\nSet-Cookie: a=b\r\nSet-Cookie: c=d\r\n";
    let two = answer(&response("200 OK", "X-A: 1\r\nx-a: 2\r\n", "[]"));
    let large = "x".repeat(300_000);
    let to_the_end = and_close("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\nto the end");
    let short = and_close("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort");
    vec![
        Case::new("GET", two, 200, "content-length: 2\n x-a: 1\n x-a: 2", "[]"),
        // The upstream decides who may read it; limits, ids and connection fields are the gateway's.
        Case {
            fields: vec![
                "access-control-allow-origin: https://app.example",
                "content-length: 2\n set-cookie: a=b\n set-cookie: c=d",
            ],
            ..Case::new("GET", answer(&response("200 OK", forged, "[]")), 200, "", "[]")
        },
        Case::new("GET", answer(&response("201 Of Course", "", "")), 201, "content-length: 0", ""),
        Case::new("GET", answer("HTTP/1.1 204 No Content\r\nX-A: 1\r\n\r\n"), 204, "x-a: 1", ""),
        Case::new("GET", answer("HTTP/1.1 304 Not Modified\r\nETag: \"1\"\r\n\r\n"), 304, "etag: \"1\"", ""),
        Case::new("GET", answer(chunks), 200, "x-a: 1", "[1,2]"),
        Case::new("GET", answer(&response("200 OK", "", &large)), 200, "content-length: 300000", &large),
        Case::new("GET", to_the_end, 200, "content-type: text/plain", "to the end"),
        Case::new("GET", and_close("HTTP/1.0 200 OK\r\nContent-Length: 3\r\n\r\nold"), 200, "content-length: 3", "old"),
        Case {
            body: None,
            ..Case::new("GET", short, 200, "content-length: 9", "").and_logged("Upstream ConnectionClosed")
        },
        Case::invalid(and_close("HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n"), "Upstream InvalidHTTPHeader"),
        Case::invalid(Act::AnswerAndReset(Vec::new()), "Upstream ReadError"),
        Case::new("HEAD", answer("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n"), 200, "content-length: 9", ""),
        Case::new("DELETE", answer(&response("409 Conflict", "", "{}")), 409, "content-length: 2", "{}"),
    ]
}

fn ask_for(world: &World, method: &str) -> Ask {
    let mut ask = world.list().field("X-Some", "1").field("x-some", "2").field("TE", "trailers");
    ask.method = method.to_owned();
    ask.target = if method == "DELETE" { format!("{ORDERS}/7") } else { format!("{ORDERS}?a=b&c=%20") };
    ask
}

/// Asserts the case's response and log line.
async fn assert_expected(world: &World, upstream_h2: bool, case: &Case, what: &str, version: &str, reply: &Reply) {
    let seen = (reply.status, reply.complete.then(|| reply.text()));
    assert_eq!(seen, (case.status, case.body.as_deref()), "{what} over {version}");
    let fields = [[OF_AN_API, OF_A_QUOTA].as_slice(), case.fields.as_slice()].concat();
    assert_eq!(loose(reply), expected_fields(&fields), "{what} over {version}");
    let path = if case.method == "DELETE" { format!("{ORDERS}/7") } else { ORDERS.to_owned() };
    let mut expected = with(
        json!({
            "client_ip": "127.0.0.1", "proto": version, "tls": "TLSv1_3", "surface": "api", "host": DEMO,
            "method": case.method, "path": path, "status": case.status, "bytes_in": 0,
            "bytes_out": case.body.as_ref().map(String::len), "duration_us": 0, "upstream_us": 0, "attempts": 1,
            "upstream": "orders", "endpoint": world.orders.address.to_string(), "project_id": "demo", "plan": "pro",
            "api_key_id": world.key.record.id.as_str(), "quota_limit": 300, "quota_mode": "exact",
        }),
        case.log.clone(),
    );
    if upstream_h2 && expected.get("error").is_some() {
        // A stream of HTTP/2 is reset for any fault of a response.
        expected["error"] = "Upstream H2Error".into();
    }
    let mut line = logged(world, reply).await;
    if upstream_h2 && let Some(reason) = line.get("reason") {
        assert!(reason.as_str().is_some_and(|reason| reason.contains("RST_STREAM")), "{what} over {version}: {reason}");
        without(&mut line, &["reason"]);
    }
    // Both depend on the cases before.
    without(&mut line, &["upstream_connection", "quota_remaining"]);
    if case.body.is_none() {
        without(&mut line, &["bytes_out"]);
        without(&mut expected, &["bytes_out"]);
    }
    assert_eq!(line, expected, "{what} over {version}");
}

#[tokio::test]
async fn forwarded_requests_are_the_same_over_both_versions() {
    for upstream_h2 in [false, true] {
        forwards(upstream_h2).await;
    }
}

async fn forwards(upstream_h2: bool) {
    let world = World::with(|setup| setup.upstreams_of_http2 = upstream_h2).await;
    let (client, mut old) = (world.h2(DEMO).await, world.tls(DEMO).await);
    // The reset of a response that breaks off overtakes all of it over HTTP/2, the head too.
    let arrives = |case: &Case| !upstream_h2 || case.body.is_some();
    for (number, case) in cases().into_iter().filter(arrives).enumerate() {
        let what = format!("case {number}, {}, upstream of HTTP/2: {upstream_h2}", case.method);
        let ask = ask_for(&world, case.method);
        world.orders.next(case.act.clone());
        let given = client.try_ask(&ask).await.unwrap();
        world.orders.next(case.act.clone());
        let Some(expected) = old.try_ask(&ask).await else { panic!("{what}: no reply") };
        for (version, reply) in [("h2", &given), ("h1", &expected)] {
            assert_expected(&world, upstream_h2, &case, &what, version, reply).await;
        }
        let requests = world.orders.requests();
        let [.., first, second] = requests.as_slice() else { panic!("{what}: {requests:?}") };
        assert_eq!(forwarded_head(&first.head), forwarded_head(&second.head), "{what}");
        // The upstream's version is its own (RFC 9110 section 6.2).
        assert!(expected.head.first_line.starts_with("HTTP/1.1 "), "{what}");
        if !expected.complete || expected.header("connection") == Some("close") {
            old = world.tls(DEMO).await;
        }
    }
    drop(client);
    world.end().await;
}

#[tokio::test]
async fn over_http2_a_body_that_becomes_too_large_is_413() {
    let world = World::start().await;
    let client = world.h2(DEMO).await;
    let mut ask = Ask::new("POST", DEMO, "/v2/orders").key(&world.key.text);
    ask.body = vec![b'x'; 101];
    client.ask(&ask).await.refused(413, "body_too_large");
    ask.body.pop();
    assert_eq!(client.ask(&ask).await.status, 200);
    let complete: Vec<_> = world.orders.requests().into_iter().filter(|request| request.complete).collect();
    assert_eq!(complete.len(), 1, "{complete:?}");
    assert_eq!(complete[0].body.len(), 100);
}

/// The rest of the body goes nowhere, and the connection with half a request in it serves no other request.
// promise: edge.7
#[tokio::test]
async fn over_http2_an_answer_before_the_body_was_read_is_the_answer() {
    let world = World::start().await;
    let client = world.h2(BLOG).await;
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nearly\r\n0\r\n\r\n".to_owned();
    for early in [response("200 OK", "", "early"), chunked] {
        world.blog.next(Act::AnswerBeforeBody(early.into_bytes()));
        let (response, mut body) = client.begin(&Ask::new("POST", BLOG, "/early")).await;
        body.send_data("half".into(), false).unwrap();
        let mut answer = within(response).await.expect("an answer");
        let mut text = Vec::new();
        while let Some(piece) = within(answer.body_mut().data()).await {
            text.extend_from_slice(&piece.expect("it ends, and is not cut"));
        }
        assert_eq!(text, b"early");
        body.send_data("the other half".into(), true).expect("no reset: that would cost some their answer");
    }
    assert_eq!(client.ask(&Ask::get(BLOG, "/next")).await.status, 200);
    world.blog.asked(3).await;
    let requests = world.blog.requests();
    assert!(requests.iter().all(|request| request.complete == (request.head.first_line == "GET /next HTTP/1.1")));
    assert_eq!(world.blog.connections(), 3);
}

#[tokio::test]
async fn over_http2_interim_responses_are_forwarded() {
    let world = World::start().await;
    let client = world.h2(BLOG).await;
    let text = format!("HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n{}", response("200 OK", "", "[]"));
    world.blog.next(Act::Answer(text.into_bytes()));
    let (mut response, mut body) = client.begin(&Ask::get(BLOG, "/")).await;
    body.send_data(bytes::Bytes::new(), true).unwrap();
    let hint = within(poll_fn(|cx| response.poll_informational(cx))).await.unwrap().unwrap();
    assert_eq!((hint.status().as_u16(), hint.headers()["link"].to_str().unwrap()), (103, "</x>"));
    assert_eq!(within(response).await.unwrap().status(), 200);
}

#[tokio::test]
async fn an_upstream_connection_serves_many_requests_until_it_dies() {
    let world = World::start().await;
    let mut client = world.tls(BLOG).await;
    for _ in 0..5 {
        assert_eq!(client.ask(&Ask::get(BLOG, "/")).await.status, 200);
    }
    assert_eq!(world.blog.connections(), 1);
    world.blog.next(Act::AnswerAndClose(response("200 OK", "", "bye").into_bytes()));
    for _ in 0..5 {
        assert_eq!(client.ask(&Ask::get(BLOG, "/")).await.status, 200);
    }
    assert_eq!(world.blog.connections(), 2, "the next one is opened when the first has said that it is gone");
    // Bytes behind a response belong to no request.
    let more = format!("{}HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison", response("200 OK", "", "good"));
    world.blog.next(Act::Answer(more.into_bytes()));
    assert_eq!(client.ask(&Ask::get(BLOG, "/")).await.text(), "good");
    assert_ne!(client.ask(&Ask::get(BLOG, "/")).await.text(), "poison");
}

/// The listener does not read a list as a request for a WebSocket, so the upstream is not asked to switch and must not.
#[tokio::test]
async fn an_unrequested_switch_of_protocols_is_502() {
    let world = World::start().await;
    let switched = "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n";
    world.blog.next(Act::Answer(switched.as_bytes().to_vec()));
    let ask = Ask::get(BLOG, "/").field("Connection", "upgrade").field("Upgrade", "websocket, x");
    let reply = world.tls(BLOG).await.ask(&ask).await;
    reply.refused(502, "upstream_invalid");
    assert_eq!(world.blog.only_request().head.get("upgrade"), None);
}
