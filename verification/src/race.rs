//! Several servers that can answer one query: the first good answer wins.

use std::future::Future;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;

/// Starts with the first try. Starts the next one after a failure, or after `patience` without a result; earlier tries
/// continue meanwhile. The first good outcome wins.
///
/// # Errors
/// All outcomes, if none is good.
pub(super) async fn first_good<F: Future>(
    tries: Vec<F>,
    patience: Duration,
    is_good: impl Fn(&F::Output) -> bool,
) -> Result<F::Output, Vec<F::Output>> {
    let mut tries = tries.into_iter();
    let mut running = FuturesUnordered::new();
    let mut failed = Vec::new();
    loop {
        running.extend(tries.next());
        match tokio::time::timeout(patience, running.next()).await {
            Ok(Some(outcome)) if is_good(&outcome) => return Ok(outcome),
            Ok(Some(outcome)) => failed.push(outcome),
            Ok(None) => return Err(failed),
            Err(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use futures_util::future::Either;

    use super::*;

    const PATIENCE: Duration = Duration::from_millis(300);

    #[tokio::test(start_paused = true)]
    async fn the_next_server_is_tried_at_once_after_a_failure_and_soon_without_an_answer() {
        let started = tokio::time::Instant::now();
        let outcome = first_good(vec![ready(0), ready(7), ready(0)], PATIENCE, |value| *value > 0).await;
        assert_eq!((outcome, started.elapsed()), (Ok(7), Duration::ZERO));
        let tries = vec![Either::Left(pending()), Either::Right(ready(7))];
        assert_eq!(first_good(tries, PATIENCE, |value| *value > 0).await, Ok(7));
        assert_eq!(started.elapsed(), PATIENCE);
        assert_eq!(first_good(vec![ready(0), ready(-1)], PATIENCE, |value| *value > 0).await, Err(vec![0, -1]));
        assert_eq!(first_good(Vec::<std::future::Ready<i32>>::new(), PATIENCE, |_| true).await, Err(Vec::new()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_answer_of_the_first_still_counts() {
        let slow = async {
            tokio::time::sleep(PATIENCE * 2).await;
            7
        };
        let tries = vec![Either::Left(slow), Either::Right(pending())];
        assert_eq!(first_good(tries, PATIENCE, |value| *value > 0).await, Ok(7));
    }
}
