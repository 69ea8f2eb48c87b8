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
use super::pool::{self, Demands, IDLE_MAX, Trust};

/// A connection that was used so lately is not about to be closed: services keep theirs for two seconds at the least. Others
/// are not for requests that nobody may send twice.
const JUST_USED: Duration = Duration::from_secs(1);

/// Whether a response that has no body (to HEAD, 204, 304) says that it has one. An upstream that believes its own words
/// sends the body after it, perhaps late: nobody can tell when such a response is complete.
pub(crate) fn announces_body(length: Option<u64>, coded: bool) -> bool {
    coded || length.is_some_and(|length| length > 0)
}

/// A connection and since when it waits.
#[derive(Debug)]
struct Waiting {
    stream: Stream,
    trust: Trust,
    since: Instant,
    good_for: Duration,
    _permit: OwnedSemaphorePermit,
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
    /// One permit for each idle connection, of all addresses together: each holds a file descriptor.
    permits: Arc<Semaphore>,
    /// Those that have waited longest come first.
    waiting: Mutex<VecDeque<Waiting>>,
}

impl Idle {
    /// None yet. All addresses that share these permits keep at most as many connections.
    pub(crate) fn new(permits: Arc<Semaphore>) -> Self {
        Self { permits, waiting: Mutex::default() }
    }

    /// One that meets these demands and is open as far as is known here. Without one, those of others make way for a new one
    /// until no more than `others_max` are left.
    pub(crate) fn take(&self, demands: &Demands, others_max: usize) -> Option<Stream> {
        loop {
            let mut all = self.waiting.lock();
            let fits = |one: &Waiting| {
                let rested = || one.since.elapsed() <= JUST_USED;
                demands.are_met(&one.trust, || Some(one.since)) && (demands.may_be_repeated || rested())
            };
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

    /// Keeps one whose last response is complete, in place of the oldest where there is no other, or closes it. The other
    /// side keeps it for `good_for`, as far as it has said.
    pub(crate) fn keep(&self, stream: Stream, trust: Trust, good_for: Duration) {
        let mut all = self.waiting.lock();
        let permit = pool::keep_one_more(&self.permits, all.len(), || {
            if let Some(oldest) = all.pop_front() {
                oldest.abandon();
            }
        });
        if let Some(permit) = permit {
            all.push_back(Waiting {
                stream,
                trust,
                since: Instant::now(),
                good_for: good_for.min(IDLE_MAX),
                _permit: permit,
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

    use super::super::Tenant;
    use super::*;

    const TENANT: Tenant = Tenant(1);
    const OTHER: Tenant = Tenant(2);

    /// What requests of this tenant ask that change nothing.
    fn of(tenant: Tenant) -> Demands {
        Demands { trust: trust(tenant), may_be_repeated: true, heard_after: None }
    }

    fn trust(tenant: Tenant) -> Trust {
        Trust { tenant, tls_config: None }
    }

    /// Which connection this tenant is given, if any.
    fn take(idle: &Idle, tenant: Tenant) -> Option<std::net::SocketAddr> {
        idle.take(&of(tenant), usize::MAX).map(|stream| stream.socket().local_addr().unwrap())
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
    async fn all_addresses_together_keep_no_more_connections_than_permits() {
        let permits = Arc::new(Semaphore::new(2));
        let (one, other, last) = (Idle::new(permits.clone()), Idle::new(permits.clone()), Idle::new(permits));
        let (_listener, [first, second, third, fourth]) = connected().await;
        let kept = third.socket().local_addr().unwrap();
        one.keep(first, trust(TENANT), IDLE_MAX);
        other.keep(second, trust(TENANT), IDLE_MAX);
        other.keep(third, trust(TENANT), IDLE_MAX);
        last.keep(fourth, trust(TENANT), IDLE_MAX);
        assert!(
            last.take(&of(TENANT), 0).is_none(),
            "it has no older connection to close, and closes none of other addresses"
        );
        assert_eq!(take(&other, TENANT), Some(kept), "the third has the permit of the second");
        assert_eq!(take(&other, TENANT), None);
        let (_listener, [fifth]) = connected().await;
        one.keep(fifth, trust(TENANT), IDLE_MAX);
        assert!(
            take(&one, TENANT).is_some() && take(&one, TENANT).is_some(),
            "a permit is free again when its connection is used"
        );
    }

    #[tokio::test]
    async fn a_tenant_is_given_its_own_connections_and_new_ones_take_the_place_of_the_oldest() {
        let idle = Idle::new(Arc::new(Semaphore::new(10)));
        let (_listener, streams) = connected::<5>().await;
        let [first, second, third, fourth, fifth] =
            streams.each_ref().map(|stream| stream.socket().local_addr().unwrap());
        for (stream, tenant) in streams.into_iter().zip([TENANT, OTHER, TENANT, OTHER, OTHER]) {
            idle.keep(stream, trust(tenant), IDLE_MAX);
        }
        assert_eq!(take(&idle, TENANT), Some(third), "the one used last");
        assert!(idle.take(&of(Tenant(3)), 3).is_none());
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
        idle.keep(stream, trust(TENANT), IDLE_MAX);
        assert!(take(&idle, TENANT).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_is_kept_for_55_seconds_from_its_last_response_on() {
        let idle = Idle::new(Arc::new(Semaphore::new(2)));
        let (_listener, [stream, other]) = connected().await;
        idle.keep(stream, trust(TENANT), IDLE_MAX);
        tokio::time::advance(Duration::from_millis(54_999)).await;
        let stream = idle.take(&of(TENANT), usize::MAX).expect("services close theirs later");
        idle.keep(other, trust(TENANT), IDLE_MAX);
        idle.keep(stream, trust(TENANT), IDLE_MAX);
        tokio::time::advance(Duration::from_millis(54_999)).await;
        idle.tidy();
        assert_eq!(idle.waiting.lock().len(), 2);
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(idle.take(&of(TENANT), usize::MAX).is_none(), "55 seconds are over");
    }

    #[tokio::test(start_paused = true)]
    async fn who_says_how_long_is_believed_and_who_must_not_repeat_gets_one_that_was_just_used() {
        let idle = Idle::new(Arc::new(Semaphore::new(2)));
        let (_listener, [stream, other]) = connected().await;
        idle.keep(stream, trust(TENANT), Duration::from_secs(4));
        idle.keep(other, trust(TENANT), IDLE_MAX);
        tokio::time::advance(Duration::from_secs(2)).await;
        let once = Demands { may_be_repeated: false, ..of(TENANT) };
        assert!(idle.take(&once, usize::MAX).is_none(), "both have rested for two seconds");
        let other = idle.take(&of(TENANT), usize::MAX).expect("the one used last");
        tokio::time::advance(Duration::from_secs(2)).await;
        assert!(take(&idle, TENANT).is_none(), "four seconds are over");
        idle.keep(other, trust(TENANT), IDLE_MAX);
        assert!(idle.take(&once, usize::MAX).is_some());
    }
}
