//! The client's side of a request, whichever protocol it speaks.

pub(crate) mod http1;
pub(crate) mod http2;

use std::borrow::Cow;
use std::future::Future;
use std::task::{Context, Poll};

use bytes::BytesMut;
use http::HeaderMap;
use tokio::time::Instant;

use crate::decorate::ResponseSink;
use contract::rejection::Rejection;

/// A client that waits for the response to a request, and may have to say more of it.
pub(crate) trait Downstream: Send {
    /// The head of a response as the client's protocol has it.
    type Head: ResponseSink;

    /// Whether clients of the protocol take trailers without having said so (`TE: trailers`).
    const TAKES_TRAILERS: bool;

    /// A head without anything.
    fn head(&self) -> Self::Head;

    /// Whether the client has asked to speak another protocol from here on, in a way that its own has.
    fn may_switch(&self) -> bool;

    /// The connection ends with the response, where it is the request's own.
    fn ends(&mut self);

    /// Sends an interim response, where the protocol has a way.
    fn interim(&mut self, head: Self::Head) -> impl Future<Output = pingora::Result<()>> + Send;

    /// Switches protocols: what the client sends from here on is the upstream's, and comes from [`Self::poll_body`].
    fn switch(&mut self, head: Self::Head) -> impl Future<Output = pingora::Result<()>> + Send;

    /// Begins the final response. `ends` when it has no body, `chunked` when it was said to come in chunks.
    fn begin(
        &mut self,
        head: Self::Head,
        ends: bool,
        chunked: bool,
    ) -> impl Future<Output = pingora::Result<()>> + Send;

    /// Hands on so many bytes at the start of `from`, which are then gone; `left` says how many are left to be. `last` when
    /// the body ends with them.
    fn poll_data(
        &mut self,
        from: &mut BytesMut,
        left: &mut usize,
        last: bool,
        cx: &mut Context<'_>,
    ) -> Poll<pingora::Result<()>>;

    /// Sees everything on its way.
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<pingora::Result<()>>;

    /// Ends the response, with trailers where there are any and the client takes them.
    fn end(&mut self, trailers: Option<HeaderMap>) -> impl Future<Output = pingora::Result<()>> + Send;

    /// Sends a whole response of the gateway itself.
    fn answer(&mut self, head: Self::Head, body: Cow<'static, str>)
    -> impl Future<Output = pingora::Result<()>> + Send;

    /// Puts some more of the request's body behind what is there; zero at its end. An error when it does not come at its
    /// pace.
    fn poll_body(&mut self, into: &mut BytesMut, cx: &mut Context<'_>) -> Poll<pingora::Result<usize>>;

    /// The trailers of the request's body, once it has ended.
    fn poll_trailers(&mut self, cx: &mut Context<'_>) -> Poll<pingora::Result<Option<HeaderMap>>>;

    /// Why the last piece of the body was refused, where it was for its form.
    fn refusal(&self) -> Option<Rejection>;

    /// Bytes of the request's body that came so far.
    fn body_bytes(&self) -> u64;

    /// Ready when the client has left. Registers the task to be woken.
    fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<()>;

    /// Ready at `deadline`. The task may be woken before.
    fn poll_deadline(&mut self, deadline: Instant, cx: &mut Context<'_>) -> Poll<()>;
}
