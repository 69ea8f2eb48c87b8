//! One address of an upstream, and whether it works.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::pool::http1::Http1Pool;
use super::pool::http2::Http2Pool;
use super::{ConnectionLimits, DialError, DialFailure, EndpointAddress};

/// How long a failed address gets no requests, also if no other one works.
const DOWN_FOR: Duration = Duration::from_secs(1);

/// The pause between two requests that try a silent address.
pub(super) const SILENT_FOR: Duration = Duration::from_secs(10);

/// An address that has lost a request within this time may be overloaded, as others of its upstream may be.
const LOST_FOR: Duration = Duration::from_millis(200);

/// Precision of the time of an address's last response, in milliseconds: it is not written for every response.
const RESPONSE_PRECISION: u64 = 100;

/// An address, and the name it was found under if certificates must cover it.
pub(super) type Found = (EndpointAddress, Option<Arc<str>>);

/// One address of an upstream.
#[derive(Debug)]
pub struct Endpoint {
    /// The address.
    pub address: EndpointAddress,
    /// The name it was found under, if its certificate must cover that name.
    pub name: Option<Arc<str>>,
    /// When and why the last failed connection failed.
    failure: Mutex<Option<(Instant, DialError)>>,
    /// The address as text, for the log.
    text: String,
    /// Monotonic milliseconds until which it gets no requests; 0: it is up.
    pub(super) down_until: AtomicU64,
    /// Monotonic milliseconds plus one of the first failure since it last worked; 0: the last attempt worked.
    failing_since: AtomicU64,
    /// Monotonic milliseconds plus one of its last response, within [`RESPONSE_PRECISION`]; 0: there was none.
    responded_at: AtomicU64,
    /// Monotonic milliseconds plus one of the last request without a response; 0: there was none.
    lost_at: AtomicU64,
    /// Health checks have taken it out of the rotation.
    is_out: AtomicBool,
    /// Consecutive results of health checks: good ones above zero, bad ones below.
    streak: AtomicI64,
    /// How long its connections are used.
    pub connections: ConnectionLimits,
    /// Its idle HTTP/1.1 connections.
    pub http1: Http1Pool,
    /// Its HTTP/2 connections.
    pub http2: Http2Pool,
}

impl Endpoint {
    pub(super) fn new(
        address: EndpointAddress,
        name: Option<Arc<str>>,
        connections: ConnectionLimits,
        idle: Arc<Semaphore>,
    ) -> Self {
        Self {
            text: address.to_string(),
            address,
            name,
            failure: Mutex::default(),
            down_until: AtomicU64::new(0),
            failing_since: AtomicU64::new(0),
            responded_at: AtomicU64::new(0),
            lost_at: AtomicU64::new(0),
            is_out: AtomicBool::new(false),
            streak: AtomicI64::new(0),
            connections,
            http2: Http2Pool::new(connections, idle.clone()),
            http1: Http1Pool::new(idle),
        }
    }

    /// Records the result of a health check, of which `falls` bad ones take the address out and `rises` good ones bring
    /// it back; returns whether it changed between up and out. Only one task checks an address, so these stores do not
    /// race.
    pub(super) fn checked(&self, healthy: bool, (falls, rises): (u32, u32)) -> bool {
        let before = self.streak.load(Ordering::Relaxed);
        let streak = if healthy { before.max(0).saturating_add(1) } else { before.min(0).saturating_sub(1) };
        self.streak.store(streak, Ordering::Relaxed);
        let was_out = self.is_out.load(Ordering::Relaxed);
        let is_out = if was_out { streak < i64::from(rises) } else { streak <= -i64::from(falls) };
        self.is_out.store(is_out, Ordering::Relaxed);
        is_out != was_out
    }

    pub(super) fn found(&self) -> Found {
        (self.address.clone(), self.name.clone())
    }

    /// The address as text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Records why a connection failed.
    pub fn record_failure(&self, error: &DialError) {
        *self.failure.lock() = Some((Instant::now(), error.clone()));
    }

    /// Records a failed connection, and why it failed.
    pub fn failed_because(&self, error: &DialError, now: Duration) {
        self.record_failure(error);
        self.failed(now);
    }

