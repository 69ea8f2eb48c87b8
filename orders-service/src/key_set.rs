//! Which keys of gateways are believed: those that the control plane publishes, asked for again and again, so that a
//! change of keys, or a gateway that is revoked, is known within a second or two. Requests wait for none of this: while
//! the control plane is away, the keys from before are believed.

use std::time::Duration;

use anyhow::Context as _;
use chassis::guard::TrustedKeys;
use chassis::secret::Secret;
use chassis::shutdown::Shutdown;
use contract::token::KeySet;
use reqwest::Client;

use crate::handover::ControlPlane;

/// Between two questions.
const ASK_EVERY: Duration = Duration::from_secs(1);

/// How long the control plane may take.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(2);

/// Asks the control plane.
pub(crate) struct Publisher {
    client: Client,
    url: String,
    token: Secret,
    trusted: TrustedKeys,
}

impl Publisher {
    /// The control plane of the settings.
    ///
    /// # Errors
    /// When there can be no HTTP client.
    pub(crate) fn new(control_plane: &ControlPlane, secret: &Secret, trusted: TrustedKeys) -> anyhow::Result<Self> {
        let client = Client::builder()
            .timeout(ANSWER_TIME_MAX)
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .build()
            .context("an HTTP client for keys")?;
        let url = control_plane.at("/internal/key-set");
        Ok(Self { client, url, token: chassis::guard::events_token(secret), trusted })
    }

    /// Asks until `shutdown`.
    pub(crate) async fn keep_asking(self, shutdown: Shutdown) {
        let mut failing = false;
        while !shutdown.has_begun() {
            let asked = self.ask().await;
            if let (Err(error), false) = (&asked, failing) {
                tracing::warn!(%error, "the keys of gateways cannot be asked for; those from before are believed");
            }
            failing = asked.is_err();
            tokio::select! {
                () = shutdown.begun() => return,
                () = tokio::time::sleep(ASK_EVERY) => {}
            }
        }
    }

    async fn ask(&self) -> reqwest::Result<()> {
        let answer = self.client.get(&self.url).bearer_auth(&*self.token.to_token()).send().await?;
        let keys: KeySet = answer.error_for_status()?.json().await?;
        self.trusted.replace(&keys);
        Ok(())
    }
}
