//! The pure parts of the listener as functions of bytes, for the fuzzing crate.
//!
//! The running gateway does not use this module. It adds no rules: each function runs its part as a connection does,
//! without sockets or time.

use std::net::SocketAddr;

use futures_util::FutureExt as _;
use tokio::time::Instant;

use super::FrameLimits;
use super::flood_guard::FloodGuard;
use super::gate::{Gate, NextRead, PIECE_BYTES_MAX};
use super::head::{self, HeadLimits};
use super::proxy_header::{self, ProxySource};
use contract::rejection::Rejection;

/// The bytes of one HTTP/1 connection that the gate released.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GateResult {
    /// Every complete message: where it ends in the input, its head, and its body without framing.
    pub messages: Vec<(usize, Vec<u8>, Vec<u8>)>,
    /// The released bytes of an incomplete last message.
    pub rest: Vec<u8>,
    /// The refusal that ended it.
    pub refusal: Option<Rejection>,
}

/// Sends `bytes` through a gate in pieces of at most `piece` bytes (0: all at once). Every message is answered as soon
/// as it is complete.
pub fn gate(bytes: &[u8], piece: usize) -> GateResult {
    let mut gate = Gate::new(HeadLimits::default());
    let mut passed = GateResult::default();
    let (mut sent, mut head, mut body) = (0, Vec::new(), Vec::new());
    let piece = if piece == 0 { PIECE_BYTES_MAX } else { piece.min(PIECE_BYTES_MAX) };
    for part in bytes.chunks(piece) {
        sent += part.len();
        let mut outcome = gate.feed(part);
        loop {
            if outcome.is_ok()
                && let Some((bytes, _)) = gate.head()
            {
                head = bytes.to_vec();
                gate.take_head();
            }
            body.extend_from_slice(gate.ready());
            gate.consume(gate.ready().len());
            if let Err(rejection) = outcome {
                passed.rest = [head, body].concat();
                passed.refusal = Some(rejection);
                return passed;
            }
            if gate.want() != NextRead::Response {
                break;
            }
            passed.messages.push((sent - gate.buffered_bytes(), std::mem::take(&mut head), std::mem::take(&mut body)));
            outcome = gate.response_complete();
        }
    }
    passed.rest = [head, body].concat();
    passed
}

/// Whether the frames of an HTTP/2 connection are a flood if they arrive at one moment, in pieces of at most `piece`
/// bytes.
pub fn frames(bytes: &[u8], piece: usize, now: Instant) -> bool {
    let mut flood_guard = FloodGuard::new(FrameLimits::default(), now);
    bytes.chunks(piece.max(1)).any(|part| flood_guard.received(part, now).is_err())
}

/// The client in a PROXY header at the start of `bytes`, and the number of bytes after the header. `Ok(None)` is the
/// balancer itself.
///
/// # Errors
/// If the header is missing or invalid.
pub fn proxy_header(bytes: &[u8]) -> Result<(Option<SocketAddr>, usize), ProxyHeaderRefused> {
    let mut rest = bytes;
    match proxy_header::read(&mut rest).now_or_never() {
        Some(Ok(ProxySource::Client(client))) => Ok((Some(client), rest.len())),
        Some(Ok(ProxySource::Balancer)) => Ok((None, rest.len())),
        Some(Err(_)) | None => Err(ProxyHeaderRefused),
    }
}

/// There is no valid header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProxyHeaderRefused;

/// Whether a target is valid, and whether its path has dot segments, which no route accepts.
pub fn target(target: &str) -> Result<bool, Rejection> {
    if !target.starts_with('/') {
        return Err(Rejection::BadTarget);
    }
    head::judge_target(b"GET", target.as_bytes())?;
    Ok(head::has_dot_segments(target.split('?').next().unwrap_or_default()))
}
