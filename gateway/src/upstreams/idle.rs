//! Connections to one address of an upstream that wait for their next request.

use std::io::ErrorKind;
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use socket2::SockRef;
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Connections kept per address; fewer than the concurrent requests is a cliff (half the throughput).
const IDLE_CONNECTIONS_MAX: usize = 1_024;

/// They are kept this long: shorter than most services keep theirs, so that few requests are sent into a connection that is
/// being closed.
pub const IDLE_MAX: Duration = Duration::from_secs(55);

/// A connection and since when it waits.
#[derive(Debug)]
struct Waiting {
    stream: TcpStream,
    since: Instant,
    _place: OwnedSemaphorePermit,
}

impl Waiting {
    fn is_good(&self) -> bool {
        self.since.elapsed() < IDLE_MAX && is_quiet(&self.stream)
    }
}

/// The one used last is used next, so that those too many grow old.
#[derive(Debug)]
pub struct Idle {
    /// One for each connection that waits, whatever its address: each holds a descriptor.
    places: Arc<Semaphore>,
    waiting: Mutex<Vec<Waiting>>,
}

impl Idle {
    /// None yet. All that share these `places` have no more connections than there are places.
    pub fn new(places: Arc<Semaphore>) -> Self {
        Self { places, waiting: Mutex::default() }
    }

    /// One that is open as far as is known here.
    pub fn take(&self) -> Option<TcpStream> {
        loop {
            let waiting = self.waiting.lock().pop()?;
            if waiting.is_good() {
                return Some(waiting.stream);
            }
        }
    }

    /// Keeps one whose last response is complete, or closes it when there is no place.
    pub fn keep(&self, stream: TcpStream) {
        let mut all = self.waiting.lock();
        if all.len() < IDLE_CONNECTIONS_MAX
            && let Ok(place) = self.places.clone().try_acquire_owned()
        {
            all.push(Waiting { stream, since: Instant::now(), _place: place });
        }
    }

    /// Drops those that are old, or that the other side has closed.
    pub fn tidy(&self) {
        self.waiting.lock().retain(Waiting::is_good);
    }
}

/// Whether nothing has come so far, not even the end. What comes unasked belongs to no request. Asks the kernel: what the
/// runtime knows of the socket is older.
fn is_quiet(stream: &TcpStream) -> bool {
    let peeked = SockRef::from(stream).peek(&mut [MaybeUninit::uninit()]);
    peeked.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    /// An address, and connections to it.
    async fn connected<const N: usize>() -> (TcpListener, [TcpStream; N]) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let streams = futures_util::future::join_all((0..N).map(|_| TcpStream::connect(address))).await;
        let streams: Vec<_> = streams.into_iter().map(Result::unwrap).collect();
        (listener, streams.try_into().unwrap())
    }

    #[tokio::test]
    async fn all_addresses_together_keep_no_more_than_there_are_places() {
        let places = Arc::new(Semaphore::new(2));
        let (one, other) = (Idle::new(places.clone()), Idle::new(places));
        let (_listener, [first, second, third]) = connected().await;
        let kept = second.local_addr().unwrap();
        one.keep(first);
        other.keep(second);
        other.keep(third);
        assert_eq!(other.take().unwrap().local_addr().unwrap(), kept, "there was no place for the third");
        assert!(other.take().is_none());
        let (_listener, [fourth]) = connected().await;
        one.keep(fourth);
        assert!(one.take().is_some() && one.take().is_some(), "a place is free again when its connection is used");
    }

    #[tokio::test]
    async fn a_connection_that_was_closed_is_not_used_again() {
        let idle = Idle::new(Arc::new(Semaphore::new(1)));
        let (listener, [stream]) = connected().await;
        let (there, _) = listener.accept().await.unwrap();
        drop(there);
        stream.readable().await.unwrap();
        idle.keep(stream);
        assert!(idle.take().is_none());
    }
}
