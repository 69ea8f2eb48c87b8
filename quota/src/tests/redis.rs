//! The store of several nodes, with a real redis-server that each test starts.

mod bans;
#[expect(dead_code, reason = "other programs than Redis have such clocks in the tests of gateways")]
mod clock;
mod cluster;
mod faults;
mod nodes;
mod script;
pub(super) mod server;
mod tls;

use chassis::metrics::{self, Registry};
use chassis::supervise::Supervisor;

use super::store::keeps_the_promises_of_a_store;
use super::*;
use crate::ban::{Ban, BanReason, Notification};
use crate::ledger::{Claim, Generation, NodeId, Reply, Statement};
use crate::store::redis::settings::{RedisAddress, RedisMode, RedisSettings};
use crate::store::redis::{CallMetrics, RedisStore};
use server::Redis;

/// Longer than anything here takes; reached only on failure.
const PATIENCE: Duration = Duration::from_secs(20);

fn call_metrics() -> CallMetrics {
    let registry = Registry::new();
    let calls = metrics::counter_vec(&registry, "edge_quota_store_calls_total", "Calls.", &["result"]).unwrap();
    let seconds = metrics::latency_vec(&registry, "edge_quota_store_call_seconds", "Seconds.", &[]).unwrap();
    CallMetrics { calls, seconds: seconds.with_label_values(&[] as &[&str]) }
}

fn tasks() -> Supervisor {
    Supervisor::register(&Registry::new(), "edge_task_restarts_total").unwrap()
}

fn settings_for(ports: &[u16], mode: RedisMode) -> RedisSettings {
    let address = |port: &u16| RedisAddress { host: "127.0.0.1".to_owned(), port: *port, tls: false };
    RedisSettings {
        mode,
        addresses: ports.iter().map(address).collect(),
        master_name: "tollhouse".to_owned(),
        username: None,
        password: None,
        ca_certificate: None,
        // Generous, because a machine that runs all tests at once is slow; only one test depends on this budget.
        call_budget: Duration::from_millis(500),
    }
}

async fn store(ports: &[u16], mode: RedisMode, process: u64) -> RedisStore {
    let store = RedisStore::start(settings_for(ports, mode), process, call_metrics(), &tasks());
    store.connected(PATIENCE).await.unwrap();
    store
}

/// Waits for a condition.
async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let waiting = async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    assert!(tokio::time::timeout(PATIENCE, waiting).await.is_ok(), "{what} never came true");
}

/// The store has just met this server and learns for a quarter of a second: wait until it grants.
async fn grants(store: &dyn Store) {
    let mut seq = 0;
    eventually("the store grants", async || {
        seq += 1;
        let reply = store.execute(&"warm-up".parse().unwrap(), need_one(seq)).await.unwrap();
        matches!(reply, Reply::Executed(executed) if executed.granted == 1)
    })
    .await;
}

/// A statement of a node that claims nothing and needs one unit.
fn need_one(seq: u64) -> Statement {
    Statement {
        node: NodeId { place: 99, generation: Generation { start: 1, stay: 0, process: 99 } },
        seq,
        acked: 0,
        claim: Claim::NOTHING,
        need: 1,
        spare: 0,
        limits: Limits::new(1_000, 1_000).unwrap(),
    }
}

#[tokio::test]
async fn redis_keeps_the_promises_of_a_store() {
    let redis = Redis::start();
    let store = store(&[redis.port], RedisMode::Standalone, 1).await;
    grants(&store).await;
    keeps_the_promises_of_a_store(&store, |number| format!("suite-{number}").parse().unwrap()).await;
    assert_eq!(store.heartbeat(true).await.unwrap().fleet.unwrap().nodes.get(), 1);
    let other = self::store(&[redis.port], RedisMode::Standalone, 2).await;
    assert_eq!(
        other.heartbeat(true).await.unwrap().fleet.unwrap().nodes.get(),
        2,
        "nodes are counted by their signs of life"
    );
}

/// The ACL rights proposed in config/redis.conf, as one line.
fn proposed_user() -> Vec<String> {
    let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../config/redis.conf");
    let text = std::fs::read_to_string(file).unwrap();
    let lines = text.lines().skip_while(|line| !line.starts_with("# user tollhouse"));
    let words = lines.flat_map(|line| line.trim_start_matches('#').split_whitespace()).filter(|word| *word != "\\");
    words
        .skip(2)
        .filter(|word| !matches!(*word, "of" | "the") && !word.starts_with('#') && !word.ends_with('>'))
        .map(str::to_owned)
        .collect()
}

#[tokio::test]
async fn the_proposed_user_has_the_rights_it_needs_and_no_others() {
    let redis = Redis::start();
    let rights = proposed_user();
    let mut command = vec!["ACL", "SETUSER", "tollhouse", ">open-sesame"];
    command.extend(rights.iter().map(String::as_str));
    assert_eq!(redis.ask(&command), "OK", "{rights:?}");
    let mut settings = settings_for(&[redis.port], RedisMode::Standalone);
    settings.username = Some("tollhouse".to_owned());
    settings.password = Some(chassis::secret::Secret::new(b"open-sesame".to_vec()));
    let store = RedisStore::start(settings, 1, call_metrics(), &tasks());
    store.connected(PATIENCE).await.unwrap();
    grants(&store).await;
    keeps_the_promises_of_a_store(&store, |number| format!("acl-{number}").parse().unwrap()).await;
    let mut notifications = store.notifications().unwrap();
    let received = tokio::time::timeout(PATIENCE, notifications.recv()).await.unwrap();
    assert_eq!(received, Some(crate::store::Received::Connected));
    let ban = Ban {
        key: key(3),
        since: UnixSeconds(1),
        until: UnixSeconds(2),
        reason: BanReason::Operator,
        level: 1,
        shadow: false,
    };
    store.notify(&Notification::Banned(ban.clone())).await.unwrap();
    let stored = async || store.stored_notifications(None).await.unwrap().0;
    let before = stored().await;
    assert_eq!(before.len(), 1);
    let later = Notification::Banned(Ban { until: ban.until.plus(1), ..ban });
    store.notify(&later).await.unwrap();
    store.forget_notifications(&before).await.unwrap();
    let after = stored().await;
    assert_eq!(after.len(), 1);
    assert_eq!(after[0].notification, later, "the newer one stays");
    store.forget_notifications(&after).await.unwrap();
    assert!(stored().await.is_empty());
    assert!(redis.ask(&["--user", "tollhouse", "--pass", "open-sesame", "FLUSHALL"]).contains("NOPERM"));
}

#[tokio::test]
async fn the_right_password_connects_and_a_wrong_one_does_not() {
    let redis = Redis::with(&["--requirepass", "open-sesame"]);
    let mut settings = settings_for(&[redis.port], RedisMode::Standalone);
    let closed = RedisStore::start(settings.clone(), 1, call_metrics(), &tasks());
    let error = closed.connected(Duration::from_secs(2)).await.unwrap_err().to_string();
    assert!(error.contains("NOAUTH"), "{error}");
    settings.password = Some(chassis::secret::Secret::new(b"open-sesame".to_vec()));
    let store = RedisStore::start(settings, 2, call_metrics(), &tasks());
    store.connected(PATIENCE).await.unwrap();
    assert!(store.heartbeat(true).await.is_ok());
}
