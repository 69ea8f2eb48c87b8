//! HTTP/2 clients that flood, frame by frame over TLS, against a gateway process. The connection ends or stays
//! harmless, the gateway's memory does not grow, almost nothing reaches the upstream, and another client on its own
//! connection is served throughout.

use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::fleet::extent;
use crate::rolling::pair::Pair;
use crate::world::client::try_handshake;
use crate::world::frames::{self, Request, data, frame, headers, preface, settings, window_update};
use crate::world::h2::H2;
use crate::world::{DEMO, certificates, eventually, within};

/// Streams or frames of one flood.
const ROUNDS: u32 = 2_000;

/// Maximum growth of a gateway's memory during a flood of one connection, in bytes.
const GROWTH_MAX: u64 = 8 * 1024 * 1024;

/// Maximum of a flood's requests, of [`ROUNDS`], that reach the upstream before the connection ends.
const REACHED_MAX: usize = 300;

/// The bytes of one round, by its number.
type Round<'a> = Box<dyn Fn(u32) -> Vec<u8> + 'a>;

/// The result of a flood.
struct Seen {
    /// The gateway ended the connection.
    ended: bool,
    /// Requests that reached the upstream.
    reached: usize,
    grown: u64,
    /// Durations of a bystander's requests.
    waited: Vec<Duration>,
}

/// A request of another client, and how long it took.
async fn bystander(connection: &H2, pair: &Pair) -> Duration {
    let began = Instant::now();
    assert_eq!(within(connection.ask(&pair.ask())).await.status, 200, "a bystander");
    began.elapsed()
}

/// The 99th percentile, in milliseconds.
fn p99(mut times: Vec<Duration>) -> f64 {
    times.sort_unstable();
    times.get(times.len() * 99 / 100).map_or(0.0, |time| time.as_secs_f64() * 1e3)
}

/// Sends the bytes of every round until the gateway ends the connection or all rounds are sent.
async fn flood(pair: &Pair, first: Vec<u8>, rounds: u32, round: impl Fn(u32) -> Vec<u8>) -> Seen {
    let (asked, resident) = (pair.asked(), pair.resident(0));
    let other = H2::try_connect(pair.places()[0].https, DEMO).await.expect("HTTP/2");
    let mut waited = Vec::new();
    let stream =
        try_handshake(pair.places()[0].https, DEMO, certificates::client(&[b"h2"])).await.expect("a handshake");
    let (mut reader, mut writer) = tokio::io::split(stream);
    let reading = tokio::spawn(async move {
        let mut room = vec![0; 16 * 1024];
        while reader.read(&mut room).await.is_ok_and(|bytes| bytes > 0) {}
    });
    let mut peak = resident;
    let mut sent = writer.write_all(&[preface(), first].concat()).await;
    for number in 0..rounds {
        if sent.is_err() || reading.is_finished() {
            break;
        }
        sent = writer.write_all(&round(number)).await;
        if number % 200 == 0 {
            peak = peak.max(pair.resident(0));
            waited.push(bystander(&other, pair).await);
        }
    }
    // Requests in progress end; an open connection is measured with its memory.
    let ended = eventually("the gateway's reaction", async || {
        let over = reading.is_finished();
        (over || sent.is_ok()).then_some(over)
    })
    .await;
    let ended = ended || tokio::time::timeout(Duration::from_secs(2), reading).await.is_ok();
    waited.push(bystander(&other, pair).await);
    let reached = (pair.asked() - asked).saturating_sub(waited.len());
    Seen { ended, reached, grown: peak.max(pair.resident(0)).saturating_sub(resident), waited }
}

async fn gateway() -> Pair {
    let pair = Pair::single(None).await;
    let place = pair.places()[0];
    // One-time allocations of the gateway are done.
    for _ in 0..20 {
        let warm = H2::try_connect(place.https, DEMO).await.expect("HTTP/2");
        assert_eq!(warm.ask(&pair.ask()).await.status, 200);
    }
    pair
}

fn stream(number: u32) -> u32 {
    2 * number + 1
}

