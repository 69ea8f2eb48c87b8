//! The parsers of untrusted bytes, as functions of bytes. Each asserts the properties that hold for any input; a panic
//! is a finding.
//!
//! `cargo test -p fuzz` replays the corpus of every function and mutations of it. `bench/run fuzz` drives them with
//! LLVM's fuzzer for a given time; inputs it finds belong into `corpus/`. The product does not use this crate.

#![expect(clippy::missing_panics_doc, reason = "a panic is the finding of every function here")]

mod boundaries;
mod dns;
mod store;
mod upstream_frames;

use std::collections::HashSet;
use std::sync::LazyLock;

use chassis::seal::SealingKey;
use chassis::secret::Secret;
use contract::feed::Frame;
use contract::hostname::Hostname;
use contract::key::PresentedKey;
use gateway::fuzzing::CertificateOpener;
use gateway::fuzzing::exchange as direct;
use gateway::fuzzing::replica;
use listener::chunks::{Chunks, Progress};
use listener::fuzzing;

pub use self::boundaries::{boundaries, compared};
pub use self::dns::{dns, passes};
pub use self::store::store;
pub use self::upstream_frames::{complete_responses, upstream_frames};

/// A function of bytes.
pub type Target = fn(&[u8]);

/// All functions, by the names of their corpora.
pub const TARGETS: &[(&str, Target)] = &[
    ("boundaries", boundaries),
    ("chunks", chunks),
    ("dns", dns),
    ("feed", feed),
    ("frames", frames),
    ("gate", gate),
    ("hostname", hostname),
    ("key", key),
    ("proxy_header", proxy_header),
    ("response", response),
    ("snapshot", snapshot),
    ("store", store),
    ("target", target),
    ("upstream_frames", upstream_frames),
];

/// Splits the input: the first byte is the size of the pieces for the rest.
fn cut(bytes: &[u8]) -> (usize, &[u8]) {
    bytes.split_first().map_or((0, bytes), |(piece, rest)| (usize::from(*piece), rest))
}

/// The HTTP/1 gate: its releases and refusals depend on the bytes, not on their pieces.
pub fn gate(bytes: &[u8]) {
    let (piece, bytes) = cut(bytes);
    let (whole, parts) = (fuzzing::gate(bytes, 0), fuzzing::gate(bytes, piece));
    for gate in [&whole, &parts] {
        assert!(was_sent(bytes, &gate.messages), "the gate released bytes that were not sent");
    }
    assert_eq!(whole.messages, parts.messages, "the pieces change the messages");
    assert_eq!(whole.refusal, parts.refusal, "the pieces change the refusal");
    // Bytes of a body may be released before a later piece turns out malformed; nothing else may differ.
    assert!(whole.rest.len() <= parts.rest.len() || whole.refusal.is_none());
}

/// Whether the heads are unchanged, with at most one empty line before a message left out (RFC 9112 section 2.2), and
/// the bodies are the bytes behind them, without the framing of chunks.
fn was_sent(sent: &[u8], messages: &[(usize, Vec<u8>, Vec<u8>)]) -> bool {
    let mut from = 0;
    messages.iter().all(|(end, head, body)| {
        let message = sent.get(from..*end).unwrap_or_default();
        from = *end;
        let Some(rest) =
            message.strip_prefix(&head[..]).or_else(|| message.strip_prefix(b"\r\n")?.strip_prefix(&head[..]))
        else {
            return false;
        };
        rest == body || rest.ends_with(b"\r\n") && rest.len() > body.len()
    })
}

/// Chunks: the same end or the same refusal for any pieces.
pub fn chunks(bytes: &[u8]) {
    let (piece, bytes) = cut(bytes);
    let whole = Chunks::default().push(bytes);
    let mut chunks = Chunks::default();
    let mut read = 0;
    for part in bytes.chunks(piece.max(1)) {
        match chunks.push(part) {
            Ok(Progress::More) => read += part.len(),
            Ok(Progress::Done(used)) => {
                assert_eq!(whole, Ok(Progress::Done(read + used)));
                return;
            }
            Err(rejection) => {
                assert_eq!(whole, Err(rejection));
                return;
            }
        }
    }
    assert!(bytes.is_empty() || whole == Ok(Progress::More), "{whole:?}");
}

/// Idle HTTP/2 frames: the same count for any pieces.
pub fn frames(bytes: &[u8]) {
    let (piece, bytes) = cut(bytes);
    let now = tokio::time::Instant::now();
    assert_eq!(fuzzing::frames(bytes, bytes.len(), now), fuzzing::frames(bytes, piece, now));
}

