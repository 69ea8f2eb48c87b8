//! A lease on one record: only the worker that has it can write results.
//!
//! A lease expires, so a worker that died delays no other for long. The record may change between the lease and the
//! write: [`Leased::reload`] reads it again within the writing transaction, and returns nothing when the result may not
//! be written any more. If the database fails during the work, the lease is given back as soon as it writes again:
//! otherwise the record would wait for the end of the lease.

use chassis::sql::query;
use contract::hostname::Hostname;
use contract::time::UnixMillis;

use super::domains::{find_claims, find_domain, release_lease, save_domain};
use super::{Result, Store, Write};
use crate::domain::Domain;
use crate::domain::schedule::LEASE_MILLIS;
use crate::project::ProjectRef;

/// Pause before the next check of a domain whose lease was given back without a result, in milliseconds.
const AGAIN_MILLIS: i64 = 5_000;

/// Leases to give back, at most: more than one process has at once. Those beyond it end when their time is over.
const UNFINISHED_MAX: usize = 1_024;

/// A worker's lease on a domain, to give back. It is recognised by its end.
#[derive(Clone, Debug)]
pub(crate) struct UnfinishedLease {
    project: ProjectRef,
    name: Hostname,
    until: UnixMillis,
}

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
    /// Leases a domain from `now` on; `None` while another worker has the lease, and when the domain is gone or being
    /// removed.
    pub(crate) async fn claim(store: &Store, domain: &Domain, now: UnixMillis) -> Result<Option<Self>> {
        let fence = store.lease_domain(domain, now, now.plus(LEASE_MILLIS)).await?;
        Ok(fence.map(|fence| Self { record: domain.clone(), fence, must_hold: false }))
    }

    /// From now on results count only while the domain's project holds its name.
    pub(crate) fn while_held(self) -> Self {
        Self { must_hold: true, ..self }
    }

    /// The domain as it is now. `None` if another worker has leased it since, if it is gone or being removed, or if its
    /// project has lost its name.
    pub(crate) async fn reload(&self, write: &mut Write) -> Result<Option<Domain>> {
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

    /// Saves the changed domain of [`Leased::reload`]. The lease stays.
    pub(crate) async fn save(&mut self, write: &mut Write, domain: Domain) -> Result<()> {
        save_domain(write.connection(), &domain).await?;
        self.record = domain;
        Ok(())
    }

    /// Releases the lease when `write` commits.
    pub(crate) async fn release(self, write: &mut Write) -> Result<()> {
        release_lease(write.connection(), &self.record).await
    }
}

impl Store {
    /// Gives the lease that [`Leased::claim`] took at `now` back with the next [`Store::give_back_leases`], also if the
    /// outcome of the claim is unknown.
    pub(crate) fn give_back_later(&self, domain: &Domain, now: UnixMillis) {
        let (project, name) = (domain.project.clone(), domain.name.clone());
        let mut unfinished = self.unfinished.lock();
        if unfinished.len() < UNFINISHED_MAX {
            unfinished.push_back(UnfinishedLease { project, name, until: now.plus(LEASE_MILLIS) });
        }
    }

