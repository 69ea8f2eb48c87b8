//! Connections to one address of an upstream that wait for their next request.

use std::io::ErrorKind;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::net::TcpStream;

/// Connections kept per address; fewer than the concurrent requests is a cliff (half the throughput).
const IDLE_CONNECTIONS_MAX: usize = 1_024;

/// They are kept this long: shorter than services keep theirs, so that a request is not sent into a connection that is
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

/// Whether nothing has come, not even the end. What comes unasked belongs to no request.
fn is_quiet(stream: &TcpStream) -> bool {
    stream.try_read(&mut [0; 1]).is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
}
