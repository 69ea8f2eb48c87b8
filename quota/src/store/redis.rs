//! The quota store of several nodes: Redis (6.2 or newer) or Valkey, standalone, behind Sentinel, or as a Cluster.
//!
//! One hash per bucket, one script per statement ([`ledger::bucket::Bucket::apply`](crate::ledger::bucket) in Lua,
//! executed by the server's clock), one connection per server that all calls share. Redis need not persist anything:
//! nodes repeat what it loses.
//!
//! If the server is down, slow, read-only, full or still loading, a call fails within its budget with a
//! [`StoreOutage`]; a background task reconnects, and looks up the master each time. Calls are not retried here: a
//! repeated statement would be stale. [`crate::Quota`] decides about requests.

mod protocol;
mod notifications;
mod servers;
pub mod settings;
pub mod fuzzing;

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use chassis::metrics::{Histogram, IntCounterVec};
use chassis::supervise::Supervisor;
use contract::project::ProjectUid;
use contract::time::UnixMillis;
use futures_util::future::join_all;
use parking_lot::Mutex;
use redis::{Cmd, Value};
use tokio::sync::mpsc;

use self::servers::{Link, Servers};
use self::settings::RedisSettings;
use super::{Fleet, HeartbeatReply, Received, ScanCursor, Store, StoreOutage, StoredNotification};
use crate::ban::Notification;
use crate::ledger::bucket::BucketView;
use crate::ledger::{Reply, Statement};

/// Milliseconds without a heartbeat after which a gateway is no longer counted.
const SILENT_MILLIS: u32 = 3_000;

/// Timeouts in a row after which the connection is replaced.
const TIMEOUTS_MAX: u32 = 3;

/// Bans removed by one command, so that commands stay short.
const FORGOTTEN_AT_ONCE: usize = 100;
/// About as many are read with one command, so that no command takes long.
const STORED_AT_ONCE: u32 = 500;

/// The gateways of the platform, and the last heartbeat of each.
const GATEWAYS_KEY: &str = "tollhouse:gateways";

/// A key that does not exist, to find out whether a server is full.
const NOTHING_KEY: &str = "tollhouse:nothing";
/// How often that is found out.
const FULL_PROBED_EVERY: Duration = Duration::from_secs(1);

/// Metrics of calls.
#[derive(Clone)]
pub struct CallMetrics {
    /// By result: one of [`RESULTS`].
    pub calls: IntCounterVec,
    /// Seconds of calls that were answered.
    pub seconds: Histogram,
}

/// The possible results of a call.
pub const RESULTS: [&str; 13] = [
    "ok",
    "crowded",
    "displaced",
    "timeout",
    "unreachable",
    "readonly",
    "loading",
    "out_of_memory",
    "disk",
    "denied",
    "busy",
    "moved",
    "other",
];

/// A quota store in Redis.
pub struct RedisStore {
    process: String,
    servers: Arc<Servers>,
    metrics: CallMetrics,
    /// Differs between calls; the server derives new incarnations from it.
    salt: AtomicU32,
    /// When it was last found out whether the servers are full.
    full_probed: Mutex<Option<Instant>>,
}

impl RedisStore {
    /// A store that connects in the background, for the process with this number. Calls fail as in any outage until the
    /// first connection is up.
    pub fn start(settings: RedisSettings, process: u64, metrics: CallMetrics, tasks: &Supervisor) -> Self {
        let servers = Servers::start(settings, tasks);
        let salt = AtomicU32::new(u32::try_from(process % 1_000).unwrap_or(0));
        Self { process: format!("{process:016x}"), servers, metrics, salt, full_probed: Mutex::default() }
    }

    /// Waits until the server is connected.
    ///
    ///
    /// # Errors
    /// The reason, if it was not connected within the time.
    pub async fn connected(&self, within: Duration) -> Result<(), StoreOutage> {
        self.servers.connected(within).await
    }

    async fn call(&self, link: &Link, command: &Cmd) -> Result<Value, StoreOutage> {
        self.call_at(link, command, false).await
    }

