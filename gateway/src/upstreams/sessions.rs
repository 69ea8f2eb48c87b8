//! HTTP/2 connections to one address of an upstream: each carries many requests at once, all of one tenant.
//!
//! A connection takes as many requests as the other side allows, and 100 at most; the next opens another. Requests that come
//! while one is being opened wait for it together. What an upstream that has said GOAWAY still owes arrives; nothing new is
//! sent there. When nothing was in progress for a while, a connection is closed.

mod ear;
mod session;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use h2::client::SendRequest;
use parking_lot::Mutex;
use rustls::ClientConfig;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use self::session::{Session, State};
use super::{DialError, DialFailure, Stream, Tenant};

/// Connections kept per address.
const SESSIONS_MAX: usize = 1_024;

/// A connection without a request is kept for so long, as those of HTTP/1.1 are.
const IDLE_MAX: Duration = Duration::from_secs(55);

/// Connections that one request looks at: those that were full, or gone, when it came to use them.
const TRIES_MAX: usize = 4;

/// The connections of an address.
#[derive(Debug)]
pub struct Sessions {
    /// One for each connection that is kept, whatever its address: each holds a descriptor.
    places: Arc<Semaphore>,
    all: Mutex<VecDeque<Arc<Session>>>,
    /// HTTP/2 was agreed on the last time.
    agreed: AtomicBool,
}

/// A place for one request on a connection, until dropped.
#[derive(Debug)]
pub struct Lease {
    session: Arc<Session>,
    /// What sends the request.
    pub sender: SendRequest<Bytes>,
    /// The connection has served others.
    pub reused: bool,
}

impl Sessions {
    pub(super) fn new(places: Arc<Semaphore>) -> Self {
        Self { places, all: Mutex::default(), agreed: AtomicBool::new(false) }
    }

    /// Whether HTTP/2 was agreed on the last time that TLS came about.
    pub fn agreed(&self) -> bool {
        self.agreed.load(Ordering::Relaxed)
    }

    /// Remembers what was agreed on.
    pub fn note(&self, agreed: bool) {
        if self.agreed() != agreed {
            self.agreed.store(agreed, Ordering::Relaxed);
        }
    }

    /// A place on a connection of this tenant that was made with what is shown today; `connect` makes another one.
    ///
    /// # Errors
    /// When that does not come about.
    pub async fn lease<F>(
        &self,
        tenant: Tenant,
        shown: Option<Arc<ClientConfig>>,
        patience: Duration,
        connect: impl Fn() -> F,
    ) -> Result<Lease, DialError>
    where
        F: Future<Output = Result<Stream, DialError>> + Send + 'static,
    {
        for _ in 0..TRIES_MAX {
            let entered = self.enter(tenant, shown.as_ref());
            let session = entered.unwrap_or_else(|| self.open(tenant, shown.clone(), patience, connect()));
            // Whoever drops it without a sender gives the place back.
            if let Some(lease) = session.ready().await? {
                return Ok(lease);
            }
        }
        Err(DialError::because(DialFailure::Protocol, "its HTTP/2 connections take no requests"))
    }

    /// Takes a connection on which HTTP/2 was just agreed on.
    pub fn adopt(&self, tenant: Tenant, shown: Option<Arc<ClientConfig>>, patience: Duration, stream: Stream) {
        self.note(true);
        // Its place is not used: the request that brought it asks for one as all others do.
        drop(self.open(tenant, shown, patience, std::future::ready(Ok(stream))));
    }

    /// A connection with room for one more.
    fn enter(&self, tenant: Tenant, shown: Option<&Arc<ClientConfig>>) -> Option<session::Place> {
        self.all.lock().iter().find_map(|session| Session::enter(session, tenant, shown))
    }

    fn open(
        &self,
        tenant: Tenant,
        shown: Option<Arc<ClientConfig>>,
        patience: Duration,
        connecting: impl Future<Output = Result<Stream, DialError>> + Send + 'static,
    ) -> session::Place {
        let mut all = self.all.lock();
        all.retain(|session| session.is_alive());
        let place = self.place(&mut all);
        let kept = place.is_some();
        let (session, entered) = Session::open(tenant, shown, patience, connecting, place);
        // Without a place it serves this one request and is closed.
        if kept {
            all.push_back(session);
        }
        entered
    }

    /// A place for one more, that of the connection which rests longest where there is no other.
    fn place(&self, all: &mut VecDeque<Arc<Session>>) -> Option<OwnedSemaphorePermit> {
        let free = || self.places.clone().try_acquire_owned().ok();
        if all.len() < SESSIONS_MAX
            && let Some(place) = free()
        {
            return Some(place);
        }
        let resting = all.iter().enumerate().filter_map(|(at, session)| Some((session.resting()?, at)));
        if let Some(oldest) = resting.max().and_then(|(_, at)| all.remove(at)) {
            oldest.close();
        }
        free()
    }

    /// Closes those that nobody needs any more.
    pub(super) fn tidy(&self) {
        self.all.lock().retain(|session| {
            let stays = session.is_alive() && session.resting().is_none_or(|resting| resting < IDLE_MAX);
            if !stays {
                session.close();
            }
            stays
        });
    }
}

impl Lease {
    /// The connection takes no more requests.
    pub fn leave(&self) {
        self.session.leave();
    }

    /// Why TLS broke off, where it did.
    pub fn tls_reason(&self) -> Option<String> {
        self.session.tls_reason()
    }
}

/// What a connection is to whoever asks for one.
type Shared = tokio::sync::watch::Receiver<State>;
