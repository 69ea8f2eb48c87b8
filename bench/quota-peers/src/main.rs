//! Bursts of three times a limit, 512 requests in flight, each at a node chosen at random, at several limiters over one
//! Redis: how many are admitted, how many calls Redis sees per request, and what a request costs in processor time here
//! and in Redis. Then as many again, all of which should be refused. Prints a table in Markdown.
//!
//! Usage: quota-peers REDIS_PORT ROUNDS

use std::collections::HashMap;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use chassis::clock::{Clock as _, SystemClock};
use chassis::metrics::{self, Registry};
use chassis::supervise::Supervisor;
use contract::key::KeyId;
use contract::plan::Limits;
use contract::project::ProjectId;
use contract::time::UnixMillis;
use quota::Quota;
use quota::settings::{OnStoreDown, QuotaSettings};
use quota::store::redis::settings::{RedisAddress, RedisMode, RedisSettings};
use quota::store::redis::{CallMetrics, RedisStore};
use limitador::limit::Limit;
use limitador::storage::AsyncStorage;
use limitador::storage::redis::{AsyncRedisStorage, CachedRedisStorage};
use limitador::{AsyncRateLimiter, AsyncRateLimiterBuilder};

const IN_FLIGHT: u64 = 512;
const DAY: u32 = 1_000_000;

/// One node of a limiter.
enum Node {
    Ledger(Quota),
    Peer(Arc<AsyncRateLimiter>),
}

