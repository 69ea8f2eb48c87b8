//! Power failures. After `kill -9` the kernel still writes the process's data, so a kill proves nothing about the
//! disk. Here the disk keeps only synced data, and every acknowledged cancellation must be in it.

#[path = "../../../chassis/tests/support/power.rs"]
mod disk;

use orders_service::Orders;

use self::disk::Disk;
use crate::crash::{Process, cancel_until_gone};
use crate::world::{control_plane, stored};

/// Number of power failures, each followed by a start.
const FAILURES: usize = 4;
const ORDERS: i64 = 2_000;

// rule: 4.2.204
// promise: orders.12, faults.13
#[tokio::test(flavor = "multi_thread")]
async fn every_acknowledged_cancellation_survives_a_power_failure() {
    let mut directory = tempfile::tempdir().unwrap();
    let mut database = directory.path().join("orders.db");
    let project = "demo".parse().unwrap();
    stored(&database, ORDERS).await;
    let control = format!("http://{}", control_plane());
    let mut next = 0;
    let mut acknowledged = Vec::new();
    for failure in 0..FAILURES {
        // The existing files count as synced, whether or not a checkpoint syncs them in this round.
        let disk = Disk::new();
        disk.keep(directory.path());
        let environment = disk.environment();
        let mut settings = environment.each_ref().map(|(name, value)| (*name, value.to_str().unwrap())).to_vec();
        settings.push(("TOLLHOUSE_ORDERS_EVENTS_URL", &control));
        let process = Process::start_with(&database, &settings);
        let http = process.http;
        let (sure, highest) = cancel_until_gone(http, next, 1 + failure * 40, move || process.kill()).await;
        directory = disk.comes_back(directory.path());
        database = directory.path().join("orders.db");
        acknowledged.extend(sure);
        next = highest + 1;
    }
    let orders = Orders::open(&database.clone().into()).await.unwrap();
    for id in &acknowledged {
        let order = orders.store().find(&project, *id).await.unwrap().unwrap();
        assert_eq!(order.status.as_str(), "cancelled", "order {id} was acknowledged and is not cancelled");
    }
    orders.close().await;
}
