//! Several nodes and one Redis: together exact, with few calls, and with the same bans.

use std::sync::atomic::AtomicU32;

use chassis::clock::{Clock as _, SystemClock};

use super::*;
use crate::allowance::Allowances;
use crate::ban::BanSwitch;
use crate::breaker::PROBE_EVERY;
use crate::settings::QuotaSettings;

/// Nodes with their background tasks, which end with them.
pub(super) struct Nodes {
    pub(super) all: Vec<Quota>,
    tasks: Vec<tokio::task::JoinHandle<()>>,
}

impl Drop for Nodes {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

impl Nodes {
    pub(super) async fn start(ports: &[u16], mode: RedisMode, count: u64, change: impl Fn(&mut QuotaSettings)) -> Self {
        Self::named(1, ports, mode, count, change).await
    }

    /// Nodes with processes numbered from `first`.
    pub(super) async fn named(
        first: u64,
        ports: &[u16],
        mode: RedisMode,
        count: u64,
        change: impl Fn(&mut QuotaSettings),
    ) -> Self {
        let (mut all, mut tasks) = (Vec::new(), Vec::new());
        for process in first..first + count {
            let store = store(ports, mode, process).await;
            let mut settings = QuotaSettings::new(process);
            settings.call_budget = Duration::from_millis(500);
            change(&mut settings);
            // The nodes' own clocks do not matter: one is 90 s ahead, one 45 s behind.
            let off = [0, 90_000, -45_000][usize::try_from(process % 3).unwrap()];
            let quota = Quota::new(Arc::new(store), settings, RealClock::from(SystemClock::new().now().plus(off)));
            tasks.push(tokio::spawn({
                let quota = quota.clone();
                async move { ((), ()) = tokio::join!(quota.send_heartbeats(), quota.listen()) }
            }));
            all.push(quota);
        }
        let nodes = Self { all, tasks };
        eventually("every node is let through", async || {
            let mut good = true;
            for (number, node) in nodes.all.iter().enumerate() {
                let warm: ProjectUid = format!("warm-{number}").parse().unwrap();
                good &=
                    node.charge(&warm, limits(1_000, 100_000), &key(9)).await.is_ok() && node.mode() == nodes.mode();
            }
            good
        })
        .await;
        nodes
    }

    fn mode(&self) -> Mode {
        if self.all.len() > 1 { Mode::Lease } else { Mode::Exact }
    }

