//! Requirements of RFC 9113 and RFC 7541 for a server, section by section: bytes through TLS into a whole gateway, and
//! the expected bytes. Only valid requests reach the upstream, and after everything but a connection error the
//! connection serves a valid request.
//!
//! A row states the RFC's requirement. Where the library deviates, the row states that too, with the reason why it is
//! harmless; when the deviation disappears the row fails.

mod compression;
mod connection;
mod continuation;
mod fields;
mod messages;
mod peer;
mod shapes;
mod streams;
mod versions;
mod windows;

use std::time::Duration;

use self::peer::{PROBE, Peer, Seen};
use crate::world::frames::{DATA, PADDED, Request, data, frame, headers, literal, string, window_update};
use crate::world::{DEMO, ORDERS, World, eventually};

const NO_ERROR: u32 = 0;
const PROTOCOL_ERROR: u32 = 1;
const FLOW_CONTROL_ERROR: u32 = 3;
const STREAM_CLOSED: u32 = 5;
const FRAME_SIZE_ERROR: u32 = 6;
const REFUSED_STREAM: u32 = 7;
const CANCEL: u32 = 8;
const COMPRESSION_ERROR: u32 = 9;
const ENHANCE_YOUR_CALM: u32 = 11;

/// The end of the connection, for an error without a code of its own.
const WRONG: Outcome = Outcome::Connection(&[PROTOCOL_ERROR]);

/// The end of the connection, for a frame of a size that it must not have.
const SIZE: Outcome = Outcome::Connection(&[FRAME_SIZE_ERROR]);

/// h2 names the general error where the RFC has an exact one. The connection ends all the same.
const GENERAL_CODE: Outcome = Outcome::Connection(&[PROTOCOL_ERROR]);

/// h2 ends the connection where an end of the stream would do, which RFC 9113 section 5.4.1 leaves to a server. Only
/// the client that erred loses anything.
const WHOLE_CONNECTION: Outcome = Outcome::Connection(&[PROTOCOL_ERROR]);

/// A case that takes longer than this has failed.
const PATIENCE: Duration = Duration::from_secs(20);

