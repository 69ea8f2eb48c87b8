//! The bytes that the gate releases, and when.

use proptest::prelude::*;

use super::*;

const GET: &str = "GET / HTTP/1.1\r\nHost: a.example\r\n\r\n";

fn gate() -> Gate {
    Gate::new(HeadLimits::default())
}

/// Reads all that is ready, including a head.
fn read_bytes(gate: &mut Gate) -> Vec<u8> {
    let mut bytes = gate.head().map(|(bytes, _)| bytes.to_vec()).unwrap_or_default();
    gate.take_head();
    bytes.extend_from_slice(gate.ready());
    gate.consume(gate.ready().len());
    bytes
}

fn read(gate: &mut Gate) -> String {
    String::from_utf8(read_bytes(gate)).unwrap()
}

/// Passes a piece of a body; returns its data.
fn pass(gate: &mut Gate, piece: &str) -> Result<String, Rejection> {
    let mut piece = piece.as_bytes().to_vec();
    let kept = gate.pass(&mut piece)?;
    piece.truncate(kept);
    Ok(String::from_utf8(piece).unwrap())
}

#[test]
fn a_head_is_released_whole_or_not_at_all() {
    let mut gate = gate();
    let (start, end) = GET.split_at(20);
    assert_eq!(gate.want(), NextRead::Head { begun: false });
    gate.feed(start.as_bytes()).unwrap();
    assert_eq!((read(&mut gate).as_str(), gate.want()), ("", NextRead::Head { begun: true }));
    gate.feed(end.as_bytes()).unwrap();
    assert_eq!((read(&mut gate).as_str(), gate.want()), (GET, NextRead::Response));
}

/// RFC 9112 section 2.2.
#[test]
fn one_empty_line_before_a_request_is_skipped_and_never_released() {
    let mut gate = gate();
    for _ in 0..3 {
        gate.feed(b"\r").unwrap();
        assert_eq!(gate.head(), None);
        gate.feed(b"\n").unwrap();
        assert_eq!((gate.want(), gate.buffer.capacity()), (NextRead::Head { begun: false }, 0));
        gate.feed(GET.as_bytes()).unwrap();
        assert_eq!((read(&mut gate).as_str(), gate.want()), (GET, NextRead::Response));
        gate.feed(format!("\r\n{GET}").as_bytes()).unwrap();
        gate.response_complete().unwrap();
        assert_eq!(read(&mut gate), GET);
        gate.response_complete().unwrap();
    }
    assert_eq!(gate.feed(format!("\r\n\r\n{GET}").as_bytes()), Err(Rejection::BadRequest));
}

#[test]
fn the_next_message_waits_for_the_response_to_this_one() {
    let mut gate = gate();
    gate.feed(format!("{GET}{GET}{GET}").as_bytes()).unwrap();
    for left in [2, 1, 0] {
        assert_eq!(read(&mut gate), GET);
        assert_eq!((gate.want(), gate.ready().len(), gate.has_later_bytes()), (NextRead::Response, 0, left > 0));
        gate.response_complete().unwrap();
    }
    assert_eq!(gate.want(), NextRead::Head { begun: false });
    assert_eq!(gate.buffer.capacity(), 0, "an idle connection keeps no buffer");
}

#[test]
fn read_bytes_are_dropped_even_if_the_client_always_pipelines() {
    let mut gate = gate();
    gate.feed(GET.as_bytes()).unwrap();
    for _ in 0..1_000 {
        gate.feed(GET.as_bytes()).unwrap();
        assert_eq!(read(&mut gate), GET);
        gate.response_complete().unwrap();
        assert!(gate.buffer.len() <= 2 * GET.len());
    }
}

#[test]
fn a_bad_message_after_a_good_one_is_refused_after_the_good_response() {
    let mut gate = gate();
    gate.feed(format!("{GET}BAD\r\n").as_bytes()).unwrap();
    assert_eq!(read(&mut gate), GET);
    assert_eq!(gate.response_complete(), Err(Rejection::BadRequest));
    assert_eq!((gate.ready().len(), gate.want(), gate.first_line()), (0, NextRead::Nothing, &b"BAD"[..]));
    assert!(gate.leaves_bytes());
}

#[test]
fn a_body_of_stated_length_ends_there() {
    let mut gate = gate();
    let head = "POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 10\r\n\r\n";
    gate.feed(format!("{head}01234").as_bytes()).unwrap();
    assert_eq!(read(&mut gate), format!("{head}01234"));
    assert_eq!(gate.want(), NextRead::Body { most: 5 });
    assert!(gate.leaves_bytes(), "the client is still sending");
    assert_eq!(pass(&mut gate, "567").unwrap(), "567");
    assert_eq!(pass(&mut gate, &format!("89{GET}")).unwrap(), "89");
    assert_eq!((gate.want(), gate.ready().len()), (NextRead::Response, 0));
    gate.response_complete().unwrap();
    assert_eq!(read(&mut gate), GET);
}

#[test]
fn a_body_of_length_zero_is_complete_with_its_head() {
    let mut gate = gate();
    gate.feed(b"POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 0\r\n\r\n").unwrap();
    read(&mut gate);
    assert_eq!(gate.want(), NextRead::Response);
}

#[test]
fn a_chunked_body_ends_where_its_chunks_end() {
    let mut gate = gate();
    let head = "POST / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n";
    gate.feed(format!("{head}5\r\nhel").as_bytes()).unwrap();
    assert_eq!(read(&mut gate), format!("{head}hel"));
    assert_eq!(pass(&mut gate, &format!("lo\r\n1\r\n!\r\n0\r\n\r\n{GET}")).unwrap(), "lo!");
    assert_eq!(gate.want(), NextRead::Response);
    gate.response_complete().unwrap();
    assert_eq!(read(&mut gate), GET);
}

