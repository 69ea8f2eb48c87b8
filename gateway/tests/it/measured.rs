//! Figures that a test compares with a bound and a command measures at length: memory of idle connections (`bench/run
//! idle-memory`), memory and metrics after unknown names (`bench/run edge-proof`), time to refuse keys (`bench/run
//! key-timing`).

use std::net::{IpAddr, Ipv4Addr};
use std::time::Instant;

use contract::feed::Entity;

use crate::fleet::extent;
use crate::rolling::pair::Pair;
use crate::world::client::{Ask, Client, Reply};
use crate::world::entities::TestKey;
use crate::world::{DEMO, ORDERS, World};

/// Maximum memory of an idle TLS connection, in bytes: the measured size (`bench/run idle-memory`) and a margin.
const IDLE_BYTES_MAX: u64 = 48 * 1024;

/// Connections per address: fewer than the maximum.
const PER_ADDRESS: u32 = 200;

/// Memory that unknown names may leave in use, in bytes.
const UNKNOWN_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// Names in one turn, from one address of this machine.
const NAMES_PER_TURN: u32 = 100;

/// A stranger's address in a turn.
fn stranger(turn: u32) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(127, 1, u8::try_from(turn / 250 % 250).unwrap(), u8::try_from(turn % 250 + 1).unwrap()))
}

// A20, A24
// promise: edge.25
#[tokio::test(flavor = "multi_thread")]
async fn unknown_names_use_no_memory_and_create_no_metrics() {
    let names = extent("UNKNOWN_NAMES", 1_000);
    let pair = Pair::single(None).await;
    let place = pair.places()[0];
    let ask_for = async |names: std::ops::Range<u32>| {
        let mut client = None;
        for number in names {
            let from = stranger(number / NAMES_PER_TURN);
            let name = format!("n{number}.example");
            assert!(Client::try_tls_from(place.https, from, &name).await.is_err(), "{name} has a certificate");
            let mut plain = match client.take() {
                Some(plain) if number % NAMES_PER_TURN != 0 => plain,
                _ => Client::from(place.http, from).await,
            };
            let reply = plain.ask(&Ask::get(&name, "/")).await;
            reply.refused(404, "unknown_host");
            client = (reply.header("connection") != Some("close")).then_some(plain);
        }
    };
    // All one-time allocations are made, and every series of refusals exists.
    ask_for(0..500).await;
    let (resident, series) = (pair.resident(0), pair.admin(0).metrics().await.len());
    ask_for(500..500 + names).await;
    let grown = pair.resident(0).saturating_sub(resident);
    println!("{names} unknown names, twice each: memory +{} KiB, {series} series", grown / 1_024);
    assert!(grown <= UNKNOWN_BYTES_MAX, "memory grew by {} KiB", grown / 1_024);
    assert_eq!(pair.admin(0).metrics().await.len(), series);
    assert!(series <= 3_000, "{series} series");
    assert_eq!(pair.asked(), 1, "only the request that showed that it serves");
}

// promise: edge.27
#[tokio::test(flavor = "multi_thread")]
async fn an_idle_connection_costs_little_memory() {
    let count = extent("IDLE_CONNECTIONS", 300);
    let pair = Pair::single(None).await;
    let https = pair.places()[0].https;
    let mut open = Vec::new();
    let connect = async |number: u32| {
        let turn = number / PER_ADDRESS;
        let from = Ipv4Addr::new(127, 0, u8::try_from(turn / 250 + 1).unwrap(), u8::try_from(turn % 250 + 1).unwrap());
        let mut client = Client::tls_from(https, IpAddr::V4(from), DEMO).await;
        assert_eq!(client.ask(&pair.ask()).await.status, 200);
        client
    };
    // All one-time allocations are made.
    for number in 0..20 {
        open.push(connect(number).await);
    }
    let before = pair.resident(0);
    for number in 20..count + 20 {
        open.push(connect(number).await);
    }
    let each = pair.resident(0).saturating_sub(before) / u64::from(count);
    println!("{count} idle connections over TLS: {each} bytes each");
    assert!(each <= IDLE_BYTES_MAX, "{each} bytes each");
    assert_eq!(open.len(), usize::try_from(count).unwrap() + 20);
}