// promise: edge.11, edge.14
#[tokio::test(flavor = "multi_thread")]
async fn a_flood_ends_only_its_connection() {
    let pair = gateway().await;
    let rounds = extent("FLOOD_ROUNDS", ROUNDS);
    let request = Request { host: DEMO, key: pair.key() };
    let get = |number: u32| headers(stream(number), &request.block(), true);
    let with = |number: u32, kind: u8, payload: &[u8]| [get(number), frame(kind, 0, stream(number), payload)].concat();
    let largest = 0x7fff_ffff_u32.to_be_bytes();
    let itself = |number: u32| [&stream(number).to_be_bytes()[..], &[16]].concat();
    let open = headers(1, &request.block(), false);
    let floods: Vec<(&str, Vec<u8>, Round<'_>)> = vec![
        ("rapid reset", vec![], Box::new(|number| with(number, frames::RST_STREAM, &8_u32.to_be_bytes()))),
        ("MadeYouReset: window update 0", vec![], Box::new(|number| with(number, frames::WINDOW_UPDATE, &[0; 4]))),
        ("MadeYouReset: window overflow", vec![], Box::new(|number| with(number, frames::WINDOW_UPDATE, &largest))),
        ("MadeYouReset: short PRIORITY", vec![], Box::new(|number| with(number, frames::PRIORITY, &[0; 4]))),
        ("MadeYouReset: depends on itself", vec![], Box::new(|number| with(number, frames::PRIORITY, &itself(number)))),
        ("MadeYouReset: HEADERS when half closed", vec![], Box::new(|number| [get(number), get(number)].concat())),
        ("MadeYouReset: DATA when half closed", vec![], Box::new(|number| with(number, frames::DATA, b"late"))),
        (
            "CONTINUATION",
            frame(frames::HEADERS, 0, 1, &request.block()),
            Box::new(|_| frame(frames::CONTINUATION, 0, 1, &[0, 1, b'x', 1, b'y'].repeat(20))),
        ),
        ("empty DATA", open.clone(), Box::new(|_| data(1, b"", false))),
        ("PING", vec![], Box::new(|_| frame(frames::PING, 0, 0, &[0; 8]))),
        ("SETTINGS", vec![], Box::new(|_| settings(&[]))),
        ("PRIORITY", vec![], Box::new(|number| frame(frames::PRIORITY, 0, stream(number), &[0, 0, 0, 0, 16]))),
        (
            "empty CONTINUATION",
            frame(frames::HEADERS, 0, 1, &request.block()),
            Box::new(|_| frame(frames::CONTINUATION, 0, 1, &[])),
        ),
        ("unknown frames", vec![], Box::new(|_| frame(0xee, 0, 0, &[0; 8]))),
    ];
    let connections = extent("FLOODS_OF_EACH", 1);
    let resident = pair.resident(0);
    let undisturbed = H2::try_connect(pair.places()[0].https, DEMO).await.expect("HTTP/2");
    let (mut before, mut beside) = (Vec::new(), Vec::new());
    for _ in 0..500 {
        before.push(bystander(&undisturbed, &pair).await);
    }
    for (what, first, round) in floods {
        let (mut reached, mut grown) = (0, 0);
        for _ in 0..connections {
            let seen = flood(&pair, first.clone(), rounds, &round).await;
            assert!(seen.ended, "{what}: the connection stays open");
            assert!(seen.reached <= REACHED_MAX, "{what}: {} requests reached the upstream", seen.reached);
            assert!(seen.grown <= GROWTH_MAX, "{what}: memory grew by {} KiB", seen.grown / 1_024);
            reached = reached.max(seen.reached);
            grown = grown.max(seen.grown);
            beside.extend(seen.waited);
        }
        println!(
            "{what}: {connections} connections, each ended, at most {reached} of {rounds} at the upstream, memory +{} KiB",
            grown / 1_024
        );
    }
    let grown = pair.resident(0).saturating_sub(resident);
    assert!(grown <= GROWTH_MAX, "memory grew by {} KiB over all of them", grown / 1_024);
    // This connection is older than the first flood and is still open.
    bystander(&undisturbed, &pair).await;
    println!(
        "p99 of {} requests of bystanders: {:.1} ms, {:.1} ms before",
        beside.len(),
        p99(beside.clone()),
        p99(before)
    );
}

