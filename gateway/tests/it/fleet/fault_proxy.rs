//! A proxy in front of Redis that delays, drops, cuts and swallows. It has its own thread, so that a test's hundreds of
//! simultaneous requests do not delay Redis's answers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Notify;

#[derive(Default)]
struct Faults {
    delay_millis: AtomicU64,
    /// Replies lost, in percent; the connection is cut with it, as a stream cannot lose a part.
    lost_percent: AtomicU32,
    /// Bytes go nowhere, connections stay.
    swallows: AtomicBool,
    /// New connections are closed at once.
    refuses: AtomicBool,
    cut: Notify,
    random: AtomicU64,
}

/// A proxy on loopback, in front of Redis, with faults that a test switches.
pub(crate) struct FaultProxy {
    pub(crate) port: u16,
    faults: Arc<Faults>,
    /// `None` once the proxy is dropped.
    thread: Option<Runtime>,
}

impl FaultProxy {
    pub(crate) fn start(to: u16) -> Self {
        let thread = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let port = listener.local_addr().unwrap().port();
        let faults = Arc::new(Faults { random: AtomicU64::new(u64::from(port)), ..Faults::default() });
        thread.spawn({
            let faults = faults.clone();
            async move {
                let listener = TcpListener::from_std(listener).unwrap();
                while let Ok((client, _)) = listener.accept().await {
                    if !faults.refuses.load(Ordering::SeqCst) {
                        tokio::spawn(carry(client, to, faults.clone()));
                    }
                }
            }
        });
        Self { port, faults, thread: Some(thread) }
    }

    /// Delays every reply.
    pub(crate) fn delay(&self, by: Duration) {
        self.faults.delay_millis.store(u64::try_from(by.as_millis()).unwrap(), Ordering::SeqCst);
    }

    /// Loses this percentage of replies, after their commands were executed.
    pub(crate) fn lose(&self, percent: u32) {
        self.faults.lost_percent.store(percent, Ordering::SeqCst);
    }

    /// Simulates a half-open network: no data arrives and no connection breaks.
    pub(crate) fn swallow(&self, swallows: bool) {
        self.faults.swallows.store(swallows, Ordering::SeqCst);
    }

    /// Cuts all connections, and closes new ones while `refuses`.
    pub(crate) fn cut(&self, refuses: bool) {
        self.faults.refuses.store(refuses, Ordering::SeqCst);
        self.faults.cut.notify_waiters();
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            thread.shutdown_background();
        }
    }
}

async fn carry(client: TcpStream, to: u16, faults: Arc<Faults>) {
    let Ok(server) = TcpStream::connect(("127.0.0.1", to)).await else { return };
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let cut = faults.cut.notified();
    tokio::pin!(cut);
    let there = async {
        let mut buffer = vec![0; 64 * 1024];
        while let Ok(bytes @ 1..) = from_client.read(&mut buffer).await {
            if !faults.swallows.load(Ordering::SeqCst) && to_server.write_all(&buffer[..bytes]).await.is_err() {
                return;
            }
        }
    };
    let back = async {
        let mut buffer = vec![0; 64 * 1024];
        while let Ok(bytes @ 1..) = from_server.read(&mut buffer).await {
            let delay = faults.delay_millis.load(Ordering::SeqCst);
            if delay > 0 {
                tokio::time::sleep(Duration::from_millis(delay)).await;
            }
            if faults.swallows.load(Ordering::SeqCst) {
                continue;
            }
            let lost = faults.lost_percent.load(Ordering::SeqCst);
            if lost > 0 && roll(&faults.random) % 100 < u64::from(lost) {
                return;
            }
            if to_client.write_all(&buffer[..bytes]).await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        () = there => {}
        () = back => {}
        () = &mut cut => {}
    }
}

/// The next number of a fixed sequence: which replies are lost is the same in every run.
fn roll(state: &AtomicU64) -> u64 {
    let mut word = state.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::SeqCst);
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}
