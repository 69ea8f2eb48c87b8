//! The follower with a full disk, and with a slow one.

use std::time::Duration;

use chassis::clock::SystemClock;
use parking_lot::Condvar;

use super::*;
use crate::follow::{Follower, Watcher};

fn follower(file: File) -> Follower {
    Follower {
        control: "http://127.0.0.1:9".parse().unwrap(),
        token: Secret::new(vec![1; 32]),
        gateway: Arc::default(),
        node: "n".to_owned(),
        place: 0,
        keyring: Arc::new(|_| Ok(())),
        replica: Arc::new(Replica::over(file, opener(), HotBounds::default()).unwrap()),
        watcher: Arc::new(IgnoringWatcher),
        clock: Arc::new(SystemClock::new()),
    }
}

#[tokio::test]
async fn a_full_disk_is_reported_to_operators() {
    let directory = tempfile::tempdir().unwrap();
    let full = File::open_on(&directory.path().join("replica.redb"), |_| Ok(file::ROOM_MIN - 1)).unwrap();
    let follower = follower(full);
    assert!(follower.replace(vec![project("a", Plan::Free)], at(1)).await.is_err());
    let (why, what_to_do) = follower.replica.refusal().unwrap();
    assert!(why.contains("has 15 MiB left, and 16 MiB are needed"), "{why}");
    assert_eq!(what_to_do, REPAIR_DISK);
}

/// Whether another task has run, and how long the writer waits for that.
static GONE_ON: (Mutex<bool>, Condvar) = (Mutex::new(false), Condvar::new());
const WAIT_MAX: Duration = Duration::from_secs(20);

/// A disk that writes nothing until another task has run.
fn room_when_others_go_on(_: &Path) -> std::io::Result<u64> {
    let mut gone_on = GONE_ON.0.lock();
    GONE_ON.1.wait_while_for(&mut gone_on, |gone_on| !*gone_on, WAIT_MAX);
    if std::mem::take(&mut *gone_on) { Ok(u64::MAX) } else { Err(std::io::ErrorKind::TimedOut.into()) }
}

struct IgnoringWatcher;

impl Watcher for IgnoringWatcher {
    fn retired(&self, _: &[Hostname]) {}
    fn applied(&self, _: &[Change]) {}
    fn replaced(&self) {}
    fn received(&self, _: Revision, _: UnixMillis, _: Option<contract::feed::AmongGateways>) {}
    fn served(&self) {}
    fn refused(&self, _: &'static str) {}
}

#[tokio::test]
async fn other_tasks_continue_while_the_replica_is_written() {
    let directory = tempfile::tempdir().unwrap();
    let file = File::open_on(&directory.path().join("replica.redb"), room_when_others_go_on).unwrap();
    let follower = follower(file);
    // This test has one thread.
    let go_on = async || {
        *GONE_ON.0.lock() = true;
        GONE_ON.1.notify_all();
    };
    let (replaced, ()) = tokio::join!(follower.replace(vec![project("a", Plan::Free)], at(1)), go_on());
    replaced.unwrap();
    let (applied, ()) = tokio::join!(follower.apply(vec![change(2, Effect::Put(project("b", Plan::Free)))]), go_on());
    applied.unwrap();
    assert_eq!(follower.replica.revision(), Revision(2));
}
