//! One validator for both versions: each generated request is sent as bytes over HTTP/1 and over HTTP/2, with the same
//! result. Each request has one fault, so that one status is right.
//!
//! Faults that only one version can express (`Connection`, codings, pseudo-fields) are left out, and `#` in a target:
//! the HTTP/2 library cuts it off before the gateway reads it (see `fields.rs`).

use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{Config, TestCaseError, TestRunner};

use super::peer::Peer;
use crate::world::client::status_of;
use crate::world::frames::{CONTINUATION, END_HEADERS, END_STREAM, HEADERS, data, frame, literal};
use crate::world::{BLOG, World, within};

/// Requests that are generated.
const CASES: u32 = 400;

/// Maximum payload of a frame by default.
const FRAME_BYTES: usize = 16_384;

#[derive(Clone, Debug)]
struct Sent {
    method: String,
    target: String,
    host: String,
    fields: Vec<(String, String)>,
    body: &'static str,
}

impl Sent {
    fn get(target: impl Into<String>) -> Self {
        let (method, host) = ("GET".to_owned(), BLOG.to_owned());
        Self { method, target: target.into(), host, fields: Vec::new(), body: "" }
    }

    fn with(mut self, fields: Vec<(String, String)>) -> Self {
        self.fields = fields;
        self
    }

    fn over_http_1(&self) -> Vec<u8> {
        let mut text = format!("{} {} HTTP/1.1\r\nHost: {}\r\n", self.method, self.target, self.host);
        for (name, value) in &self.fields {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        format!("{text}\r\n{}", self.body).into_bytes()
    }

    fn over_http_2(&self) -> Vec<u8> {
        let pseudo = [(":method", &self.method), (":scheme", &"https".to_owned()), (":path", &self.target)];
        let fields = pseudo.into_iter().chain([(":authority", &self.host)]);
        let fields = fields.chain(self.fields.iter().map(|(name, value)| (name.as_str(), value)));
        let block: Vec<u8> = fields.flat_map(|(name, value)| literal(name.to_ascii_lowercase(), value)).collect();
        let pieces: Vec<&[u8]> = block.chunks(FRAME_BYTES).collect();
        let mut frames = Vec::new();
        for (number, piece) in pieces.iter().enumerate() {
            let ends = if number + 1 == pieces.len() { END_HEADERS } else { 0 };
            let bare = if number == 0 && self.body.is_empty() { END_STREAM } else { 0 };
            let kind = if number == 0 { HEADERS } else { CONTINUATION };
            frames.extend(frame(kind, ends | bare, 1, piece));
        }
        if !self.body.is_empty() {
            frames.extend(data(1, self.body.as_bytes(), true));
        }
        frames
    }
}

/// The result of a request.
#[derive(Clone, Debug, PartialEq)]
enum Verdict {
    /// The upstream got this request.
    Served(String),
    /// With this status; `None`: the stream or the connection ended.
    Refused(Option<u16>),
}

impl Verdict {
    fn agrees(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Refused(one), Self::Refused(two)) => one.is_none() || two.is_none() || one == two,
            _ => self == other,
        }
    }
}

fn verdict(world: &World, status: Option<u16>) -> Verdict {
    match status {
        Some(200) => Verdict::Served(world.blog.requests().last().expect("a request").head.first_line.clone()),
        status => Verdict::Refused(status),
    }
}

async fn over_http_1(world: &World, sent: &Sent) -> Verdict {
    let mut client = world.tls(BLOG).await;
    client.send(sent.over_http_1()).await;
    let status = loop {
        match within(client.wire.head()).await {
            Ok(Some(head)) if status_of(&head) == 100 => {}
            Ok(Some(head)) => break Some(status_of(&head)),
            Ok(None) | Err(_) => break None,
        }
    };
    verdict(world, status)
}

async fn over_http_2(world: &World, sent: &Sent) -> Verdict {
    let mut peer = Peer::connect(world, BLOG).await;
    within(async {
        peer.open().await;
        peer.send(&sent.over_http_2()).await;
        peer.until(|seen| seen.stream(1).is_over()).await;
    })
    .await;
    verdict(world, peer.seen.stream(1).status)
}

fn text(pieces: &'static [&'static str], most: usize) -> impl Strategy<Value = String> {
    proptest::collection::vec(select(pieces), 0..most).prop_map(|pieces| pieces.concat())
}

fn targets() -> impl Strategy<Value = Sent> {
    const PATH: &[&str] = &[
        "a",
        "/",
        ".",
        "%20",
        "%2F",
        "%e2%82%ac",
        "%00",
        "%",
        "%4",
        "%zz",
        "%u00fc",
        "\"",
        "{",
        "}",
        "\\",
        "<",
        ">",
        "`",
        "^",
        "|",
        "[",
        "]",
        "~",
        "'",
        "(",
        ";",
        ":",
        "@",
        "!",
        "$",
        ",",
        "\u{fc}",
        " ",
        "\u{1}",
        "\u{7f}",
    ];
    const QUERY: &[&str] = &[
        "a", "=", "&", "/", "?", "%20", "%00", "%", "%4", "%zz", "%u00fc", "100%", "\"", "{", "}", "\\", "<", ">", "`",
        "^", "|", "[", "]", "'", "\u{fc}", " ", "\t",
    ];
    let path = text(PATH, 4).prop_map(|path| Sent::get(format!("/{path}")));
    let query = text(QUERY, 4).prop_map(|query| Sent::get(format!("/a?{query}")));
    let long = (8_185_usize..8_200).prop_map(|bytes| Sent::get(format!("/{}", "a".repeat(bytes - 1))));
    prop_oneof![4 => path, 4 => query, 1 => long]
}

