//! Telling the control plane.

use std::sync::Arc;
use std::time::Duration;

use chassis::secret::Secret;
use contract::usage::{USAGE_PROJECTS_MAX, UsageReport};

use super::UsageBook;

/// Between two reports.
const INTERVAL: Duration = Duration::from_secs(2);

/// How long one may take.
const REPORT_MAX: Duration = Duration::from_secs(2);

/// Reports in one round: a thousand projects. More of them wait for the next.
const REPORTS_PER_ROUND: usize = 20;

/// Where to report, and as whom.
pub struct Reporter {
    /// Base URL of the control plane's internal listener.
    pub url: String,
    /// The token for it.
    pub token: Secret,
    /// This node's name.
    pub node: String,
    /// What is reported.
    pub book: Arc<UsageBook>,
}

impl Reporter {
    /// Reports until it is dropped.
    pub async fn run(self) {
        let Ok(client) = reqwest::Client::builder().timeout(REPORT_MAX).no_proxy().build() else { return };
        loop {
            tokio::time::sleep(INTERVAL).await;
            self.round(&client).await;
        }
    }

    async fn round(&self, client: &reqwest::Client) {
        for _ in 0..REPORTS_PER_ROUND {
            let projects = self.book.take(USAGE_PROJECTS_MAX);
            if projects.is_empty() {
                return;
            }
            let report = UsageReport { node: self.node.clone(), projects };
            let url = format!("{}/internal/edge/usage", self.url);
            let sent = client.post(url).bearer_auth(&*self.token.to_token()).json(&report).send().await;
            match sent.and_then(reqwest::Response::error_for_status) {
                Ok(_) => {}
                Err(error) => {
                    tracing::debug!(%error, "usage could not be reported; it waits for the next round");
                    self.book.give_back(report.projects);
                    return;
                }
            }
        }
    }
}