#[test]
fn a_bad_chunk_with_the_head_holds_back_the_head() {
    let mut gate = gate();
    let bytes = "POST / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n0x5\r\nhello";
    assert_eq!(gate.feed(bytes.as_bytes()), Err(Rejection::BadFraming));
    assert_eq!(gate.first_line(), b"POST / HTTP/1.1");
    assert_eq!(gate.want(), NextRead::Nothing);
}

#[test]
fn a_later_bad_chunk_is_not_released() {
    let mut gate = gate();
    gate.feed(b"POST / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n").unwrap();
    read(&mut gate);
    assert_eq!(pass(&mut gate, "5\r\nhello\r\n").unwrap(), "hello");
    assert_eq!(pass(&mut gate, "5\nhello"), Err(Rejection::BadFraming));
    assert_eq!(gate.want(), NextRead::Nothing);
}

const UPGRADE: &str = "GET /chat HTTP/1.1\r\nHost: a.example\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";

#[test]
fn bytes_after_an_upgrade_belong_to_the_websocket_only_if_the_upstream_agreed() {
    let frames = "\u{1}\u{2} not http";
    let mut agreed = gate();
    agreed.feed(format!("{UPGRADE}{frames}").as_bytes()).unwrap();
    assert_eq!(read(&mut agreed), UPGRADE);
    assert_eq!(agreed.ready().len(), 0);
    agreed.open();
    assert_eq!((read(&mut agreed).as_str(), agreed.want()), (frames, NextRead::Anything));

    let mut declined = gate();
    declined.feed(format!("{UPGRADE}{frames}").as_bytes()).unwrap();
    read(&mut declined);
    assert_eq!(declined.response_complete(), Err(Rejection::BadRequest));

    let mut never_asked = gate();
    never_asked.feed(format!("{GET}{frames}").as_bytes()).unwrap();
    read(&mut never_asked);
    never_asked.open();
    assert_eq!((never_asked.want(), never_asked.ready().len()), (NextRead::Response, 0));
}

/// A well-formed message as sent, and without the framing of its body.
fn message() -> impl Strategy<Value = (Vec<u8>, Vec<u8>)> {
    let data = proptest::collection::vec(any::<u8>(), 0..60);
    let plain = "[a-z]{0,8}".prop_map(|path| {
        let bytes = format!("GET /{path} HTTP/1.1\r\nHost: a.example\r\n\r\n").into_bytes();
        (bytes.clone(), bytes)
    });
    let length = data.clone().prop_map(|data| {
        let head = format!("PUT / HTTP/1.1\r\nHost: a.example\r\nContent-Length: {}\r\n\r\n", data.len());
        let bytes = [head.as_bytes(), &data].concat();
        (bytes.clone(), bytes)
    });
    let chunked = proptest::collection::vec(data, 0..4).prop_map(|chunks| {
        let head = b"PUT / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
        let (mut bytes, data) = (head.clone(), [head, chunks.concat()].concat());
        for chunk in chunks.iter().filter(|chunk| !chunk.is_empty()) {
            bytes.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
            bytes.extend_from_slice(chunk);
            bytes.extend_from_slice(b"\r\n");
        }
        bytes.extend_from_slice(b"0\r\n\r\n");
        (bytes, data)
    });
    prop_oneof![plain, length, chunked]
}

/// Sends `bytes` in pieces to a consumer that answers every message as soon as it has read it. Returns the bytes that
/// the consumer read, and the refusal if there was one.
fn run(bytes: &[u8], pieces: &[usize], direct: bool) -> (Vec<u8>, Option<Rejection>) {
    let (mut gate, mut seen, mut rest) = (gate(), Vec::new(), bytes);
    let mut sizes = pieces.iter().copied().cycle();
    loop {
        seen.extend(read_bytes(&mut gate));
        let outcome = match gate.want() {
            NextRead::Response => gate.response_complete(),
            NextRead::Nothing | NextRead::Anything => return (seen, None),
            NextRead::Head { .. } | NextRead::Body { .. } if rest.is_empty() => return (seen, None),
            want => {
                let size = sizes.next().unwrap_or(1).min(rest.len());
                match want {
                    NextRead::Body { most } if direct => {
                        let (piece, tail) = rest.split_at(size.min(most));
                        rest = tail;
                        let mut piece = piece.to_vec();
                        gate.pass(&mut piece).map(|kept| seen.extend_from_slice(&piece[..kept]))
                    }
                    _ => {
                        let (piece, tail) = rest.split_at(size);
                        rest = tail;
                        gate.feed(piece)
                    }
                }
            }
        };
        if let Err(rejection) = outcome {
            return (seen, Some(rejection));
        }
    }
}

proptest! {
    #[test]
    fn exactly_the_bytes_of_valid_messages_are_released(
        messages in proptest::collection::vec(message(), 1..6),
        pieces in proptest::collection::vec(1_usize..120, 1..12),
        direct: bool,
    ) {
        let (sent, data): (Vec<_>, Vec<_>) = messages.into_iter().unzip();
        prop_assert_eq!(run(&sent.concat(), &pieces, direct), (data.concat(), None));
    }

    #[test]
    fn no_part_of_a_bad_head_is_released_with_any_cut(
        messages in proptest::collection::vec(message(), 0..4),
        pieces in proptest::collection::vec(1_usize..120, 1..12),
        direct: bool,
    ) {
        let (sent, data): (Vec<_>, Vec<_>) = messages.into_iter().unzip();
        let bad = b"GET / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n";
        let bytes = [&sent.concat()[..], bad].concat();
        prop_assert_eq!(run(&bytes, &pieces, direct), (data.concat(), Some(Rejection::BadFraming)));
    }
}
