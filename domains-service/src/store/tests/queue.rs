//! Places in queues, over both databases.

use contract::hostname::Hostname;
use contract::project::ProjectUid;

use super::*;
use crate::domain::schedule::LEASE_MILLIS;
use crate::limits::{Demand, Limit, QueueKind, queue_name};
use crate::store::acme::OrderRecord;
use crate::store::queue::{Applicant, leave};

const LIMIT: Limit = Limit { burst: 2, refill: 1_000 };

fn demand(of: &str) -> Demand {
    Demand { kind: QueueKind::Project, name: queue_name("one", QueueKind::Project, of), limit: LIMIT, takes: true }
}

fn name(text: &str) -> Hostname {
    format!("{text}.example").parse().unwrap()
}

fn project() -> ProjectUid {
    ProjectUid::from_random([1; 16])
}

/// The result of an application for a name, in the queue of the project `demo`: its number, or 0 if it may order.
async fn apply(store: &Store, text: &str) -> i64 {
    apply_with(store, text, &[demand("demo")]).await
}

async fn apply_with(store: &Store, text: &str, demands: &[Demand]) -> i64 {
    let (hostname, project) = (name(text), project());
    let applicant = Applicant { authority: "one", hostname: &hostname, project: &project };
    store.admit(applicant, demands).await.unwrap().map_or_else(|(_, place)| place.number, |()| 0)
}

async fn ordered(store: &Store, text: &str) {
    let order = OrderRecord {
        authority: "one".to_owned(),
        hostname: name(text),
        url: format!("https://one.example/{text}"),
        sealed_key: None,
        created_at: NOW,
    };
    store.save_order(&order).await.unwrap();
}

async fn places(store: &Store) -> Vec<(String, i64, Option<i64>)> {
    let mut places = store.queue_places("one", &project(), |_| LIMIT).await.unwrap();
    places.sort_by_key(|(_, place)| place.number);
    places.into_iter().map(|(name, place)| (name, place.number, place.at.map(|at| at.since(NOW)))).collect()
}

fn later(store: &mut Store, millis: i64) {
    store.clock = Arc::new(ManualClock::at(NOW.plus(millis)));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_in_the_queue_gets_the_next_unit_and_numbers_follow_arrival() {
    for (mut store, _directory) in both().await {
        assert_eq!((apply(&store, "a").await, apply(&store, "b").await), (0, 0));
        ordered(&store, "a").await;
        ordered(&store, "b").await;
        // Added in one millisecond, and not in the order of their names.
        for (text, number) in [("z", 1), ("y", 2), ("x", 3)] {
            assert_eq!((apply(&store, text).await, apply(&store, text).await), (number, number), "{text}");
        }
        let at = |text: &str, number: i64| (format!("{text}.example"), number, Some(number * 1_000));
        assert_eq!(places(&store).await, [at("z", 1), at("y", 2), at("x", 3)]);
        later(&mut store, 1_000);
        assert_eq!((apply(&store, "x").await, apply(&store, "new").await), (3, 4));
        assert_eq!(apply(&store, "z").await, 0);
        ordered(&store, "z").await;
        assert_eq!((apply(&store, "x").await, apply(&store, "y").await), (2, 1));
        // A name that goes gives its place to those behind it.
        let mut write = store.write().await.unwrap();
        leave(write.connection(), &name("y"), &project()).await.unwrap();
        write.commit().await.unwrap();
        later(&mut store, 2_000);
        assert_eq!((apply(&store, "new").await, apply(&store, "x").await), (2, 0));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_places_no_order_keeps_its_place_and_delays_no_other() {
    for (mut store, _directory) in both().await {
        for text in ["a", "b", "c"] {
            apply(&store, text).await;
        }
        // The authority does not answer: a and b have their units, and c does not wait behind them.
        assert_eq!(apply(&store, "a").await, 0, "no second unit");
        assert_eq!(places(&store).await, [("c.example".to_owned(), 1, Some(1_000))]);
        later(&mut store, LEASE_MILLIS + 1);
        assert_eq!(places(&store).await.iter().map(|place| place.1).collect::<Vec<_>>(), [1, 2, 3]);
        assert_eq!(places(&store).await[0].0, "a.example", "in the order in which they came");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_exempt_order_that_is_not_made_exempts_no_other() {
    for (store, _directory) in both().await {
        for text in ["a", "b"] {
            assert_eq!(apply(&store, text).await, 0);
            ordered(&store, text).await;
        }
        // The authority makes no order that replaces a certificate, so the renewal is an order like any other.
        let exempt = Demand { kind: QueueKind::Failures, takes: false, ..demand("failures") };
        assert_eq!(apply_with(&store, "c", std::slice::from_ref(&exempt)).await, 0);
        assert_eq!(apply(&store, "c").await, 1, "it has no unit");
        // It asks again at its turn, and does not lose its place by that.
        assert_eq!((apply(&store, "d").await, apply_with(&store, "c", &[exempt]).await), (2, 0));
        assert_eq!((apply(&store, "c").await, apply(&store, "d").await), (1, 2));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_waits_in_the_queue_of_the_limit_that_has_room_last_and_blocks_no_other() {
    for (store, _directory) in both().await {
        let account = || {
            let (kind, limit) = (QueueKind::Orders, Limit { burst: 6, refill: 10 });
            Demand { kind, name: queue_name("one", kind, ""), limit, takes: true }
        };
        let both = |project: &str| [account(), demand(project)];
        for text in ["a", "b"] {
            assert_eq!(apply_with(&store, text, &both("many")).await, 0);
            ordered(&store, text).await;
        }
        for (text, number) in [("c", 1), ("d", 2), ("e", 3)] {
            assert_eq!(apply_with(&store, text, &both("many")).await, number);
        }
        assert_eq!(apply_with(&store, "f", &both("few")).await, 0, "another project has its own share");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn offers_make_the_first_names_due_and_are_not_repeated_at_once() {
    for (store, _directory) in both().await {
        for text in ["a", "b"] {
            assert_eq!(apply(&store, text).await, 0);
            ordered(&store, text).await;
        }
        for text in ["c", "d"] {
            apply(&store, text).await;
        }
        let queue = demand("demo").name;
        let listed = store.queues("one", QueueKind::Project, NOW).await.unwrap();
        assert_eq!(listed, [(queue.clone(), NOW.plus(2_000))]);
        assert_eq!(store.offer("one", &queue, 1, NOW).await.unwrap(), 1);
        assert_eq!(store.offer("one", &queue, 1, NOW.plus(1_000)).await.unwrap(), 0, "c has its turn still");
        assert_eq!(store.offer("one", &queue, 2, NOW.plus(1_000)).await.unwrap(), 1);
        assert_eq!(store.queues("one", QueueKind::Project, NOW.plus(1_000)).await.unwrap(), []);
        assert_eq!(store.offer("one", &queue, 2, NOW.plus(60_000)).await.unwrap(), 1);
    }
}
