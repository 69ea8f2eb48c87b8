//! How many requests may be sent a second time: a tenth of them.
//!
//! An upstream that drops connections because it is overwhelmed is not helped by getting every request twice. Each
//! request earns a tenth of a retry, ten can be saved up, and without any the client is told the truth at once. Another
//! address after a connection that was refused costs nothing: each upstream still gets the request once. Neither does a fresh
//! connection after one that was reset, or did not answer a PING, and over which nothing had come since the request was sent:
//! the network lost that one, or its server is gone.

use std::sync::atomic::{AtomicU32, Ordering};

/// Requests that earn one retry.
const REQUESTS_PER_RETRY: u32 = 10;

/// Retries that can be saved up.
const SAVED_MAX: u32 = 10;

/// The budget of one upstream, in tenths of a retry. Full at the start.
#[derive(Debug)]
pub(crate) struct RetryBudget(AtomicU32);

impl Default for RetryBudget {
    fn default() -> Self {
        Self(AtomicU32::new(SAVED_MAX * REQUESTS_PER_RETRY))
    }
}

impl RetryBudget {
    /// A request is sent for the first time.
    pub(crate) fn earn(&self) {
        let full = SAVED_MAX * REQUESTS_PER_RETRY;
        // Full is the usual case, and a look costs other cores nothing.
        if self.0.load(Ordering::Relaxed) < full {
            let _ =
                self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |saved| (saved < full).then_some(saved + 1));
        }
    }

    /// Whether a request may be sent again; if so, that retry is spent.
    pub(crate) fn spend(&self) -> bool {
        let spent = |saved: u32| saved.checked_sub(REQUESTS_PER_RETRY);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, spent).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenth_of_the_requests_may_be_sent_again() {
        let budget = RetryBudget::default();
        let saved = (0..100).filter(|_| budget.spend()).count();
        assert_eq!(saved, 10, "what was saved up");
        let again = (0..1_000).filter(|_| {
            budget.earn();
            budget.spend()
        });
        assert_eq!(again.count(), 100);
        (0..10_000).for_each(|_| budget.earn());
        assert_eq!((0..100).filter(|_| budget.spend()).count(), 10, "no more than ten are saved");
    }
}
