//! Several gateway processes, one Redis, and a proxy between them that injects faults: the promises to customers of a
//! platform with many gateways.

#[path = "../../../quota/src/tests/redis/clock.rs"]
mod clock;
mod exactness;
mod fault_proxy;
mod faults;
mod outage;
mod outcome;
mod restarts;
#[path = "../../../quota/src/tests/redis/server.rs"]
#[expect(dead_code, reason = "the tests of the store itself need sentinels as well")]
mod server;
mod shared;

use std::net::SocketAddr;
use std::ops::Range;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use contract::feed::Entity;
use tempfile::TempDir;

use self::fault_proxy::FaultProxy;
pub(crate) use self::outcome::Outcome;
use self::server::Redis;
use crate::world::client::Ask;
use crate::world::control::ControlPlane;
use crate::world::entities::{TestKey, limited, site};
use crate::world::h2::H2;
use crate::world::observed::Admin;
use crate::world::process::{Gateway, Place};
use crate::world::upstream::Upstream;
use crate::world::{ORDERS, eventually};

/// Connections a driver keeps to each gateway; each carries many requests at once.
const CONNECTIONS: usize = 8;

/// One project with its limits: `p0`, `p1`, … with a key each.
pub(super) struct Tenant {
    pub(super) key: TestKey,
    pub(super) host: String,
}

/// One gateway process.
pub(super) struct Node {
    pub(super) https: SocketAddr,
    pub(super) admin: Admin,
    process: Gateway,
    log: PathBuf,
}

/// The platform.
pub(super) struct Fleet {
    pub(super) nodes: Vec<Node>,
    pub(super) tenants: Vec<Tenant>,
    pub(super) control: ControlPlane,
    pub(super) redis: Redis,
    /// Between each node and Redis.
    pub(super) proxies: Vec<FaultProxy>,
    orders: Upstream,
    directory: TempDir,
    call_budget: &'static str,
    /// One fleet at a time: several would starve each other on a small machine, and then their stores seem slow.
    _turn: Turn,
}

type Turn = tokio::sync::MutexGuard<'static, ()>;

static TURN: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// Interval of checks whether the store's minute is over.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Duration of a test: short by default, or set in the environment for long runs (`bench/run quota-proof`).
#[expect(clippy::disallowed_methods, reason = "how long a test is, not a setting of a process")]
pub(crate) fn extent(variable: &str, usual: u32) -> u32 {
    std::env::var(variable).map_or(usual, |text| text.parse().expect("a whole number"))
}

impl Fleet {
    /// `count` gateways, and a project for each pair of limits.
    pub(super) async fn start(count: usize, limits: &[(u32, u32)], quota: &str) -> Self {
        let turn = TURN.lock().await;
        Self::over(Redis::within_a_day(), &vec![0; count], limits, quota, "100ms", turn).await
    }

    /// With a larger budget for calls to Redis.
    pub(super) async fn patient(count: usize, limits: &[(u32, u32)], quota: &str, call_budget: &'static str) -> Self {
        let turn = TURN.lock().await;
        Self::over(Redis::within_a_day(), &vec![0; count], limits, quota, call_budget, turn).await
    }

    /// Patient, and at the start of a minute of the store, for statements about a whole minute.
    pub(super) async fn in_a_fresh_minute(count: usize, limits: &[(u32, u32)], quota: &str) -> Self {
        let turn = TURN.lock().await;
        Self::over(Redis::in_a_fresh_minute(), &vec![0; count], limits, quota, "1s", turn).await
    }

    /// One gateway per clock, each off by this number of seconds.
    pub(super) async fn with_clocks(
        clocks: &[i32],
        limits: &[(u32, u32)],
        quota: &str,
        call_budget: &'static str,
    ) -> Self {
        let turn = TURN.lock().await;
        Self::over(Redis::in_a_fresh_minute(), clocks, limits, quota, call_budget, turn).await
    }