    /// Gives back the leases whose work ended without a result, unless another worker has the domain by now. After an
    /// error the rest is given back by the next calls, the failed one last.
    pub(crate) async fn give_back_leases(&self, now: UnixMillis) -> Result<()> {
        let next = || self.unfinished.lock().pop_front();
        while let Some(lease) = next() {
            if lease.until <= now {
                continue;
            }
            let given_back = query(
                "UPDATE domains SET lease_until = 0, due_at = $1
                 WHERE name = $2 AND project = $3 AND lease_until = $4 AND removal IS NULL",
            )
            .bind((now.plus(AGAIN_MILLIS).0, lease.name.as_str(), lease.project.uid.as_str(), lease.until.0))
            .run(self.writer())
            .await;
            if given_back.is_err() {
                self.unfinished.lock().push_back(lease);
                return given_back;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use chassis::clock::ManualClock;

    use super::super::domains::{release, set_holder};
    use super::*;

    const NOW: UnixMillis = UnixMillis(1_000_000);

    /// A store with two projects, and a domain of the first.
    async fn store(directory: &tempfile::TempDir) -> (Store, Domain, [ProjectRef; 2]) {
        let store = Store::open(&directory.path().join("db.sqlite").into(), Arc::new(ManualClock::at(NOW))).await;
        let store = store.unwrap();
        let insert = "INSERT INTO projects (id, name, salt, proof_key, plan, access, upstream, suspended, created_at,
                 updated_at)
             VALUES ('demo', 'demo', 's', '', 'pro', 'key', 'orders', FALSE, 1, 1),
                 ('other', 'other', 't', '', 'pro', 'key', 'orders', FALSE, 1, 1);";
        sqlx::raw_sql(insert).execute(store.writer().sqlite().unwrap()).await.unwrap();
        let projects: [ProjectRef; 2] = ["demo".parse().unwrap(), "other".parse().unwrap()];
        let domain = Domain::added("shop.customer.com".parse().unwrap(), projects[0].clone(), NOW);
        let mut write = store.write().await.unwrap();
        save_domain(write.connection(), &domain).await.unwrap();
        write.commit().await.unwrap();
        (store, domain, projects)
    }

    async fn may_write(store: &Store, leased: &Leased<Domain>) -> bool {
        leased.reload(&mut store.write().await.unwrap()).await.unwrap().is_some()
    }

    #[tokio::test]
    async fn a_lease_belongs_to_one_worker_until_it_is_released_or_expires() {
        let directory = tempfile::tempdir().unwrap();
        let (store, domain, _) = store(&directory).await;
        let first = Leased::claim(&store, &domain, NOW).await.unwrap().unwrap();
        assert!(may_write(&store, &first).await);
        assert!(Leased::claim(&store, &domain, NOW.plus(LEASE_MILLIS - 1)).await.unwrap().is_none());
        let second = Leased::claim(&store, &domain, NOW.plus(LEASE_MILLIS)).await.unwrap().unwrap();
        assert!(!may_write(&store, &first).await, "what came too late is not written");
        assert!(may_write(&store, &second).await);
        let mut write = store.write().await.unwrap();
        second.release(&mut write).await.unwrap();
        write.commit().await.unwrap();
        assert!(Leased::claim(&store, &domain, NOW.plus(LEASE_MILLIS)).await.unwrap().is_some());
    }

    #[tokio::test]
    async fn a_lease_is_given_back_once_unless_another_worker_has_the_domain() {
        let directory = tempfile::tempdir().unwrap();
        let (store, domain, _) = store(&directory).await;
        Leased::claim(&store, &domain, NOW).await.unwrap().unwrap();
        store.give_back_later(&domain, NOW);
        store.give_back_leases(NOW).await.unwrap();
        let due = store.find_domain(&domain.project, &domain.name).await.unwrap().unwrap().due_at;
        assert_eq!(due, Some(NOW.plus(AGAIN_MILLIS)));
        let later = NOW.plus(1);
        let second = Leased::claim(&store, &domain, later).await.unwrap().unwrap();
        store.give_back_leases(later).await.unwrap();
        store.give_back_later(&domain, NOW);
        store.give_back_leases(later).await.unwrap();
        assert!(may_write(&store, &second).await);
        assert!(Leased::claim(&store, &domain, later).await.unwrap().is_none());
    }

    #[tokio::test]
    async fn nothing_is_written_for_a_domain_that_is_being_removed() {
        let directory = tempfile::tempdir().unwrap();
        let (store, domain, _) = store(&directory).await;
        let leased = Leased::claim(&store, &domain, NOW).await.unwrap().unwrap();
        let mut write = store.write().await.unwrap();
        save_domain(write.connection(), &Domain { removal: Some(7), ..domain }).await.unwrap();
        write.commit().await.unwrap();
        assert!(!may_write(&store, &leased).await);
    }

    #[tokio::test]
    async fn an_order_may_write_only_while_its_project_holds_the_name_and_a_check_always() {
        let directory = tempfile::tempdir().unwrap();
        let (store, domain, [project, other]) = store(&directory).await;
        let leased = Leased::claim(&store, &domain, NOW).await.unwrap().unwrap();
        assert!(may_write(&store, &leased).await, "a check may find that the name is the project's");
        let mut write = store.write().await.unwrap();
        set_holder(write.connection(), &domain.name, &project).await.unwrap();
        write.commit().await.unwrap();
        let leased = leased.while_held();
        assert!(may_write(&store, &leased).await);
        let mut write = store.write().await.unwrap();
        set_holder(write.connection(), &domain.name, &other).await.unwrap();
        write.commit().await.unwrap();
        assert!(!may_write(&store, &leased).await);
        let mut write = store.write().await.unwrap();
        release(write.connection(), &domain.name, &other, "t", NOW).await.unwrap();
        write.commit().await.unwrap();
        assert!(!may_write(&store, &leased).await);
    }
}
