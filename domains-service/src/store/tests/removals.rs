//! A damaged number of the change that a removal waits for.

use chassis::sql::query;

use super::super::domains::{find_domain, save_domain};
use super::super::withdrawals::end_removals;
use super::both;
use super::counters::put_right;
use super::history::change;
use crate::domain::{Domain, Status};
use crate::project::ProjectRef;

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_removal_deletes_only_a_domain_that_is_being_removed() {
    for (store, _directory) in both().await {
        let project: ProjectRef = "demo".parse().unwrap();
        let mut write = store.write().await.unwrap();
        for (name, status) in [("kept.example", Status::Active), ("gone.example", Status::Removing)] {
            let domain = Domain {
                status,
                ..Domain::added(name.parse().unwrap(), project.clone(), contract::time::UnixMillis(1))
            };
            save_domain(write.connection(), &domain).await.unwrap();
        }
        write.commit().await.unwrap();
        let served = change(&store, 0).await;
        // Also a number that every gateway has applied.
        let damage = "UPDATE domains SET removal = CASE status WHEN 'removing' THEN $1 ELSE 1 END";
        query(damage).bind(i64::MAX).execute(store.writer()).await.unwrap();
        let mut write = store.write().await.unwrap();
        assert_eq!(end_removals(write.connection(), served.revision).await.unwrap(), []);
        drop(write);
        put_right(&store).await;
        let newest = store.newest_revision().await.unwrap();
        assert!(newest > served.revision, "the removal waits for a snapshot");
        let mut write = store.write().await.unwrap();
        let ended = end_removals(write.connection(), newest).await.unwrap();
        assert_eq!(ended, ["gone.example".parse().unwrap()]);
        let kept = find_domain(write.connection(), &project, &"kept.example".parse().unwrap()).await.unwrap();
        assert_eq!(kept.expect("the domain").removal, None);
    }
}
