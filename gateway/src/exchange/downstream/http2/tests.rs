//! Slow clients, by a clock that advances when all tasks wait.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::*;
use listener::Addresses;

const IMAGE_BYTES: usize = 100_000;

fn connection() -> Arc<Connection> {
    let address = "192.0.2.1:1".parse().unwrap();
    Arc::new(Connection::unattached(Addresses { client: address, peer: address, local: address }))
}

/// No pause between two pieces is too long, but the rate is too low.
// promise: edge.26
#[tokio::test(start_paused = true)]
async fn a_body_below_the_minimum_rate_is_refused() {
    let (here, there) = tokio::io::duplex(64 * 1024);
    let client = tokio::spawn(async move {
        let (mut sender, connection) = h2::client::handshake(there).await.unwrap();
        let driven = tokio::spawn(connection);
        let request = http::Request::post("https://a.example/").body(()).unwrap();
        let (_response, mut body) = sender.send_request(request, false).unwrap();
        while body.send_data("x".into(), false).is_ok() {
            sleep(Duration::from_secs(30)).await;
        }
        drop(driven.await);
    });
    let mut engine = h2::server::handshake(here).await.unwrap();
    let (request, respond) = engine.accept().await.unwrap().unwrap();
    let driven = tokio::spawn(async move { while engine.accept().await.is_some() {} });
    let mut stream = Http2Client::new(request.into_body(), respond, &connection());
    let error = loop {
        match poll_fn(|cx| stream.poll_piece(cx)).await {
            Ok(piece) => assert_eq!(piece.unwrap(), "x"),
            Err(error) => break error,
        }
    };
    assert_eq!((error.etype(), error.esource().as_str()), (&ErrorType::ReadTimedout, "Downstream"));
    assert_eq!(stream.body_bytes(), 2);
    driven.abort();
    client.abort();
}

/// Answers every request with an image; returns how many were read completely, and how many timed out.
async fn images(here: DuplexStream, requests: usize) -> (usize, usize) {
    let mut options = h2::server::Builder::new();
    options.max_send_buffer_size(64 * 1024);
    let mut engine = options.handshake(here).await.unwrap();
    let (connection, mut serving) = (connection(), JoinSet::new());
    for _ in 0..requests {
        let (request, respond) = engine.accept().await.unwrap().unwrap();
        let mut stream = Http2Client::new(request.into_body(), respond, &connection);
        serving.spawn(async move {
            stream.begin(stream.head(), false, false).await?;
            let (mut image, mut left) = (BytesMut::zeroed(IMAGE_BYTES), IMAGE_BYTES);
            poll_fn(|cx| stream.poll_data(&mut image, &mut left, true, cx)).await
        });
    }
    let driven = tokio::spawn(async move { while engine.accept().await.is_some() {} });
    let (mut whole, mut slow) = (0, 0);
    while let Some(served) = serving.join_next().await {
        match served.unwrap() {
            Ok(()) => whole += 1,
            Err(error) => {
                assert_eq!((error.etype(), error.esource().as_str()), (&ErrorType::WriteTimedout, "Downstream"));
                slow += 1;
            }
        }
    }
    // The h2 library still has to send its buffer.
    if slow > 0 {
        driven.abort();
    }
    drop(driven.await);
    (whole, slow)
}

/// Forwards bytes at this rate.
async fn thin(mut wide: DuplexStream, mut other: DuplexStream, bytes_per_second: u64) {
    let (mut from, mut to) = tokio::io::split(&mut wide);
    let (mut back, mut forth) = tokio::io::split(&mut other);
    let slowly = async {
        let mut piece = vec![0; 1_024];
        while let Ok(bytes @ 1..) = from.read(&mut piece).await {
            sleep(Duration::from_micros(1_000_000 * bytes as u64 / bytes_per_second)).await;
            if forth.write_all(&piece[..bytes]).await.is_err() {
                return;
            }
        }
    };
    let _ = tokio::join!(slowly, tokio::io::copy(&mut back, &mut to));
}

/// A browser that requests this number of images, with the flow-control windows of browsers.
async fn browser(there: DuplexStream, wanted: usize, window: u32) -> usize {
    let mut options = h2::client::Builder::new();
    options.initial_window_size(window).initial_connection_window_size(15 * 1024 * 1024);
    let (sender, connection) = options.handshake::<_, Bytes>(there).await.unwrap();
    tokio::spawn(connection);
    let mut coming = JoinSet::new();
    for _ in 0..wanted {
        let mut sender = sender.clone().ready().await.unwrap();
        let request = http::Request::get("https://a.example/image").body(()).unwrap();
        let (response, _) = sender.send_request(request, true).unwrap();
        coming.spawn(async move {
            let mut body = response.await.ok()?.into_body();
            let mut bytes = 0;
            while let Some(piece) = body.data().await {
                bytes += piece.as_ref().ok()?.len();
                body.flow_control().release_capacity(piece.ok()?.len()).ok()?;
            }
            Some(bytes)
        });
    }
    coming.join_all().await.into_iter().filter(|bytes| *bytes == Some(IMAGE_BYTES)).count()
}

/// Each image waits for minutes, longer than any allowed pause.
// promise: edge.26
#[tokio::test(start_paused = true)]
async fn a_hundred_images_arrive_over_a_slow_connection() {
    let ((here, wide), (narrow, there)) = (tokio::io::duplex(64 * 1024), tokio::io::duplex(1_024));
    tokio::spawn(thin(wide, narrow, 60_000));
    let asking = tokio::spawn(browser(there, 100, 6 * 1024 * 1024));
    assert_eq!(images(here, 100).await, (100, 0));
    assert_eq!(asking.await.unwrap(), 100);
}

/// All windows stay closed, or one of a hundred opens by a few bytes now and then.
// promise: edge.26
#[tokio::test(start_paused = true)]
async fn readers_below_the_minimum_rate_time_out() {
    let (here, there) = tokio::io::duplex(64 * 1024);
    let reader = tokio::spawn(async move {
        let mut options = h2::client::Builder::new();
        options.initial_window_size(500);
        let (sender, connection) = options.handshake::<_, Bytes>(there).await.unwrap();
        tokio::spawn(connection);
        let mut bodies = Vec::new();
        for _ in 0..100 {
            let mut sender = sender.clone().ready().await.unwrap();
            let request = http::Request::get("https://a.example/image").body(()).unwrap();
            let (response, _) = sender.send_request(request, true).unwrap();
            bodies.push(response.await.unwrap().into_body());
        }
        while let Some(Ok(piece)) = bodies[0].data().await {
            sleep(Duration::from_secs(1)).await;
            bodies[0].flow_control().release_capacity(piece.len()).unwrap();
        }
        bodies
    });
    let began = Instant::now();
    assert_eq!(images(here, 100).await, (0, 100));
    assert!((60..75).contains(&began.elapsed().as_secs()), "{:?}", began.elapsed());
    reader.abort();
}
