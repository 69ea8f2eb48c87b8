//! gRPC: a service that sends every message back, over HTTP/2 without TLS, and calls of it with many messages.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use bytes::Bytes;
use h2::server::SendResponse;
use h2::{RecvStream, SendStream};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::Target;

/// Uncompressed, and 64 bytes: the head of a message, before its bytes.
const MESSAGE_HEAD: [u8; 5] = [0, 0, 0, 0, 64];
const MESSAGE_BYTES: usize = MESSAGE_HEAD.len() + 64;

const CONTENT_TYPE: &str = "application/grpc";
const STATUS: &str = "grpc-status";

/// Flow-control windows of both sides: never what limits.
const WINDOW: u32 = 16 * 1024 * 1024;
/// The most calls of one connection.
const CALLS_MAX: u32 = 1_024;

/// The service. It answers every path.
pub(crate) async fn serve(port: u16) -> anyhow::Result<()> {
    let listener = TcpListener::bind(("127.0.0.1", port)).await?;
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        tokio::spawn(serve_connection(stream));
    }
}

async fn serve_connection(stream: TcpStream) -> anyhow::Result<()> {
    let mut connection = h2::server::Builder::new()
        .max_concurrent_streams(CALLS_MAX)
        .initial_window_size(WINDOW)
        .initial_connection_window_size(WINDOW)
        .handshake::<_, Bytes>(stream)
        .await?;
    while let Some(call) = connection.accept().await {
        let (request, respond) = call?;
        tokio::spawn(send_back(request.into_body(), respond));
    }
    Ok(())
}

async fn send_back(mut from: RecvStream, mut respond: SendResponse<Bytes>) -> anyhow::Result<()> {
    let head = Response::builder().header(http::header::CONTENT_TYPE, CONTENT_TYPE).body(())?;
    let mut to = respond.send_response(head, false)?;
    while let Some(piece) = from.data().await {
        let piece = piece?;
        from.flow_control().release_capacity(piece.len())?;
        // An empty frame only ends a request; some proxies count them as a flood.
        if !piece.is_empty() {
            to.send_data(piece, false)?;
        }
    }
    to.send_trailers(HeaderMap::from_iter([(STATUS.parse()?, HeaderValue::from_static("0"))]))?;
    Ok(())
}

/// Calls at once, each over a connection of its own with as many messages on their way. Without a second to spend, each
/// call has exactly those messages.
pub(crate) async fn call(target: Arc<Target>, calls: usize, in_flight: usize, seconds: u64) -> anyhow::Result<()> {
    let until = Instant::now() + Duration::from_secs(seconds);
    let mut tasks = JoinSet::new();
    for _ in 0..calls {
        let target = target.clone();
        tasks.spawn(async move { one_call(&target, in_flight, until).await });
    }
    let mut count = 0;
    while let Some(task) = tasks.join_next().await {
        count += task??;
    }
    println!(r#"{{"messages": {count}}}"#);
    Ok(())
}

/// Messages that came back.
async fn one_call(target: &Target, in_flight: usize, until: Instant) -> anyhow::Result<usize> {
    let stream = target.connect().await?;
    let (client, connection) = h2::client::Builder::new()
        .initial_window_size(WINDOW)
        .initial_connection_window_size(WINDOW)
        .handshake::<_, Bytes>(stream)
        .await?;
    tokio::spawn(connection);
    let request = Request::post(format!("https://{}/bench.Echo/Stream", target.name))
        .header(http::header::CONTENT_TYPE, CONTENT_TYPE)
        .header(http::header::TE, "trailers")
        .body(())?;
    let (response, mut to) = client.ready().await?.send_request(request, false)?;
    send(&mut to, in_flight)?;
    let mut sent = in_flight;
    let response = response.await?;
    anyhow::ensure!(response.status() == StatusCode::OK, "{response:?}");
    let mut from = response.into_body();
    let (mut bytes, mut is_ended) = (0, false);
    while let Some(piece) = from.data().await {
        let piece = piece?;
        from.flow_control().release_capacity(piece.len())?;
        bytes += piece.len();
        if is_ended {
            continue;
        }
        if Instant::now() < until {
            let more = in_flight - (sent - bytes / MESSAGE_BYTES);
            send(&mut to, more)?;
            sent += more;
        } else {
            to.send_data(Bytes::new(), true)?;
            is_ended = true;
        }
    }
    let trailers = from.trailers().await?.context("a response without trailers")?;
    anyhow::ensure!(trailers.get(STATUS).is_some_and(|status| status == "0"), "{trailers:?}");
    anyhow::ensure!(bytes == sent * MESSAGE_BYTES, "{bytes} bytes of {sent} messages came back");
    Ok(sent)
}

fn send(to: &mut SendStream<Bytes>, messages: usize) -> Result<(), h2::Error> {
    const MESSAGE: [u8; MESSAGE_BYTES] = {
        let mut message = [b'x'; MESSAGE_BYTES];
        let (head, _) = message.split_at_mut(MESSAGE_HEAD.len());
        head.copy_from_slice(&MESSAGE_HEAD);
        message
    };
    // A frame for each, as libraries of gRPC send them.
    (0..messages).try_for_each(|_| to.send_data(Bytes::from_static(&MESSAGE), false))
}
