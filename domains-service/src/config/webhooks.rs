//! The settings of outgoing webhooks.

use std::time::Duration;

use chassis::config::Section;

/// How outgoing webhooks are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WebhookConfig {
    /// Whether receivers may speak plain HTTP: never, except in a test world or a private network.
    pub allow_http: bool,
    /// Whether receivers may be at private addresses. A customer chooses where our packets go.
    pub allow_private_addresses: bool,
    /// From opening a connection to the head of the answer: 1 s to 1 min.
    pub timeout: Duration,
    /// An endpoint that has failed for this long, without one delivery, is disabled: 1 h to 30 d.
    pub disable_after: Duration,
}

impl Default for WebhookConfig {
    fn default() -> Self {
        Self {
            allow_http: false,
            allow_private_addresses: false,
            timeout: Duration::from_secs(15),
            disable_after: Duration::from_hours(5 * 24),
        }
    }
}

/// The `[webhooks]` table; `None` when a mistake was reported.
pub(super) fn read(section: &Section<'_>) -> Option<WebhookConfig> {
    let default = WebhookConfig::default();
    let (second, minute) = (Duration::from_secs(1), Duration::from_mins(1));
    let (hour, month) = (Duration::from_hours(1), Duration::from_hours(30 * 24));
    chassis::settings!(WebhookConfig {
        allow_http: section.flag("allow_http", default.allow_http),
        allow_private_addresses: section.flag("allow_private_addresses", default.allow_private_addresses),
        timeout: section.duration("timeout", default.timeout, second..=minute),
        disable_after: section.duration("disable_after", default.disable_after, hour..=month),
    })
}
