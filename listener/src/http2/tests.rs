//! The responses of many streams leave in one write.

use std::sync::Mutex;

use super::*;
use crate::Addresses;

fn connection() -> Connection {
    let address = "192.0.2.1:1".parse().unwrap();
    Connection::unattached(Addresses { client: address, peer: address, local: address })
}

/// Counts what streams wrote and what was sent.
#[derive(Default)]
struct Engine {
    written: u32,
    waker: Option<Waker>,
    collected: u32,
    writes: Vec<u32>,
}

impl Engine {
    /// Like the real engine: flushes after every piece, and at the end.
    fn poll(&mut self, connection: &Connection, cx: &Context<'_>) -> Poll<()> {
        self.waker = Some(cx.waker().clone());
        for piece in std::iter::repeat_n(1, std::mem::take(&mut self.written) as usize).chain([0]) {
            self.collected += piece;
            if !connection.defer_flush() && self.collected > 0 {
                self.writes.push(std::mem::take(&mut self.collected));
            }
        }
        if self.writes.iter().sum::<u32>() == 20 { Poll::Ready(()) } else { Poll::Pending }
    }
}

#[tokio::test]
async fn writes_of_all_streams_leave_in_one_write() {
    let shared = Arc::new(Mutex::new(Engine::default()));
    let running = Arc::clone(&shared);
    let engine = tokio::spawn(async move {
        let connection = connection();
        connection.request_seen();
        connection.request_seen();
        coalesced(&connection, poll_fn(|cx| running.lock().unwrap().poll(&connection, cx))).await;
    });
    tokio::task::yield_now().await;
    for _ in 0..2 {
        let streams = (0..10).map(|_| {
            let shared = Arc::clone(&shared);
            tokio::spawn(async move {
                let mut shared = shared.lock().unwrap();
                shared.written += 1;
                if let Some(waker) = shared.waker.take() {
                    waker.wake();
                }
            })
        });
        let streams: Vec<_> = streams.collect();
        for stream in streams {
            stream.await.unwrap();
        }
        // The engine runs before this task's second yield ends.
        tokio::task::yield_now().await;
        tokio::task::yield_now().await;
    }
    engine.await.unwrap();
    assert_eq!(shared.lock().unwrap().writes, [10, 10]);
}

/// Counts to a hundred and wakes itself each time.
async fn progress(connection: &Connection) -> u32 {
    let mut polls = 0;
    let engine = poll_fn(|cx| {
        polls += 1;
        cx.waker().wake_by_ref();
        if polls == 100 { Poll::Ready(()) } else { Poll::Pending }
    });
    coalesced(connection, engine).await;
    polls
}

#[tokio::test]
async fn a_single_request_does_not_yield() {
    assert_eq!(progress(&connection()).await, 100);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn yields_end_on_every_thread() {
    let connections = (0..20).map(|_| {
        tokio::spawn(async {
            let connection = connection();
            connection.request_seen();
            connection.request_seen();
            progress(&connection).await
        })
    });
    for connection in connections.collect::<Vec<_>>() {
        assert_eq!(connection.await.unwrap(), 100);
    }
}
