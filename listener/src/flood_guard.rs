//! Protects against floods of HTTP/2 frames that do no work.
//!
//! The engine checks every frame and stops floods of resets, CONTINUATIONs and header bombs. It answers without limit
//! frames that are cheap to send and cost a response or a lookup: PING, SETTINGS, PRIORITY, empty DATA,
//! `WINDOW_UPDATE`, and unknown types (measured; RFC 9113 section 10.5 leaves the limit to the server). Here such
//! frames spend an allowance that time and traffic refill. Normal clients never exhaust it; a flood is cut off after
//! some thousand frames.
//!
//! A client may answer each DATA frame, however small, with two `WINDOW_UPDATE`s and a PING; the C core of gRPC does.
//! Such answers do not spend the allowance: each piece of a body that the edge forwards, in either direction, pays for
//! three of them. The exchange reports forwarded pieces ([`super::streams`]). Discarded bytes, and pieces that are
//! small only because the client's window is, earn nothing.
//!
//! Reads frame headers only and changes no bytes. Pure: the time is an argument.

use std::time::Duration;

use tokio::time::Instant;

/// Bytes of the connection preface (RFC 9113 section 3.4).
const PREFACE_BYTES: u32 = 24;

/// Bytes of a frame's header (RFC 9113 section 4.1).
const HEADER_BYTES: usize = 9;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const PING: u8 = 6;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;

/// Frames with which a client may answer one piece of a body: `WINDOW_UPDATE` of the stream and of the connection, and
/// PING.
const ANSWERS_PER_PIECE: u64 = 3;

/// Answers that may be outstanding: those to a thousand pieces on their way to a distant client.
const ANSWERS_MAX: u64 = 3_000;

/// Limits of frames that do no work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameLimits {
    /// Allowance at the start, and its maximum.
    pub burst: u32,
    /// Frames earned per second.
    pub per_second: u32,
    /// Bytes moved in either direction that earn one frame: downloads update windows, and clients that measure their
    /// line ping.
    pub bytes_per_frame: u32,
}

impl Default for FrameLimits {
    fn default() -> Self {
        Self { burst: 1_000, per_second: 10, bytes_per_frame: 1_024 }
    }
}

/// The client sent more such frames than are allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Flood;

/// Judges the incoming frames of one connection.
#[derive(Debug)]
pub(crate) struct FloodGuard {
    limits: FrameLimits,
    allowance: u32,
    /// Answers to forwarded pieces that the client may still send.
    answers: u64,
    /// Time up to which the allowance was refilled.
    credited: Instant,
    /// Bytes moved that have not earned a frame yet.
    moved: u64,
    preface_left: u32,
    header: [u8; HEADER_BYTES],
    header_bytes: usize,
    /// Bytes left in the payload of the current frame.
    payload_left: u32,
}

impl FloodGuard {
    pub(crate) fn new(limits: FrameLimits, now: Instant) -> Self {
        Self {
            limits,
            allowance: limits.burst,
            answers: 0,
            credited: now,
            moved: 0,
            preface_left: PREFACE_BYTES,
            header: [0; HEADER_BYTES],
            header_bytes: 0,
            payload_left: 0,
        }
    }

    /// Whether the preface is still incomplete.
    pub(crate) fn awaits_preface(&self) -> bool {
        self.preface_left > 0
    }

    /// Counts sent bytes.
    pub(crate) fn sent(&mut self, bytes: usize) {
        self.moved = self.moved.saturating_add(bytes as u64);
    }

    /// Counts pieces of bodies that were forwarded, in either direction.
    pub(crate) fn count_forwarded(&mut self, pieces: u64) {
        let earned = pieces.saturating_mul(ANSWERS_PER_PIECE);
        self.answers = self.answers.saturating_add(earned).min(ANSWERS_MAX);
    }