/// The expected reaction.
#[derive(Clone, Debug)]
enum Outcome {
    /// The end of the connection; a GOAWAY, if any, has one of these codes.
    Connection(&'static [u32]),
    /// The end of this stream: `RST_STREAM` with one of these codes, or a 4xx response.
    Stream(u32, &'static [u32]),
    /// `RST_STREAM` with one of these codes, whatever response came before.
    Reset(u32, &'static [u32]),
    /// 200 on these streams.
    Served(&'static [u32]),
    /// Exactly these PING and SETTINGS frames.
    Answered(Vec<u8>),
    /// No error.
    Ignored,
}

/// One step of a client.
enum Step {
    Send(Vec<u8>),
    /// Waits for the head of the response on this stream.
    Begun(u32),
    /// Waits for the end of the response on this stream.
    Ended(u32),
    /// Waits until the gateway resets this stream.
    Reset(u32),
}

/// How much of a request that turns out to be wrong may be at the upstream by then.
#[derive(Clone, Copy, PartialEq)]
enum Wrong {
    Nothing,
    /// The response begins and is cut off.
    Begun,
    Whole,
}

/// One row: a name, the section with the requirement, the bytes to send, and the expected reaction.
struct Case {
    name: &'static str,
    section: &'static str,
    steps: Vec<Step>,
    outcome: Outcome,
    /// The library's deviation.
    instead: Option<Outcome>,
    /// A second possible reaction, depending on timing.
    or: Option<Outcome>,
    /// The steps bring their own preface.
    raw: bool,
    wrong_at_upstream: Wrong,
    /// The windows of new streams are closed.
    shut: bool,
}

fn case(name: &'static str, section: &'static str, bytes: impl Into<Vec<u8>>, outcome: Outcome) -> Case {
    script(name, section, vec![Step::Send(bytes.into())], outcome)
}

fn script(name: &'static str, section: &'static str, steps: Vec<Step>, outcome: Outcome) -> Case {
    let wrong_at_upstream = Wrong::Nothing;
    Case { name, section, steps, outcome, instead: None, or: None, raw: false, wrong_at_upstream, shut: false }
}

impl Case {
    fn instead(self, outcome: Outcome) -> Self {
        Self { instead: Some(outcome), ..self }
    }

    fn or(self, outcome: Outcome) -> Self {
        Self { or: Some(outcome), ..self }
    }

    fn raw(self) -> Self {
        Self { raw: true, ..self }
    }

    fn cut(self) -> Self {
        Self { wrong_at_upstream: Wrong::Begun, ..self }
    }

    fn whole(self) -> Self {
        Self { wrong_at_upstream: Wrong::Whole, ..self }
    }

    fn shut(self) -> Self {
        Self { shut: true, ..self }
    }

    /// The actual reaction, without its dependence on timing.
    fn actual(&self) -> &Outcome {
        self.instead.as_ref().unwrap_or(&self.outcome)
    }

    /// Whether the wait for an outcome is over.
    fn settled(&self, seen: &Seen) -> bool {
        let over = |outcome: &Outcome| match outcome {
            Outcome::Connection(_) => seen.closed,
            Outcome::Stream(id, _) => seen.stream(*id).is_over() && seen.stream(PROBE).is_over(),
            Outcome::Reset(id, _) => seen.stream(*id).reset.is_some() && seen.stream(PROBE).is_over(),
            Outcome::Served(ids) => {
                ids.iter().all(|id| seen.stream(*id).is_over()) && (self.is_last() || seen.stream(PROBE).is_over())
            }
            Outcome::Answered(_) | Outcome::Ignored => seen.stream(PROBE).is_over(),
        };
        seen.closed || over(self.actual())
    }

    /// Whether no request can follow, because stream numbers are used up.
    fn is_last(&self) -> bool {
        matches!(self.actual(), Outcome::Served(ids) if ids.iter().any(|id| *id > PROBE))
    }

    /// Whether the connection continues, and serves a valid request afterwards.
    fn goes_on(&self) -> bool {
        !matches!(self.actual(), Outcome::Connection(_)) && !self.is_last()
    }

    fn verdict(&self, seen: &Seen) -> Result<(), &'static str> {
        let kept = self.outcome.is(seen, self.is_last());
        match (&self.instead, &self.or) {
            (Some(_), _) if kept => Err("the difference is gone"),
            (Some(instead), _) if !instead.is(seen, self.is_last()) => {
                Err("neither the required reaction nor the known difference")
            }
            (None, Some(or)) if !kept && !or.is(seen, false) => Err("neither of both"),
            (None, None) if !kept => Err("not the required reaction"),
            _ => Ok(()),
        }
    }
}

impl Outcome {
    fn is(&self, seen: &Seen, last: bool) -> bool {
        let lives = !seen.closed && seen.goaway.is_none() && (last || seen.stream(PROBE).is_served());
        match self {
            Self::Connection(codes) => seen.closed && seen.goaway.is_none_or(|code| codes.contains(&code)),
            Self::Stream(id, codes) => {
                let stream = seen.stream(*id);
                let refused = stream.status.is_some_and(|status| (400..500).contains(&status));
                lives && (refused || stream.reset.is_some_and(|code| codes.contains(&code)))
            }
            Self::Reset(id, codes) => lives && seen.stream(*id).reset.is_some_and(|code| codes.contains(&code)),
            Self::Served(ids) => lives && ids.iter().all(|id| seen.stream(*id).is_served()),
            Self::Answered(bytes) => lives && seen.answers == *bytes,
            Self::Ignored => lives && seen.streams.values().all(|stream| stream.reset.is_none()),
        }
    }

    /// How many requests of the case reach the upstream.
    fn reaches(&self) -> usize {
        if let Self::Served(ids) = self { ids.len() } else { 0 }
    }
}

/// Plays every case on its own connection.
async fn hold(cases: impl FnOnce(&Asks<'_>) -> Vec<Case>) {
    let world = World::start().await;
    let asks = Asks::of(&world);
    let cases = cases(&asks);
    assert!(!cases.is_empty());
    let mut wrong = Vec::new();
    let mut at_upstream = (0, 0);
    // The upstream may read a truncated head after the gateway has finished with it.
    let mut late_max = 0;
    for case in &cases {
        let expected = case.actual().reaches() + usize::from(case.goes_on());
        let (seen, played) = play(&world, &asks, case).await;
        println!("{} {}: {seen}", case.section, case.name);
        if let Err(why) = played.and(case.verdict(&seen)) {
            wrong.push(format!("{} {}: {why}: {seen}", case.section, case.name));
        }
        eventually("the end of the requests", async || {
            (world.admin.metric("edge_requests_in_flight").await == 0).then_some(())
        })
        .await;
        let (begun, whole) = (world.orders.heads() - at_upstream.0, complete(&world) - at_upstream.1);
        // The connection may have ended before the valid request.
        let least = if case.or.is_some() { 0 } else { expected };
        let most = expected + usize::from(case.wrong_at_upstream == Wrong::Whole);
        let begun_max = expected + usize::from(case.wrong_at_upstream != Wrong::Nothing) + late_max;
        if !(least..=most).contains(&whole) || begun > begun_max {
            wrong.push(format!("{} {}: {whole} of {begun} requests at the upstream", case.section, case.name));
        }
        late_max = begun_max.saturating_sub(begun);
        at_upstream = (at_upstream.0 + begun, at_upstream.1 + whole);
    }
    assert_eq!(world.ask(world.list()).await.status, 200, "and the gateway serves on");
    let (begun, whole) = (world.orders.heads() - at_upstream.0, complete(&world) - at_upstream.1);
    assert!((1..=1 + late_max).contains(&begun), "{begun} heads at the upstream after all cases");
    assert_eq!((whole, world.blog.connections()), (1, 0), "at the upstream after all cases");
    assert!(wrong.is_empty(), "{} of {} cases:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
}

fn complete(world: &World) -> usize {
    world.orders.requests().iter().filter(|request| request.complete).count()
}

/// The frames of a case, and whether they came in order and within [`PATIENCE`].
async fn play(world: &World, asks: &Asks<'_>, case: &Case) -> (Seen, Result<(), &'static str>) {
    let mut peer = Peer::connect(world, DEMO).await;
    let playing = async {
        if !case.raw {
            peer.open().await;
        }
        for step in &case.steps {
            let there = match step {
                Step::Send(bytes) => {
                    peer.send(bytes).await;
                    true
                }
                Step::Begun(id) => peer.until(|seen| seen.stream(*id).status.is_some()).await,
                Step::Ended(id) => peer.until(|seen| seen.stream(*id).ended).await,
                Step::Reset(id) => peer.until(|seen| seen.stream(*id).reset.is_some()).await,
            };
            if !there {
                return Err("the connection ended too soon");
            }
        }
        if case.goes_on() {
            peer.send(&asks.probe(case.shut)).await;
        }
        peer.until(|seen| case.settled(seen)).await;
        Ok(())
    };
    let played = tokio::time::timeout(PATIENCE, playing).await.unwrap_or(Err("timed out"));
    (peer.seen, played)
}

/// Requests as header blocks.
struct Asks<'a> {
    host: &'a str,
    key: &'a str,
}

impl<'a> Asks<'a> {
    fn of(world: &'a World) -> Self {
        Self { host: DEMO, key: &world.key.text }
    }

    /// `listOrders`.
    fn list(&self) -> Vec<u8> {
        Request { host: self.host, key: self.key }.block()
    }

    /// `listOrders` with more fields.
    fn list_with(&self, fields: &[(&str, &str)]) -> Vec<u8> {
        [self.list(), block(fields)].concat()
    }

    /// `listOrders` without a key, which the gateway refuses.
    fn keyless(&self) -> Vec<u8> {
        let mut block = vec![0x82, 0x87, 0x01];
        block.extend(string(self.host.as_bytes()));
        block.push(0x04);
        block.extend(string(ORDERS.as_bytes()));
        block
    }

    /// A request with a body.
    fn post(&self, fields: &[(&str, &str)]) -> Vec<u8> {
        let good = [(":method", "POST"), (":scheme", "https"), (":authority", self.host), (":path", "/v2/orders")];
        [block(&good), self.authorization(), block(fields)].concat()
    }

    /// The first frame of a request with a body of five bytes.
    fn open(&self) -> Vec<u8> {
        headers(1, &self.post(&[("content-length", "5")]), false)
    }

    fn authorization(&self) -> Vec<u8> {
        literal("authorization", format!("Bearer {}", self.key))
    }

    /// A valid request after everything else, with window for its response if there is none.
    fn probe(&self, shut: bool) -> Vec<u8> {
        let room = if shut { window_update(PROBE, 1_000) } else { Vec::new() };
        [headers(PROBE, &self.list(), true), room].concat()
    }
}

/// Fields as literals.
fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    fields.iter().flat_map(|(name, value)| literal(name, value)).collect()
}

/// DATA with its own idea of padding.
fn padded_data(stream: u32, payload: &[u8], end: bool) -> Vec<u8> {
    frame(DATA, PADDED | u8::from(end), stream, payload)
}

/// The five bytes that [`Asks::open`] promises.
fn body() -> Vec<u8> {
    data(1, b"12345", true)
}
