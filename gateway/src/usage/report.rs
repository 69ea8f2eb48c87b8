//! Reports usage to the control plane.

use std::sync::Arc;
use std::time::Duration;

use chassis::clock::Clock;
use chassis::peer::Peer;
use chassis::secret::Secret;
use contract::ban::Ban;
use contract::usage::{BANS_MAX, KEY_USES_MAX, KeyReport, USAGE_PROJECTS_MAX, UsageReport};
use serde::Serialize;

use super::UsageCounts;
use quota::Quota;

/// Interval of the reports.
const INTERVAL: Duration = Duration::from_secs(2);

/// The longest time for one report.
const REPORT_MAX: Duration = Duration::from_secs(2);

/// Reports of a kind in one round: a thousand projects, three thousand keys. The others wait for the next round.
const REPORTS_PER_ROUND: usize = 20;

/// Unchanged bans are reported this often, because the control plane drops bans that are not repeated.
const BANS_INTERVAL: Duration = Duration::from_secs(10);

/// The target of reports, and the sender.
pub(crate) struct Reporter {
    /// The control plane's internal listener.
    pub control: Peer,
    /// The token for it.
    pub token: Secret,
    /// This node's name.
    pub node: String,
    /// The usage to report.
    pub counts: Arc<UsageCounts>,
    /// The source of bans.
    pub quota: Quota,
    /// The time.
    pub clock: Arc<dyn Clock>,
}

/// The last reported bans, and when.
#[derive(Default)]
struct ReportedBans {
    bans: Vec<Ban>,
    total: u64,
    at: Duration,
}

impl ReportedBans {
    /// Whether these bans must be reported.
    fn is_outdated(&self, bans: &[Ban], total: u64, now: Duration) -> bool {
        let is_over_time = total > 0 && now.saturating_sub(self.at) >= BANS_INTERVAL;
        is_over_time || self.total != total || self.bans != bans
    }
}

impl Reporter {
    /// Reports until dropped.
    pub(crate) async fn run(&self) {
        let Ok(client) = self.control.client().and_then(|client| Ok(client.timeout(REPORT_MAX).build()?)) else {
            return;
        };
        let mut reported = ReportedBans::default();
        loop {
            tokio::time::sleep(INTERVAL).await;
            self.report_usage(&client).await;
            self.report_keys(&client, &mut reported).await;
        }
    }

    async fn report_usage(&self, client: &reqwest::Client) {
        for _ in 0..REPORTS_PER_ROUND {
            let projects = self.counts.take(USAGE_PROJECTS_MAX);
            if projects.is_empty() {
                return;
            }
            let report = UsageReport { node: self.node.clone(), projects };
            if let Err(error) = self.send(client, "usage", &report).await {
                tracing::debug!(%error, "cannot report usage; retrying in the next round");
                self.counts.give_back(report.projects);
                return;
            }
        }
    }

    async fn report_keys(&self, client: &reqwest::Client, reported: &mut ReportedBans) {
        for _ in 0..REPORTS_PER_ROUND {
            let mut bans = self.quota.bans();
            let total = u64::try_from(bans.len()).unwrap_or(u64::MAX);
            bans.truncate(BANS_MAX);
            let used = self.counts.keys.take(KEY_USES_MAX, self.clock.now());
            let now = self.clock.monotonic();
            if used.is_empty() && !reported.is_outdated(&bans, total, now) {
                return;
            }
            let report = KeyReport { node: self.node.clone(), used, bans, bans_total: total };
            if let Err(error) = self.send(client, "keys", &report).await {
                tracing::debug!(%error, "cannot report key use and bans; retrying in the next round");
                self.counts.keys.give_back(report.used);
                return;
            }
            *reported = ReportedBans { bans: report.bans, total, at: now };
        }
    }

    /// Sends a report. If the control plane refuses a part of it for lack of space, that part is not sent again before
    /// its figures change: an immediate retry would delay other reports.
    async fn send(&self, client: &reqwest::Client, what: &str, report: &impl Serialize) -> reqwest::Result<()> {
        let url = self.control.at(&format!("/internal/edge/{what}"));
        let sent = client.post(url).bearer_auth(&*self.token.to_token()).json(report).send().await?;
        if sent.status() == reqwest::StatusCode::TOO_MANY_REQUESTS {
            tracing::debug!(what, "the control plane dropped part of a report; its log says why");
            return Ok(());
        }
        sent.error_for_status().map(drop)
    }
}

#[cfg(test)]
mod tests {
    use contract::ban::BanReason;
    use contract::key::KeyId;
    use contract::time::UnixSeconds;

    use super::*;

    #[test]
    fn bans_are_reported_when_they_change_and_repeatedly_while_they_last() {
        let ban = Ban {
            key: KeyId::from_random([7; 10]),
            since: UnixSeconds(0),
            until: UnixSeconds(60),
            reason: BanReason::Strikes,
            level: 1,
            shadow: false,
        };
        let seconds = Duration::from_secs;
        let nothing = ReportedBans::default();
        assert!(!nothing.is_outdated(&[], 0, seconds(1_000)), "the control plane knows that there are none");
        assert!(nothing.is_outdated(std::slice::from_ref(&ban), 1, seconds(0)));
        let reported = ReportedBans { bans: vec![ban.clone()], total: 1, at: seconds(100) };
        assert!(!reported.is_outdated(std::slice::from_ref(&ban), 1, seconds(109)));
        assert!(reported.is_outdated(std::slice::from_ref(&ban), 1, seconds(110)));
        assert!(reported.is_outdated(std::slice::from_ref(&ban), 2, seconds(101)), "others that are not listed");
        assert!(reported.is_outdated(&[], 0, seconds(101)), "their end is reported once");
    }
}
