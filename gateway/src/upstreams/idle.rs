//! Connections to one address of an upstream that wait for their next request.
//!
//! What an upstream sends late, or twice, is read as the response to the next request of its connection. So a connection
//! waits here only when its last response is complete beyond doubt, and what carried requests of one tenant never
//! carries another's, unless the settings say that the upstream can be trusted with that.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use socket2::SockRef;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::Stream;

/// Connections kept per address; fewer than the concurrent requests is a cliff (half the throughput).
const IDLE_CONNECTIONS_MAX: usize = 1_024;

/// They are kept this long: shorter than most services keep theirs, so that few requests are sent into a connection that is
/// being closed.
const IDLE_MAX: Duration = Duration::from_secs(55);

/// Whose requests a connection carries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tenant(pub u64);

/// Whether a response that has no body (to HEAD, 204, 304) says that it has one. An upstream that believes its own words
/// sends the body after it, perhaps late: nobody can tell when such a response is complete.
pub(crate) fn announces_body(length: Option<u64>, coded: bool) -> bool {
    coded || length.is_some_and(|length| length > 0)
}

/// A connection and since when it waits.
#[derive(Debug)]
struct Waiting {
    stream: Stream,
    tenant: Tenant,
    since: Instant,
    good_for: Duration,
    _place: OwnedSemaphorePermit,
}

impl Waiting {
    fn is_good(&self) -> bool {
        self.since.elapsed() < self.good_for && is_quiet(&self.stream)
    }

    /// The connection will be reset: one that is closed in order keeps its port busy for a minute, and where many tenants
    /// take turns there would soon be none left.
    fn abandon(&self) {
        let _ = SockRef::from(self.stream.socket()).set_linger(Some(Duration::ZERO));
    }
}

/// The one used last is used next, so that those too many grow old.
#[derive(Debug)]
pub(crate) struct Idle {
    /// One for each connection that waits, whatever its address: each holds a descriptor.
    places: Arc<Semaphore>,
    /// Those that have waited longest come first.
    waiting: Mutex<VecDeque<Waiting>>,
}

impl Idle {
    /// None yet. All that share these `places` have no more connections than there are places.
    pub(crate) fn new(places: Arc<Semaphore>) -> Self {
        Self { places, waiting: Mutex::default() }
    }

    /// One of this tenant that is open as far as is known here, and has waited no longer than `rested_max`. Without one, those of others make way for a new one until
    /// no more than `others_max` are left.
    pub(crate) fn take(&self, tenant: Tenant, others_max: usize, rested_max: Duration) -> Option<Stream> {
        loop {
            let mut all = self.waiting.lock();
            let fits = |one: &Waiting| one.tenant == tenant && one.since.elapsed() <= rested_max;
            let Some(waiting) = all.iter().rposition(fits).and_then(|at| all.remove(at)) else {
                let too_many = all.len().saturating_sub(others_max);
                let oldest: Vec<Waiting> = all.drain(..too_many).collect();
                drop(all);
                oldest.iter().for_each(Waiting::abandon);
                return None;
            };
            drop(all);
            if waiting.is_good() {
                return Some(waiting.stream);
            }
        }
    }

    /// Keeps one of this tenant whose last response is complete, in place of the oldest where there is no other, or closes it.
    /// The other side keeps it for `good_for`, as far as it has said.
    pub(crate) fn keep(&self, stream: Stream, tenant: Tenant, good_for: Duration) {
        let mut all = self.waiting.lock();
        let free = || self.places.clone().try_acquire_owned().ok();
        let mut place = free().filter(|_| all.len() < IDLE_CONNECTIONS_MAX);
        if place.is_none()
            && let Some(oldest) = all.pop_front()
        {
            oldest.abandon();
            drop(oldest);
            place = free();
        }
        if let Some(place) = place {
            all.push_back(Waiting {
                stream,
                tenant,
                since: Instant::now(),
                good_for: good_for.min(IDLE_MAX),
                _place: place,
            });
        }
    }

    /// Drops those that are old, or that the other side has closed.
    pub(crate) fn tidy(&self) {
        self.waiting.lock().retain(Waiting::is_good);
    }
}

/// Whether nothing has come so far, not even the end. What comes unasked belongs to no request. Asks the kernel: what the
/// runtime knows of the socket is older.
fn is_quiet(stream: &Stream) -> bool {
    let peeked = SockRef::from(stream.socket()).peek(&mut [MaybeUninit::uninit()]);
    peeked.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
}

#[cfg(test)]
mod tests {
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    const TENANT: Tenant = Tenant(1);
    const OTHER: Tenant = Tenant(2);

    /// Which connection this tenant is given, if any.
    fn take(idle: &Idle, tenant: Tenant) -> Option<std::net::SocketAddr> {
        idle.take(tenant, usize::MAX, IDLE_MAX).map(|stream| stream.socket().local_addr().unwrap())
    }

