//! The parts that most modules of the service share: store, clock, sealing secrets, metrics, settings.

use std::sync::Arc;

use chassis::clock::Clock;
use chassis::seal::SealingKey;
use contract::hostname::Hostname;
use contract::key::Environment;

use crate::config::NameRules;
use crate::domain::name::{self, Attachable, NameError};
use crate::metrics::Metrics;
use crate::plans::Plans;
use crate::store::Store;

/// The store, the clock, the secrets that seal stored data, the metrics, and the settings of all projects.
pub(crate) struct Core {
    pub(crate) store: Store,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) sealing: SealingKey,
    pub(crate) metrics: Metrics,
    pub(crate) settings: Settings,
}

/// Settings that decide what projects may do.
pub(crate) struct Settings {
    pub(crate) plans: Plans,
    pub(crate) platform: Hostname,
    pub(crate) environment: Environment,
    pub(crate) names: NameRules,
    /// How long a removed project can be restored, in milliseconds.
    pub(crate) removed_kept_millis: i64,
}

impl Settings {
    /// Validates a name as a domain to attach.
    pub(crate) fn attachable(&self, name: &str) -> Result<Attachable, NameError> {
        name::attachable(name, &self.platform, self.names)
    }
}