    async fn over(
        redis: Redis,
        clocks: &[i32],
        limits: &[(u32, u32)],
        quota: &str,
        call_budget: &'static str,
        turn: Turn,
    ) -> Self {
        let orders = Upstream::start().await;
        let mut tenants = Vec::new();
        let mut entities = Vec::new();
        for (number, (minute, day)) in limits.iter().enumerate() {
            let project = format!("p{number}");
            let host = format!("{project}.tollhouse.localhost");
            let key = TestKey::new(&project, u8::try_from(number).unwrap() + 1);
            entities.extend([Entity::Project(limited(&project, *minute, *day)), site(&host, &project), key.entity()]);
            tenants.push(Tenant { key, host });
        }
        let control = ControlPlane::start(entities);
        let directory = tempfile::tempdir().unwrap();
        let mut fleet = Self {
            nodes: vec![],
            tenants,
            control,
            redis,
            proxies: vec![],
            orders,
            directory,
            call_budget,
            _turn: turn,
        };
        for (number, off_by) in clocks.iter().enumerate() {
            fleet.proxies.push(FaultProxy::start(fleet.redis.port));
            let node = fleet.spawn(number, quota, *off_by);
            fleet.nodes.push(node);
        }
        for number in 0..clocks.len() {
            fleet.serves(number).await;
        }
        fleet
    }

    fn spawn(&self, number: usize, quota: &str, clock_off_by: i32) -> Node {
        let place = Place::free();
        let tables = format!(
            r#"
            [quota]
            store = "redis"
            {quota}
            [quota.redis]
            urls = ["redis://127.0.0.1:{redis}"]
            call_budget = "{budget}"
            [drain]
            lame_duck = "0s"
            [upstreams.orders]
            endpoints = ["{orders}"]
            in_flight_max = 10000
            connect_timeout = "20s"
            first_byte_timeout = "20s"
            routes = [{{ path = "{ORDERS}", methods = ["GET"] }}]
            "#,
            budget = self.call_budget,
            redis = self.proxies[number].port,
            orders = self.orders.address,
        );
        let text = place.settings(self.directory.path(), number, 2, self.control.address, &tables);
        std::fs::write(self.directory.path().join(format!("gateway-{number}.toml")), text).unwrap();
        let (process, log) = self.launch(number, clock_off_by);
        Node { https: place.https, admin: Admin(place.admin), process, log }
    }

    /// Starts the process of a node with a written configuration; returns it and its log.
    fn launch(&self, number: usize, clock_off_by: i32) -> (Gateway, PathBuf) {
        let log = self.directory.path().join(format!("gateway-{number}.log"));
        let mut command = Command::new(env!("CARGO_BIN_EXE_gateway"));
        if clock_off_by != 0 {
            command.envs(clock::of_program(&self.clock_file(number), clock_off_by.into()));
        }
        let process = command
            .arg("--config")
            .arg(self.directory.path().join(format!("gateway-{number}.toml")))
            .stdout(std::fs::File::options().append(true).create(true).open(&log).unwrap())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        (Gateway(process), log)
    }

    fn clock_file(&self, number: usize) -> PathBuf {
        self.directory.path().join(format!("gateway-{number}.clock"))
    }

    /// Sets the offset of the wall clock of a node that started with a wrong one.
    pub(super) fn step_clock(&self, number: usize, off_by: i32) {
        clock::set(&self.clock_file(number), off_by.into());
    }

    /// Waits until a node is ready, knows all keys, and counts with its store.
    pub(super) async fn serves(&self, number: usize) {
        let node = &self.nodes[number];
        node.is_ready().await;
        eventually("the gateway has applied all changes", async || {
            (node.admin.metric("edge_replica_revision").await >= self.control.revision()).then_some(())
        })
        .await;
        eventually("the gateway counts with its store", async || {
            let metrics = node.admin.metrics().await;
            let on =
                |mode: &str| metrics.get(&format!("edge_quota_mode{{mode=\"{mode}\"}}")).is_some_and(|on| on == "1");
            (on("lease") || on("exact")).then_some(())
        })
        .await;
    }

    pub(super) fn ask(&self, tenant: usize) -> Ask {
        Ask::get(&self.tenants[tenant].host, ORDERS).key(&self.tenants[tenant].key.text)
    }

