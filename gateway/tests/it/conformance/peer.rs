//! A client that reads frames as they come and records their content.

use std::collections::BTreeMap;
use std::fmt;

use crate::world::client::handshake;
use crate::world::frames::{ACK, CONTINUATION, DATA, END_STREAM, GOAWAY, HEADERS, PING, PREFACE, RST_STREAM, SETTINGS};
use crate::world::frames::{frame, settings};
use crate::world::wire::Wire;
use crate::world::{World, certificates};

/// The stream of the valid request after a case.
pub(super) const PROBE: u32 = 0x7fff_ff01;

/// The frames of one stream.
#[derive(Clone, Debug, Default)]
pub(super) struct Stream {
    pub(super) status: Option<u16>,
    /// Lengths of DATA frames.
    pub(super) data: Vec<usize>,
    pub(super) ended: bool,
    pub(super) reset: Option<u32>,
}

impl Stream {
    pub(super) fn is_over(&self) -> bool {
        self.ended || self.reset.is_some()
    }

    pub(super) fn is_served(&self) -> bool {
        self.status == Some(200) && self.ended
    }
}

/// The frames of a connection.
#[derive(Default)]
pub(super) struct Seen {
    pub(super) streams: BTreeMap<u32, Stream>,
    /// PING and SETTINGS frames after the opening.
    pub(super) answers: Vec<u8>,
    pub(super) goaway: Option<u32>,
    pub(super) closed: bool,
}

impl Seen {
    pub(super) fn stream(&self, id: u32) -> Stream {
        self.streams.get(&id).cloned().unwrap_or_default()
    }
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (id, Stream { status, data, ended, reset }) in &self.streams {
            let name = if *id == PROBE { "probe".to_owned() } else { format!("stream {id}") };
            write!(f, "{name}:")?;
            if let Some(status) = status {
                write!(f, " {status}, {} bytes", data.iter().sum::<usize>())?;
            }
            write!(f, "{}", if *ended { ", ended" } else { "" })?;
            write!(f, "{}; ", reset.map_or_else(String::new, |code| format!(" reset {code}")))?;
        }
        write!(f, "{}", self.goaway.map_or_else(String::new, |code| format!("GOAWAY {code}, ")))?;
        write!(f, "{} bytes of answers, {}", self.answers.len(), if self.closed { "closed" } else { "open" })
    }
}

pub(super) struct Peer {
    wire: Wire,
    pub(super) seen: Seen,
}

impl Peer {
    pub(super) async fn connect(world: &World, host: &str) -> Self {
        let stream = handshake(world.https, Some(host), certificates::client(&[b"h2"])).await.expect("a handshake");
        Self { wire: Wire::new(stream), seen: Seen::default() }
    }

    /// Prefaces and settings of both sides (RFC 9113 section 3.4); the server's begins with SETTINGS. Without a table
    /// on this side every response can be read separately.
    pub(super) async fn open(&mut self) {
        self.send(&[PREFACE, &settings(&[(1, 0)])].concat()).await;
        let first = self.frame().await.expect("a frame");
        assert_eq!((first.kind, first.flags, first.stream), (SETTINGS, 0, 0), "the server's preface");
        self.send(&frame(SETTINGS, ACK, 0, &[])).await;
        assert!(self.until(|seen| !seen.answers.is_empty()).await, "the opening ends the connection");
        assert_eq!(std::mem::take(&mut self.seen.answers), frame(SETTINGS, ACK, 0, &[]), "our settings are taken");
    }

    pub(super) async fn send(&mut self, bytes: &[u8]) {
        // If the gateway has ended the connection, the next read shows it.
        let _ = self.wire.send(bytes).await;
    }

    /// Reads until the condition holds or the connection ends; returns which.
    pub(super) async fn until(&mut self, there: impl Fn(&Seen) -> bool) -> bool {
        while !self.seen.closed && !there(&self.seen) {
            match self.frame().await {
                Some(came) => self.record(&came),
                None => self.seen.closed = true,
            }
        }
        there(&self.seen)
    }

    fn record(&mut self, came: &Frame) {
        let Frame { kind, flags, stream, payload } = came;
        match *kind {
            PING | SETTINGS => self.seen.answers.extend(frame(*kind, *flags, *stream, payload)),
            GOAWAY => self.seen.goaway = Some(code(&payload[4..8])),
            RST_STREAM => self.seen.streams.entry(*stream).or_default().reset = Some(code(payload)),
            HEADERS | DATA | CONTINUATION => {
                let seen = self.seen.streams.entry(*stream).or_default();
                match *kind {
                    HEADERS => seen.status = Some(status(payload)),
                    DATA => seen.data.push(payload.len()),
                    _ => return,
                }
                seen.ended |= flags & END_STREAM != 0;
            }
            _ => {}
        }
    }

    async fn frame(&mut self) -> Option<Frame> {
        let head: [u8; 9] = self.wire.exactly(9).await.try_into().ok()?;
        let [high, middle, low, kind, flags, stream @ ..] = head;
        let length = usize::try_from(u32::from_be_bytes([0, high, middle, low])).unwrap();
        let payload = self.wire.exactly(length).await;
        (payload.len() == length).then_some(Frame { kind, flags, stream: code(&stream), payload })
    }
}

struct Frame {
    kind: u8,
    flags: u8,
    stream: u32,
    payload: Vec<u8>,
}

fn code(bytes: &[u8]) -> u32 {
    u32::from_be_bytes(bytes.try_into().expect("four bytes"))
}

/// The status that a response's block begins with (RFC 7541 appendix A), behind new sizes of the table: an entry of the
/// static table, or the name of one and three digits.
fn status(mut block: &[u8]) -> u16 {
    while let [size @ 0x20..0x40, rest @ ..] = block {
        let more = if size & 0x1f == 0x1f { rest.iter().take_while(|byte| **byte >= 0x80).count() + 1 } else { 0 };
        block = &rest[more..];
    }
    match block {
        [0x88, ..] => 200,
        [0x89, ..] => 204,
        [0x8a, ..] => 206,
        [0x8b, ..] => 304,
        [0x8c, ..] => 400,
        [0x8d, ..] => 404,
        [0x8e, ..] => 500,
        [0x08 | 0x18 | 0x48, 3, digits @ ..] => std::str::from_utf8(&digits[..3]).unwrap().parse().unwrap(),
        [0x08 | 0x18 | 0x48, length, digits @ ..] => huffman_digits(&digits[..usize::from(length & 0x7f)]),
        other => panic!("no status: {other:?}"),
    }
}

/// Three digits in the code of RFC 7541 appendix B: five bits for 0 to 2, six for the others.
fn huffman_digits(coded: &[u8]) -> u16 {
    let bits: Vec<u16> =
        coded.iter().flat_map(|byte| (0..8).rev().map(move |bit| u16::from((byte >> bit) & 1))).collect();
    let mut at = 0;
    let mut number = 0;
    for _ in 0..3 {
        let take = |count: usize| bits[at..at + count].iter().fold(0, |value, bit| value * 2 + bit);
        let short = take(5);
        let digit = if short < 3 { short } else { take(6) - 0b1_1001 + 3 };
        at += if short < 3 { 5 } else { 6 };
        number = number * 10 + digit;
    }
    number
}
