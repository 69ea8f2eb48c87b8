//! Frames of HTTP/2 as bytes (RFC 9113 section 4.1), and header blocks that need no table (RFC 7541 section 6.2.2).

use crate::world::ORDERS;

pub(super) const DATA: u8 = 0;
pub(super) const HEADERS: u8 = 1;
pub(super) const PRIORITY: u8 = 2;
pub(super) const RST_STREAM: u8 = 3;
pub(super) const SETTINGS: u8 = 4;
pub(super) const PING: u8 = 6;
pub(super) const WINDOW_UPDATE: u8 = 8;
pub(super) const CONTINUATION: u8 = 9;

pub(super) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let [_, length @ ..] = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// The preface and empty settings.
pub(super) fn preface() -> Vec<u8> {
    [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(), settings(&[])].concat()
}

pub(super) fn settings(all: &[(u16, u32)]) -> Vec<u8> {
    let payload: Vec<u8> =
        all.iter().flat_map(|(id, value)| [&id.to_be_bytes()[..], &value.to_be_bytes()].concat()).collect();
    frame(SETTINGS, 0, 0, &payload)
}

/// A whole header block in one frame.
pub(super) fn headers(stream: u32, block: &[u8], end: bool) -> Vec<u8> {
    frame(HEADERS, 4 | u8::from(end), stream, block)
}

pub(super) fn data(stream: u32, payload: &[u8], end: bool) -> Vec<u8> {
    frame(DATA, u8::from(end), stream, payload)
}

/// `listOrders` with a key.
pub(super) struct Request<'a> {
    pub(super) host: &'a str,
    pub(super) key: &'a str,
}

impl Request<'_> {
    /// `:method: GET` and `:scheme: https` from the static table, the others as literals.
    pub(super) fn block(&self) -> Vec<u8> {
        let mut block = vec![0x82, 0x87];
        for (name, value) in
            [(&[0x01][..], self.host), (&[0x04], ORDERS), (&[0x0f, 0x08], &format!("Bearer {}", self.key))]
        {
            block.extend_from_slice(name);
            block.push(u8::try_from(value.len()).ok().filter(|length| *length < 127).expect("a short value"));
            block.extend_from_slice(value.as_bytes());
        }
        block
    }
}