    pub(super) async fn connect(&self, node: usize, tenant: usize) -> H2 {
        H2::connect(self.nodes[node].https, &self.tenants[tenant].host).await
    }

    /// `requests` requests of a tenant, 512 at once, each at a random node.
    pub(super) async fn burst(&self, tenant: usize, requests: u32) -> Outcome {
        self.burst_at(0..self.nodes.len(), tenant, requests).await
    }

    /// As [`Fleet::burst`], at some of the nodes.
    pub(super) async fn burst_at(&self, nodes: Range<usize>, tenant: usize, requests: u32) -> Outcome {
        let mut connections = Vec::new();
        for node in nodes {
            for _ in 0..CONNECTIONS {
                connections.push(self.connect(node, tenant).await);
            }
        }
        let connections = Arc::new(connections);
        let next = Arc::new(AtomicU32::new(0));
        let workers: Vec<_> = (0..512_u64)
            .map(|worker| {
                let (connections, next, ask) = (connections.clone(), next.clone(), self.ask(tenant));
                tokio::spawn(async move {
                    let mut outcome = Outcome::default();
                    let mut random = worker.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
                    while next.fetch_add(1, Ordering::SeqCst) < requests {
                        random ^= random << 13;
                        random ^= random >> 7;
                        random ^= random << 17;
                        let place = usize::try_from(random % connections.len() as u64).unwrap();
                        outcome.record(connections[place].try_ask(&ask).await.ok().as_ref());
                    }
                    outcome
                })
            })
            .collect();
        let mut all = Outcome::default();
        for worker in workers {
            all.add(worker.await.unwrap());
        }
        all
    }

    /// Waits until at least this number of seconds of a minute is left; returns at once if it is.
    pub(super) async fn fresh_minute(&self, seconds: u64) {
        let mut looks = tokio::time::interval(LOOK_EVERY);
        loop {
            if 60 - self.store_time() % 60 >= seconds {
                return;
            }
            looks.tick().await;
        }
    }

    /// Redis's time, in Unix seconds.
    pub(super) fn store_time(&self) -> u64 {
        let time = self.redis.ask(&["TIME"]);
        time.lines().next().and_then(|now| now.parse().ok()).expect("the server's time")
    }

    /// Number of statements that Redis has executed, by its statistics: each sets the expiry of its bucket.
    pub(super) fn store_calls(&self) -> u64 {
        self.executed("pexpireat")
    }

    /// Number of writes of hashes that Redis has executed: by statements, and by gateways that register.
    pub(super) fn writes(&self) -> u64 {
        self.executed("hset")
    }

    fn executed(&self, command: &str) -> u64 {
        let statistics = self.redis.ask(&["INFO", "commandstats"]);
        let line = statistics.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{command}:calls=")));
        line.map_or(0, |line| line.split(',').next().unwrap().parse().unwrap())
    }

    /// Units that Redis has charged to a tenant's day.
    pub(super) fn day_charged(&self, tenant: usize) -> u64 {
        let record = self.redis.ask(&["HGET", &format!("tollhouse:bucket:{{p{tenant}}}"), "record"]);
        record.split(' ').nth(2).and_then(|day| day.parse().ok()).unwrap_or(0)
    }

    /// Admitted requests of a tenant, by the access logs of all nodes, per minute of the quota's clock.
    pub(super) fn admitted_by_logs(&self, tenant: usize) -> u64 {
        let project = format!("\"p{tenant}\"");
        let lines = self.nodes.iter().map(|node| std::fs::read_to_string(&node.log).unwrap());
        let of = |line: &str| line.contains(&project) && line.contains("\"status\":200");
        lines.map(|text| text.lines().filter(|line| of(line)).count() as u64).sum()
    }
}

impl Node {
    /// Waits until it is ready.
    pub(super) async fn is_ready(&self) {
        eventually("the gateway is ready", async || {
            let connected = tokio::net::TcpStream::connect(self.admin.0).await.is_ok();
            (connected && self.admin.get("/readyz").await.0 == 200).then_some(())
        })
        .await;
    }
}

/// A local address that is reserved for this process, or for a server that it starts.
pub(crate) fn free_address() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], server::reserve(0).unwrap()))
}
