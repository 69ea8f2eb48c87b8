//! The client of the control plane, and the loop that runs this service's periodic tasks against it. Customers'
//! requests do not wait for either.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use chassis::peer::Peer;
use chassis::secret::Secret;
use chassis::shutdown::Shutdown;
use contract::project::ProjectUid;
use contract::trust::known_project_path;
use reqwest::{Client, Method, RequestBuilder, Response, StatusCode};

use crate::store::StoreError;

/// Longest wait for a response.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(10);

/// Back-off after a failed request: the first wait; it doubles up to the longest.
const RETRY_FIRST: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(30);

/// Why a task failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// No connection, or no response.
    #[error("cannot reach the control plane: {0}")]
    Unreached(#[from] reqwest::Error),
    /// An unexpected status.
    #[error("the control plane answered {0}")]
    Refused(StatusCode),
    /// The store of this service failed.
    #[error("the database failed: {0}")]
    Store(#[from] StoreError),
}

/// A client of the control plane. Clones share connections.
#[derive(Clone)]
pub(crate) struct ControlPlane {
    client: Client,
    peer: Peer,
    token: Secret,
}

impl ControlPlane {
    pub(crate) fn new(peer: Peer, token: Secret) -> anyhow::Result<Self> {
        let client = peer.client().and_then(|builder| Ok(builder.timeout(ANSWER_TIME_MAX).build()?));
        Ok(Self { client: client.context("creating the HTTP client for the control plane")?, peer, token })
    }

    /// A request with this service's credential.
    pub(crate) fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.client.request(method, self.peer.at(path)).bearer_auth(self.token.to_token().as_str())
    }

    /// Whether a project with this identity exists.
    pub(crate) async fn has_project(&self, project: &ProjectUid) -> Result<bool, Failure> {
        let answer = self.request(Method::GET, &known_project_path(project)).send().await?;
        match answer.status() {
            StatusCode::NO_CONTENT => Ok(true),
            // An older control plane does not have this path: it also answers 404, but with another code.
            StatusCode::NOT_FOUND if code(answer).await.as_deref() == Some("project_not_found") => Ok(false),
            status => Err(Failure::Refused(status)),
        }
    }
}

async fn code(answer: Response) -> Option<String> {
    answer.json::<contract::error::ErrorBody>().await.ok().map(|body| body.code)
}

/// A task that runs repeatedly until shutdown.
pub(crate) trait PeriodicTask: Send + Sync {
    /// Logged at the first failure in a row.
    const FAILED: &'static str;
    /// Logged at the first success after failures.
    const RECOVERED: &'static str;

    /// Longest wait after a failed round.
    const RETRY_MAX: Duration = RETRY_MAX;

    /// Runs once and returns the wait until the next round.
    fn round(&self) -> impl Future<Output = Result<Duration, Failure>> + Send;
}

/// Runs a task until `shutdown` and backs off while it fails. A round that shutdown interrupts is repeated after the
/// next start.
pub(crate) async fn run_periodically<T: PeriodicTask>(task: Arc<T>, shutdown: Shutdown) {
    let mut failures = 0_u32;
    while !shutdown.has_begun() {
        let round = tokio::select! {
            round = task.round() => round,
            () = shutdown.begun() => return,
        };
        let wait = match round {
            Ok(wait) => {
                if failures > 0 {
                    tracing::info!("{}", T::RECOVERED);
                }
                failures = 0;
                wait
            }
            Err(error) => {
                if failures == 0 {
                    tracing::warn!(%error, "{}", T::FAILED);
                }
                failures = failures.saturating_add(1);
                RETRY_FIRST.saturating_mul(1 << (failures - 1).min(5)).min(T::RETRY_MAX)
            }
        };
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = shutdown.begun() => return,
        }
    }
}
