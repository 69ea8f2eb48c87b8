//! The script and [`Bucket::apply`] are one function: random statements through both give the same replies.
//!
//! Redis uses its own clock. The test reads it from each reply and passes it to the bucket.

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::*;
use crate::ledger::bucket::{Bucket, PLACES_MAX, StoreState};
use crate::ledger::{Executed, Incarnation};

/// A planned statement: the parts that depend on the clock are filled in when it is made.
#[derive(Clone, Copy, Debug)]
struct Draft {
    node: NodeId,
    /// Added to the node's last sequence number; 0 and below are stale.
    ahead: i8,
    acked_behind: u8,
    /// Minutes from the current one; `None`: knows no minute.
    minute: Option<i8>,
    /// How many minutes before that a reply named the last minute; `None`: never.
    named_before: Option<u8>,
    minute_spent: u8,
    day_more: u8,
    held: u8,
    need: u8,
    spare: u8,
    limits: (u8, u8),
}

fn drafts() -> impl Strategy<Value = Vec<Draft>> {
    let draft = (
        (0..4_u64, (1..3_u32, 0..2_u32, 0..2_u32), -1..3_i8, 0..3_u8),
        (prop::option::weighted(0.8, -2..3_i8), prop::option::weighted(0.8, 0..3_u8), 0..9_u8, 0..9_u8, 0..5_u8),
        (0..9_u8, 0..9_u8, (1..40_u8, 1..90_u8)),
    );
    let draft =
        draft.prop_map(|((place, (start, stay, process), ahead, acked_behind), claim, (need, spare, limits))| {
            let (minute, named_before, minute_spent, day_more, held) = claim;
            let node = NodeId { place, generation: Generation { start, stay, process } };
            Draft { node, ahead, acked_behind, minute, named_before, minute_spent, day_more, held, need, spare, limits }
        });
    prop::collection::vec(draft, 1..40)
}

/// One bucket in both implementations.
struct Pair<'a> {
    store: &'a RedisStore,
    project: ProjectUid,
    mirror: Option<Bucket>,
    incarnation: Incarnation,
    seqs: std::collections::HashMap<NodeId, u64>,
}

impl Pair<'_> {
    async fn state(&mut self, draft: Draft, now: i64) -> Result<(), TestCaseError> {
        let node = draft.node;
        let last = self.seqs.get(&node).copied().unwrap_or(0);
        let seq = last.saturating_add_signed(i64::from(draft.ahead)).max(1);
        self.seqs.insert(node, seq.max(last));
        let minute_now = Window::Minute.index(UnixMillis(now));
        let statement = Statement {
            node,
            seq,
            acked: seq.saturating_sub(1 + u64::from(draft.acked_behind)),
            claim: draft.minute.map_or(Claim::NOTHING, |minute| Claim {
                minute: minute_now + i64::from(minute),
                named: draft.named_before.map_or(i64::MIN, |before| minute_now + i64::from(minute) - i64::from(before)),
                minute_spent: draft.minute_spent.into(),
                day_spent: u32::from(draft.minute_spent) + u32::from(draft.day_more),
                held: draft.held.into(),
            }),
            need: draft.need.into(),
            spare: draft.spare.into(),
            limits: Limits::new(draft.limits.0.into(), draft.limits.1.into()).unwrap(),
        };
        let real = self.store.execute(&self.project, statement).await.unwrap();
        // The server decided at its own time, with its own data.
        let (at, incarnation) = match real {
            Reply::Executed(Executed { now, incarnation, .. }) => (now, incarnation),
            // Nothing was executed. The bucket must not see new data.
            _ => (UnixMillis(now), self.incarnation),
        };
        self.incarnation = incarnation;
        let around = StoreState { now: at, incarnation, learning_until: UnixMillis(0) };
        let mirror = self.mirror.get_or_insert_with(|| Bucket::new(&around));
        let expected = mirror.apply(&statement, &around);
        prop_assert_eq!(real, expected, "{:?}", statement);
        let record = self.store.view(&self.project).await.unwrap().unwrap();
        let mut mirrored = mirror.view(at);
        let mut nodes = record.nodes.clone();
        nodes.sort_by_key(|one| one.node);
        mirrored.nodes.sort_by_key(|one| one.node);
        if let Reply::Executed(_) = real
            && record.minute == mirrored.minute
        {
            prop_assert_eq!(record.minute_charged, mirrored.minute_charged);
            prop_assert_eq!(record.day_charged, mirrored.day_charged);
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
            let mut pair = Pair {
                store: &store,
                project,
                mirror: None,
                incarnation: Incarnation(0),
                seqs: std::collections::HashMap::new(),
            };
            runtime.block_on(async {
                let wall = || Clock::now(&chassis::clock::SystemClock::new()).0;
                for draft in drafts {
                    pair.state(draft, wall()).await?;
                }
                Ok(())
            })
        })
    });
    tested.await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_script_and_the_bucket_evict_the_same_places_and_refuse_the_same_newcomers() {
    let redis = Redis::in_a_fresh_minute();
    let store = store(&[redis.port], RedisMode::Standalone, 1).await;
    grants(&store).await;
    let project: ProjectUid = "crowded".parse().unwrap();
    let mut pair = Pair {
        store: &store,
        project,
        mirror: None,
        incarnation: Incarnation(0),
        seqs: std::collections::HashMap::new(),
    };
    let most = PLACES_MAX as u64;
    let draft = |place: u64, minute: Option<i8>| Draft {
        node: NodeId { place, generation: Generation { start: 1, stay: 0, process: 1 } },
        ahead: 1,
        acked_behind: 0,
        minute,
        named_before: Some(0),
        minute_spent: 0,
        day_more: 0,
        held: 0,
        need: 1,
        spare: 0,
        limits: (255, 255),
    };
    let now = async || store.heartbeat(false).await.unwrap().now.0;
    for place in (0..most).chain([most, 5, most + 1]) {
        pair.state(draft(place, None), now().await).await.unwrap();
    }
    // One node names a minute in which the others have been silent for long: room for 64, and 64 after them.
    pair.state(draft(7, Some(5)), now().await).await.unwrap();
    for place in most..most + 70 {
        pair.state(draft(place, None), now().await).await.unwrap();
    }
    // Some removed places return, with and without a claim.
    for (place, minute) in [(0, Some(5)), (1, Some(5)), (2, None), (7, Some(5)), (100, Some(5)), (900, Some(5))] {
        pair.state(draft(place, minute), now().await).await.unwrap();
    }
    let record = store.view(&pair.project).await.unwrap().unwrap();
    assert!(record.nodes.len() > PLACES_MAX - 128 && record.nodes.len() <= PLACES_MAX, "{}", record.nodes.len());
}