    async fn call_of(&self, key: &str, command: &Cmd) -> Result<Value, StoreOutage> {
        self.at_server_of(key, |link, asking| async move { self.call_at(&link, command, asking).await }).await
    }

    /// Calls the server of a key, or, with `true`, the one to which the key has been moved ahead of its slot.
    async fn at_server_of<T, F>(
        &self,
        key: &str,
        call: impl Fn(Arc<Link>, bool) -> F + Send + Sync,
    ) -> Result<T, StoreOutage>
    where
        T: Send,
        F: Future<Output = Result<T, StoreOutage>> + Send,
    {
        let began = Instant::now();
        let link = self.servers.of(key)?;
        match call(Arc::clone(&link), false).await {
            Err(StoreOutage::Moving(address)) => {
                let redirected = async { call(self.servers.at(&address, &link).await?, true).await };
                let rest = self.servers.part_budget().saturating_sub(began.elapsed());
                tokio::time::timeout(rest, redirected).await.unwrap_or(Err(StoreOutage::Part))
            }
            answer => answer,
        }
    }

    /// Calls a server, with `asking` about a key that is being moved to it.
    async fn call_at(&self, link: &Link, command: &Cmd, asking: bool) -> Result<Value, StoreOutage> {
        let began = Instant::now();
        let mut connection = link.connection();
        let answer = if asking {
            let mut both = redis::pipe();
            both.cmd("ASKING").add_command(command.clone());
            connection.send_packed_commands(&both, 1, 1).await.map(|mut all| all.pop().unwrap_or(Value::Nil))
        } else {
            connection.send_packed_command(command).await
        };
        let (result, outcome) = match answer {
            Ok(value) => match value.extract_error() {
                Ok(value) => ("ok", Ok(value)),
                Err(error) => explain(&error),
            },
            Err(error) => explain(&error),
        };
        self.metrics.calls.with_label_values(&[result]).inc();
        match result {
            "ok" => {
                self.metrics.seconds.observe(began.elapsed().as_secs_f64());
                link.timeouts.store(0, Ordering::Relaxed);
            }
            // A server that is busy or full does answer: a new connection would not help.
            "busy" | "out_of_memory" | "disk" | "other" => {}
            // A slot of a Cluster is being moved, key by key: the topology is the same until the last. Its old server
            // knows when that is.
            "moved" if asking || matches!(outcome, Err(StoreOutage::Moving(_) | StoreOutage::Part)) => {}
            "timeout" => {
                if link.timeouts.fetch_add(1, Ordering::Relaxed) + 1 >= TIMEOUTS_MAX {
                    link.timeouts.store(0, Ordering::Relaxed);
                    self.servers.doubt(link);
                }
            }
            _ => self.servers.doubt(link),
        }
        // One server of several: the others continue to serve their buckets.
        match outcome {
            Err(StoreOutage::TimedOut | StoreOutage::Unreachable(_)) if self.servers.are_several() => {
                Err(StoreOutage::Part)
            }
            // The new server does not know of the move.
            Err(_) if asking && result == "moved" => Err(StoreOutage::Part),
            other => other,
        }
    }

    /// Runs a script that was loaded when the connection was made. Loads it again if the server has lost it.
    async fn run(
        &self,
        link: &Link,
        script: &servers::Script,
        key: &str,
        arguments: &[&str],
        asking: bool,
    ) -> Result<Value, StoreOutage> {
        let mut command = redis::cmd("EVALSHA");
        command.arg(&script.digest).arg(1).arg(key).arg(arguments);
        match self.call_at(link, &command, asking).await {
            Err(StoreOutage::Refused(reason)) if reason.starts_with("NOSCRIPT") => {
                let mut command = redis::cmd("EVAL");
                command.arg(&*script.text).arg(1).arg(key).arg(arguments);
                self.call_at(link, &command, asking).await
            }
            other => other,
        }
    }