    /// Checks received bytes.
    pub(crate) fn received(&mut self, mut bytes: &[u8], now: Instant) -> Result<(), Flood> {
        skip(&mut bytes, &mut self.preface_left);
        loop {
            skip(&mut bytes, &mut self.payload_left);
            if bytes.is_empty() {
                return Ok(());
            }
            let wanted = HEADER_BYTES.saturating_sub(self.header_bytes).min(bytes.len());
            let (part, rest) = bytes.split_at_checked(wanted).unwrap_or((bytes, &[]));
            for (place, byte) in self.header.iter_mut().skip(self.header_bytes).zip(part) {
                *place = *byte;
            }
            self.header_bytes += part.len();
            bytes = rest;
            if self.header_bytes == HEADER_BYTES {
                self.header_bytes = 0;
                self.begin_frame(now)?;
            }
        }
    }

    /// Handles a complete frame header.
    fn begin_frame(&mut self, now: Instant) -> Result<(), Flood> {
        let [high, middle, low, kind, flags, ..] = self.header;
        self.payload_left = u32::from_be_bytes([0, high, middle, low]);
        let works = match kind {
            DATA => self.payload_left > 0 || flags & END_STREAM != 0,
            HEADERS => true,
            // The engine bounds and counts the header block.
            CONTINUATION => self.payload_left > 0,
            _ => false,
        };
        if works {
            // The payload is traffic. A request also earns one frame, for clients that prioritise or cancel it.
            self.moved = self.moved.saturating_add(u64::from(self.payload_left));
            self.allowance = self.allowance.saturating_add(u32::from(kind == HEADERS)).min(self.limits.burst);
            return Ok(());
        }
        if matches!(kind, WINDOW_UPDATE | PING)
            && let Some(left) = self.answers.checked_sub(1)
        {
            self.answers = left;
            return Ok(());
        }
        self.earn(now);
        self.allowance = self.allowance.checked_sub(1).ok_or(Flood)?;
        Ok(())
    }

    /// Credits time and traffic.
    fn earn(&mut self, now: Instant) {
        let each = u64::from(self.limits.bytes_per_frame.max(1));
        let by_traffic = self.moved / each;
        self.moved %= each;
        let seconds = now.saturating_duration_since(self.credited).as_secs();
        self.credited += Duration::from_secs(seconds);
        let by_time = seconds.saturating_mul(u64::from(self.limits.per_second));
        let earned = u32::try_from(by_traffic.saturating_add(by_time)).unwrap_or(u32::MAX);
        self.allowance = self.allowance.saturating_add(earned).min(self.limits.burst);
    }
}

