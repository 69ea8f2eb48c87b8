//! How long a call to the store may take, on a machine that is too busy to read the answer in time.

use std::time::Duration;

use tokio::time::{Instant, timeout, timeout_at};

/// The answer to a call, if it comes within its budget. `None` afterwards.
///
/// A process that gets no processor reads an answer later than it arrived, and its timers are as late. So a call has as much
/// more time as its timer was late, at most its budget once more: our own delay is not counted as silence of the store.
pub(super) async fn within<T>(budget: Duration, call: impl Future<Output = T>) -> Option<T> {
    let mut call = std::pin::pin!(call);
    let due = Instant::now() + budget;
    if let Ok(answer) = timeout_at(due, &mut call).await {
        return Some(answer);
    }
    timeout(due.elapsed().min(budget), call).await.ok()
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;
    use tokio::task::yield_now;

    use super::*;

    const BUDGET: Duration = Duration::from_millis(50);

    #[tokio::test(start_paused = true)]
    async fn a_call_that_is_not_answered_ends_with_its_budget() {
        let began = Instant::now();
        assert_eq!(within(BUDGET, std::future::pending::<()>()).await, None);
        assert!(began.elapsed() <= BUDGET + Duration::from_millis(2), "{:?}", began.elapsed());
        assert_eq!(within(BUDGET, async { 7 }).await, Some(7));
    }

    /// A process that stands still for four budgets, with the answer in a socket that another task has yet to read.
    #[tokio::test(start_paused = true)]
    async fn an_answer_that_waits_to_be_read_by_a_busy_process_counts() {
        let (sender, receiver) = oneshot::channel();
        let call = tokio::spawn(within(BUDGET, receiver));
        yield_now().await;
        tokio::time::advance(BUDGET * 4).await;
        for _ in 0..3 {
            yield_now().await;
        }
        sender.send(7).unwrap();
        assert_eq!(call.await.unwrap(), Some(Ok(7)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_busy_process_waits_for_a_silent_store_for_another_budget_at_most() {
        let began = Instant::now();
        let call = tokio::spawn(within(BUDGET, std::future::pending::<()>()));
        yield_now().await;
        tokio::time::advance(BUDGET * 4).await;
        assert_eq!(call.await.unwrap(), None);
        assert!(began.elapsed() <= BUDGET * 5 + Duration::from_millis(2), "{:?}", began.elapsed());
    }
}
