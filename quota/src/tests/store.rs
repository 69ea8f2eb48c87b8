//! The tests that every quota store must pass. They use the store's clock as it is, so that a store with its own clock
//! passes them too.

use super::*;
use crate::ledger::{Claim, Executed, Generation, NodeId, Reply, Statement};
use crate::store::StoreOutage;

fn state(place: u32, seq: u64, claim: Claim, need: u32, limits: Limits) -> Statement {
    let node = NodeId { place: place.into(), generation: Generation { start: 1, stay: 0, process: place } };
    Statement { node, seq, acked: seq - 1, claim, need, spare: 0, limits }
}

async fn execute(store: &dyn Store, bucket: &ProjectUid, statement: Statement) -> Executed {
    match store.execute(bucket, statement).await.unwrap() {
        Reply::Executed(executed) => executed,
        other => panic!("{other:?}: {statement:?}"),
    }
}

/// The tests. `name` makes projects without charges.
pub(super) async fn keeps_the_promises_of_a_store(store: &dyn Store, name: impl Fn(u32) -> ProjectUid) {
    assert!(store.heartbeat(true).await.is_ok());
    let few = limits(3, 1_000);

    assert_eq!(store.view(&name(0)).await.unwrap(), None, "nothing was charged yet");
    let first = execute(store, &name(0), state(1, 1, Claim::NOTHING, 2, few)).await;
    assert_eq!((first.granted, first.minute_charged, first.own_day, first.nodes), (2, 2, 2, 1));
    assert_eq!(first.minute, Window::Minute.index(first.now));

    let again = store.execute(&name(0), state(1, 1, Claim::NOTHING, 2, few)).await.unwrap();
    assert_eq!(again, Reply::Stale, "a duplicate changes nothing");

    let other = execute(store, &name(0), state(2, 1, Claim::NOTHING, 5, few)).await;
    assert_eq!((other.granted, other.minute_charged, other.day_charged), (1, 3, 3), "one was left");
    let refused = execute(store, &name(0), state(3, 1, Claim::NOTHING, 1, few)).await;
    assert_eq!((refused.granted, refused.minute_charged, refused.day_charged), (0, 3, 3), "neither window");

    let returned = Claim { minute: first.minute, named: first.minute, minute_spent: 1, day_spent: 1, held: 0 };
    let back = execute(store, &name(0), state(1, 2, returned, 0, few)).await;
    assert_eq!((back.minute_charged, back.day_charged), (2, 2), "one of the two came back");
    let view = store.view(&name(0)).await.unwrap().unwrap();
    assert_eq!((view.minute_charged, view.day_charged, view.nodes.len()), (2, 2, 3));

    let mut copy = state(1, 3, returned, 1, few);
    copy.node.generation.process += 1;
    assert_eq!(store.execute(&name(0), copy).await.unwrap(), Reply::Displaced, "another process uses this place");
    let mut restarted = state(1, 1, Claim::NOTHING, 0, few);
    restarted.node.generation = Generation { start: 2, stay: 0, process: 7 };
    let again = execute(store, &name(0), restarted).await;
    assert_eq!((again.own_day, again.minute_charged, again.day_charged, again.nodes), (0, 2, 2, 3), "a new generation");

    let untouched = execute(store, &name(1), state(1, 1, Claim::NOTHING, 1, limits(5, 1))).await;
    assert_eq!((untouched.granted, untouched.day_charged), (1, 1), "buckets know nothing of each other");
    let day = execute(store, &name(1), state(2, 1, Claim::NOTHING, 1, limits(5, 1))).await;
    assert_eq!((day.granted, day.minute_charged), (0, 1), "a spent day costs the minute nothing");

    let spent = Claim { minute: first.minute, named: first.minute, minute_spent: 4, day_spent: 4, held: 0 };
    let forgotten = execute(store, &name(2), state(1, 9, spent, 1, few)).await;
    assert_eq!((forgotten.granted, forgotten.minute_charged), (0, 4));
    assert!(forgotten.learning_until.is_some(), "a claim of units that the store never granted shows lost data");
}

#[tokio::test]
async fn the_embedded_store_keeps_the_promises_of_a_store() {
    let store = MemoryStore::new(TestClock::new(), BUCKETS_MAX);
    keeps_the_promises_of_a_store(&store, |number| format!("suite-{number}").parse().unwrap()).await;
}

#[tokio::test]
async fn the_embedded_store_keeps_every_bucket_of_the_current_day() {
    let clock = TestClock::new();
    let store = MemoryStore::new(clock.clone(), 1);
    let name = |number: u32| format!("p{number}").parse::<ProjectUid>().unwrap();
    let one = |number: u32| (name(number), state(1, 1, Claim::NOTHING, 1, limits(60, 1_000)));
    let mut full = None;
    for number in 0..1_000 {
        let (project, statement) = one(number);
        if store.execute(&project, statement).await == Err(StoreOutage::Full) {
            full = Some(number);
        }
    }
    let full = full.unwrap();
    assert_eq!(store.len(), 64, "one per lock");
    clock.pass(Duration::from_hours(26));
    let (project, statement) = one(full);
    assert!(store.execute(&project, statement).await.is_ok(), "the next day there is room");
    assert_eq!(store.export().buckets.len(), 1, "ended windows are not kept over a restart");
}
