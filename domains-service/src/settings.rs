//! Settings that apply to all projects: plans, platform domain, rules for names, restore period.

use contract::hostname::Hostname;
use contract::key::Environment;

use crate::config::NameRules;
use crate::domain::name::{self, Attachable, NameError};
use crate::plans::Plans;

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
