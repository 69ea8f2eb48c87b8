//! HTTP/1 connections, from the first request to the end.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::rig::{GET, POST_5, Rig, rig, rig_with};
use crate::connection::Connection;
use crate::fakes::FakeHooks;
use crate::{ConnectionEvent, ListenerSettings, http1};

const KNOWN: &str = "GET /known HTTP/1.1\r\nHost: a.example\r\n\r\n";
const LAST: &str = "GET /last HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n";
const ANSWER: &str = "HTTP/1.1 401 Unauthorized\r\nContent-Length: 2\r\n\r\nno";

/// A connection that is served: [`KNOWN`] and [`LAST`] are known.
struct Open {
    client: DuplexStream,
    connection: Arc<Connection>,
    hooks: Arc<FakeHooks>,
    drain: watch::Sender<bool>,
    serving: JoinHandle<()>,
}

fn open(rig: Rig) -> Open {
    let Rig { client, stream, connection, hooks, .. } = rig;
    for head in [KNOWN, LAST] {
        hooks.known.lock().insert(head.as_bytes().to_vec(), ANSWER.as_bytes().to_vec());
    }
    let (drain, draining) = watch::channel(false);
    let handler = Arc::clone(&hooks);
    let serving = tokio::spawn(async move { http1::serve(Box::new(stream), &*handler, &draining).await });
    Open { client, connection, hooks, drain, serving }
}

impl Open {
    async fn send(&mut self, text: &str) {
        self.client.write_all(text.as_bytes()).await.unwrap();
    }

    /// Reads until the received bytes end like this.
    async fn until(&mut self, end: &str) -> String {
        let mut seen = String::new();
        while !seen.ends_with(end) {
            seen.push(char::from(self.client.read_u8().await.unwrap()));
        }
        seen
    }

    /// Waits for the end of the connection; returns what was received before it.
    async fn rest(mut self) -> String {
        let mut rest = Vec::new();
        self.client.read_to_end(&mut rest).await.unwrap();
        self.serving.await.unwrap();
        String::from_utf8(rest).unwrap()
    }
}

#[tokio::test]
async fn requests_are_served_in_order() {
    let mut open = open(rig());
    open.send(&format!("{KNOWN}{KNOWN}{GET}{POST_5}hello{KNOWN}")).await;
    assert_eq!(open.until(ANSWER).await, ANSWER);
    assert_eq!(open.until(ANSWER).await, ANSWER);
    assert!(open.until("GET / 0\n").await.starts_with("HTTP/1.1 200 OK\r\n"));
    assert!(open.until("POST / 5\n").await.starts_with("HTTP/1.1 200 OK\r\n"));
    assert_eq!(open.until(ANSWER).await, ANSWER);
    assert_eq!((open.connection.seen(), open.connection.done()), (5, 5));
}

#[tokio::test]
async fn after_the_last_request_no_byte_is_read() {
    let mut open = open(rig());
    let hooks = Arc::clone(&open.hooks);
    open.send(&format!("{KNOWN}{LAST}{GET}")).await;
    assert_eq!(open.rest().await, format!("{ANSWER}{ANSWER}"), "a client that asks to close gets nothing after that");
    assert_eq!(hooks.heads.load(std::sync::atomic::Ordering::Acquire), 2);
}

#[tokio::test(start_paused = true)]
async fn a_connection_without_requests_ends_in_time_after_any_number_of_them() {
    let settings = ListenerSettings::default();
    let (idle, mut open) = (settings.idle_timeout, open(rig_with(settings, None, 64 * 1024)));
    for _ in 0..5 {
        open.send(KNOWN).await;
        assert_eq!(open.until(ANSWER).await, ANSWER);
        tokio::time::sleep(idle.mul_f32(0.9)).await;
    }
    let hooks = Arc::clone(&open.hooks);
    assert_eq!(open.rest().await, "");
    assert_eq!(hooks.count(ConnectionEvent::Idle), 1);
}

#[tokio::test(start_paused = true)]
async fn at_a_drain_an_idle_connection_ends_at_once_and_one_in_a_head_is_served() {
    let open_at_rest = open(rig());
    open_at_rest.drain.send_replace(true);
    assert_eq!(tokio::time::timeout(Duration::from_millis(1), open_at_rest.rest()).await.unwrap(), "");
    let mut open = open(rig());
    let (begin, end) = KNOWN.split_at(20);
    open.send(begin).await;
    // Time stands still: a sleep ends when every task waits, so the connection has read this part.
    tokio::time::sleep(Duration::from_millis(1)).await;
    open.drain.send_replace(true);
    tokio::time::sleep(Duration::from_millis(1)).await;
    open.send(end).await;
    assert_eq!(open.rest().await, ANSWER);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_reads_no_answers_is_not_read_and_is_cut_in_time() {
    let mut open = open(rig_with(ListenerSettings::default(), None, 256));
    let bytes = KNOWN.repeat(100);
    assert!(open.client.write_all(bytes.as_bytes()).await.is_err(), "all was taken although no answer was read");
    open.serving.await.unwrap();
    assert!(open.connection.seen() < 12, "{} answers wait", open.connection.seen());
}
