//! Fields and pseudo-fields of requests: RFC 9113 sections 8.2, 8.3, 8.5 and 10.5.1.

use super::Outcome::{Served, Stream};
use super::peer::Peer;
use super::{Asks, Case, PROTOCOL_ERROR, WHOLE_CONNECTION, block, case, hold};
use crate::world::frames::{headers, literal};
use crate::world::{BLOG, DEMO, ORDERS, OTHER, World, within};

const MALFORMED: super::Outcome = Stream(1, &[PROTOCOL_ERROR]);

const METHOD: (&str, &str) = (":method", "GET");
const SCHEME: (&str, &str) = (":scheme", "https");
/// As long as no method may be.
const LONG_METHOD: &str = "METHODMETHODMETHODMETHODMETHODMET";
const AUTHORITY: (&str, &str) = (":authority", DEMO);
const PATH: (&str, &str) = (":path", ORDERS);
const ALL: [(&str, &str); 4] = [METHOD, SCHEME, AUTHORITY, PATH];

fn names_and_values(asks: &Asks<'_>) -> Vec<Case> {
    let with = |name: &[u8], value: &[u8]| headers(1, &[asks.list(), literal(name, value)].concat(), true);
    let bad = |what, name: &[u8], value: &[u8]| case(what, "8.2.1", with(name, value), MALFORMED);
    // Names and values that the library has no type for end the connection.
    let worse = |what, name: &[u8], value: &[u8]| bad(what, name, value).instead(WHOLE_CONNECTION);
    // HTTP/1.1 trims white space around a value, so gateway and upstream read the same.
    let trimmed = |what, value: &[u8]| bad(what, b"x", value).instead(Served(&[1]));
    vec![
        case("a name in lower case", "8.2", with(b"x-y", b"Z"), Served(&[1])),
        case("an empty value", "8.2", with(b"x", b""), Served(&[1])),
        case("a tab in a value", "8.2", with(b"x", b"a\tb"), Served(&[1])),
        worse("an upper-case name", b"X-y", b"1"),
        worse("an upper-case letter at the end", b"x-Y", b"1"),
        worse("an empty name", b"", b"1"),
        worse("a space in a name", b"x y", b"1"),
        worse("a space behind a name", b"x ", b"1"),
        worse("a colon in a name", b"x:y", b"1"),
        worse("a colon behind a name", b"host:", b"1"),
        worse("a line end in a name", b"x: 1\r\ny", b"1"),
        worse("NUL in a name", b"x\0", b"1"),
        worse("DEL in a name", b"x\x7f", b"1"),
        worse("an 8-bit byte in a name", b"x\xfc", b"1"),
        worse("NUL in a value", b"x", b"a\0b"),
        worse("CR in a value", b"x", b"a\rb"),
        worse("LF in a value", b"x", b"a\nb"),
        worse("a field behind a line end", b"x", b"a\r\ny: 1"),
        worse("a request behind a line end", b"x", b"a\r\n\r\nGET / HTTP/1.1\r\n\r\n"),
        worse("DEL in a value", b"x", b"a\x7fb"),
        worse("a control byte in a value", b"x", b"a\x01b"),
        trimmed("a space before a value", b" a"),
        trimmed("a space behind a value", b"a "),
        trimmed("a tab before a value", b"\ta"),
        trimmed("a tab behind a value", b"a\t"),
    ]
}

fn of_the_connection(asks: &Asks<'_>) -> Vec<Case> {
    let with = |name, field| case(name, "8.2.2", headers(1, &asks.list_with(&[field]), true), MALFORMED);
    vec![
        with("connection: close", ("connection", "close")),
        with("connection with the name of a field", ("connection", "authorization")),
        with("keep-alive", ("keep-alive", "timeout=5")),
        with("proxy-connection", ("proxy-connection", "keep-alive")),
        with("transfer-encoding: chunked", ("transfer-encoding", "chunked")),
        with("transfer-encoding: identity", ("transfer-encoding", "identity")),
        with("upgrade: websocket", ("upgrade", "websocket")),
        with("upgrade: h2c", ("upgrade", "h2c")),
        with("te: gzip", ("te", "gzip")),
        with("te: trailers, gzip", ("te", "trailers, gzip")),
        case("te: trailers", "8.2.2", headers(1, &asks.list_with(&[("te", "trailers")]), true), Served(&[1])),
    ]
}

