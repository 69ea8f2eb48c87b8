//! HTTP/1 connections: serves one request after the other.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

use pingora::server::ShutdownWatch;
use tokio::io::AsyncWriteExt as _;

use super::stream::{ByteStream, ClientStream};
use super::{Handler, ServeOutcome};

/// Serves a connection until it ends.
pub(super) async fn serve<S: ByteStream>(
    mut stream: Box<ClientStream<S>>,
    handler: &dyn Handler,
    shutdown: &ShutdownWatch,
) {
    let mut stop = shutdown.clone();
    let mut stopped = pin!(async move {
        // A dropped sender means the end as well.
        let _ = stop.wait_for(|stop| *stop).await;
    });
    let mut stops = false;
    loop {
        let has_request = poll_fn(|cx| match stream.poll_request(cx) {
            Poll::Pending if !stops && stopped.as_mut().poll(cx).is_ready() => {
                stops = true;
                if stream.is_idle() { Poll::Ready(false) } else { stream.poll_request(cx) }
            }
            Poll::Pending if stops && stream.is_idle() => Poll::Ready(false),
            polled => polled,
        });
        if !has_request.await {
            return;
        }
        match handler.serve_http1(&mut *stream).await {
            ServeOutcome::Whole => {}
            ServeOutcome::Cut => return,
            ServeOutcome::Last => {
                // A client that does not read the end is cut off by the minimum rate of writes.
                let _ = stream.shutdown().await;
                return;
            }
            ServeOutcome::Refused(rejection) => return stream.refuse(rejection),
        }
    }
}
