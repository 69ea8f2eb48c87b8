//! The retry budget: at most a tenth of the requests are retried.
//!
//! An upstream that drops connections because of overload must not get every request twice. Each request earns a tenth
//! of a retry, and ten can be saved. Without budget the client gets the refusal at once. Retries are free if the
//! upstream has not seen the request (no connection was made, or it was reset or did not answer a PING and has received
//! nothing since the request was sent), and if another address is reliable: then the upstream is not overloaded.

use std::sync::atomic::{AtomicU32, Ordering};

/// Requests that earn one retry.
const REQUESTS_PER_RETRY: u32 = 10;

/// The most retries that can be saved.
const SAVED_MAX: u32 = 10;

/// The budget of one upstream, in tenths of a retry. Full at the start.
#[derive(Debug)]
pub struct RetryBudget(AtomicU32);

impl Default for RetryBudget {
    fn default() -> Self {
        Self(AtomicU32::new(SAVED_MAX * REQUESTS_PER_RETRY))
    }
}

impl RetryBudget {
    /// A request is sent for the first time.
    pub fn earn(&self) {
        let full = SAVED_MAX * REQUESTS_PER_RETRY;
        // The budget is usually full, and a load does not disturb other cores.
        if self.0.load(Ordering::Relaxed) < full {
            let _ =
                self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |saved| (saved < full).then_some(saved + 1));
        }
    }

    /// Whether a request may be retried; spends a retry if so.
    pub fn spend(&self) -> bool {
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
        assert_eq!(saved, 10, "the saved retries");
        let again = (0..1_000).filter(|_| {
            budget.earn();
            budget.spend()
        });
        assert_eq!(again.count(), 100);
        (0..10_000).for_each(|_| budget.earn());
        assert_eq!((0..100).filter(|_| budget.spend()).count(), 10, "no more than ten are saved");
    }
}
