//! Slow clients, with a clock that advances when every task waits.

use std::io::ErrorKind;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::time::{Instant, sleep};

use super::rig::{GET, POST_CHUNKED, Rig, read, rig, rig_with};
use crate::{Client as _, ConnectionEvent, ListenerSettings};
use contract::rejection::Rejection;

const POST_1000: &str = "POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 1000\r\n\r\n";

/// The result of the next read, and the seconds it took.
async fn next_read(rig: &mut Rig) -> (u64, Result<String, ErrorKind>) {
    let start = Instant::now();
    let read = rig.read().await;
    (start.elapsed().as_secs(), read.map_err(|error| error.kind()))
}

fn end_after(seconds: u64) -> (u64, Result<String, ErrorKind>) {
    (seconds, Ok(String::new()))
}

/// Sends `text` byte by byte with a pause before each, until a write fails; then reads the answer.
async fn drip(mut client: DuplexStream, text: String, pause: Duration) -> String {
    for byte in text.into_bytes() {
        sleep(pause).await;
        if client.write_all(&[byte]).await.is_err() {
            break;
        }
    }
    let mut received = String::new();
    client.read_to_string(&mut received).await.unwrap();
    received
}

// promise: edge.26
#[tokio::test(start_paused = true)]
async fn a_head_that_drips_is_408_when_its_time_is_over() {
    let rig = rig();
    let head = format!("GET / HTTP/1.1\r\nHost: a.example\r\nX: {}\r\n\r\n", "y".repeat(100));
    let client = tokio::spawn(drip(rig.client, head, Duration::from_millis(900)));
    let (mut stream, start) = (rig.stream, Instant::now());
    assert_eq!(read(&mut stream).await.unwrap(), "");
    assert_eq!(start.elapsed().as_secs(), 10);
    drop(stream);
    let received = client.await.unwrap();
    assert!(received.starts_with("HTTP/1.1 408 Request Timeout\r\n"), "{received}");
    assert!(received.ends_with(&Rejection::RequestTimeout.body().to_json()), "{received}");
    assert_eq!(*rig.hooks.refusals.lock(), [(Rejection::RequestTimeout, "GET / HTTP/".to_owned())]);
}

#[tokio::test(start_paused = true)]
async fn a_connection_without_a_byte_is_closed_without_an_answer() {
    let mut rig = rig();
    assert_eq!(next_read(&mut rig).await, end_after(10));
    assert!(rig.hooks.refused().is_empty());
    assert_eq!(rig.hooks.count(ConnectionEvent::Idle), 1);
    drop(rig.stream);
    assert_eq!(rig.connections.live(), 0, "there is nothing to linger for");
    assert_eq!(rig.client.read(&mut [0; 1]).await.unwrap(), 0);
}