    /// Executes a statement on a server. With `asking`, the server may own no slot yet, and then no key that remembers
    /// its memory: its run does instead, for all nodes alike. A heartbeat of [`Servers::check_receivers`] notices a new
    /// one.
    async fn state(&self, link: &Link, key: &str, statement: &Statement, asking: bool) -> Result<Value, StoreOutage> {
        let memory = if asking {
            [String::new(), link.run_incarnation().to_string(), self.salt()]
        } else {
            [link.memory_key.clone(), link.run_id.clone(), self.salt()]
        };
        let arguments = protocol::arguments(statement);
        let all: Vec<&str> = arguments.iter().chain(&memory).map(String::as_str).collect();
        self.run(link, &link.statement, key, &all, asking).await
    }

    /// Whether a server is full. The scripts run all the same, so they do not find out. The command adds nothing to a
    /// key that does not exist, and a full server refuses it.
    async fn is_full(&self, link: &Link) -> bool {
        let mut nothing = redis::cmd("ZADD");
        nothing.arg(link.local_key(NOTHING_KEY)).arg("XX").arg(0).arg("");
        matches!(self.call(link, &nothing).await, Err(StoreOutage::Refused(reason)) if reason.starts_with("OOM"))
    }

    /// Whether it is time to find that out; true once per [`FULL_PROBED_EVERY`].
    fn probes_full(&self) -> bool {
        let (now, mut probed) = (Instant::now(), self.full_probed.lock());
        let due = probed.is_none_or(|at| now.duration_since(at) >= FULL_PROBED_EVERY);
        if due {
            *probed = Some(now);
        }
        due
    }

    fn salt(&self) -> String {
        self.salt.fetch_add(1, Ordering::Relaxed).to_string()
    }
}

/// The key of a bucket's record. The braces keep everything of a bucket on one server of a Cluster.
fn bucket_key(bucket: &ProjectUid) -> String {
    format!("tollhouse:bucket:{{{bucket}}}")
}

/// The metric's name of a failure, and its meaning.
fn explain(error: &redis::RedisError) -> (&'static str, Result<Value, StoreOutage>) {
    if error.is_timeout() {
        return ("timeout", Err(StoreOutage::TimedOut));
    }
    let result = match error.code() {
        Some("READONLY") => "readonly",
        Some("LOADING" | "MASTERDOWN") => "loading",
        Some("OOM") => "out_of_memory",
        Some("MISCONF" | "NOREPLICAS") => "disk",
        Some("NOAUTH" | "NOPERM" | "WRONGPASS") => "denied",
        Some("BUSY") => "busy",
        Some("MOVED" | "ASK" | "CLUSTERDOWN" | "TRYAGAIN") => "moved",
        Some(_) => "other",
        None => "unreachable",
    };
    match (error.code(), error.redirect_node()) {
        (Some("ASK"), Some((address, _))) => return (result, Err(StoreOutage::Moving(address.to_owned()))),
        (Some("TRYAGAIN"), _) => return (result, Err(StoreOutage::Part)),
        _ => {}
    }
    let words = error.to_string();
    let outage = if result == "unreachable" {
        StoreOutage::Unreachable(words)
    } else {
        StoreOutage::Refused(format!("{}: {words}", error.code().unwrap_or_default()))
    };
    (result, Err(outage))
}

#[async_trait]
impl Store for RedisStore {
    async fn execute(&self, bucket: &ProjectUid, statement: Statement) -> Result<Reply, StoreOutage> {
        let (key, statement) = (&bucket_key(bucket), &statement);
        self.at_server_of(key, |link, asking| async move {
            let mut reply = protocol::reply(&self.state(&link, key, statement, asking).await?)?;
            match &mut reply {
                Reply::Crowded => self.metrics.calls.with_label_values(&["crowded"]).inc(),
                Reply::Displaced => self.metrics.calls.with_label_values(&["displaced"]).inc(),
                // It is about a slot that is being moved, not about all data of the server.
                Reply::Executed(executed) if asking => executed.incarnation = self.servers.incarnation(),
                Reply::Executed(executed) => {
                    executed.incarnation = self.servers.record_incarnation(&link, executed.incarnation.0);
                }
                Reply::Stale | Reply::Evicted => {}
            }
            Ok(reply)
        })
        .await
    }

