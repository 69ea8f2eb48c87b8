//! HTTP/1 connections: one request after the other, by [`Direct`] where it can, by the proxy library where it must.
//!
//! The library serves one request at a time and hands the stream back, so between two requests the connection is ours.
//! While it rests nothing of the library lives, which is most of what an idle connection would cost.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use async_trait::async_trait;
use pingora::apps::HttpServerApp;
use pingora::protocols::Stream;
use pingora::protocols::http::ServerSession;
use pingora::server::ShutdownWatch;
use tokio::io::{AsyncWrite, AsyncWriteExt as _};
use tokio::time::Instant;

use super::head::Head;
use super::stream::{EdgeStream, Transport};
use super::{Connection, H2Request};

/// Whoever serves requests by itself: those of HTTP/1 without a body, and all of HTTP/2.
#[async_trait]
pub trait Direct: Send + Sync + 'static {
    /// Serves the request whose head waits at `client`, or leaves it to the proxy.
    async fn serve(&self, client: &mut dyn Client) -> Served;

    /// Serves a request over HTTP/2. Whether it was one: `false` when it was refused for its form.
    async fn serve_stream(&self, request: H2Request, connection: &Arc<Connection>) -> bool;
}

/// How a request was served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Served {
    /// Not at all, and nothing of it was taken: the proxy serves it.
    Passed,
    /// To the last byte, and the connection goes on.
    Whole,
    /// To the last byte, and the connection ends, as the response says.
    Last,
    /// The response broke off: the connection ends with what was written of it.
    Cut,
}

/// A client that waits for the response to a request. What is written is its response; a flush sends it.
pub trait Client: AsyncWrite + Unpin + Send {
    /// What is known about the connection.
    fn connection(&self) -> &Arc<Connection>;

    /// The head that waits, from the request line to the blank line, and what it says; `None` where a body follows.
    fn bare_head(&self) -> Option<(&[u8], Head)>;

    /// The waiting head was read.
    fn take_head(&mut self);

    /// Ready when the client has left. Registers the task to be woken.
    fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<()>;

    /// Ready at `deadline`. The task may be woken before.
    fn poll_deadline(&mut self, deadline: Instant, cx: &mut Context<'_>) -> Poll<()>;
}

/// The stream of a door over this transport; `None` when it is none.
pub(super) fn own<S: Transport>(stream: Stream) -> Option<Box<EdgeStream<S>>> {
    stream.into_any().downcast().ok()
}

/// Serves a connection to its last request.
pub(super) async fn serve<S: Transport, P: HttpServerApp + Send + Sync>(
    mut stream: Box<EdgeStream<S>>,
    direct: &dyn Direct,
    proxy: &Arc<P>,
    shutdown: &ShutdownWatch,
) {
    let mut stop = shutdown.clone();
    let mut stopped = pin!(async move {
        // A sender that is gone means the end as well.
        let _ = stop.wait_for(|stop| *stop).await;
    });
    let mut stops = false;
    loop {
        let came = poll_fn(|cx| match stream.poll_request(cx) {
            Poll::Pending if !stops && stopped.as_mut().poll(cx).is_ready() => {
                stops = true;
                if stream.is_resting() { Poll::Ready(false) } else { stream.poll_request(cx) }
            }
            Poll::Pending if stops && stream.is_resting() => Poll::Ready(false),
            polled => polled,
        });
        if !came.await {
            return;
        }
        match direct.serve(&mut *stream).await {
            Served::Whole => {}
            Served::Cut => return,
            Served::Last => {
                // Whoever does not take the end keeps to the pace of writes, or is cut off.
                let _ = stream.shutdown().await;
                return;
            }
            Served::Passed => {
                let session = ServerSession::new_http1(stream as Stream);
                let Some(reused) = proxy.process_new_http(session, shutdown).await else { return };
                let (back, _) = reused.consume();
                let Some(back) = own(back) else { return };
                stream = back;
            }
        }
    }
}
