//! A rate limiter in another program: two requests per minute for each project, counted in this process. With
//! [`quota::store::redis::RedisStore`] as the store, all processes that use one Redis count together.

use std::sync::Arc;

use chassis::clock::{Clock, SystemClock};
use contract::key::KeyId;
use contract::plan::Limits;
use quota::settings::QuotaSettings;
use quota::store::memory::MemoryStore;
use quota::{ChargeError, Quota};

/// The results of three requests of one project, as three lines.
pub(crate) async fn three_requests(clock: Arc<dyn Clock>) -> Option<String> {
    let quota = Quota::new(Arc::new(MemoryStore::new(clock.clone(), 1_000)), QuotaSettings::new(1), clock);
    let (project, key, limits) = ("shop".parse().ok()?, KeyId::from_random([7; 10]), Limits::new(2, 1_000)?);
    let mut lines = String::new();
    for _ in 0..3 {
        lines += &match quota.charge(&project, limits, &key).await {
            Ok(allowances) => format!("200, {} left in this minute\n", allowances.minute.remaining),
            Err(ChargeError::Exceeded { allowances, window }) => {
                format!("429, the {} resets at {}\n", window.as_str(), allowances.of(window).resets_at.0)
            }
            Err(ChargeError::Banned { until, .. }) => format!("429, banned until {}\n", until.0),
            Err(ChargeError::Unavailable { retry_after_seconds, .. }) => {
                format!("503, retry in {retry_after_seconds} s\n")
            }
        };
    }
    Some(lines)
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    print!("{}", three_requests(Arc::new(SystemClock::new())).await.unwrap_or_default());
}