fn heads() -> impl Strategy<Value = Sent> {
    const METHODS: &[&str] =
        &["GET", "get", "PROPFIND", "FOO!BAR", "TRACE", "OPTIONS", "G(T", "ABCDEFGHIJKLMNOPQRSTUVWXYZABCDEFG"];
    const HOSTS: &[&str] = &[
        "blog.tollhouse.localhost:8443",
        "BLOG.tollhouse.localhost",
        "blog.tollhouse.localhost.",
        "blog.tollhouse.localhost:",
        "blog.tollhouse.localhost:0",
        "blog.tollhouse.localhost:080",
        "blog.tollhouse.localhost:65536",
        "blog..tollhouse.localhost",
        "a@blog.tollhouse.localhost",
        "bl_og.tollhouse.localhost",
        "unknown.example",
        "demo.tollhouse.localhost",
        "127.0.0.1",
        "[::1]",
        "[::1]:80",
    ];
    let methods = select(METHODS).prop_map(|method| Sent { method: method.to_owned(), ..Sent::get("/a") });
    let hosts = select(HOSTS).prop_map(|host| Sent { host: host.to_owned(), ..Sent::get("/a") });
    let star = select(&["GET", "OPTIONS"][..]).prop_map(|method| Sent { method: method.to_owned(), ..Sent::get("*") });
    prop_oneof![2 => methods, 4 => hosts, 1 => star]
}

fn fields() -> impl Strategy<Value = Sent> {
    const NAMES: &[&str] = &["x-a", "X-A", "x_a", "a_", "accept", "x-forwarded-for", "cookie", "x!#$%&'*+.^`|~", "x a"];
    const VALUES: &[&str] = &["", "a", "a b", " a ", "a\tb", "gr\u{fc}n", "\"", "\\", "a\u{1}b", "a\u{7f}b", "{}", "%"];
    let one = |name: &str, value: String, times: usize| Sent::get("/a").with(vec![(name.to_owned(), value); times]);
    let odd = (select(NAMES), select(VALUES), 1_usize..3)
        .prop_map(move |(name, value, times)| one(name, value.into(), times));
    let long = (select(&["x", "cookie"][..]), 8_170_usize..8_195)
        .prop_map(move |(name, bytes)| one(name, "a".repeat(bytes), 1));
    let halves = (4_090_usize..4_100).prop_map(move |bytes| one("cookie", "a".repeat(bytes), 2));
    let many =
        (select(&["x", "cookie"][..]), 97_usize..103).prop_map(move |(name, count)| one(name, "y".into(), count));
    // Host and the name with its line's end beside it: the limit is in between.
    let large = (8_140_usize..8_190).prop_map(move |bytes| one("x", "a".repeat(bytes), 4));
    prop_oneof![6 => odd, 1 => long, 1 => halves, 1 => many, 1 => large]
}

fn bodies() -> impl Strategy<Value = Sent> {
    const LENGTHS: &[&str] = &["5", "05", "0005", "+5", "-5", "5,5", "5 5", "0x5", "", "five", "6e0"];
    const EXPECTATIONS: &[&str] = &[
        "100-continue",
        "100-Continue",
        "100-CONTINUE",
        "100-continue, x",
        "100-continue;x",
        "x",
        "",
        " 100-continue ",
    ];
    let field = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let post = |fields, body| Sent { method: "POST".to_owned(), body, ..Sent::get("/a").with(fields) };
    let lengths = select(LENGTHS).prop_map(move |length| post(vec![field("content-length", length)], "12345"));
    let empty =
        select(&["0", "00", "+0", "000"][..]).prop_map(move |length| post(vec![field("content-length", length)], ""));
    let twice = select(&["5", "6"][..])
        .prop_map(move |length| post(vec![field("content-length", "5"), field("content-length", length)], "12345"));
    let expects =
        (select(EXPECTATIONS), select(&["12345", ""][..]), 1_usize..3).prop_map(move |(value, body, times)| {
            let length = field("content-length", &body.len().to_string());
            let expectations = vec![field("expect", value); times];
            post([vec![length], expectations].concat(), body)
        });
    let bare = select(EXPECTATIONS).prop_map(move |value| post(vec![field("expect", value)], ""));
    prop_oneof![3 => lengths, 1 => empty, 1 => twice, 4 => expects, 1 => bare]
}

#[test]
fn both_versions_have_the_same_verdict_on_a_request() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let world = runtime.block_on(World::start());
    let mut runner = TestRunner::new(Config { cases: CASES, failure_persistence: None, ..Config::default() });
    let (mut served, mut refused) = (0_u32, 0_u32);
    let all = prop_oneof![3 => targets(), 1 => heads(), 2 => fields(), 2 => bodies()];
    let outcome = runner.run(&all, |sent| {
        let (one, two) =
            runtime.block_on(async { (over_http_1(&world, &sent).await, over_http_2(&world, &sent).await) });
        if one.agrees(&two) { Ok(()) } else { Err(TestCaseError::fail(format!("HTTP/1 {one:?}, HTTP/2 {two:?}"))) }
    });
    outcome.unwrap_or_else(|error| panic!("{error}"));
    for request in [Sent::get("/a?100%\\%u00fc"), Sent::get("/%00")] {
        match runtime.block_on(over_http_2(&world, &request)) {
            Verdict::Served(_) => served += 1,
            Verdict::Refused(_) => refused += 1,
        }
    }
    assert_eq!((served, refused), (1, 1), "the comparison sees both verdicts");
}
