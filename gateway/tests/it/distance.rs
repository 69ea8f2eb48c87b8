//! Distant clients: flow-control windows grow with the round-trip time.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use crate::world::client::handshake;
use crate::world::{BLOG, World, certificates, h2, within};

/// One way to the other side of the world.
const DELAY: Duration = Duration::from_millis(100);

/// A relay to this address with a fixed delay, whatever the amount of data.
async fn far_away(to: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((here, _)) = listener.accept().await {
            let there = TcpStream::connect(to).await.unwrap();
            let (here, there) = (here.into_split(), there.into_split());
            tokio::spawn(late(here.0, there.1));
            tokio::spawn(late(there.0, here.1));
        }
    });
    address
}

async fn late(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin + Send + 'static) {
    let (pass, mut passed) = mpsc::channel::<(Instant, Vec<u8>)>(8 * 1024);
    tokio::spawn(async move {
        while let Some((due, piece)) = passed.recv().await {
            sleep_until(due).await;
            if to.write_all(&piece).await.is_err() {
                return;
            }
        }
        let _ = to.shutdown().await;
    });
    let mut room = vec![0; 64 * 1024];
    while let Ok(bytes @ 1..) = from.read(&mut room).await {
        if pass.send((Instant::now() + DELAY, room[..bytes].to_vec())).await.is_err() {
            return;
        }
    }
}

/// A client's window grows during its upload, far beyond its first size.
#[tokio::test]
async fn an_upload_from_far_away_gets_a_larger_window() {
    const ENOUGH: usize = 2 * 1024 * 1024;
    const SENT_MAX: usize = 80 * 1024 * 1024;
    let world = World::start().await;
    let address = far_away(world.https).await;
    let stream = handshake(address, Some(BLOG), certificates::client(&[b"h2"])).await.expect("a handshake");
    let mut options = ::h2::client::Builder::new();
    options.max_send_buffer_size(64 * 1024 * 1024);
    let (sender, connection) = within(options.handshake::<_, Bytes>(stream)).await.unwrap();
    tokio::spawn(connection);
    let mut sender = within(sender.ready()).await.unwrap();
    let request = http::Request::post(format!("https://{BLOG}/upload")).body(()).unwrap();
    let (response, mut body) = sender.send_request(request, false).unwrap();
    let (mut largest, mut sent, mut first) = (0, 0, None);
    while largest < ENOUGH && sent < SENT_MAX {
        body.reserve_capacity(SENT_MAX);
        let room = within(poll_fn(|cx| body.poll_capacity(cx))).await.expect("a stream").unwrap();
        first.get_or_insert(room);
        largest = largest.max(room);
        body.send_data(Bytes::from(vec![b'x'; room]), false).unwrap();
        sent += room;
    }
    body.send_data(Bytes::new(), true).unwrap();
    assert_eq!(within(h2::read(response)).await.status, 200);
    assert!(first.unwrap() <= 256 * 1024, "{first:?} bytes would be too many for every client");
    assert!(largest >= ENOUGH, "{largest} bytes at once after {sent}");
    assert_eq!(world.blog.only_request().body.len(), sent);
}
