//! The control plane's answers on a connection.

use std::sync::Arc;
use std::time::Duration;

use chassis::clock::{Clock as _, SystemClock};
use contract::feed::{Frame, Mark, NodeReport, Revision};
use contract::time::UnixMillis;
use parking_lot::Mutex;
use tokio::net::TcpStream;
use tokio::sync::mpsc;

use super::super::credentials;
use super::super::wire::{Framing, Head, Wire};
use super::{Book, line};

/// The stream's own rhythm.
const HEARTBEAT: Duration = Duration::from_millis(500);

/// Lines that may wait for one gateway.
const LINES_MAX: usize = 10_000;

pub(super) async fn answer(stream: TcpStream, book: Arc<Mutex<Book>>) {
    let mut wire = Wire::new(stream);
    while let Ok(Some(head)) = wire.head().await {
        let body = wire.body(head.framing(Framing::Length(0))).await;
        let Some(gateway) = credentials::gateway_with(head.get("authorization")) else {
            drop(wire.send(b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n").await);
            continue;
        };
        if head.first_line.starts_with("GET /internal/edge/feed?") {
            return stream_to(wire, &head, gateway, &book).await;
        }
        let mut said = "204 No Content";
        if head.first_line == "POST /internal/edge/nodes HTTP/1.1" {
            let report: NodeReport = serde_json::from_slice(&body.bytes).expect("a report");
            let mut book = book.lock();
            if report.goodbye {
                book.followers.remove(&report.node);
            }
            book.reports.push(report);
        } else if head.first_line == "POST /internal/edge/keys HTTP/1.1" {
            book.lock().key_reports.push(serde_json::from_slice(&body.bytes).expect("a report of keys"));
        } else {
            assert_eq!(head.first_line, "POST /internal/edge/usage HTTP/1.1");
            let mut book = book.lock();
            book.usage_reports.push(serde_json::from_slice(&body.bytes).expect("a report of usage"));
            said = if book.has_no_room { "429 Too Many Requests\r\nContent-Length: 0" } else { said };
        }
        drop(wire.send(format!("HTTP/1.1 {said}\r\n\r\n").as_bytes()).await);
    }
}

async fn stream_to(mut wire: Wire, head: &Head, gateway: u8, book: &Mutex<Book>) {
    let said = |name| head.first_line.split_once(name).and_then(|(_, rest)| rest.split([' ', '&']).next());
    let node = said("node=").expect("the name of the follower").to_owned();
    let after: u64 = said("after=").and_then(|after| after.parse().ok()).expect("a revision to continue from");
    let mark: Option<Mark> = said("mark=").map(|mark| mark.parse().expect("a mark"));
    let refusal = book.lock().refusal(after, mark);
    let after = if said("whole=").is_some() { 0 } else { after };
    if let Some(body) = refusal {
        let head = format!("HTTP/1.1 409 Conflict\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
        drop(wire.send(format!("{head}{body}").as_bytes()).await);
        return wire.close().await;
    }
    let (sender, mut lines) = mpsc::channel(LINES_MAX);
    let (story, is_lie) = {
        let mut book = book.lock();
        book.followers.insert(node.clone());
        book.asked_after.push(after);
        if let Some(lie) = book.lies.pop_front() {
            (lie, true)
        } else {
            book.streams.push(sender);
            // Keys come first, as from the shipped control plane, so a ready gateway has them.
            let keys = if book.sends_no_keys { String::new() } else { credentials::keys_of(gateway) };
            (keys + &book.story(after), false)
        }
    };
    let head = "HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\nConnection: close\r\n\r\n";
    drop(wire.send(format!("{head}{story}").as_bytes()).await);
    if is_lie {
        return wire.close().await;
    }
    let mut heartbeat = tokio::time::interval(HEARTBEAT);
    loop {
        let next = tokio::select! {
            line = lines.recv() => line,
            _ = heartbeat.tick() => Some({
                let book = book.lock();
                let stopped = UnixMillis(1_800_000_000_000);
                let at = if book.shows_real_time { SystemClock::new().now() } else { stopped };
                let frame = Frame::Heartbeat { revision: Revision(book.revision), at, among: Some(book.among(&node)) };
                if book.silent { String::new() } else { line(&frame) }
            }),
        };
        match next {
            Some(text) if wire.send(text.as_bytes()).await.is_ok() => {}
            _ => {
                book.lock().followers.remove(&node);
                return wire.close().await;
            }
        }
    }
}
