//! Measures what charging one busy bucket costs, in nanoseconds of one core: the ledger with its lease, the ban table
//! and the figures for the headers, without network. `bench/run side-by-side` compares it with the cost of a whole
//! request.

use std::sync::Arc;
use std::time::Instant;

use anyhow::Context as _;
use chassis::clock::{Clock, SystemClock};
use contract::key::KeyId;
use contract::plan::Limits;
use quota::Quota;
use quota::allowance::QuotaOutcome;
use quota::settings::QuotaSettings;
use quota::store::memory::MemoryStore;

/// Requests measured.
const REQUESTS: u32 = 2_000_000;

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let store = Arc::new(MemoryStore::new(clock.clone(), 1_000));
    let quota = Quota::new(store, QuotaSettings::new(1), clock);
    let (project, key) = ("hot".parse()?, KeyId::from_random([7; 10]));
    let limits = Limits::new(u32::MAX, u32::MAX).context("limits")?;
    let began = Instant::now();
    let mut figures = 0_u64;
    for request in 0..REQUESTS {
        let allowances = quota.charge(&project, limits, &key).await.map_err(|error| anyhow::anyhow!("{error:?}"))?;
        figures += u64::from(allowances.rate_limit_headers(QuotaOutcome::Admitted).remaining);
        figures += (allowances.policy_field().len() + allowances.ratelimit_field(QuotaOutcome::Admitted).len()) as u64;
        if request % 1_000 == 0 {
            // Prefetches run in tasks beside the requests.
            tokio::task::yield_now().await;
        }
    }
    let nanoseconds = began.elapsed().as_nanos() / u128::from(REQUESTS);
    anyhow::ensure!(figures > 0, "nothing was left from the first request on");
    println!("{nanoseconds}");
    Ok(())
}
