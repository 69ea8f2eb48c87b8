//! Frames of HTTP/2 as bytes (RFC 9113 section 4.1), and header blocks that need no table (RFC 7541 section 6.2.2).

use super::ORDERS;

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const PRIORITY: u8 = 2;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PUSH_PROMISE: u8 = 5;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const CONTINUATION: u8 = 9;

pub(crate) const ACK: u8 = 1;
pub(crate) const END_STREAM: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;
pub(crate) const PADDED: u8 = 8;
pub(crate) const PRIORITISED: u8 = 32;

/// The bytes of a client before its first frame.
pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let [_, length @ ..] = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// The preface and empty settings.
pub(crate) fn preface() -> Vec<u8> {
    [PREFACE.to_vec(), settings(&[])].concat()
}

pub(crate) fn settings(all: &[(u16, u32)]) -> Vec<u8> {
    let payload: Vec<u8> =
        all.iter().flat_map(|(id, value)| [&id.to_be_bytes()[..], &value.to_be_bytes()].concat()).collect();
    frame(SETTINGS, 0, 0, &payload)
}

/// A whole header block in one frame.
pub(crate) fn headers(stream: u32, block: &[u8], end: bool) -> Vec<u8> {
    frame(HEADERS, END_HEADERS | u8::from(end), stream, block)
}

pub(crate) fn data(stream: u32, payload: &[u8], end: bool) -> Vec<u8> {
    frame(DATA, u8::from(end), stream, payload)
}

pub(crate) fn reset(stream: u32, code: u32) -> Vec<u8> {
    frame(RST_STREAM, 0, stream, &code.to_be_bytes())
}

pub(crate) fn window_update(stream: u32, by: u32) -> Vec<u8> {
    frame(WINDOW_UPDATE, 0, stream, &by.to_be_bytes())
}

/// A field as a literal that stays out of the table, its name spelt out.
pub(crate) fn literal(name: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Vec<u8> {
    [vec![0], string(name.as_ref()), string(value.as_ref())].concat()
}

/// A string without Huffman coding (RFC 7541 section 5.2).
pub(crate) fn string(bytes: &[u8]) -> Vec<u8> {
    let mut coded = vec![u8::try_from(bytes.len().min(127)).unwrap()];
    if let Some(mut rest) = bytes.len().checked_sub(127) {
        while rest >= 128 {
            coded.push(u8::try_from(rest % 128).unwrap() | 128);
            rest /= 128;
        }
        coded.push(u8::try_from(rest).unwrap());
    }
    coded.extend_from_slice(bytes);
    coded
}

/// `listOrders` with a key.
pub(crate) struct Request<'a> {
    pub(crate) host: &'a str,
    pub(crate) key: &'a str,
}

impl Request<'_> {
    /// `:method: GET` and `:scheme: https` from the static table, the others as literals.
    pub(crate) fn block(&self) -> Vec<u8> {
        let mut block = vec![0x82, 0x87];
        for (name, value) in
            [(&[0x01][..], self.host), (&[0x04], ORDERS), (&[0x0f, 0x08], &format!("Bearer {}", self.key))]
        {
            block.extend_from_slice(name);
            block.extend(string(value.as_bytes()));
        }
        block
    }
}