/// Clients that send unsolicited answers. A discarded body pays for none, a window opened byte by byte for no more than
/// an open one, and a response or refusal for a few.
// promise: edge.11
#[tokio::test(flavor = "multi_thread")]
async fn refused_bodies_small_windows_and_short_responses_allow_no_flood() {
    let pair = gateway().await;
    let rounds = extent("FLOOD_ROUNDS", ROUNDS);
    let get = Request { host: DEMO, key: pair.key() }.block();
    // POST, which the route refuses.
    let refused = [&[0x83][..], &get[1..]].concat();
    let pings = |count: usize| frame(frames::PING, 0, 0, &[0; 8]).repeat(count);
    let upload = headers(1, &refused, false);
    let dribble = |number: u32| match number % 100 {
        0 => headers(stream(number / 100), &refused, true),
        _ => [window_update(stream(number / 100), 1), pings(2)].concat(),
    };
    let floods: Vec<(&str, Vec<u8>, Round<'_>)> = vec![
        ("PING beside a refused upload", upload.clone(), Box::new(|_| [data(1, b"x", false), pings(3)].concat())),
        (
            "WINDOW_UPDATE beside a refused upload",
            upload,
            Box::new(|_| [data(1, b"x", false), window_update(0, 1).repeat(3)].concat()),
        ),
        ("a window opened byte by byte", settings(&[(4, 0)]), Box::new(dribble)),
        (
            "PING beside refusals",
            vec![],
            Box::new(|number| [headers(stream(number), &refused, true), pings(10)].concat()),
        ),
        (
            "PING beside short responses",
            vec![],
            Box::new(|number| [headers(stream(number), &get, true), pings(10)].concat()),
        ),
    ];
    for (what, first, round) in floods {
        let before = flooded(&pair).await;
        let seen = flood(&pair, first, rounds, &round).await;
        assert!(seen.ended, "{what}: the connection stays open");
        assert_eq!(flooded(&pair).await, before + 1, "{what}: ended for another reason");
        assert!(seen.reached <= REACHED_MAX, "{what}: {} requests reached the upstream", seen.reached);
        assert!(seen.grown <= GROWTH_MAX, "{what}: memory grew by {} KiB", seen.grown / 1_024);
    }
}

/// Connections that the gateway has ended for their frames.
async fn flooded(pair: &Pair) -> u64 {
    pair.admin(0).metric("edge_connection_events_total{event=\"flooded\"}").await
}

/// A header block that is small when sent and large when unpacked.
// promise: edge.11
#[tokio::test(flavor = "multi_thread")]
async fn a_header_bomb_uses_no_memory() {
    let pair = gateway().await;
    let mut bomb = Request { host: DEMO, key: pair.key() }.block();
    // One field of 4,000 bytes into the table, and then named two thousand times.
    bomb.extend([0x40, 1, b'x', 0x7f, 0xa1, 0x1e]);
    bomb.extend([b'y'; 4_000]);
    bomb.extend([0xbe; 2_000]);
    let asked = pair.asked();
    let seen = flood(&pair, vec![], 100, |number| headers(stream(number), &bomb, true)).await;
    println!("header bomb: ended {}, memory +{} KiB", seen.ended, seen.grown / 1_024);
    assert!(seen.grown <= GROWTH_MAX, "memory grew by {} KiB", seen.grown / 1_024);
    assert!(pair.asked() - asked <= 2, "the bystander's alone");
}

/// Unread responses: each connection holds at most as many as it may have streams, and others are served.
// promise: edge.11
#[tokio::test(flavor = "multi_thread")]
async fn closed_windows_hold_at_most_the_bound_of_one_connection() {
    let pair = gateway().await;
    let request = Request { host: DEMO, key: pair.key() };
    let closed = settings(&[(4, 0)]);
    let seen = flood(&pair, closed, 500, |number| headers(stream(number), &request.block(), true)).await;
    println!(
        "closed windows: ended {}, {} at the upstream, memory +{} KiB",
        seen.ended,
        seen.reached,
        seen.grown / 1_024
    );
    assert!((1..=100).contains(&seen.reached), "{} requests in progress on one connection", seen.reached);
    assert!(seen.grown <= GROWTH_MAX, "memory grew by {} KiB", seen.grown / 1_024);
}