#[tokio::test(start_paused = true)]
async fn between_requests_a_client_may_rest_and_then_has_the_time_of_a_head() {
    let mut rig = rig();
    rig.send(GET).await;
    rig.read().await.unwrap();
    rig.respond("").await;
    assert_eq!(next_read(&mut rig).await, end_after(75));

    let mut rig = super::rig::rig();
    rig.send(GET).await;
    rig.read().await.unwrap();
    rig.respond("").await;
    let (mut stream, mut client, start) = (rig.stream, rig.client, Instant::now());
    let slow = tokio::spawn(async move {
        sleep(Duration::from_mins(1)).await;
        client.write_all(b"GET").await.unwrap();
        client
    });
    assert_eq!(read(&mut stream).await.unwrap(), "");
    assert_eq!(start.elapsed().as_secs(), 70);
    assert_eq!(rig.hooks.refused(), [Rejection::RequestTimeout]);
    drop(slow.await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn under_pressure_a_client_rests_shorter() {
    let mut rig = rig_with(ListenerSettings { connections: 1, ..ListenerSettings::default() }, None, 1_024);
    rig.send(GET).await;
    rig.read().await.unwrap();
    rig.respond("").await;
    assert_eq!(next_read(&mut rig).await, end_after(5));
}

// promise: edge.26
#[tokio::test(start_paused = true)]
async fn a_body_that_stops_or_drips_fails_and_the_handler_answers_408() {
    for (head, body) in [(POST_1000, "0".repeat(60)), (POST_CHUNKED, format!("3e8\r\n{}", "0".repeat(60)))] {
        let seconds = 40;
        let mut rig = rig();
        rig.send(head).await;
        assert_eq!(rig.read().await.unwrap(), head);
        rig.connection.request_seen();
        assert_eq!(next_read(&mut rig).await, (40, Err(ErrorKind::TimedOut)), "nothing came");
        assert!(rig.hooks.refused().is_empty());

        let mut rig = super::rig::rig();
        rig.send(head).await;
        rig.read().await.unwrap();
        rig.connection.request_seen();
        let (mut stream, client, start) = (rig.stream, rig.client, Instant::now());
        let dripping = tokio::spawn(drip(client, body, Duration::from_secs(1)));
        let error = loop {
            match read(&mut stream).await {
                Ok(piece) => assert_eq!(piece, "0"),
                Err(error) => break error,
            }
        };
        assert_eq!((error.kind(), start.elapsed().as_secs()), (ErrorKind::TimedOut, seconds));
        drop(stream);
        assert_eq!(dripping.await.unwrap(), "");
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_at_the_minimum_rate_may_take_its_time() {
    let mut rig = rig();
    rig.send("POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 60000\r\n\r\n").await;
    rig.read().await.unwrap();
    rig.connection.request_seen();
    let (mut client, mut stream) = (rig.client, rig.stream);
    let steady = tokio::spawn(async move {
        for _ in 0..120 {
            sleep(Duration::from_secs(1)).await;
            client.write_all(&[b'0'; 500]).await.unwrap();
        }
        client
    });
    let mut total = 0;
    while total < 60_000 {
        total += read(&mut stream).await.unwrap().len();
    }
    drop(steady.await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_large_body_at_the_minimum_rate_is_cut_after_minutes_and_not_after_days() {
    let mut rig = rig();
    rig.send("POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 104857600\r\n\r\n").await;
    rig.read().await.unwrap();
    rig.connection.request_seen();
    let (mut client, mut stream, start) = (rig.client, rig.stream, Instant::now());
    let steady = tokio::spawn(async move {
        while client.write_all(&[b'0'; 600]).await.is_ok() {
            sleep(Duration::from_secs(1)).await;
        }
    });
    let error = loop {
        match read(&mut stream).await {
            Ok(piece) => assert_ne!(piece, ""),
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    // Two minutes, and the time that 600 bytes a second earn.
    assert!((120..=135).contains(&start.elapsed().as_secs()), "{:?}", start.elapsed());
    drop(stream);
    steady.await.unwrap();
}

/// A client that was answered in the middle of its body keeps sending, `piece` bytes every second. Returns for how many
/// seconds it is read.
async fn read_on(settings: ListenerSettings, seconds: u64, piece: usize) -> u64 {
    let mut rig = rig_with(settings, None, 1 << 20);
    rig.send("POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 100000000\r\n\r\n").await;
    rig.read().await.unwrap();
    rig.connection.request_seen();
    rig.stream.write_all(b"HTTP/1.1 413 Too Large\r\n\r\n").await.unwrap();
    let (connections, mut client, start) = (rig.connections, rig.client, Instant::now());
    drop(rig.stream);
    let sending = tokio::spawn(async move {
        for _ in 0..seconds {
            if client.write_all(&vec![b'0'; piece]).await.is_err() {
                break;
            }
            sleep(Duration::from_secs(1)).await;
        }
        let mut received = String::new();
        client.read_to_string(&mut received).await.unwrap();
        assert_eq!(received, "HTTP/1.1 413 Too Large\r\n\r\n");
    });
    connections.wait_until_closed().await;
    sending.await.unwrap();
    start.elapsed().as_secs()
}

#[tokio::test(start_paused = true)]
async fn a_client_that_keeps_sending_gets_its_early_answer() {
    let settings = ListenerSettings { linger_bytes_long: 4 * 1024 * 1024, ..ListenerSettings::default() };
    assert_eq!(read_on(settings.clone(), 10, 100_000).await, 10, "while it sends");
    assert!((30..=31).contains(&read_on(settings.clone(), 100, 1_000).await), "and no longer than 30 seconds");
    assert!((4..=6).contains(&read_on(settings.clone(), 10, 1_000_000).await), "more than 4 MiB are too many");
    // Without a budget for long lingering, it has two seconds.
    let settings = ListenerSettings { lingering_per_address: 0, ..settings };
    assert!(read_on(settings, 3, 1_000).await <= 3);
}

#[tokio::test(start_paused = true)]
async fn a_body_that_is_not_read_is_not_slow() {
    let mut rig = rig();
    rig.send(POST_1000).await;
    rig.read().await.unwrap();
    rig.connection.request_seen();
    rig.send("0".repeat(500)).await;
    sleep(Duration::from_mins(10)).await;
    assert_eq!(rig.read().await.unwrap().len(), 500);
    sleep(Duration::from_mins(10)).await;
    rig.send("0".repeat(500)).await;
    assert_eq!(rig.read().await.unwrap().len(), 500);
}

#[tokio::test(start_paused = true)]
async fn every_body_has_its_own_allowance() {
    let mut rig = rig();
    for _ in 0..3 {
        rig.send(POST_1000).await;
        rig.read().await.unwrap();
        rig.connection.request_seen();
        let (mut client, mut stream) = (rig.client, rig.stream);
        let slow = tokio::spawn(async move {
            sleep(Duration::from_secs(4)).await;
            client.write_all(&[b'0'; 1_000]).await.unwrap();
            client
        });
        assert_eq!(read(&mut stream).await.unwrap().len(), 1_000);
        rig.connection.request_done();
        stream.next();
        (rig.client, rig.stream) = (slow.await.unwrap(), stream);
    }
}

#[tokio::test(start_paused = true)]
async fn a_websocket_may_be_silent() {
    let mut rig = rig();
    rig.send("GET / HTTP/1.1\r\nHost: a.example\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n").await;
    rig.read().await.unwrap();
    rig.connection.request_seen();
    rig.stream.switch();
    let day = tokio::time::timeout(Duration::from_hours(24), rig.read()).await;
    assert!(day.is_err(), "nothing ends it");
}

// promise: edge.26
#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_read_its_response_is_disconnected() {
    let mut rig = rig_with(ListenerSettings::default(), None, 1_024);
    rig.send(GET).await;
    rig.read().await.unwrap();
    rig.connection.request_seen();
    let start = Instant::now();
    let written = rig.stream.write_all(&vec![b'x'; 100_000]).await;
    assert_eq!((written.unwrap_err().kind(), start.elapsed().as_secs()), (ErrorKind::TimedOut, 60));
    assert_eq!(rig.hooks.count(ConnectionEvent::Stalled), 1);
    let connections = rig.connections;
    drop(rig.stream);
    assert_eq!(connections.live(), 0, "it does not linger");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_reads_fast_enough_gets_its_whole_response() {
    let mut rig = rig_with(ListenerSettings::default(), None, 600);
    rig.send(GET).await;
    rig.read().await.unwrap();
    rig.connection.request_seen();
    let (mut client, mut stream) = (rig.client, rig.stream);
    let reading = tokio::spawn(async move {
        let mut total = 0;
        let mut buffer = [0; 600];
        while let Ok(bytes @ 1..) = client.read(&mut buffer).await {
            total += bytes;
            sleep(Duration::from_secs(1)).await;
        }
        total
    });
    stream.write_all(&vec![b'x'; 60_000]).await.unwrap();
    stream.shutdown().await.unwrap();
    drop(stream);
    assert_eq!(reading.await.unwrap(), 60_000);
}

#[tokio::test(start_paused = true)]
async fn a_refused_client_that_keeps_sending_is_read_for_two_seconds_only() {
    let mut rig = rig();
    rig.send("nonsense\r\n").await;
    rig.read().await.unwrap();
    let (connections, mut client, start) = (rig.connections, rig.client, Instant::now());
    drop(rig.stream);
    let sending = tokio::spawn(async move {
        while client.write_all(&[b'x'; 10]).await.is_ok() {
            sleep(Duration::from_millis(100)).await;
        }
    });
    connections.wait_until_closed().await;
    assert_eq!(start.elapsed().as_secs(), 2);
    sending.await.unwrap();
}
