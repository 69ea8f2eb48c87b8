//! The part that most modules of the service use: store, clock, sealing secrets, metrics, settings.

use std::sync::Arc;

use chassis::clock::Clock;
use chassis::seal::SealingKey;
use contract::hostname::Hostname;
use contract::key::Environment;
use tokio::sync::Notify;

use crate::config::{Config, NameRules};
use crate::domain::name::{self, Attachable, NameError};
use crate::metrics::Metrics;
use crate::plans::Plans;
use crate::store::Store;

/// A day.
const DAY_MILLIS: i64 = 86_400 * 1_000;

/// The store, the clock, the secrets that seal stored data, the metrics, and the settings of all projects.
pub(crate) struct Core {
    pub(crate) store: Store,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) sealing: SealingKey,
    pub(crate) metrics: Metrics,
    pub(crate) settings: Settings,
    /// Wakes the worker: a domain is due.
    pub(crate) wake: Notify,
}

/// Settings that decide what projects may do.
pub(crate) struct Settings {
    pub(crate) plans: Plans,
    pub(crate) platform: Hostname,
    /// Holds the names that custom domains point at.
    pub(crate) edge_zone: Hostname,
    pub(crate) environment: Environment,
    pub(crate) names: NameRules,
    /// How long a removed project can be restored, in milliseconds.
    pub(crate) removed_kept_millis: i64,
}

impl Core {
    /// With these settings.
    pub(crate) fn new(config: &Config, store: Store, clock: Arc<dyn Clock>, metrics: Metrics) -> anyhow::Result<Self> {
        let settings = Settings {
            plans: config.plans.clone(),
            platform: config.platform_domain.clone(),
            edge_zone: config.edge_zone()?,
            environment: config.environment,
            names: config.names,
            removed_kept_millis: i64::from(config.removed_projects_kept_days) * DAY_MILLIS,
        };
        let sealing = SealingKey::of(&config.sealing_secret)?;
        Ok(Self { store, clock, sealing, metrics, settings, wake: Notify::new() })
    }
}

impl Settings {
    /// Validates a name as a domain to attach.
    pub(crate) fn attachable(&self, name: &str) -> Result<Attachable, NameError> {
        name::attachable(name, &self.platform, self.names)
    }
}
