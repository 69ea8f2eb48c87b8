//! Detects outages of an authority: during one, a single order at a time tries it, and the others wait without a
//! request.
//!
//! A failure during an outage says nothing about a name. So it costs the name no attempt, and all waiting orders
//! continue within minutes after the authority is back. Our edge may be away in the same way, as the authority sees it.

use contract::time::UnixMillis;
use parking_lot::Mutex;

use super::AcmeAuthority;
use crate::issuer::{IssueError, IssueRequest};

/// Pause after the first failure, in milliseconds; each further failure doubles it.
const PAUSE: i64 = 15_000;

/// The longest it is left alone.
const PAUSE_MAX: i64 = 5 * 60 * 1_000;

/// Wait of the other orders while one tries the authority, in milliseconds: longer than a few calls take to fail.
const ASKING: i64 = 30_000;

/// The failures in a row, and the time until which no request is sent.
#[derive(Default)]
struct Failing {
    failures: u32,
    until: UnixMillis,
}

/// The state of an authority's outage. The default is no outage.
#[derive(Default)]
pub(super) struct Outage {
    failing: Mutex<Option<Failing>>,
}

impl Outage {
    /// Whether the authority may be asked now; otherwise the time from which it may. During an outage one caller gets
    /// permission to test it, and the others wait.
    pub(super) fn may_ask(&self, now: UnixMillis) -> Result<(), UnixMillis> {
        let mut failing = self.failing.lock();
        let Some(failing) = failing.as_mut() else { return Ok(()) };
        if now < failing.until {
            return Err(failing.until);
        }
        failing.until = now.plus(ASKING);
        Ok(())
    }

    /// The time until which no request is sent; `None` when requests are allowed.
    pub(super) fn until(&self, now: UnixMillis) -> Option<UnixMillis> {
        self.failing.lock().as_ref().map(|failing| failing.until).filter(|until| now < *until)
    }

    /// Records a failure. Returns the time of the next try and the number of failures in a row.
    pub(super) fn failed(&self, now: UnixMillis) -> (UnixMillis, u32) {
        let mut failing = self.failing.lock();
        let failing = failing.get_or_insert_default();
        let pause = PAUSE.saturating_mul(1 << failing.failures.min(10)).min(PAUSE_MAX);
        failing.failures = failing.failures.saturating_add(1);
        failing.until = now.plus(pause);
        (failing.until, failing.failures)
    }

    /// The caller that may test the authority made no request: another one may at once.
    pub(super) fn not_tested(&self, now: UnixMillis) {
        if let Some(failing) = self.failing.lock().as_mut() {
            failing.until = failing.until.min(now);
        }
    }

    /// It answered: for how many times it had not.
    pub(super) fn ended(&self) -> Option<u32> {
        self.failing.lock().take().map(|failing| failing.failures)
    }
}

impl AcmeAuthority {
    /// Fails while no gateway is live, because nothing would answer the challenge, and while the authority cannot connect
    /// to them. The name waits. Our own restart is no such failure: gateways get a moment to come back.
    pub(super) async fn require_edge(&self, request: &IssueRequest) -> Result<(), IssueError> {
        if !self.nodes.has_any_live().await {
            self.core.store.wait_for_edge(self.applicant(request)).await?;
            return Err(IssueError::NoGateway);
        }
        let message = "it could not connect to our gateways when it tried last".to_owned();
        self.edge_outage
            .may_ask(self.core.clock.now())
            .map_err(|until| IssueError::EdgeUnreachable { until: until.plus(999).to_seconds(), message })
    }

    /// Records what the outcome of an order says about our edge.
    pub(super) fn record_edge(&self, error: Option<&IssueError>) {
        let (authority, now) = (&self.settings.name, self.core.clock.now());
        match error {
            Some(IssueError::EdgeUnreachable { message, .. }) => {
                if let (_, 1) = self.edge_outage.failed(now) {
                    tracing::error!(
                        authority,
                        error = message,
                        "the certificate authority cannot connect to our gateways; orders wait, retrying at least every \
                         5 minutes: check that port 80 of each gateway is open to the internet"
                    );
                }
            }
            // It has connected, or has verified the name before.
            None => {
                if let Some(failures) = self.edge_outage.ended() {
                    tracing::info!(authority, failures, "the certificate authority connects to our gateways again");
                }
            }
            // Also when it could not verify a name: the name may lead elsewhere.
            Some(_) => self.edge_outage.not_tested(now),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_order_tests_an_outage_and_its_end_is_noticed_within_minutes() {
        let (outage, mut now) = (Outage::default(), UnixMillis(1_800_000_000_000));
        assert_eq!(outage.may_ask(now), Ok(()));
        let pauses: Vec<i64> = (0..8)
            .map(|_| {
                let (until, _) = outage.failed(now);
                assert_eq!(outage.may_ask(until.plus(-1)), Err(until));
                let pause = until.since(now);
                now = until;
                assert_eq!(outage.may_ask(now), Ok(()));
                assert_eq!(outage.may_ask(now), Err(now.plus(ASKING)), "one at a time");
                pause / 1_000
            })
            .collect();
        assert_eq!(pauses, [15, 30, 60, 120, 240, 300, 300, 300]);
        outage.not_tested(now);
        assert_eq!(outage.may_ask(now), Ok(()), "a test that made no request is another order's");
        assert_eq!(outage.ended(), Some(8));
        assert_eq!((outage.until(now), outage.may_ask(now), outage.ended()), (None, Ok(()), None));
    }
}
