//! The pure parts of this module as functions of bytes, for benchmarks and fuzzing outside this crate. A running
//! gateway uses none of it.

use super::downstream::http1::Http1Head;
use super::upstream::http1_response as response;
use crate::answer::Answer;
use crate::decorate::{PresentFields, add_fields, is_removed};
use crate::facts::Facts;

/// The head at the start of `bytes` as a client gets it, and its length in `bytes`. `Ok(None)`: it is incomplete.
pub fn response_head(bytes: &[u8]) -> Result<Option<(Vec<u8>, usize)>, InvalidHead> {
    let mut out = Http1Head::new(false);
    let head = response::read(bytes, false, |_| false, &mut out).map_err(|_| InvalidHead)?;
    Ok(head.map(|head| (out.into_bytes(), head.bytes)))
}

/// The same with the fields that the gateway adds, except those of the connection.
pub(crate) fn client_head(bytes: &[u8], facts: &Facts) -> Result<Vec<u8>, InvalidHead> {
    let mut out = Http1Head::new(false);
    let head = response::read(bytes, false, |name| is_removed(name, facts), &mut out).map_err(|_| InvalidHead)?;
    let head = head.ok_or(InvalidHead)?;
    add_fields(facts, true, head.head.present, &mut out).map_err(|_| InvalidHead)?;
    Ok(out.into_bytes())
}

/// The head of an answer of the gateway, except the fields of the connection.
pub(crate) fn answer_head(answer: Answer, facts: &Facts) -> Result<Vec<u8>, InvalidHead> {
    let mut out = Http1Head::new(false);
    answer.write(&mut out).map_err(|_| InvalidHead)?;
    add_fields(facts, true, PresentFields::default(), &mut out).map_err(|_| InvalidHead)?;
    Ok(out.into_bytes())
}

/// The bytes are not the head of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidHead;
