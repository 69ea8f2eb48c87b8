//! Power that fails. After `kill -9` the kernel still writes what a process gave it, so a kill shows nothing about the
//! disk. Here the disk keeps only what was synced (`power.c`), and every acknowledged cancellation must be there.

use std::path::Path;
use std::process::Command;

use bytes::Bytes;
use orders_service::Orders;

use crate::crash::{Process, cancel_until_gone};
use crate::world::lines;

/// Failures of power, each in front of the next start.
const FAILURES: usize = 4;
const ORDERS: i64 = 2_000;

/// `power.c` as a library.
fn library(directory: &Path) -> String {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/power.c");
    let library = directory.join("power.so").to_str().unwrap().to_owned();
    let arguments = ["-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o", &library, source, "-ldl"];
    let made = Command::new("cc").args(arguments).output().expect("cc is missing: install a C compiler");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    library
}

/// The disk after the power failed: of each file what was synced last; files that never were are gone.
fn lose_what_was_not_synced(database: &Path) {
    for (ending, must_be) in [("db", true), ("db-wal", true), ("db-shm", false)] {
        let file = database.with_extension(ending);
        let kept = database.with_extension(format!("{ending}.synced"));
        std::fs::remove_file(&file).unwrap();
        assert_eq!(kept.exists(), must_be, "{}", kept.display());
        if must_be {
            std::fs::rename(kept, file).unwrap();
        }
    }
}

// rule: 4.2.204
#[tokio::test(flavor = "multi_thread")]
async fn every_acknowledged_cancellation_is_on_the_disk_when_the_power_fails() {
    let directory = tempfile::tempdir().unwrap();
    let library = library(directory.path());
    let database = directory.path().join("orders.db");
    let project = "demo".parse().unwrap();
    let orders = Orders::open(&database.clone().into()).await.unwrap();
    let given = futures_util::stream::iter([Ok::<_, std::io::Error>(Bytes::from(lines(0..ORDERS)))]);
    orders.import(&project, given).await.unwrap();
    orders.close().await;
    let mut next = 0;
    let mut acknowledged = Vec::new();
    for failure in 0..FAILURES {
        // A file is on the disk from the beginning, whether or not a checkpoint syncs it in this round.
        std::fs::copy(&database, database.with_extension("db.synced")).unwrap();
        let settings = [("LD_PRELOAD", library.as_str()), ("TOLLHOUSE_ORDERS_EVENTS_URL", "http://127.0.0.1:9")];
        let process = Process::start_with(&database, &settings);
        let http = process.http;
        let (sure, highest) = cancel_until_gone(http, next, 1 + failure * 40, move || process.kill()).await;
        lose_what_was_not_synced(&database);
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
