//! A client that waits for the response to its request, as whoever serves requests of HTTP/1 sees it.

use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::BytesMut;
use tokio::io::AsyncWrite;
use tokio::time::Instant;

use crate::connection::Connection;
use crate::head::Head;
use contract::rejection::Rejection;

/// Why a body does not go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// What came is no part of a body, or nothing came in time.
    Refused(Rejection),
    /// The client has left in the middle of it.
    Gone,
}

/// A client that waits for the response to a request. What is written is its response; a flush sends it.
pub trait Client: AsyncWrite + Unpin + Send {
    /// What is known about the connection.
    fn connection(&self) -> &Arc<Connection>;

    /// The head that waits, from the request line to the blank line, and what it says.
    fn head(&self) -> Option<(&[u8], Head)>;

    /// The waiting head was read.
    fn take_head(&mut self);

    /// Puts some more of the request's body behind what is there, without its framing; zero at its end. After
    /// [`Self::switch`], whatever the client sends, to the end of the connection.
    fn poll_body(&mut self, into: &mut BytesMut, cx: &mut Context<'_>) -> Poll<Result<usize, Broken>>;

    /// Whether the request has come to its last byte, read or not.
    fn is_whole(&self) -> bool;

    /// The upstream has switched protocols: everything from here on belongs to it.
    fn switch(&mut self);

    /// Ready when the client has left. Registers the task to be woken.
    fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<()>;

    /// Ready at `deadline`. The task may be woken before.
    fn poll_deadline(&mut self, deadline: Instant, cx: &mut Context<'_>) -> Poll<()>;
}
