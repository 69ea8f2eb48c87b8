//! The parts that most modules of the service share: store, clock, sealing secrets, metrics.

use std::sync::Arc;

use chassis::clock::Clock;
use chassis::seal::SealingKey;

use crate::metrics::Metrics;
use crate::store::Store;

/// The store, the time, what seals secrets at rest, and what is counted.
pub(crate) struct Core {
    pub(crate) store: Store,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) sealing: SealingKey,
    pub(crate) metrics: Metrics,
}

/// A number in `0.0..1.0` for spreading moments. Should there be no randomness, everything happens at once: slower,
/// not wrong.
pub(crate) fn jitter() -> f64 {
    let bytes = chassis::random::bytes::<4>().unwrap_or_default();
    f64::from(u32::from_be_bytes(bytes)) / (f64::from(u32::MAX) + 1.0)
}
