//! The records of ACME engines in the service: accounts, keys of orders, counted limits, and published challenges.

use std::sync::Arc;
use std::time::Duration;

use chassis::clock::Clock;
use chassis::seal::SealingKey;
use contract::certificate::Challenge;
use contract::feed::Entity;
use contract::hostname::Hostname;
use contract::time::UnixMillis;
use zeroize::Zeroizing;

use crate::issuer::IssueError;
use crate::limits::{Demand, QueueKind, QueuePosition};
use crate::nodes::Nodes;
use crate::publish;
use crate::store::acme::OrderRecord;
use crate::store::queue::Applicant;
use crate::store::sealed::order_place;
use crate::store::{Store, StoreError};

/// Longest wait until the gateways have applied a challenge. It covers their return after our restart. A slower gateway
/// only fails this attempt.
const LEARNING_TIME_MAX: Duration = Duration::from_secs(12);

/// The store, and the gateways that answer challenges, as an ACME engine uses them.
#[derive(Clone)]
pub(crate) struct AcmeRecords {
    pub(crate) store: Store,
    pub(crate) nodes: Arc<Nodes>,
    pub(crate) sealing: Arc<SealingKey>,
    pub(crate) clock: Arc<dyn Clock>,
}

impl AcmeRecords {
    /// The account's credentials, if an account is stored.
    pub(super) async fn account(&self, directory: &str) -> Result<Option<Zeroizing<Vec<u8>>>, IssueError> {
        let Some(sealed) = self.store.setting(&account_name(directory)).await? else { return Ok(None) };
        let opened = self.sealing.open(&sealed, &account_name(directory));
        opened.map(Some).map_err(|_| {
            IssueError::Unavailable("the stored account does not open: was the sealing secret changed?".to_owned())
        })
    }

    /// Stores an account's credentials, unless another process was faster. Returns the stored ones.
    pub(super) async fn keep_account(
        &self,
        directory: &str,
        credentials: &[u8],
    ) -> Result<Zeroizing<Vec<u8>>, IssueError> {
        let name = account_name(directory);
        let sealed = self.sealing.seal(credentials, &name).map_err(|error| unavailable(&error))?;
        let kept = self.store.remember(&name, &sealed).await?;
        self.sealing.open(&kept, &name).map_err(|error| IssueError::Unavailable(error.to_string()))
    }

    /// Deletes an account that the authority has lost.
    pub(super) async fn forget_account(&self, directory: &str) -> Result<(), IssueError> {
        Ok(self.store.forget_setting(&account_name(directory)).await?)
    }

    /// Seals the key of an order.
    pub(super) fn seal(&self, key_pem: &str, hostname: &Hostname) -> Result<String, IssueError> {
        self.sealing.seal(key_pem.as_bytes(), &order_place(hostname.as_str())).map_err(|error| unavailable(&error))
    }

    /// Opens the key of an order; `None` if that fails and the order is useless.
    pub(super) fn open(&self, order: &OrderRecord) -> Option<Zeroizing<String>> {
        let sealed = order.sealed_key.as_deref()?;
        let opened = self.sealing.open(sealed, &order_place(order.hostname.as_str())).ok()?;
        String::from_utf8(opened.to_vec()).ok().map(Zeroizing::new)
    }

    /// Takes the demands from the limits if it is the name's turn; otherwise the name waits in a queue for them.
    pub(super) async fn admit(&self, of: Applicant<'_>, demands: &[Demand]) -> Result<(), IssueError> {
        let queued =
            |(kind, QueuePosition { number, .. }): (QueueKind, _)| IssueError::Queued { number, is_own: kind.is_own() };
        self.store.admit(of, demands).await?.map_err(queued)
    }

    /// Fails while no gateway is live: nothing would answer the challenge. The name waits until one is. Our own restart
    /// is no such failure: gateways get a moment to come back.
    pub(super) async fn require_edge(&self, of: Applicant<'_>) -> Result<(), IssueError> {
        if self.nodes.has_any_live().await {
            return Ok(());
        }
        self.store.wait_for_edge(of).await?;
        Err(IssueError::NoGateway)
    }

    /// Makes the names due whose turn has come: all that wait for a gateway, and of each other queue as many as
    /// `available` says for its kind and the time when its limit is free. Returns how many.
    pub(super) async fn offer_turns(
        &self,
        authority: &str,
        available: impl Fn(QueueKind, UnixMillis) -> i64,
    ) -> Result<usize, StoreError> {
        if !self.nodes.is_any_live() {
            return Ok(0);
        }
        let (now, mut offered) = (self.clock.now(), 0);
        for &kind in QueueKind::ALL {
            for (queue, free_at) in self.store.queues(authority, kind, now).await? {
                let units = available(kind, free_at);
                if units > 0 {
                    offered += self.store.offer(authority, &queue, units, now).await?;
                }
            }
        }
        Ok(offered)
    }

    /// Has every live gateway answer the challenge.
    pub(super) async fn publish(&self, challenge: Challenge) -> Result<(), IssueError> {
        let hostname = challenge.hostname.clone();
        let mut write = self.store.write().await?;
        // One at a time: an answer by certificate is found by the name alone.
        publish::withdraw_challenges(&mut write, &hostname).await?;
        write.put(Entity::Challenge(challenge)).await?;
        let revision = write.commit().await?;
        let learnt = self.nodes.acknowledged(revision, LEARNING_TIME_MAX).await;
        if !learnt.lagging.is_empty() {
            tracing::warn!(domain = %hostname, gateways = learnt.lagging.join(", "), "these gateways have not received the challenge; the order may fail");
        }
        Ok(())
    }
}

fn unavailable(error: &anyhow::Error) -> IssueError {
    IssueError::Unavailable(format!("{error:#}"))
}

impl From<StoreError> for IssueError {
    fn from(error: StoreError) -> Self {
        Self::Unavailable(error.to_string())
    }
}

/// The name of an account's setting, for which its credentials are sealed.
fn account_name(directory: &str) -> String {
    format!("acme account {directory}")
}
