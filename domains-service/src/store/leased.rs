//! The right to act on one record: one worker claims it, and only that worker's results are written.
//!
//! A claim ends by itself, so a worker that died holds nothing up. Between the claim and the write the world may have changed:
//! [`Leased::reload`] reads the record again within the writing transaction, and gives nothing when the result may not be
//! written any more.

use contract::time::UnixMillis;

use super::domains::{find_claims, find_domain, release_lease, save_domain};
use super::{Store, StoreError, Write};
use crate::domain::Domain;
use crate::domain::schedule::LEASE_MILLIS;

/// A record that this worker has claimed.
#[derive(Debug)]
pub(crate) struct Leased<T> {
    record: T,
    /// Grows with each claim: another worker's is higher.
    fence: i64,
    /// Whether results count only while the record's project holds the name.
    must_hold: bool,
}

impl<T> Leased<T> {
    /// The record as it was claimed, or saved last.
    pub(crate) fn record(&self) -> &T {
        &self.record
    }
}

impl Leased<Domain> {
    /// Claims a domain from `now` on; `None` while another worker has it, and when it is gone or being removed.
    pub(crate) async fn claim(store: &Store, domain: &Domain, now: UnixMillis) -> Result<Option<Self>, StoreError> {
        let fence = store.lease_domain(domain, now, now.plus(LEASE_MILLIS)).await?;
        Ok(fence.map(|fence| Self { record: domain.clone(), fence, must_hold: false }))
    }

    /// From now on results count only while the domain's project holds its name.
    pub(crate) fn while_held(self) -> Self {
        Self { must_hold: true, ..self }
    }

    /// The domain as it is now; `None` when another worker has claimed it since, when it is gone or being removed, and when
    /// its project has lost the name that it must hold.
    pub(crate) async fn reload(&self, write: &mut Write) -> Result<Option<Domain>, StoreError> {
        let Domain { project, name, .. } = &self.record;
        let found = find_domain(write.connection(), project, name).await?;
        let Some(domain) = found.filter(|domain| domain.lease_fence == self.fence && domain.removal.is_none()) else {
            return Ok(None);
        };
        if self.must_hold && find_claims(write.connection(), name).await?.holder.as_ref() != Some(project) {
            return Ok(None);
        }
        Ok(Some(domain))
    }

    /// Saves what [`Leased::reload`] gave, changed. The claim stays.
    pub(crate) async fn save(&mut self, write: &mut Write, domain: Domain) -> Result<(), StoreError> {
        save_domain(write.connection(), &domain).await?;
        self.record = domain;
        Ok(())
    }

    /// Gives the claim back when `write` commits.
    pub(crate) async fn release(self, write: &mut Write) -> Result<(), StoreError> {
        release_lease(write.connection(), &self.record).await
    }
}
