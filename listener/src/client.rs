//! The interface of an HTTP/1 client that waits for a response, as a [`crate::Handler`] uses it.

use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::BytesMut;
use tokio::io::AsyncWrite;
use tokio::time::Instant;

use crate::connection::Connection;
use crate::head::Head;
use contract::rejection::Rejection;

/// Why the body of a request cannot be read further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyReadError {
    /// The body is malformed, or did not arrive in time.
    Refused(Rejection),
    /// The client disconnected in the middle of the body.
    Gone,
}

/// A client that waits for the response to a request. Written bytes are the response; a flush sends them.
pub trait Client: AsyncWrite + Unpin + Send {
    /// The facts about the connection.
    fn connection(&self) -> &Arc<Connection>;

    /// The pending head, from the request line to the blank line, and its meaning.
    fn head(&self) -> Option<(&[u8], Head)>;

    /// Marks the pending head as read.
    fn take_head(&mut self);

    /// Appends more of the request's body to `into`, without its framing; returns zero at its end. After
    /// [`Self::switch`], appends everything that the client sends until the connection ends.
    fn poll_body(&mut self, into: &mut BytesMut, cx: &mut Context<'_>) -> Poll<Result<usize, BodyReadError>>;

    /// Whether the last byte of the request has arrived, read or not.
    fn is_whole(&self) -> bool;

    /// The upstream has switched protocols: all later bytes belong to the new protocol.
    fn switch(&mut self);

    /// Ready when the client has disconnected. Registers the task to be woken.
    fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<()>;

    /// Ready at `deadline`. The task may be woken earlier.
    fn poll_deadline(&mut self, deadline: Instant, cx: &mut Context<'_>) -> Poll<()>;
}