/// Running mean and variance (Welford).
#[derive(Default)]
struct Statistics {
    count: f64,
    mean: f64,
    squares: f64,
}

impl Statistics {
    fn add(&mut self, value: f64) {
        self.count += 1.0;
        let off = value - self.mean;
        self.mean += off / self.count;
        self.squares += off * (value - self.mean);
    }

    /// Welch's t of two samples.
    fn t(&self, other: &Self) -> f64 {
        let part = |one: &Self| one.squares / (one.count - 1.0) / one.count;
        (self.mean - other.mean) / (part(self) + part(other)).sqrt()
    }
}

/// The smallest number of samples for a meaningful figure.
const SAMPLES_MIN: u32 = 10_000;

/// Fields that differ between equal requests.
const OF_ITS_MOMENT: [&str; 5] = ["connection", "date", "ratelimit", "x-ratelimit-remaining", "x-request-id"];

/// An answer without the fields that depend on the time.
fn summary(reply: &Reply) -> (u16, Vec<(String, String)>, String) {
    let fields = reply.head.fields.iter().map(|(name, value)| (name.to_ascii_lowercase(), value.clone()));
    let fields = fields.filter(|(name, _)| !OF_ITS_MOMENT.contains(&name.as_str())).collect();
    (reply.status, fields, reply.text().to_owned())
}

/// The answers are compared every time, and the durations if there are enough of them
/// (`bench/run key-timing`).
// promise: edge.19
#[tokio::test]
async fn a_revoked_key_is_refused_like_an_unknown_one() {
    let samples = extent("TIMING_SAMPLES", 200);
    let world = World::with(|setup| setup.quota = "failed_authentications_per_minute = 1000000").await;
    let (revoked, unknown) = (TestKey::new("demo", 7), TestKey::new("demo", 8));
    world.control.put(Entity::Key(revoked.record.clone())).await;
    let mut client = world.tls(DEMO).await;
    assert_eq!(client.ask(&Ask::get(DEMO, ORDERS).key(&revoked.text)).await.status, 200);
    world.control.remove(revoked.entity().name()).await;
    let asks = [&revoked, &unknown].map(|key| Ask::get(DEMO, ORDERS).key(&key.text));
    let mut times = [Statistics::default(), Statistics::default()];
    let mut lines = Vec::new();
    for ask in &asks {
        let reply = client.ask(ask).await;
        let line = world.log.line_of(reply.request_id()).await;
        lines.push(["status", "code", "blame", "surface", "project_id"].map(|name| line[name].clone()));
    }
    assert_eq!(lines[0], lines[1], "the log lines do not differ");
    assert_eq!((&lines[0][0], &lines[0][1]), (&401.into(), &"invalid_api_key".into()));
    let mut first = None;
    for number in 0..2 * samples {
        // Alternates, in a different order each round.
        let which = usize::try_from((number ^ (number >> 1)) & 1).unwrap();
        let began = Instant::now();
        let reply = client.ask(&asks[which]).await;
        times[which].add(began.elapsed().as_secs_f64());
        assert_eq!(reply.status, 401, "{reply:?}");
        let seen = summary(&reply);
        assert_eq!(*first.get_or_insert_with(|| seen.clone()), seen, "the answers do not differ");
        if reply.header("connection") == Some("close") {
            client = world.tls(DEMO).await;
        }
    }
    let t = times[0].t(&times[1]);
    println!(
        "{samples} refusals each: revoked {:.1} us, unknown {:.1} us, Welch t {t:.2}",
        times[0].mean * 1e6,
        times[1].mean * 1e6
    );
    assert!(samples < SAMPLES_MIN || t.abs() < 4.5, "the times differ: t = {t}");
}