    async fn heartbeat(&self, count: bool) -> Result<HeartbeatReply, StoreOutage> {
        self.servers.check_receivers();
        let servers = self.servers.all()?;
        let salt = self.salt();
        let silent = if count { SILENT_MILLIS.to_string() } else { String::new() };
        let probes_full = self.probes_full();
        let heartbeats = servers.iter().map(|link| {
            let (salt, silent) = (&salt, &silent);
            async move {
                // Every server keeps its own list: a script cannot write a key of another slot.
                let key = link.local_key(GATEWAYS_KEY);
                let arguments = [&self.process, &link.memory_key, &link.run_id, salt, silent].map(String::as_str);
                let (answer, full) =
                    futures_util::join!(self.run(link, &link.heartbeat, &key, &arguments, false), async {
                        probes_full && self.is_full(link).await
                    });
                let [incarnation, now, nodes, index] = protocol::integers::<4>(&answer?)?;
                self.servers.record_incarnation(link, u64::try_from(incarnation).unwrap_or(0));
                let [size, index] = [nodes, index].map(|number| u32::try_from(number).unwrap_or(0));
                Ok::<_, StoreOutage>((UnixMillis(now), NonZeroU32::new(size).map(|nodes| Fleet { nodes, index }), full))
            }
        });
        let answers = join_all(heartbeats).await;
        // The server that most gateways reach decides the count and the clock.
        let best = answers.iter().flatten().copied().max_by_key(|(_, fleet, _)| fleet.map(|fleet| fleet.nodes));
        let full = probes_full.then(|| answers.iter().flatten().any(|(.., full)| *full));
        let Some((now, fleet, _)) = best else {
            return Err(answers.into_iter().find_map(Result::err).unwrap_or(StoreOutage::TimedOut));
        };
        Ok(HeartbeatReply { incarnation: self.servers.incarnation(), now, fleet, full })
    }

    async fn view(&self, bucket: &ProjectUid) -> Result<Option<BucketView>, StoreOutage> {
        let key = bucket_key(bucket);
        let link = self.servers.of(&key)?;
        let mut record_of = redis::cmd("HGETALL");
        record_of.arg(&key);
        let time = redis::cmd("TIME");
        // Concurrent: one round trip, like any other call.
        let (fields, now) = futures_util::join!(self.call_of(&key, &record_of), self.call(&link, &time));
        protocol::view(&fields?, &now?)
    }

    async fn notify(&self, notification: &Notification) -> Result<(), StoreOutage> {
        let mut outcome = Ok(());
        for (key, command) in notifications::commands(&self.process, notification)? {
            // A server without memory to store it can still forward it.
            outcome = outcome.and(self.call_of(&key, &command).await.map(drop));
        }
        outcome
    }

    async fn stored_notifications(
        &self,
        after: Option<ScanCursor>,
    ) -> Result<(Vec<StoredNotification>, Option<ScanCursor>), StoreOutage> {
        let after = &after;
        self.at_server_of(notifications::BANS_KEY, |link, asking| async move {
            let here = after.as_ref().filter(|after| after.server == link.run_id);
            let position = here.map_or(0, |after| after.position);
            let mut command = redis::cmd("HSCAN");
            command.arg(notifications::BANS_KEY).arg(position).arg("COUNT").arg(STORED_AT_ONCE);
            let (part, next) = notifications::part(&self.call_at(&link, &command, asking).await?)?;
            Ok((part, (next != 0).then(|| ScanCursor { server: link.run_id.clone(), position: next })))
        })
        .await
    }

    async fn forget_notifications(&self, over: &[StoredNotification]) -> Result<(), StoreOutage> {
        for some in over.chunks(FORGOTTEN_AT_ONCE) {
            self.call_of(notifications::BANS_KEY, &notifications::forget(some)).await?;
        }
        Ok(())
    }

    fn notifications(&self) -> Option<mpsc::Receiver<Received>> {
        Some(notifications::listen(Arc::clone(&self.servers), self.process.clone()))
    }
}