    /// An address, and connections to it.
    async fn connected<const N: usize>() -> (TcpListener, [Stream; N]) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let streams = futures_util::future::join_all((0..N).map(|_| TcpStream::connect(address))).await;
        let streams: Vec<_> = streams.into_iter().map(|stream| Stream::Plain(stream.unwrap())).collect();
        (listener, streams.try_into().unwrap())
    }

    // promise: edge.28
    #[tokio::test]
    async fn all_addresses_together_keep_no_more_than_there_are_places() {
        let places = Arc::new(Semaphore::new(2));
        let (one, other, last) = (Idle::new(places.clone()), Idle::new(places.clone()), Idle::new(places));
        let (_listener, [first, second, third, fourth]) = connected().await;
        let kept = third.socket().local_addr().unwrap();
        one.keep(first, TENANT, IDLE_MAX);
        other.keep(second, TENANT, IDLE_MAX);
        other.keep(third, TENANT, IDLE_MAX);
        last.keep(fourth, TENANT, IDLE_MAX);
        assert!(last.take(TENANT, 0, IDLE_MAX).is_none(), "it has no older one to give up, and takes none from others");
        assert_eq!(take(&other, TENANT), Some(kept), "the third has the place of the second");
        assert_eq!(take(&other, TENANT), None);
        let (_listener, [fifth]) = connected().await;
        one.keep(fifth, TENANT, IDLE_MAX);
        assert!(
            take(&one, TENANT).is_some() && take(&one, TENANT).is_some(),
            "a place is free again when its connection is used"
        );
    }

    #[tokio::test]
    async fn a_tenant_is_given_its_own_connections_and_new_ones_take_the_place_of_the_oldest() {
        let idle = Idle::new(Arc::new(Semaphore::new(10)));
        let (_listener, streams) = connected::<5>().await;
        let [first, second, third, fourth, fifth] =
            streams.each_ref().map(|stream| stream.socket().local_addr().unwrap());
        for (stream, tenant) in streams.into_iter().zip([TENANT, OTHER, TENANT, OTHER, OTHER]) {
            idle.keep(stream, tenant, IDLE_MAX);
        }
        assert_eq!(take(&idle, TENANT), Some(third), "the one used last");
        assert!(idle.take(Tenant(3), 3, IDLE_MAX).is_none());
        assert_eq!(
            idle.waiting.lock().front().unwrap().stream.socket().local_addr().unwrap(),
            second,
            "the first made way"
        );
        assert_eq!(take(&idle, OTHER), Some(fifth));
        assert_eq!([take(&idle, TENANT), take(&idle, OTHER), take(&idle, OTHER)], [None, Some(fourth), Some(second)]);
        assert_ne!(first, second);
    }

    #[tokio::test]
    async fn a_connection_that_was_closed_is_not_used_again() {
        let idle = Idle::new(Arc::new(Semaphore::new(1)));
        let (listener, [stream]) = connected().await;
        let (there, _) = listener.accept().await.unwrap();
        drop(there);
        stream.socket().readable().await.unwrap();
        idle.keep(stream, TENANT, IDLE_MAX);
        assert!(take(&idle, TENANT).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_is_kept_for_55_seconds_from_its_last_response_on() {
        let idle = Idle::new(Arc::new(Semaphore::new(2)));
        let (_listener, [stream, other]) = connected().await;
        idle.keep(stream, TENANT, IDLE_MAX);
        tokio::time::advance(Duration::from_millis(54_999)).await;
        let stream = idle.take(TENANT, usize::MAX, IDLE_MAX).expect("services close theirs later");
        idle.keep(other, TENANT, IDLE_MAX);
        idle.keep(stream, TENANT, IDLE_MAX);
        tokio::time::advance(Duration::from_millis(54_999)).await;
        idle.tidy();
        assert_eq!(idle.waiting.lock().len(), 2);
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(idle.take(TENANT, usize::MAX, IDLE_MAX).is_none(), "55 seconds are over");
    }

    #[tokio::test(start_paused = true)]
    async fn who_says_how_long_is_believed_and_who_must_not_repeat_gets_one_that_was_just_used() {
        let idle = Idle::new(Arc::new(Semaphore::new(2)));
        let (_listener, [stream, other]) = connected().await;
        idle.keep(stream, TENANT, Duration::from_secs(4));
        idle.keep(other, TENANT, IDLE_MAX);
        tokio::time::advance(Duration::from_secs(2)).await;
        assert!(idle.take(TENANT, usize::MAX, Duration::from_secs(1)).is_none(), "both have rested for two seconds");
        let other = idle.take(TENANT, usize::MAX, Duration::from_secs(2)).expect("the one used last");
        tokio::time::advance(Duration::from_secs(2)).await;
        assert!(take(&idle, TENANT).is_none(), "four seconds are over");
        idle.keep(other, TENANT, IDLE_MAX);
        assert!(idle.take(TENANT, usize::MAX, Duration::ZERO).is_some());
    }
}