impl Node {
    async fn admits(&self, name: &str, limit: u32) -> bool {
        match self {
            Self::Ledger(quota) => {
                let (project, key): (ProjectId, KeyId) = (name.parse().unwrap(), KeyId::from_random([7; 10]));
                quota.charge(&project, Limits::new(limit, DAY).unwrap(), &key).await.is_ok()
            }
            Self::Peer(limiter) => {
                let context = HashMap::from([("user".to_owned(), name.to_owned())]).into();
                let verdict = limiter.check_rate_limited_and_update(&name.into(), &context, 1).await;
                verdict.is_ok_and(|verdict| !verdict.limited)
            }
        }
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Contender {
    Ledger,
    PeerExact,
    PeerCached,
}

impl Contender {
    fn name(self) -> &'static str {
        match self {
            Self::Ledger => "Tollhouse ledger",
            Self::PeerExact => "limitador 0.14, redis",
            Self::PeerCached => "limitador 0.14, redis_cached",
        }
    }

    async fn nodes(self, port: u16, count: u64, name: &str, limit: u32) -> anyhow::Result<Vec<Node>> {
        let mut nodes = Vec::new();
        for process in 1..=count {
            nodes.push(match self {
                Self::Ledger => Node::Ledger(ledger(port, process).await?),
                _ => {
                    let url = format!("redis://127.0.0.1:{port}");
                    let storage: Box<dyn limitador::storage::AsyncCounterStorage> = if self == Self::PeerExact {
                        Box::new(AsyncRedisStorage::new(&url).await?)
                    } else {
                        Box::new(CachedRedisStorage::new(&url).await?)
                    };
                    let limiter = AsyncRateLimiterBuilder::new(AsyncStorage::with_counter_storage(storage)).build();
                    for (most, seconds) in [(limit, 60), (DAY, 86_400)] {
                        let variables = vec!["user".try_into().map_err(|_| anyhow::anyhow!("a variable"))?];
                        limiter.add_limit(Limit::new(name, u64::from(most), seconds, vec![], variables));
                    }
                    Node::Peer(Arc::new(limiter))
                }
            });
        }
        Ok(nodes)
    }
}

async fn ledger(port: u16, process: u64) -> anyhow::Result<Quota> {
    let registry = Registry::new();
    let calls = metrics::counter_vec(&registry, "edge_quota_store_calls_total", "Calls.", &["result"])?;
    let seconds = metrics::latency_vec(&registry, "edge_quota_store_call_seconds", "Seconds.", &[])?;
    let settings = RedisSettings {
        mode: RedisMode::Standalone,
        addresses: vec![RedisAddress { host: "127.0.0.1".to_owned(), port, tls: false }],
        master_name: String::new(),
        username: None,
        password: None,
        ca_certificate: None,
        call_budget: Duration::from_secs(1),
    };
    let tasks = Supervisor::register(&registry, "edge_task_restarts_total")?;
    let call_metrics = CallMetrics { calls, seconds: seconds.with_label_values(&[] as &[&str]) };
    let store = RedisStore::start(settings, process, call_metrics, &tasks);
    store.connected(Duration::from_secs(5)).await?;
    let mut settings = QuotaSettings::new(process);
    settings.on_store_down = OnStoreDown::Deny;
    settings.call_budget = Duration::from_secs(1);
    settings.ban.switch = quota::ban::BanSwitch::Off;
    let quota = Quota::new(Arc::new(store), settings, Arc::new(SystemClock::new()));
    tokio::spawn({
        let quota = quota.clone();
        async move { tokio::join!(quota.send_heartbeats(), quota.listen()) }
    });
    Ok(quota)
}

/// What a burst used.
#[derive(Clone, Copy, Default)]
struct Cost {
    calls: u64,
    here: f64,
    redis: f64,
}

fn cost(port: u16) -> anyhow::Result<Cost> {
    let info = |section: &str| -> anyhow::Result<String> {
        let output = Command::new("redis-cli").args(["-p", &port.to_string(), "INFO", section]).output()?;
        Ok(String::from_utf8(output.stdout)?)
    };
    let stats = info("commandstats")?;
    let calls = ["evalsha", "eval", "mget", "get"].iter().filter_map(|name| {
        let line = stats.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{name}:calls=")))?;
        line.split(',').next()?.parse::<u64>().ok()
    });
    let cpu = info("cpu")?;
    let used = ["used_cpu_user:", "used_cpu_sys:"].iter().filter_map(|name| {
        cpu.lines().find_map(|line| line.strip_prefix(name))?.trim().parse::<f64>().ok()
    });
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let ticks: f64 = stat.rsplit(')').next().context("a stat line")?.split_whitespace().skip(11).take(2)
        .filter_map(|ticks| ticks.parse::<f64>().ok()).sum();
    Ok(Cost { calls: calls.sum(), here: ticks / 100.0, redis: used.sum() })
}

async fn burst(nodes: &Arc<Vec<Node>>, name: &str, limit: u32, requests: u32) -> u32 {
    let next = Arc::new(AtomicU32::new(0));
    let workers: Vec<_> = (0..IN_FLIGHT)
        .map(|worker| {
            let (nodes, next, name) = (nodes.clone(), next.clone(), name.to_owned());
            tokio::spawn(async move {
                let (mut admitted, mut random) = (0, worker.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
                while next.fetch_add(1, Ordering::SeqCst) < requests {
                    random ^= random << 13;
                    random ^= random >> 7;
                    random ^= random << 17;
                    let place = usize::try_from(random % nodes.len() as u64).unwrap_or(0);
                    admitted += u32::from(nodes[place].admits(&name, limit).await);
                }
                admitted
            })
        })
        .collect();
    let mut admitted = 0;
    for worker in workers {
        admitted += worker.await.unwrap_or(0);
    }
    admitted
}

/// The ledger's windows are calendar minutes: begin where there is enough of one left.
async fn fresh_minute() {
    loop {
        let millis = SystemClock::new().now().0 % 60_000;
        if (500..45_000).contains(&millis) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let port: u16 = arguments.next().context("the port of a redis-server")?.parse()?;
    let rounds: u32 = arguments.next().map_or(Ok(3), |rounds| rounds.parse())?;
    println!("| Limiter | Nodes | Limit | Admitted (each round) | Calls per request | Calls per refused request | CPU µs per request, node + Redis |");
    println!("|---|---|---|---|---|---|---|");
    for (count, limit) in [(1, 60), (1, 1_000), (3, 1_000), (3, 20_000)] {
        for contender in [Contender::Ledger, Contender::PeerExact, Contender::PeerCached] {
            let (mut admitted, mut used, mut refused) = (Vec::new(), Cost::default(), Cost::default());
            for round in 0..rounds {
                let name = format!("{}-{count}-{limit}-{round}", if contender == Contender::Ledger { "l" } else if contender == Contender::PeerExact { "e" } else { "c" });
                let nodes = Arc::new(contender.nodes(port, count, &name, limit).await?);
                // The first request of a new memory waits until all nodes had their say.
                burst(&nodes, &format!("warm-{name}"), limit, 8).await;
                tokio::time::sleep(Duration::from_millis(800)).await;
                fresh_minute().await;
                let before = cost(port)?;
                admitted.push(burst(&nodes, &name, limit, limit * 3).await.to_string());
                let between = cost(port)?;
                burst(&nodes, &name, limit, limit * 3).await;
                let after = cost(port)?;
                for (sum, from, to) in [(&mut used, before, between), (&mut refused, between, after)] {
                    sum.calls += to.calls - from.calls;
                    sum.here += to.here - from.here;
                    sum.redis += to.redis - from.redis;
                }
            }
            let requests = f64::from(limit * 3 * rounds);
            #[expect(clippy::cast_precision_loss, reason = "counts of a benchmark are far below 2^52")]
            let per = |calls: u64| calls as f64 / requests;
            println!(
                "| {} | {count} | {limit} | {} | {:.3} | {:.3} | {:.1} + {:.1} |",
                contender.name(),
                admitted.join(", "),
                per(used.calls),
                per(refused.calls),
                used.here / requests * 1e6,
                used.redis / requests * 1e6,
            );
        }
    }
    let before = resident()?;
    let quota = ledger(port, 99).await?;
    for number in 0..100_000 {
        let (project, key): (ProjectId, KeyId) = (format!("b{number}").parse()?, KeyId::from_random([7; 10]));
        let _ = quota.charge(&project, Limits::new(60, DAY).context("limits")?, &key).await;
    }
    println!();
    println!("A node with 100,000 buckets: {} MB more than before.", resident()?.saturating_sub(before) / 1_000_000);
    Ok(())
}

/// Bytes of this process in memory.
fn resident() -> anyhow::Result<u64> {
    let pages: u64 = std::fs::read_to_string("/proc/self/statm")?.split(' ').nth(1).context("resident")?.parse()?;
    Ok(pages * 4_096)
}
