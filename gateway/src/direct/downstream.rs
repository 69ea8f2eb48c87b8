//! The client's side of a request, whichever protocol it speaks.

use std::borrow::Cow;
use std::future::Future;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use tokio::time::Instant;

use crate::decorate::ResponseSink;

/// A client that waits for the response to a request, and may have to say more of it.
pub(super) trait Downstream: Send {
    /// The head of a response as the client's protocol has it.
    type Head: ResponseSink;

    /// A head without anything.
    fn head() -> Self::Head;

    /// Sends an interim response, where the protocol has a way.
    fn interim(&mut self, head: Self::Head) -> impl Future<Output = pingora::Result<()>> + Send;

    /// Begins the final response. `ends` when it has no body.
    fn begin(&mut self, head: Self::Head, ends: bool) -> impl Future<Output = pingora::Result<()>> + Send;

    /// Hands on so many bytes at the start of `from`, which are then gone. `chunked` where the response was said to come in
    /// chunks, `last` when the body ends with them.
    fn data(
        &mut self,
        from: &mut BytesMut,
        bytes: usize,
        chunked: bool,
        last: bool,
    ) -> impl Future<Output = pingora::Result<()>> + Send;

    /// Sees everything on its way.
    fn flush(&mut self) -> impl Future<Output = pingora::Result<()>> + Send;

    /// Ends the response.
    fn end(&mut self, chunked: bool) -> impl Future<Output = pingora::Result<()>> + Send;

    /// Sends a whole response of the gateway itself.
    fn answer(&mut self, head: Self::Head, body: Cow<'static, str>)
    -> impl Future<Output = pingora::Result<()>> + Send;

    /// Some more of the request's body, never nothing; `None` at its end. An error when it does not come at its pace.
    fn poll_body(&mut self, cx: &mut Context<'_>) -> Poll<pingora::Result<Option<Bytes>>>;

    /// Bytes of the request's body that came so far.
    fn body_bytes(&self) -> u64;

    /// Ready when the client has left. Registers the task to be woken.
    fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<()>;

    /// Ready at `deadline`. The task may be woken before.
    fn poll_deadline(&mut self, deadline: Instant, cx: &mut Context<'_>) -> Poll<()>;
}