    /// `requests` answered requests, 512 at a time, each at a random node; returns the admitted ones of each minute.
    pub(super) async fn burst(&self, project: &ProjectUid, limits: Limits, requests: u32) -> Vec<(i64, u32)> {
        let next = Arc::new(AtomicU32::new(0));
        let workers: Vec<_> = (0..512_u64)
            .map(|worker| {
                let (nodes, next, project) = (self.all.clone(), next.clone(), project.clone());
                tokio::spawn(async move {
                    let mut minutes = Vec::new();
                    let mut random = worker.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
                    while next.fetch_add(1, Ordering::SeqCst) < requests {
                        random ^= random << 13;
                        random ^= random >> 7;
                        random ^= random << 17;
                        let node = &nodes[usize::try_from(random % nodes.len() as u64).unwrap()];
                        if let Some(allowances) = answered(node, &project, limits).await {
                            minutes.push(allowances.minute.resets_at.0 / 60 - 1);
                        }
                    }
                    minutes
                })
            })
            .collect();
        let mut per_minute = std::collections::BTreeMap::new();
        for worker in workers {
            for minute in worker.await.unwrap() {
                *per_minute.entry(minute).or_insert(0) += 1;
            }
        }
        per_minute.into_iter().collect()
    }
}

/// One request that is repeated while the store does not answer, because Redis may be slow on a busy machine. `None` if
/// it is refused.
async fn answered(node: &Quota, project: &ProjectUid, limits: Limits) -> Option<Allowances> {
    for _ in 0..200 {
        match node.charge(project, limits, &key(1)).await {
            Ok(allowances) => return Some(allowances),
            Err(ChargeError::Unavailable { .. }) => tokio::time::sleep(PROBE_EVERY).await,
            Err(ChargeError::Exceeded { .. }) => return None,
            Err(ChargeError::Banned { .. }) => panic!("bans are off in a burst"),
        }
    }
    panic!("Redis did not answer for 20 seconds");
}

/// For bursts: on a busy machine a burst takes longer than the grace of a second, and a banned key would get less than
/// the limit.
pub(super) fn without_bans(settings: &mut QuotaSettings) {
    settings.ban.switch = BanSwitch::Off;
}

fn named(name: &str) -> ProjectUid {
    name.parse().unwrap()
}

/// Statements that the server has executed: each sets its bucket's expiry.
fn bucket_calls(redis: &Redis) -> u64 {
    let stats = redis.ask(&["INFO", "commandstats"]);
    let of = |name: &str| {
        let line = stats.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{name}:calls=")));
        line.and_then(|rest| rest.split(',').next()?.parse::<u64>().ok()).unwrap_or(0)
    };
    of("pexpireat")
}

/// Repeats an attempt with a new project until it happens within one minute: a minute may end at any time, but not five
/// times in a row.
pub(super) async fn within_one_minute<T>(name: &str, mut attempt: impl AsyncFnMut(ProjectUid) -> Option<T>) -> T {
    for number in 0..5 {
        if let Some(seen) = attempt(named(&format!("{name}-{number}"))).await {
            return seen;
        }
    }
    panic!("five attempts, and each straddled a minute");
}

#[tokio::test(flavor = "multi_thread")]
async fn exactly_the_limit_is_admitted_over_all_nodes() {
    let redis = Redis::in_a_fresh_minute();
    let nodes = Nodes::start(&[redis.port], RedisMode::Standalone, 3, without_bans).await;
    for (repeat, limit) in [60, 300, 1_000, 20_000].into_iter().flat_map(|limit| [(0, limit), (1, limit)]) {
        within_one_minute(&format!("exact-{limit}-{repeat}"), async |project| {
            let minutes = nodes.burst(&project, limits(limit, 100_000), limit * 3).await;
            assert!(minutes.iter().all(|(_, admitted)| *admitted <= limit), "{limit}: {minutes:?}");
            let total: u32 = minutes.iter().map(|(_, admitted)| admitted).sum();
            eventually("unspent units are returned", async || {
                let record = nodes.all[0].usage(&project).await.unwrap().unwrap();
                record.day_charged == u64::from(total)
            })
            .await;
            let [(_, admitted)] = minutes.as_slice() else { return None };
            assert_eq!(*admitted, limit, "three times as many asked");
            Some(())
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn exactly_the_days_limit_is_admitted_and_refusals_cost_neither_window() {
    let redis = Redis::in_a_fresh_minute();
    let nodes = Nodes::start(&[redis.port], RedisMode::Standalone, 3, without_bans).await;
    let minutes = nodes.burst(&named("day"), limits(1_000, 400), 3_000).await;
    assert_eq!(minutes.iter().map(|(_, admitted)| admitted).sum::<u32>(), 400, "{minutes:?}");
    within_one_minute("minute", async |project| {
        let minutes = nodes.burst(&project, limits(60, 1_000), 10_000).await;
        let total: u32 = minutes.iter().map(|(_, admitted)| admitted).sum();
        eventually("the day has all admitted requests", async || {
            nodes.all[0].usage(&project).await.unwrap().unwrap().day_charged == u64::from(total)
        })
        .await;
        let [(_, admitted)] = minutes.as_slice() else { return None };
        assert_eq!(*admitted, 60);
        Some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_requests_make_no_calls_and_a_busy_bucket_makes_few() {
    let redis = Redis::in_a_fresh_minute();
    let nodes = Nodes::start(&[redis.port], RedisMode::Standalone, 3, without_bans).await;
    within_one_minute("cheap", async |project| {
        let limits = limits(1_000, 100_000);
        let before = bucket_calls(&redis);
        let began = nodes.burst(&project, limits, 1_000).await;
        let calls = bucket_calls(&redis) - before;
        assert!(calls <= 80, "{calls} calls for 1,000 requests on three nodes: {began:?}");
        let spent = nodes.burst(&project, limits, 3_000).await;
        let total: u32 = began.iter().chain(&spent).map(|(_, admitted)| admitted).sum();
        eventually("the record holds every request", async || {
            nodes.all[0].usage(&project).await.unwrap().unwrap().day_charged == u64::from(total)
        })
        .await;
        // Every node receives the refusal once.
        let answers = nodes.burst(&project, limits, 60).await;
        // The record, including how many statements each node has made.
        let record = || redis.ask(&["HGETALL", &format!("tollhouse:bucket:{{{project}}}")]);
        let before = record();
        let refused = nodes.burst(&project, limits, 100_000).await;
        // An admitted request belongs to another minute than the spent one.
        if !answers.is_empty() || !refused.is_empty() {
            return None;
        }
        assert_eq!(record(), before, "100,000 requests were refused");
        Some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unused_units_of_other_nodes_are_recalled_before_a_refusal() {
    let redis = Redis::start();
    let nodes = Nodes::start(&[redis.port], RedisMode::Standalone, 2, |_| {}).await;
    let (busy, late) = (&nodes.all[0], &nodes.all[1]);
    let limits = limits(200, 100_000);
    // New projects until one attempt fits into a minute: busy on the first node, which then holds a lease.
    for attempt in 0..5 {
        let project = named(&format!("recall-{attempt}"));
        let mut minute = 0;
        for _ in 0..40 {
            minute = busy.charge(&project, limits, &key(1)).await.unwrap().minute.resets_at.0;
        }
        let held: u32 = {
            let record = busy.usage(&project).await.unwrap().unwrap();
            record.nodes.iter().map(|node| node.held).sum()
        };
        let mut admitted = 40;
        let mut same_minute = true;
        let refusal = loop {
            match late.charge(&project, limits, &key(2)).await {
                Ok(allowances) => same_minute &= allowances.minute.resets_at.0 == minute,
                Err(refusal) => break refusal,
            }
            admitted += 1;
        };
        assert!(matches!(refusal, ChargeError::Exceeded { .. }), "{refusal:?}");
        if same_minute && held > 0 {
            let record = late.usage(&project).await.unwrap().unwrap();
            assert_eq!(admitted, 200, "the first node held {held} and gave them back: {record:?}");
            return;
        }
    }
    panic!("five attempts, and each straddled a minute or held nothing");
}

#[tokio::test(flavor = "multi_thread")]
async fn bans_hold_on_every_node_and_end_on_every_node() {
    let redis = Redis::start();
    let nodes = Nodes::start(&[redis.port], RedisMode::Standalone, 2, |_| {}).await;
    let far = UnixSeconds(4_000_000_000);
    let banned = |node: usize| {
        let node = nodes.all[node].clone();
        async move {
            let outcome = node.charge(&named("bans"), limits(1_000, 100_000), &key(7)).await;
            matches!(outcome, Err(ChargeError::Banned { until, .. }) if until == far)
        }
    };
    nodes.all[0].ban(&key(7), far).unwrap();
    eventually("the other node knows the ban", async || banned(1).await).await;
    assert!(banned(0).await);
    // A node that starts later reads the stored bans.
    let later = Nodes::named(11, &[redis.port], RedisMode::Standalone, 2, |_| {}).await;
    eventually("a newcomer knows the ban", async || {
        later.all[0].bans().iter().any(|ban| ban.key == key(7) && ban.until == far)
    })
    .await;
    assert!(nodes.all[1].lift(&key(7)), "any node may lift it");
    eventually("it is lifted everywhere", async || {
        !banned(0).await && !banned(1).await && later.all.iter().all(|node| node.bans().is_empty())
    })
    .await;
}
