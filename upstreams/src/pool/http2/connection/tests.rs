use tokio::io::{AsyncReadExt as _, DuplexStream, duplex};

use super::*;

/// A connection to a peer that speaks HTTP/2 for this time and then falls silent.
async fn connected(lives: Duration) -> (SendRequest<Bytes>, Arc<ReadMonitor>, tokio::task::JoinHandle<()>) {
    let (here, there) = duplex(1 << 20);
    tokio::spawn(serve(there, lives));
    let monitor = Arc::new(ReadMonitor::new());
    let (sender, connection, pings) = handshake(here, monitor.clone()).await.unwrap();
    let (states, state) = watch::channel(State::Opening);
    let shared = monitor.clone();
    let driven = tokio::spawn(async move {
        drive(connection, pings, &shared, &states).await;
        drop(state);
    });
    (sender, monitor, driven)
}

async fn serve(stream: DuplexStream, lives: Duration) {
    let mut connection = h2::server::handshake(stream).await.unwrap();
    let mut held = Vec::new();
    let _ = timeout(lives, async {
        while let Some(Ok(asked)) = connection.accept().await {
            held.push(asked);
        }
    })
    .await;
    // It neither reads nor closes.
    std::future::pending::<()>().await;
}

/// How long a request that is sent after this idle time waits until the peer is known to be dead.
async fn given_up_after(lives: Duration, rest: Duration) -> Duration {
    let (mut sender, monitor, driven) = connected(lives).await;
    monitor.response_received();
    sleep(rest).await;
    let began = Instant::now();
    let (response, _) = sender.send_request(http::Request::new(()), true).unwrap();
    monitor.request_sent();
    let error = response.await.unwrap_err();
    assert!(error.is_io(), "{error}");
    driven.await.unwrap();
    assert_eq!(monitor.reason().unwrap(), "it did not answer a PING within 8 s");
    began.elapsed()
}

#[tokio::test(start_paused = true)]
async fn an_unanswered_request_soon_triggers_a_ping() {
    assert_eq!(given_up_after(Duration::from_millis(100), Duration::ZERO).await.as_millis(), 125 + 8_000);
}

/// The PING of 20 s is answered, and the next one without a request would come a minute later.
#[tokio::test(start_paused = true)]
async fn a_request_after_silence_triggers_a_ping_at_once() {
    assert_eq!(given_up_after(Duration::from_secs(25), Duration::from_secs(30)).await.as_secs(), 8);
}

#[tokio::test(start_paused = true)]
async fn a_silent_peer_that_answers_gets_few_pings() {
    let asked = given_up_after(Duration::from_mins(10), Duration::ZERO).await.as_secs();
    // At once, a minute later, and then every 310 s: the one at 680 s is not answered.
    assert_eq!(asked, 60 + 310 + 310 + 8);
}

#[tokio::test]
async fn a_peer_without_http2_is_refused() {
    let (here, mut there) = duplex(1 << 10);
    let answering = tokio::spawn(async move {
        let mut preface = [0; 24];
        there.read_exact(&mut preface).await.unwrap();
        tokio::io::AsyncWriteExt::write_all(&mut there, b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
        there
    });
    let error = handshake(here, Arc::new(ReadMonitor::new())).await.map(|_| ()).unwrap_err();
    assert_eq!(
        (error.kind, error.reason.as_deref()),
        (DialFailure::Protocol, Some("it does not speak HTTP/2 on this port"))
    );
    answering.await.unwrap();
}
