//! The parts that most modules of the service share: store, clock, sealing secrets, metrics, settings.

use std::sync::Arc;

use chassis::clock::Clock;
use chassis::seal::SealingKey;

use crate::metrics::Metrics;
use crate::settings::Settings;
use crate::store::Store;

/// The store, the clock, the secrets that seal stored data, the metrics, and the settings of all projects.
pub(crate) struct Core {
    pub(crate) store: Store,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) sealing: SealingKey,
    pub(crate) metrics: Metrics,
    pub(crate) settings: Settings,
}

/// A random number in `0.0..1.0` that spreads times. Without randomness it is 0 and everything happens at once, which
/// is slower but not wrong.
pub(crate) fn jitter() -> f64 {
    let bytes = chassis::random::bytes::<4>().unwrap_or_default();
    f64::from(u32::from_be_bytes(bytes)) / (f64::from(u32::MAX) + 1.0)
}
