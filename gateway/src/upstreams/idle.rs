//! Connections to one address of an upstream that wait for their next request.

use std::io::ErrorKind;
use std::mem::MaybeUninit;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use socket2::SockRef;
use tokio::net::TcpStream;

/// Connections kept per address; fewer than the concurrent requests is a cliff (half the throughput).
const IDLE_CONNECTIONS_MAX: usize = 1_024;

/// They are kept this long: shorter than most services keep theirs, so that few requests are sent into a connection that is
/// being closed.
pub const IDLE_MAX: Duration = Duration::from_secs(55);

/// The one used last is used next, so that those too many grow old.
#[derive(Debug, Default)]
pub struct Idle(Mutex<Vec<(TcpStream, Instant)>>);

impl Idle {
    /// One that is open as far as is known here.
    pub fn take(&self) -> Option<TcpStream> {
        loop {
            let (stream, since) = self.0.lock().pop()?;
            if since.elapsed() < IDLE_MAX && is_quiet(&stream) {
                return Some(stream);
            }
        }
    }

    /// Keeps one whose last response is complete.
    pub fn keep(&self, stream: TcpStream) {
        let mut all = self.0.lock();
        if all.len() < IDLE_CONNECTIONS_MAX {
            all.push((stream, Instant::now()));
        }
    }

    /// Drops those that are old, or that the other side has closed.
    pub fn tidy(&self) {
        self.0.lock().retain(|(stream, since)| since.elapsed() < IDLE_MAX && is_quiet(stream));
    }
}

/// Whether nothing has come so far, not even the end. What comes unasked belongs to no request. Asks the kernel: what the
/// runtime knows of the socket is older.
fn is_quiet(stream: &TcpStream) -> bool {
    let peeked = SockRef::from(stream).peek(&mut [MaybeUninit::uninit()]);
    peeked.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
}
