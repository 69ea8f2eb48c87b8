//! The client's side of a request, for either version of HTTP.

mod grpc_web;
pub(crate) mod http1;
pub(crate) mod http2;

use std::borrow::Cow;
use std::future::Future;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::BytesMut;
use http::HeaderMap;
use tokio::time::Instant;

use crate::decorate::ResponseSink;
use contract::rejection::Rejection;

/// How long the bytes before the end of a response that breaks off may take to leave.
const BREAK_OFF_MAX: Duration = Duration::from_millis(20);

/// A client that waits for the response to a request, and may still be sending its body.
pub(crate) trait Downstream: Send {
    /// The head of a response in the client's version.
    type Head: ResponseSink;

    /// Whether clients accept trailers without `TE: trailers`.
    const TAKES_TRAILERS: bool;

    /// An empty head.
    fn head(&self) -> Self::Head;

    /// Whether a response that has begun can end with the status of a gRPC call.
    fn may_end_call(&self) -> bool {
        true
    }

    /// Whether the client may switch to another protocol.
    fn may_switch(&self) -> bool;

    /// Whether a response with a status of success begins a WebSocket: the request is a CONNECT (RFC 8441).
    fn is_tunnel(&self) -> bool {
        false
    }

    /// Closes the connection after the response if it carries one request at a time (HTTP/1).
    fn close_after_response(&mut self);

    /// Sends an interim response, if the version has them.
    fn interim(&mut self, head: Self::Head) -> impl Future<Output = pingora::Result<()>> + Send;

    /// Switches protocols: from here on [`Self::poll_body`] returns the bytes of the other protocol.
    fn switch(&mut self, head: Self::Head) -> impl Future<Output = pingora::Result<()>> + Send;

    /// Begins the final response. `ends` if it has no body, `chunked` if the length of the body is unknown.
    fn begin(
        &mut self,
        head: Self::Head,
        ends: bool,
        chunked: bool,
    ) -> impl Future<Output = pingora::Result<()>> + Send;

    /// Writes the first `left` bytes of `from`, removes them and counts `left` down. `last` if the body ends with them.
    fn poll_data(
        &mut self,
        from: &mut BytesMut,
        left: &mut usize,
        last: bool,
        cx: &mut Context<'_>,
    ) -> Poll<pingora::Result<()>>;

    /// Flushes everything that was written.
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<pingora::Result<()>>;

    /// Ends the response, with these trailers if the client accepts trailers.
    fn end(&mut self, trailers: Option<HeaderMap>) -> impl Future<Output = pingora::Result<()>> + Send;

    /// The response ends early: sends the written bytes first, so that the client gets them before the error.
    fn break_off(&mut self) -> impl Future<Output = ()> + Send;

    /// Sends a complete response of the gateway.
    fn answer(&mut self, head: Self::Head, body: Cow<'static, str>)
    -> impl Future<Output = pingora::Result<()>> + Send;

    /// Appends more of the request's body to `into` and returns the number of bytes; zero at its end. An error if the
    /// client is slower than the minimum rate.
    fn poll_body(&mut self, into: &mut BytesMut, cx: &mut Context<'_>) -> Poll<pingora::Result<usize>>;

    /// The trailers of the request's body, once it has ended.
    fn poll_trailers(&mut self, cx: &mut Context<'_>) -> Poll<pingora::Result<Option<HeaderMap>>>;

    /// Why the body was refused, if it was malformed.
    fn refusal(&self) -> Option<Rejection>;

    /// Bytes of the request's body so far.
    fn body_bytes(&self) -> u64;

    /// Ready when the client has left; wakes the task then.
    fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<()>;

    /// Ready at `deadline`. The task may be woken earlier.
    fn poll_deadline(&mut self, deadline: Instant, cx: &mut Context<'_>) -> Poll<()>;
}
