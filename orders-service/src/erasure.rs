//! Erases what is kept of projects that are gone for good, as the control plane says.
//!
//! This service asks, and says when it is done; until then the control plane tells it again. So nothing is forgotten
//! while either side is down: it is late.

use std::sync::Arc;
use std::time::Duration;

use chassis::clock::Clock;
use chassis::secret::Secret;
use chassis::shutdown::Shutdown;
use contract::erasure::{ERASURES_PATH, Erasures};
use reqwest::{Client, StatusCode};

use crate::handover::{ControlPlane, client};
use crate::orders::Orders;
use crate::store::StoreError;

/// Between two questions.
const ASK_INTERVAL: Duration = Duration::from_secs(1);

/// After questions that failed: the longest wait of those that double from [`ASK_INTERVAL`].
const RETRY_MAX: Duration = Duration::from_secs(30);

/// Who erases.
pub(crate) struct Eraser {
    orders: Orders,
    clock: Arc<dyn Clock>,
    client: Client,
    url: String,
    token: Secret,
}

/// Why not everything is erased.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("the control plane is not reached: {0}")]
    Unreached(#[from] reqwest::Error),
    #[error("the control plane answered {0}")]
    Refused(StatusCode),
    #[error("the store has trouble: {0}")]
    Store(#[from] StoreError),
}

impl Eraser {
    /// Asking the control plane of the settings, with the token that only services of this platform have.
    ///
    /// # Errors
    /// When there can be no HTTP client.
    pub(crate) fn new(
        orders: Orders,
        clock: Arc<dyn Clock>,
        control_plane: &ControlPlane,
        secret: &Secret,
    ) -> anyhow::Result<Self> {
        let token = chassis::guard::events_token(secret);
        Ok(Self { orders, clock, client: client()?, url: control_plane.at(ERASURES_PATH), token })
    }

    /// Asks and erases until `shutdown`.
    pub(crate) async fn run(self, shutdown: Shutdown) {
        let mut failures = 0_u32;
        while !shutdown.has_begun() {
            let round = tokio::select! {
                round = self.round() => round,
                () = shutdown.begun() => return,
            };
            match round {
                Ok(()) => failures = 0,
                Err(error) => {
                    if failures == 0 {
                        tracing::warn!(%error, "removed projects cannot be erased now; trying again");
                    }
                    failures = failures.saturating_add(1);
                }
            }
            let wait = ASK_INTERVAL.saturating_mul(1 << failures.min(5)).min(RETRY_MAX);
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = shutdown.begun() => return,
            }
        }
    }

    async fn round(&self) -> Result<(), Failure> {
        let token = self.token.to_token();
        let answer = self.client.get(&self.url).bearer_auth(token.as_str()).send().await?;
        // An older control plane knows nothing of erasures.
        if answer.status() == StatusCode::NOT_FOUND {
            return Ok(());
        }
        if answer.status() != StatusCode::OK {
            return Err(Failure::Refused(answer.status()));
        }
        let wanted: Erasures = answer.json().await?;
        if wanted.projects.is_empty() {
            return Ok(());
        }
        for project in &wanted.projects {
            self.orders.store().erase(project, self.clock.now()).await?;
            tracing::info!(project.uid = %project, "everything of a removed project was erased");
        }
        let status = self.client.post(&self.url).bearer_auth(token.as_str()).json(&wanted).send().await?.status();
        if status == StatusCode::NO_CONTENT { Ok(()) } else { Err(Failure::Refused(status)) }
    }
}