fn pseudo_fields(asks: &Asks<'_>) -> Vec<Case> {
    let ask = |fields: &[(&str, &str)]| headers(1, &[block(fields), asks.authorization()].concat(), true);
    let bad = |name, section, fields: &[(&str, &str)]| case(name, section, ask(fields), MALFORMED);
    let and = |field| [METHOD, SCHEME, AUTHORITY, PATH, field];
    let path = |name, path| bad(name, "8.3.1", &[METHOD, SCHEME, AUTHORITY, (":path", path)]);
    let authority = |name, authority| bad(name, "8.3.1", &[METHOD, SCHEME, (":authority", authority), PATH]);
    let host = ("host", DEMO);
    let late = |name, field: (&str, &str)| {
        let others: Vec<(&str, &str)> = ALL.into_iter().filter(|(name, _)| *name != field.0).collect();
        bad(name, "8.3", &[&others[..], &[("x", "y"), field]].concat())
    };
    vec![
        case("all pseudo-fields", "8.3.1", ask(&ALL), Served(&[1])),
        case("in another order", "8.3.1", ask(&[PATH, AUTHORITY, SCHEME, METHOD]), Served(&[1])),
        case("host for :authority", "8.3.1", ask(&[METHOD, SCHEME, PATH, host]), Served(&[1])),
        case("host beside :authority", "8.3.1", ask(&and(host)), Served(&[1])),
        bad("no :method", "8.3.1", &[SCHEME, AUTHORITY, PATH]),
        bad("no :scheme", "8.3.1", &[METHOD, AUTHORITY, PATH]),
        bad("no :path", "8.3.1", &[METHOD, SCHEME, AUTHORITY]),
        // The library makes it a request for `/`, which this host has not; see below.
        bad("no :path, and host for :authority", "8.3.1", &[METHOD, SCHEME, host]),
        bad("no :authority and no host", "8.3.1", &[METHOD, SCHEME, PATH]),
        bad("no pseudo-fields", "8.3.1", &[host]),
        bad("two :method", "8.3", &and((":method", "DELETE"))),
        bad("two :scheme", "8.3", &and((":scheme", "http"))),
        bad("two :authority", "8.3", &and((":authority", OTHER))),
        bad("two :path", "8.3", &and((":path", "/"))),
        bad("two :path, the same", "8.3", &and(PATH)),
        bad("an unknown one", "8.3", &and((":unknown", "1"))).instead(WHOLE_CONNECTION),
        bad("one in upper case", "8.3", &[(":METHOD", "GET"), SCHEME, AUTHORITY, PATH]).instead(WHOLE_CONNECTION),
        bad("one without a name", "8.3", &and((":", "1"))).instead(WHOLE_CONNECTION),
        bad("one of responses", "8.3", &and((":status", "200"))),
        bad(":protocol on GET", "RFC 8441 4", &and((":protocol", "websocket"))),
        late(":method behind a field", METHOD),
        late(":scheme behind a field", SCHEME),
        late(":authority behind a field", AUTHORITY),
        late(":path behind a field", PATH),
        bad("an empty :method", "8.3.1", &[(":method", ""), SCHEME, AUTHORITY, PATH]).instead(WHOLE_CONNECTION),
        bad("a :method with a space", "8.3.1", &[(":method", "GET /"), SCHEME, AUTHORITY, PATH])
            .instead(WHOLE_CONNECTION),
        bad("a :method longer than any", "8.3.1", &[(":method", LONG_METHOD), SCHEME, AUTHORITY, PATH]),
        // The library accepts any scheme. The gateway uses the connection's and ignores this one.
        bad("an empty :scheme", "8.3.1", &[METHOD, (":scheme", ""), AUTHORITY, PATH]).instead(Served(&[1])),
        bad("a :scheme with a slash", "8.3.1", &[METHOD, (":scheme", "https://x/"), AUTHORITY, PATH]),
        path("an empty :path", ""),
        path("a :path without a slash", "orders"),
        path("an asterisk for GET", "*"),
        path("a :path with a scheme", "https://demo.tollhouse.localhost/v1/store/orders"),
        path("a :path with two slashes and a name", "//other.tollhouse.localhost/v1/store/orders"),
        // The library cuts it off before the gateway reads the path, so gateway and upstream see the same.
        path("a :path with a fragment", "/v1/store/orders#late").instead(Served(&[1])),
        path("a :path with a space", "/v1/store/orders HTTP/1.1"),
        path("a :path with a line end", "/v1/store/orders HTTP/1.1\r\nx: y"),
        path("a :path with NUL", "/v1/store/orders\0"),
        authority("an empty :authority", ""),
        authority("an :authority with a user", "user@demo.tollhouse.localhost"),
        authority("an :authority with a path", "demo.tollhouse.localhost/v1"),
        authority("an :authority with a space", "demo.tollhouse.localhost x"),
        authority("an :authority with a line end", "demo.tollhouse.localhost\r\nx: y"),
        bad("host and :authority that differ", "8.3.1", &and(("host", OTHER))),
        bad("two hosts", "8.3.1", &[METHOD, SCHEME, PATH, host, ("host", OTHER)]),
    ]
}

