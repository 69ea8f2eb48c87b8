//! The program of the README works as described.
#![allow(dead_code, reason = "its main is not called")]

#[path = "../examples/limiter.rs"]
mod limiter;

use std::sync::Arc;

use chassis::clock::ManualClock;
use contract::time::UnixMillis;

#[tokio::test]
async fn two_of_three_requests_of_a_minute_are_admitted() {
    let lines = limiter::three_requests(Arc::new(ManualClock::at(UnixMillis(60_000)))).await.unwrap();
    let expected = "200, 1 left in this minute\n200, 0 left in this minute\n429, the minute resets at 120\n";
    assert_eq!(lines, expected);
}
