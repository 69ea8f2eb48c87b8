//! The pure part of this module as a function of bytes, for campaigns of random input that live outside of this crate.
//! Nothing in a running gateway calls this.

use super::downstream::Downstream as _;
use super::http1::Http1;
use super::response;

/// What goes on to a client of the head at the start of `bytes`, and how many bytes the head has. `Ok(None)` asks for more.
///
/// # Errors
/// When it is no head of a response.
pub fn response_head(bytes: &[u8]) -> Result<Option<(Vec<u8>, usize)>, NoHead> {
    let mut out = Http1::head();
    let head = response::read(bytes, false, |_| false, &mut out).map_err(|_| NoHead)?;
    Ok(head.map(|head| (out.into_bytes(), head.bytes)))
}

/// It is no head of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoHead;
