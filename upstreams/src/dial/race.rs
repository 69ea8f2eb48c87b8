//! Connects to two addresses at once if the first does not answer: an address that drops packets costs a quarter of a
//! second, not the whole connect timeout (RFC 8305 section 5).

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::time::{Instant, timeout};

use crate::{DialError, DialFailure, Endpoint, Endpoints};

/// How long the first address has before another one is tried too: the recommended delay of RFC 8305 section 8.
const RACE_AFTER: Duration = Duration::from_millis(250);

/// Connects to `first` with `connect`, and also to another address if there is no result soon. Returns the connection
/// and its address, if that is another one. An address that fails is recorded as failing, so that requests avoid it
/// until it has accepted a connection again; so is one that loses if `late_is_failed`. `now` is the monotonic time at
/// the start. The error is that of `first`, whose record is left to the caller.
pub(super) async fn race<T, F>(
    endpoints: &Endpoints,
    first: &Arc<Endpoint>,
    (now, late_is_failed): (Duration, bool),
    connect: impl Fn(Arc<Endpoint>) -> F,
) -> Result<(T, Option<Arc<Endpoint>>), DialError>
where
    F: Future<Output = Result<T, DialError>>,
{
    let began = Instant::now();
    let mut one = pin!(connect(first.clone()));
    // Usually there is a kept connection: no timer then.
    if let Poll::Ready(ended) = poll_fn(|cx| Poll::Ready(one.as_mut().poll(cx))).await {
        return ended.map(|won| (won, None));
    }
    if let Ok(ended) = timeout(RACE_AFTER, &mut one).await {
        return ended.map(|won| (won, None));
    }
    let Some(other) = endpoints.another(first, now) else { return one.await.map(|won| (won, None)) };
    let mut two = pin!(connect(other.clone()));
    let ended = tokio::select! {
        ended = &mut one => match ended {
            Ok(won) => return Ok((won, None)),
            Err(error) => (Err(error), two.await),
        },
        ended = &mut two => match ended {
            Ok(won) if !late_is_failed => return Ok((won, Some(other))),
            Ok(won) => (Err(DialError::because(DialFailure::TimedOut, "another address accepted sooner")), Ok(won)),
            Err(error) => (one.await, Err(error)),
        },
    };
    let now = now + began.elapsed();
    if let Err(error) = &ended.1 {
        other.failed_because(error, now);
    }
    match ended {
        (Ok(won), _) => Ok((won, None)),
        (Err(error), Ok(won)) => {
            first.failed_because(&error, now);
            Ok((won, Some(other)))
        }
        (Err(error), Err(_)) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::Semaphore;
    use tokio::time::sleep;

    use super::*;
    use crate::{ConnectionLimits, HostPort};

    const NOW: Duration = Duration::from_secs(10);

    /// The port, by which the tests know an address.
    fn number(endpoint: &Endpoint) -> u16 {
        let (_, port) = endpoint.text().rsplit_once(':').unwrap();
        port.parse().unwrap()
    }

    /// The result of a race between two addresses that connect or fail after this many milliseconds: the number of the
    /// winner, or `None`; and how many addresses are failing then.
    async fn run(one: (u64, bool), two: (u64, bool), late_is_failed: bool) -> (Option<u16>, usize) {
        let configured: [HostPort; 2] = ["127.0.0.1:1".parse().unwrap(), "127.0.0.1:2".parse().unwrap()];
        let limits = ConnectionLimits { age: Duration::from_secs(1), requests: 1 };
        let endpoints = Endpoints::new(&configured, limits, Arc::new(Semaphore::new(1)), false);
        let all = [endpoints.choose(None, true, NOW).unwrap(), endpoints.choose(None, true, NOW).unwrap()];
        let first = all.iter().find(|endpoint| number(endpoint) == 1).unwrap();
        let raced = race(&endpoints, first, (NOW, late_is_failed), |endpoint| async move {
            let (after, works) = if number(&endpoint) == 1 { one } else { two };
            sleep(Duration::from_millis(after)).await;
            if works { Ok(()) } else { Err(DialError::because(DialFailure::Refused, "")) }
        });
        let won = raced.await.ok().map(|((), other)| other.map_or(1, |other| number(&other)));
        (won, endpoints.len() - endpoints.up(NOW))
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_address_has_a_head_start_of_a_quarter_of_a_second() {
        for (one, two, expected) in [
            ((249, true), (0, true), (Some(1), 0)),
            ((251, true), (0, true), (Some(2), 1)),
            ((300, true), (100, true), (Some(1), 0)),
            ((300, false), (100, true), (Some(2), 1)),
            ((300, true), (10, false), (Some(1), 1)),
            ((10, false), (0, true), (None, 0)),
            ((300, false), (10, false), (None, 1)),
            ((300, false), (900, false), (None, 1)),
        ] {
            assert_eq!(run(one, two, true).await, expected, "{one:?} {two:?}");
        }
        // A connection of HTTP/2 may be late because it is full.
        assert_eq!(run((251, true), (0, true), false).await, (Some(2), 0));
        assert_eq!(run((300, false), (100, true), false).await, (Some(2), 1));
    }
}
