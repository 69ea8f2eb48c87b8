//! The script and [`Bucket::apply`] are one function: random statements through both, and the same answers.
//!
//! Redis tells the time by its own clock, which the test reads from each answer and hands to the bucket.

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::*;
use crate::quota::ledger::bucket::{Bucket, Surroundings};
use crate::quota::ledger::{Claim, Incarnation, NodeId, Reply, Settlement, Statement};

/// A statement to be: what of it depends on the clock is filled in when it is made.
#[derive(Clone, Copy, Debug)]
struct Draft {
    process: u64,
    life: u32,
    /// Added to the last sequence number of the node; 0 and below are stale.
    ahead: i8,
    heard_behind: u8,
    /// Minutes from the present one; `None`: knows of none.
    minute: Option<i8>,
    minute_spent: u8,
    day_more: u8,
    held: u8,
    need: u8,
    spare: u8,
    limits: (u8, u8),
}

fn drafts() -> impl Strategy<Value = Vec<Draft>> {
    let draft = (
        (0..4_u64, 0..2_u32, -1..3_i8, 0..3_u8),
        (prop::option::weighted(0.8, -2..3_i8), 0..9_u8, 0..9_u8, 0..5_u8),
        (0..9_u8, 0..9_u8, (1..40_u8, 1..90_u8)),
    );
    let draft =
        draft.prop_map(|((process, life, ahead, heard_behind), (minute, minute_spent, day_more, held), rest)| {
            let (need, spare, limits) = rest;
            Draft { process, life, ahead, heard_behind, minute, minute_spent, day_more, held, need, spare, limits }
        });
    prop::collection::vec(draft, 1..40)
}

/// One bucket in both worlds.
struct Pair<'a> {
    store: &'a RedisStore,
    project: ProjectUid,
    mirror: Option<Bucket>,
    seqs: std::collections::HashMap<(u64, u32), u64>,
}

impl Pair<'_> {
    async fn state(&mut self, draft: Draft, now: i64) -> Result<(), TestCaseError> {
        let node = (draft.process, draft.life);
        let last = self.seqs.get(&node).copied().unwrap_or(0);
        let seq = last.saturating_add_signed(i64::from(draft.ahead)).max(1);
        self.seqs.insert(node, seq.max(last));
        let minute_now = Window::Minute.index(UnixMillis(now));
        let statement = Statement {
            node: NodeId { process: node.0, life: node.1 },
            seq,
            heard: seq.saturating_sub(1 + u64::from(draft.heard_behind)),
            claim: draft.minute.map_or(Claim::NOTHING, |minute| Claim {
                minute: minute_now + i64::from(minute),
                minute_spent: draft.minute_spent.into(),
                day_spent: u32::from(draft.minute_spent) + u32::from(draft.day_more),
                held: draft.held.into(),
            }),
            need: draft.need.into(),
            spare: draft.spare.into(),
            limits: Limits::new(draft.limits.0.into(), draft.limits.1.into()).unwrap(),
        };
        let real = self.store.settle(&self.project, statement).await.unwrap();
        // What the server decided it decided at its own moment, in its own memory.
        let (at, incarnation) = match real {
            Reply::Settled(Settlement { now, incarnation, .. }) => (now, incarnation),
            Reply::Stale => (UnixMillis(now), Incarnation(0)),
        };
        let around = Surroundings { now: at, incarnation, learning_until: UnixMillis(0) };
        let mirror = self.mirror.get_or_insert_with(|| Bucket::new(&around));
        let expected = mirror.apply(&statement, &around);
        prop_assert_eq!(real, expected, "{:?}", statement);
        let books = self.store.view(&self.project).await.unwrap().unwrap();
        let mut mirrored = mirror.view(at);
        let mut nodes = books.nodes.clone();
        nodes.sort_by_key(|one| one.node);
        mirrored.nodes.sort_by_key(|one| one.node);
        if let Reply::Settled(_) = real
            && books.minute == mirrored.minute
        {
            prop_assert_eq!(books.minute_charged, mirrored.minute_charged);
            prop_assert_eq!(books.day_charged, mirrored.day_charged);
            prop_assert_eq!(nodes, mirrored.nodes);
        }
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_script_is_the_same_function_as_the_bucket() {
    let redis = Redis::start();
    let store = store(&[redis.port], RedisMode::Standalone, 1).await;
    grants(&store).await;
    let runtime = tokio::runtime::Handle::current();
    let number = AtomicI64::new(0);
    let tested = tokio::task::spawn_blocking(move || {
        let mut runner = TestRunner::new(Config { cases: 150, failure_persistence: None, ..Config::default() });
        runner.run(&drafts(), |drafts| {
            let project = format!("pair-{}", number.fetch_add(1, Ordering::SeqCst)).parse().unwrap();
            let mut pair = Pair { store: &store, project, mirror: None, seqs: std::collections::HashMap::new() };
            runtime.block_on(async {
                let wall = || chassis::clock::Clock::now(&chassis::clock::SystemClock::new()).0;
                for draft in drafts {
                    pair.state(draft, wall()).await?;
                }
                Ok(())
            })
        })
    });
    tested.await.unwrap().unwrap();
}
