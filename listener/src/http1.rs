//! HTTP/1 connections: one request after the other.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use async_trait::async_trait;
use pingora::server::ShutdownWatch;
use tokio::io::AsyncWriteExt as _;

use super::client::Client;
use super::stream::{EdgeStream, Transport};
use super::{Connection, H2Request};
use contract::rejection::Rejection;

/// Whoever serves requests.
#[async_trait]
pub trait Handler: Send + Sync + 'static {
    /// Serves the request whose head waits at `client`.
    async fn serve(&self, client: &mut dyn Client) -> Served;

    /// Serves a request over HTTP/2. Whether it was one: `false` when it was refused for its form.
    async fn serve_stream(&self, request: H2Request, connection: &Arc<Connection>) -> bool;
}

/// How a request was served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Served {
    /// To the last byte, and the connection goes on.
    Whole,
    /// To the last byte, and the connection ends, as the response says.
    Last,
    /// The response broke off: the connection ends with what was written of it.
    Cut,
    /// Not at all: it is no request of a kind that there is, and the door answers.
    Refused(Rejection),
}

/// Serves a connection to its last request.
pub(super) async fn serve<S: Transport>(
    mut stream: Box<EdgeStream<S>>,
    handler: &dyn Handler,
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
        match handler.serve(&mut *stream).await {
            Served::Whole => {}
            Served::Cut => return,
            Served::Last => {
                // Whoever does not take the end keeps to the pace of writes, or is cut off.
                let _ = stream.shutdown().await;
                return;
            }
            Served::Refused(rejection) => return stream.refuse(rejection),
        }
    }
}