/// Skips up to `left` bytes.
fn skip(bytes: &mut &[u8], left: &mut u32) {
    let skipped = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len());
    *bytes = bytes.get(skipped..).unwrap_or_default();
    *left -= u32::try_from(skipped).unwrap_or(*left);
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: FrameLimits = FrameLimits { burst: 5, per_second: 2, bytes_per_frame: 100 };

    fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        [&length[1..], &[kind, flags, 0, 0, 0, 1], payload].concat()
    }

    fn after_preface(now: Instant) -> FloodGuard {
        let mut guard = FloodGuard::new(LIMITS, now);
        guard.received(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", now).unwrap();
        assert!(!guard.awaits_preface());
        guard
    }

    /// Counts pings that pass in a row.
    fn pings(guard: &mut FloodGuard, now: Instant) -> u32 {
        (0..100).take_while(|_| guard.received(&frame(PING, 0, &[]), now).is_ok()).count().try_into().unwrap()
    }

    #[test]
    fn idle_frames_spend_the_allowance_and_time_refills_it() {
        let start = Instant::now();
        let mut guard = after_preface(start);
        assert_eq!(pings(&mut guard, start), 5);
        assert_eq!(pings(&mut guard, start + Duration::from_millis(999)), 0);
        assert_eq!(pings(&mut guard, start + Duration::from_secs(1)), 2);
        assert_eq!(pings(&mut guard, start + Duration::from_hours(1)), 5, "no more than the burst is saved");
    }

    #[test]
    fn every_kind_of_idle_frame_counts_and_no_useful_frame_does() {
        let now = Instant::now();
        let idle = [(DATA, 0), (2, 0), (3, 0), (4, 0), (4, 1), (6, 0), (6, 1), (8, 0), (CONTINUATION, 4), (0xee, 0)];
        for (kind, flags) in idle {
            let mut guard = after_preface(now);
            let passed = (0..100).take_while(|_| guard.received(&frame(kind, flags, &[]), now).is_ok()).count();
            assert_eq!(passed, 5, "type {kind}");
        }
        for (kind, flags, payload) in [(DATA, 0, &b"x"[..]), (DATA, END_STREAM, b""), (HEADERS, 5, b"h"), (9, 4, b"h")]
        {
            let mut guard = after_preface(now);
            for _ in 0..1_000 {
                assert_eq!(guard.received(&frame(kind, flags, payload), now), Ok(()), "type {kind}");
            }
        }
    }

    #[test]
    fn traffic_in_either_direction_earns_frames() {
        let now = Instant::now();
        let mut guard = after_preface(now);
        assert_eq!(pings(&mut guard, now), 5);
        guard.sent(250);
        assert_eq!(pings(&mut guard, now), 2);
        guard.received(&frame(DATA, 0, &[0; 50]), now).unwrap();
        assert_eq!(pings(&mut guard, now), 1, "50 of before and 50 of now");
        guard.received(&frame(HEADERS, 4, &[]), now).unwrap();
        assert_eq!(pings(&mut guard, now), 1, "a request earns one");
    }

    #[test]
    fn each_piece_of_a_body_pays_for_two_window_updates_and_a_ping() {
        let now = Instant::now();
        let mut guard = after_preface(now);
        for _ in 0..100_000 {
            guard.count_forwarded(1);
            for kind in [WINDOW_UPDATE, WINDOW_UPDATE, PING] {
                assert_eq!(guard.received(&frame(kind, 0, &[0; 4]), now), Ok(()));
            }
        }
        assert_eq!(pings(&mut guard, now), 5, "the allowance is untouched");
    }

    #[test]
    fn the_allowance_for_answers_is_separate_and_bounded() {
        let now = Instant::now();
        let mut guard = after_preface(now);
        guard.count_forwarded(10);
        let other = (0..100).take_while(|_| guard.received(&frame(0xee, 0, &[]), now).is_ok()).count();
        assert_eq!(other, 5, "unknown frames spend the allowance");
        guard.count_forwarded(u64::MAX);
        let answers = (0..10_000).take_while(|_| guard.received(&frame(PING, 0, &[]), now).is_ok()).count();
        assert_eq!(u64::try_from(answers).unwrap(), ANSWERS_MAX);
    }

    #[test]
    fn where_the_reads_are_cut_does_not_matter() {
        let now = Instant::now();
        let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        bytes.extend(frame(4, 0, &[0; 6]));
        bytes.extend(frame(HEADERS, 5, b"some header block"));
        // A payload that resembles frames is not parsed as frames.
        bytes.extend(frame(DATA, 1, &frame(PING, 0, &[0; 8]).repeat(20)));
        bytes.extend(frame(PING, 0, &[0; 8]).repeat(6));
        for piece in 1..bytes.len() {
            let mut guard = FloodGuard::new(FrameLimits { bytes_per_frame: 1_000, ..LIMITS }, now);
            let mut parts = bytes.chunks(piece);
            assert_eq!(parts.try_for_each(|part| guard.received(part, now)), Err(Flood), "in pieces of {piece}");
        }
        let less = &bytes[..bytes.len() - 17];
        let mut guard = FloodGuard::new(FrameLimits { bytes_per_frame: 1_000, ..LIMITS }, now);
        assert_eq!(guard.received(less, now), Ok(()), "the request earned back what the settings spent");
    }
}