    /// Records a failed connection.
    pub fn failed(&self, now: Duration) {
        self.down_until.store(millis(now + DOWN_FOR), Ordering::Relaxed);
        let _ = self.failing_since.compare_exchange(0, millis(now) + 1, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Records a connection that worked.
    pub fn worked(&self) {
        if self.failing_since.load(Ordering::Relaxed) != 0 {
            self.failing_since.store(0, Ordering::Relaxed);
        }
        if self.down_until.load(Ordering::Relaxed) != 0 {
            self.down_until.store(0, Ordering::Relaxed);
        }
    }

    /// Records a response. `now` is the monotonic time.
    pub fn responded(&self, now: Duration) {
        self.worked();
        let now = millis(now) + 1;
        if now.saturating_sub(self.responded_at.load(Ordering::Relaxed)) >= RESPONSE_PRECISION {
            self.responded_at.store(now, Ordering::Relaxed);
        }
    }

    /// Records a request without a response, which began at `began`; returns whether the address is silent. It is if
    /// the request waited in vain (`late`), and for half of that time no other one got a response: a process that is
    /// stopped still accepts connections.
    pub fn lost(&self, late: bool, began: Duration, now: Duration) -> bool {
        self.lost_at.store(millis(now) + 1, Ordering::Relaxed);
        let half = now.saturating_sub(now.saturating_sub(began) / 2);
        let responded = self.responded_at.load(Ordering::Relaxed);
        let silent = late && (responded == 0 || responded + RESPONSE_PRECISION <= millis(half) + 1);
        if silent {
            let reason = "it accepts connections but does not respond";
            self.failed_because(&DialError::because(DialFailure::Silent, reason), now);
            self.down_until.store(millis(now + SILENT_FOR), Ordering::Relaxed);
        }
        silent
    }

    /// For how long it has failed, if the last attempt did.
    pub fn failing_for(&self, now: Duration) -> Option<Duration> {
        let since = self.failing_since.load(Ordering::Relaxed).checked_sub(1)?;
        Some(now.saturating_sub(Duration::from_millis(since)))
    }

    /// Why it fails, if known.
    pub fn failing_because(&self) -> Option<Cow<'static, str>> {
        if !self.is_failing() {
            return None;
        }
        self.failure.lock().as_ref()?.1.reason.clone()
    }

    /// How long ago the last attempt failed, if it fails.
    pub(super) fn tried(&self) -> Option<Duration> {
        let failure = self.failure.lock();
        failure.as_ref().filter(|_| self.is_failing()).map(|(tried, _)| tried.elapsed())
    }

    pub(super) fn is_failing(&self) -> bool {
        self.failing_since.load(Ordering::Relaxed) != 0
    }

    /// When a silent address was last found silent.
    pub(super) fn silent_at(&self) -> Option<Instant> {
        let failure = self.failure.lock();
        let silent = failure.as_ref().filter(|(_, failure)| self.is_failing() && failure.kind == DialFailure::Silent);
        silent.map(|(at, _)| *at)
    }

    /// Whether requests may be sent here.
    pub fn is_up(&self, now: Duration) -> bool {
        !self.is_out.load(Ordering::Relaxed) && self.down_until.load(Ordering::Relaxed) <= millis(now)
    }

    /// Whether requests are sent here: it is up, and the last attempt worked.
    pub(super) fn is_good(&self, now: Duration) -> bool {
        self.is_up(now) && !self.is_failing()
    }

    /// Whether this request tries a silent address whose pause has passed. The next one waits for another pause. Safe
    /// requests come first, because another address serves them too.
    pub(super) fn takes_trial(&self, is_safe: bool, now: Duration) -> bool {
        let until = self.down_until.load(Ordering::Relaxed);
        let (due, next) = (until + if is_safe { 0 } else { millis(SILENT_FOR) }, millis(now + SILENT_FOR));
        let taken = self.is_failing()
            && self.is_up(now)
            && due <= millis(now)
            && self.silent_at().is_some()
            && self.down_until.compare_exchange(until, next, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        if taken && let Some((tried, _)) = self.failure.lock().as_mut() {
            *tried = Instant::now();
        }
        taken
    }

    /// Whether it can be expected to respond: it works, and has lost no request a moment ago.
    pub(super) fn is_reliable(&self, now: Duration) -> bool {
        let lost = self.lost_at.load(Ordering::Relaxed);
        self.is_good(now) && (lost == 0 || millis(now) + 1 >= lost + millis(LOST_FOR))
    }
}

pub(super) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