fn connects(asks: &Asks<'_>) -> Vec<Case> {
    let connect = (":method", "CONNECT");
    let ask = |name, section, fields: &[(&str, &str)]| {
        case(name, section, headers(1, &[block(fields), asks.authorization()].concat(), true), MALFORMED)
    };
    vec![
        ask("CONNECT", "8.5", &[connect, (":authority", "demo.tollhouse.localhost:443")]),
        ask("CONNECT to a host of its own choice", "8.5", &[connect, (":authority", "192.0.2.1:22")]),
        ask("CONNECT with :scheme", "8.5", &[connect, SCHEME, AUTHORITY]),
        ask("CONNECT with :path", "8.5", &[connect, AUTHORITY, PATH]),
        ask("CONNECT with :scheme and :path", "8.5", &[connect, SCHEME, AUTHORITY, PATH]),
        ask("CONNECT to nowhere", "8.5", &[connect]),
        ask(
            "CONNECT for a WebSocket that was not offered",
            "RFC 8441 3",
            &[connect, (":protocol", "websocket"), SCHEME, AUTHORITY, PATH],
        ),
    ]
}

fn too_many(asks: &Asks<'_>) -> Vec<Case> {
    let fields = |count: usize| (0..count).flat_map(|number| literal(format!("x-{number}"), "1")).collect::<Vec<u8>>();
    let some = [asks.list(), fields(50)].concat();
    let many = [asks.list(), fields(150)].concat();
    // On the wire little, and 40 KB when it is unpacked.
    let unpacked = [asks.list(), [vec![0x40], literal("x", "y".repeat(3_900))[1..].to_vec(), vec![0xbe; 10]].concat()];
    vec![
        case("fifty fields", "10.5.1", headers(1, &some, true), Served(&[1])),
        case("more fields than are allowed", "10.5.1", headers(1, &many, true), MALFORMED),
        case("more bytes of fields than are allowed", "10.5.1", headers(1, &unpacked.concat(), true), MALFORMED),
    ]
}

// promise: edge.14
#[tokio::test]
async fn over_http_2_malformed_names_and_values_are_refused() {
    hold(names_and_values).await;
}

// promise: edge.14
#[tokio::test]
async fn over_http_2_fields_of_a_connection_are_refused() {
    hold(of_the_connection).await;
}

// promise: edge.14
#[tokio::test]
async fn over_http_2_a_request_has_each_pseudo_field_once_and_first() {
    hold(pseudo_fields).await;
}

// promise: edge.14
#[tokio::test]
async fn over_http_2_a_connect_reaches_no_upstream() {
    hold(connects).await;
}

// promise: edge.14
#[tokio::test]
async fn over_http_2_too_many_fields_refuse_only_their_request() {
    hold(too_many).await;
}

/// RFC 9113 section 8.3.1 requires a refusal. The library reads `/` for a request without path and `:authority` before
/// the gateway does, so the gateway decides about the same request that the upstream gets.
// promise: edge.14
#[tokio::test]
async fn over_http_2_a_request_without_a_path_is_for_the_root() {
    let world = World::start().await;
    let mut peer = Peer::connect(&world, BLOG).await;
    within(async {
        peer.open().await;
        peer.send(&headers(1, &block(&[METHOD, SCHEME, ("host", BLOG)]), true)).await;
        assert!(peer.until(|seen| seen.stream(1).is_over()).await, "cut off");
    })
    .await;
    assert!(peer.seen.stream(1).is_served(), "{}", peer.seen);
    assert_eq!(world.blog.only_request().head.first_line, "GET / HTTP/1.1");
    assert_eq!(world.orders.connections(), 0);
}
