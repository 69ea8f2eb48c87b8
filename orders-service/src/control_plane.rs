//! The control plane as this service speaks to it: where it is, what this service proves itself with, and how often it is
//! asked. Requests of customers wait for none of this.

use std::time::Duration;

use anyhow::Context as _;
use chassis::peer::Peer;
use chassis::secret::Secret;
use chassis::shutdown::Shutdown;
use contract::project::ProjectUid;
use contract::trust::known_project_path;
use reqwest::{Client, Method, RequestBuilder, Response, StatusCode};

use crate::store::StoreError;

/// How long one question may take.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(10);

/// After a question that failed: the first wait, and the longest of those that double from there.
const RETRY_FIRST: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(30);

/// Why the control plane was not asked, or what it was asked could not be done.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// No connection, or no answer.
    #[error("the control plane is not reached: {0}")]
    Unreached(#[from] reqwest::Error),
    /// An answer that is not the one.
    #[error("the control plane answered {0}")]
    Refused(StatusCode),
    /// Our own store.
    #[error("the store has trouble: {0}")]
    Store(#[from] StoreError),
}

/// The way to the control plane. Clones share connections.
#[derive(Clone)]
pub(crate) struct ControlPlane {
    client: Client,
    place: Peer,
    token: Secret,
}

impl ControlPlane {
    pub(crate) fn new(place: Peer, token: Secret) -> anyhow::Result<Self> {
        let client = place.client().and_then(|builder| Ok(builder.timeout(ANSWER_TIME_MAX).build()?));
        Ok(Self { client: client.context("an HTTP client for the control plane")?, place, token })
    }

    /// A request to it, as this service.
    pub(crate) fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.client.request(method, self.place.at(path)).bearer_auth(self.token.to_token().as_str())
    }

    /// Whether there is a project with this identity.
    pub(crate) async fn has_project(&self, project: &ProjectUid) -> Result<bool, Failure> {
        let answer = self.request(Method::GET, &known_project_path(project)).send().await?;
        match answer.status() {
            StatusCode::NO_CONTENT => Ok(true),
            // An older control plane has nothing at this path, and says so in other words.
            StatusCode::NOT_FOUND if code(answer).await.as_deref() == Some("project_not_found") => Ok(false),
            status => Err(Failure::Refused(status)),
        }
    }
}

async fn code(answer: Response) -> Option<String> {
    answer.json::<contract::error::ErrorBody>().await.ok().map(|body| body.code)
}

/// Something that is done again and again.
pub(crate) trait PeriodicTask: Send + Sync {
    /// Said once when it begins to fail, and once when it goes on.
    const FAILED: &'static str;
    /// See [`PeriodicTask::FAILED`].
    const RECOVERED: &'static str;

    /// The longest wait after a round that failed.
    const RETRY_MAX: Duration = RETRY_MAX;

    /// Does it once; how long until it is done again.
    fn round(&self) -> impl Future<Output = Result<Duration, Failure>> + Send;
}

/// Does it until `shutdown`, ever rarer while it fails. What is on its way then is repeated at the next start.
pub(crate) async fn run_periodically<C: PeriodicTask>(chore: C, shutdown: Shutdown) {
    let mut failures = 0_u32;
    while !shutdown.has_begun() {
        let round = tokio::select! {
            round = chore.round() => round,
            () = shutdown.begun() => return,
        };
        let wait = match round {
            Ok(wait) => {
                if failures > 0 {
                    tracing::info!("{}", C::RECOVERED);
                }
                failures = 0;
                wait
            }
            Err(error) => {
                if failures == 0 {
                    tracing::warn!(%error, "{}", C::FAILED);
                }
                failures = failures.saturating_add(1);
                RETRY_FIRST.saturating_mul(1 << (failures - 1).min(5)).min(C::RETRY_MAX)
            }
        };
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = shutdown.begun() => return,
        }
    }
}