/// Hostnames: an accepted name is canonical, and its canonical form is itself.
pub fn hostname(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    for parsed in [Hostname::parse(text), Hostname::from_ascii(text)].into_iter().flatten() {
        let name = parsed.as_str();
        assert!((1..=253).contains(&name.len()), "{name:?}");
        let clean = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'.');
        assert!(name.bytes().all(clean), "{name:?}");
        assert!(name.split('.').all(|label| (1..=63).contains(&label.len())), "{name:?}");
        assert_eq!(Hostname::from_ascii(name).as_ref().map(Hostname::as_str), Ok(name), "read again");
        let _shown = parsed.to_unicode();
    }
}

/// Request targets: an accepted one is one line of visible ASCII, and dot segments are found in every spelling.
pub fn target(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(has_dots) = fuzzing::target(text) {
        assert!(text.starts_with('/') && text.bytes().all(|byte| byte.is_ascii_graphic()), "{text:?}");
        let path = text.split('?').next().unwrap_or_default().to_ascii_lowercase().replace("%2e", ".");
        assert_eq!(has_dots, path.split('/').any(|segment| segment == "." || segment == ".."), "{text:?}");
    }
}

/// Lines of the change stream: an accepted line means the same after it is written and read again.
pub fn feed(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    for line in text.lines() {
        if let Ok(frame) = serde_json::from_str::<Frame>(line) {
            let written = serde_json::to_string(&frame).unwrap_or_default();
            assert_eq!(serde_json::from_str::<Frame>(&written).ok(), Some(frame), "{written}");
        }
    }
}

/// Snapshots: an accepted one has the announced length, and no name twice.
pub fn snapshot(bytes: &[u8]) {
    static OPENER: LazyLock<Option<CertificateOpener>> =
        LazyLock::new(|| SealingKey::new(&Secret::new(vec![7; 32])).ok().map(CertificateOpener::new));
    let (Ok(text), Some(opener)) = (std::str::from_utf8(bytes), OPENER.as_ref()) else { return };
    let Some(entities) = replica::snapshot(text, opener) else { return };
    let names: HashSet<_> = entities.iter().map(contract::feed::Entity::name).collect();
    assert_eq!(names.len(), entities.len(), "a name appears twice");
    let announced = text.lines().filter_map(|line| match serde_json::from_str(line) {
        Ok(Frame::SnapshotBegin { entities }) => usize::try_from(entities).ok(),
        _ => None,
    });
    assert!(announced.into_iter().any(|count| count == entities.len()), "no announced count is its length");
}

/// PROXY headers: an accepted header has the length it states, and is refused if one byte is missing.
pub fn proxy_header(bytes: &[u8]) {
    if let Ok((_, left)) = fuzzing::proxy_header(bytes) {
        let used = bytes.len() - left;
        assert!(used >= 16, "the fixed part alone is 16 bytes");
        let header = bytes.get(..used).unwrap_or_default();
        assert_eq!(fuzzing::proxy_header(header).map(|(_, left)| left), Ok(0));
        let short = header.get(..used - 1).unwrap_or_default();
        assert!(fuzzing::proxy_header(short).is_err(), "a byte is missing");
    }
}

/// Response heads of upstreams: the forwarded head states the end of its body in one way, for any pieces.
pub fn response(bytes: &[u8]) {
    let Ok(Some((on, used))) = direct::response_head(bytes) else { return };
    for end in 0..used {
        let part = direct::response_head(bytes.get(..end).unwrap_or_default());
        assert_eq!(part, Ok(None), "{end} of {used} bytes are neither a head nor a refusal");
    }
    let text = String::from_utf8_lossy(&on).to_ascii_lowercase();
    let mut lines = text.strip_suffix("\r\n").unwrap_or_default().split("\r\n");
    assert!(lines.next().is_some_and(|line| line.starts_with("http/1.1 ")), "{text:?}");
    let fields: Vec<&str> = lines.collect();
    assert!(fields.iter().all(|line| line.contains(": ") && !line.contains(['\r', '\n', '\0'])), "{text:?}");
    let framing = |line: &&&str| line.starts_with("content-length: ") || line.starts_with("transfer-encoding: ");
    assert!(fields.iter().filter(framing).count() <= 1, "{text:?}");
}

/// Keys: an accepted key has one spelling.
pub fn key(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(key) = PresentedKey::parse(text) {
        assert_eq!(key.reveal(), text);
        assert!(text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_'));
    }
}
