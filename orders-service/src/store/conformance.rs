//! The conformance suite: the store must pass it over both databases, and over several replicas.
//!
//! Each part gets an empty store, so the parts are independent of each other.

use std::ops::Deref;

use contract::project::ProjectUid;
use contract::time::UnixMillis;

use super::{
    After, ChangeError, CreateError, Created, Edition, EventKind, Filter, Idempotency, ImportError, NewOrder,
    OrderStore, PageQuery, Sort, Summary, Waiting,
};
use crate::order::{CancelError, Order, ShipDate, ShipError, Status};

const AT: UnixMillis = UnixMillis(1_795_176_000_000);

fn project(name: &str) -> ProjectUid {
    name.parse().unwrap()
}

fn order(id: i64) -> Order {
    Order { id, pet_id: None, quantity: None, ship_date: None, complete: None, status: Status::Pending }
}

fn dated(id: i64, day: Option<u32>) -> Order {
    Order { ship_date: day.map(|day| format!("2026-01-{day:02}T00:00:00Z").parse().unwrap()), ..order(id) }
}

fn ids(orders: &[Order]) -> Vec<i64> {
    orders.iter().map(|order| order.id).collect()
}

/// A store, or several called in turn.
pub(crate) trait Store: Deref<Target = OrderStore> + Clone + Send + Sync + 'static {}

impl<S: Deref<Target = OrderStore> + Clone + Send + Sync + 'static> Store for S {}

/// Runs all parts, each on a new store from `make`.
pub(crate) async fn suite<S, F>(make: impl Fn() -> F)
where
    S: Store,
    F: Future<Output = S>,
{
    imported_orders_read_back(&make().await).await;
    an_import_is_all_or_nothing(&make().await).await;
    batches_are_in_id_order(&make().await).await;
    changes_follow_the_rules(&make().await).await;
    every_change_is_a_new_edition(&make().await).await;
    new_orders_get_the_next_id(&make().await).await;
    an_idempotency_key_makes_one_order(&make().await).await;
    pages_filter(&make().await).await;
    pages_sort_and_resume(&make().await).await;
    every_change_leaves_one_undelivered_event(&make().await).await;
    an_erased_project_has_no_data_and_refuses_changes(&make().await).await;
    concurrent_changes_agree(make().await).await;
}

async fn imported_orders_read_back(store: &impl Store) {
    let demo = project("demo");
    let full = Order {
        id: i64::MIN,
        pet_id: Some(i64::MAX),
        quantity: Some(-1),
        ship_date: Some("2026-01-31T09:30:00.123456Z".parse().unwrap()),
        complete: Some(true),
        status: Status::Shipped,
    };
    let orders = vec![full, order(i64::MAX), Order { complete: Some(false), status: Status::Cancelled, ..order(0) }];
    assert_eq!(store.import(&demo, orders.clone()).await, Ok(3));
    for order in &orders {
        assert_eq!(store.find(&demo, order.id).await, Ok(Some(*order)));
        assert_eq!(store.events(&demo, order.id).await, Ok(Some(Vec::new())), "an import writes no event");
    }
    assert_eq!(store.find(&demo, 1).await, Ok(None));
    assert_eq!(store.find(&project("other"), 0).await, Ok(None));
    assert_eq!(store.events(&demo, 1).await, Ok(None));
    assert_eq!(store.summary(&demo).await, Ok(Summary { pending: 1, shipped: 1, cancelled: 1 }));
    assert_eq!(store.summary(&project("other")).await, Ok(Summary::default()));
    assert_eq!(store.knows_pet(&demo, i64::MAX).await, Ok(true));
    assert_eq!(store.knows_pet(&demo, 1).await, Ok(false));
    assert_eq!(store.knows_pet(&project("other"), i64::MAX).await, Ok(false));
    // The same ids in another project are other orders.
    assert_eq!(store.import(&project("other"), vec![order(0)]).await, Ok(1));
}

async fn every_change_leaves_one_undelivered_event(store: &impl Store) {
    const KEEP: u32 = 1_000;
    let demo = project("demo");
    store.import(&demo, vec![order(1), order(2)]).await.unwrap();
    assert_eq!(store.undelivered(10).await, Ok(Waiting::default()), "an import writes no event");
    store.cancel(&demo, 1, AT).await.unwrap();
    assert!(store.cancel(&demo, 1, AT).await.is_err());
    assert!(store.ship(&demo, 77, AT).await.is_err());
    let new = NewOrder { pet_id: Some(5), quantity: Some(1), ship_date: None };
    store.create(&demo, new, None, AT.plus(1)).await.unwrap();
    store.ship(&demo, 3, AT.plus(2)).await.unwrap();
    let events = store.undelivered(10).await.unwrap().events;
    let seen: Vec<_> = events.iter().map(|event| (event.project.as_str(), event.kind, event.at)).collect();
    let expected = [
        ("demo", EventKind::Cancelled, AT),
        ("demo", EventKind::Created, AT.plus(1)),
        ("demo", EventKind::Shipped, AT.plus(2)),
    ];
    assert_eq!(seen, expected, "a refused change writes no event");
    assert_eq!(events[0].order, r#"{"id":1,"status":"cancelled"}"#);
    // An event has the order right after its change; later changes do not alter it.
    assert_eq!(events[1].order, r#"{"id":3,"petId":5,"quantity":1,"complete":false,"status":"pending"}"#);
    assert!(events[2].order.contains(r#""status":"shipped""#), "{}", events[2].order);
    assert!(events.windows(2).all(|pair| pair[0].number < pair[1].number));
    assert_eq!(store.undelivered(2).await.unwrap().events, events[..2]);
    // `forget` deletes the delivered events and keeps the others up to a bound.
    assert_eq!(store.forget(vec![events[1].number, 4_711], KEEP).await, Ok(0));
    assert_eq!(store.undelivered(10).await.unwrap().events, [events[0].clone(), events[2].clone()]);
    assert_eq!(store.forget(Vec::new(), 1).await, Ok(1), "the oldest goes first");
    assert_eq!(store.undelivered(10).await.unwrap().events, [events[2].clone()]);
    assert_eq!(store.forget(vec![events[2].number], KEEP).await, Ok(0));
    assert_eq!(store.undelivered(10).await, Ok(Waiting::default()));
    // A number is never used twice.
    store.cancel(&demo, 2, AT).await.unwrap();
    assert!(store.undelivered(1).await.unwrap().events[0].number > events[2].number);
}

async fn an_import_is_all_or_nothing(store: &impl Store) {
    let demo = project("demo");
    store.import(&demo, vec![order(5)]).await.unwrap();
    let before = store.edition(&demo).await.unwrap();
    let many = |last: i64| (100..2_100).chain([last]).map(order).collect::<Vec<_>>();
    assert_eq!(store.import(&demo, many(5)).await, Err(ImportError::Exists { index: 2_000 }));
    assert_eq!(store.import(&demo, many(101)).await, Err(ImportError::Repeated { index: 2_000, first: 1 }));
    assert_eq!(store.import(&demo, vec![order(5), order(6)]).await, Err(ImportError::Exists { index: 0 }));
    assert_eq!(store.import(&demo, Vec::new()).await, Ok(0));
    assert_eq!(store.edition(&demo).await, Ok(before), "nothing changed");
    assert_eq!(ids(&store.batch(&demo, None, 10).await.unwrap()), [5]);
    assert_eq!(store.import(&demo, many(6)).await, Ok(2_001));
}

async fn batches_are_in_id_order(store: &impl Store) {
    let demo = project("demo");
    store.import(&demo, [3, -7, i64::MAX, 0, i64::MIN].map(order).to_vec()).await.unwrap();
    store.import(&project("a"), vec![order(1)]).await.unwrap();
    store.import(&project("z"), vec![order(2)]).await.unwrap();
    assert_eq!(ids(&store.batch(&demo, None, 2).await.unwrap()), [i64::MIN, -7]);
    assert_eq!(ids(&store.batch(&demo, Some(-7), 2).await.unwrap()), [0, 3]);
    assert_eq!(ids(&store.batch(&demo, Some(1), 9).await.unwrap()), [3, i64::MAX]);
    assert_eq!(ids(&store.batch(&demo, Some(i64::MAX), 9).await.unwrap()), [0_i64; 0]);
    assert_eq!(ids(&store.batch(&project("none"), None, 9).await.unwrap()), [0_i64; 0]);
}

async fn changes_follow_the_rules(store: &impl Store) {
    let demo = project("demo");
    store.import(&demo, [1, 2, 3].map(order).to_vec()).await.unwrap();
    assert_eq!(store.cancel(&demo, 1, AT).await.unwrap().status, Status::Cancelled);
    assert_eq!(store.cancel(&demo, 1, AT).await, Err(ChangeError::Refused(CancelError::AlreadyCancelled)));
    assert_eq!(store.ship(&demo, 1, AT).await, Err(ChangeError::Refused(ShipError::Cancelled)));
    let shipped = store.ship(&demo, 2, AT).await.unwrap();
    assert_eq!(
        (shipped.status, shipped.complete, shipped.ship_date),
        (Status::Shipped, Some(true), Some(ShipDate::at(AT)))
    );
    assert_eq!(store.find(&demo, 2).await, Ok(Some(shipped)));
    assert_eq!(store.cancel(&demo, 2, AT).await, Err(ChangeError::Refused(CancelError::AlreadyShipped)));
    assert_eq!(store.ship(&demo, 2, AT).await, Err(ChangeError::Refused(ShipError::AlreadyShipped)));
    assert_eq!(store.cancel(&demo, 4, AT).await, Err(ChangeError::NotFound));
    assert_eq!(store.ship(&demo, 4, AT).await, Err(ChangeError::NotFound));
    assert_eq!(store.cancel(&project("other"), 3, AT).await, Err(ChangeError::NotFound));
    assert_eq!(store.find(&demo, 3).await, Ok(Some(order(3))));
    let events = store.events(&demo, 2).await.unwrap().unwrap();
    assert_eq!(events.iter().map(|event| (event.kind, event.at)).collect::<Vec<_>>(), [(EventKind::Shipped, AT)]);
}

async fn every_change_is_a_new_edition(store: &impl Store) {
    let demo = project("demo");
    assert_eq!(store.edition(&demo).await, Ok(Edition { version: 0, orders: 0 }));
    store.import(&demo, vec![order(1), order(2)]).await.unwrap();
    assert_eq!(store.edition(&demo).await, Ok(Edition { version: 1, orders: 2 }));
    store.cancel(&demo, 1, AT).await.unwrap();
    store.ship(&demo, 2, AT).await.unwrap();
    assert_eq!(store.edition(&demo).await, Ok(Edition { version: 3, orders: 2 }));
    let _ = store.cancel(&demo, 2, AT).await;
    let _ = store.cancel(&demo, 9, AT).await;
    assert_eq!(store.edition(&demo).await, Ok(Edition { version: 3, orders: 2 }), "a refusal changes nothing");
    assert_eq!(store.edition(&project("other")).await, Ok(Edition::default()));
}

const NEW: NewOrder = NewOrder { pet_id: Some(4), quantity: Some(2), ship_date: None };

async fn new_orders_get_the_next_id(store: &impl Store) {
    let demo = project("demo");
    let Ok(Created::Now(first)) = store.create(&demo, NEW, None, AT).await else { unreachable!("it was made now") };
    let expected = Order { pet_id: Some(4), quantity: Some(2), complete: Some(false), ..order(1) };
    assert_eq!(first, expected);
    assert_eq!(store.find(&demo, 1).await, Ok(Some(expected)));
    assert_eq!(store.events(&demo, 1).await.unwrap().unwrap()[0].kind, EventKind::Created);
    assert_eq!(store.edition(&demo).await, Ok(Edition { version: 1, orders: 1 }));
    store.import(&demo, vec![order(41), order(i64::MAX), order(-3)]).await.unwrap();
    let Ok(Created::Now(next)) = store.create(&demo, NEW, None, AT).await else { unreachable!("it was made now") };
    assert_eq!(next.id, 42, "a new order never gets an id that JSON clients would round");
    store.import(&demo, vec![order((1 << 53) - 1)]).await.unwrap();
    assert_eq!(store.create(&demo, NEW, None, AT).await, Err(CreateError::IdsExhausted));
    let other = project("other");
    store.import(&other, vec![order(-9)]).await.unwrap();
    let Ok(Created::Now(first)) = store.create(&other, NEW, None, AT).await else { unreachable!("it was made now") };
    assert_eq!(first.id, 1, "new ids start at one");
}

async fn an_erased_project_has_no_data_and_refuses_changes(store: &impl Store) {
    let (gone, other) = (ProjectUid::from_random([1; 16]), project("other"));
    let key = || Some(Idempotency { key: "k".to_owned(), fingerprint: 1, expires_at: UnixMillis(AT.0 + 1) });
    for project in [&gone, &other] {
        // Enough rows for more than one transaction.
        store.import(project, (10..5_010).map(order).collect()).await.unwrap();
        store.create(project, NEW, key(), AT).await.unwrap();
    }
    for _ in 0..2 {
        store.erase(&gone, AT).await.unwrap();
    }
    assert_eq!(store.edition(&gone).await, Ok(Edition::default()));
    assert_eq!(store.batch(&gone, None, 10).await, Ok(Vec::new()));
    assert_eq!(store.events(&gone, 5_010).await, Ok(None));
    let waiting = store.undelivered(10).await.unwrap();
    assert!(waiting.events.iter().all(|event| event.project == other) && waiting.events.len() == 1, "{waiting:?}");
    // A late request, from a gateway that has not yet received the removal, is refused.
    assert_eq!(store.create(&gone, NEW, key(), AT).await, Err(CreateError::Erased));
    assert_eq!(store.import(&gone, vec![order(1)]).await, Err(ImportError::Erased));
    assert_eq!(store.summary(&gone).await, Ok(Summary::default()));
    assert_eq!(store.edition(&other).await, Ok(Edition { version: 2, orders: 5_001 }));
    let again = store.create(&other, NEW, key(), AT).await;
    assert!(matches!(again, Ok(Created::Before(made)) if made.id == 5_010), "{again:?}");
}

async fn an_idempotency_key_makes_one_order(store: &impl Store) {
    let demo = project("demo");
    let key = |fingerprint, expires: i64| {
        Some(Idempotency { key: "k".to_owned(), fingerprint, expires_at: UnixMillis(expires) })
    };
    let now = UnixMillis(1_000);
    let Ok(Created::Now(made)) = store.create(&demo, NEW, key(1, 2_000), now).await else { unreachable!("made now") };
    assert_eq!(store.create(&demo, NEW, key(1, 2_500), now).await, Ok(Created::Before(made)));
    assert_eq!(store.create(&demo, NEW, key(2, 2_500), now).await, Err(CreateError::KeyReused));
    store.cancel(&demo, made.id, AT).await.unwrap();
    let again = store.create(&demo, NEW, key(1, 2_500), UnixMillis(1_999)).await;
    assert_eq!(
        again,
        Ok(Created::Before(made)),
        "the first response repeats until the key expires, also after a change of the order"
    );
    let elsewhere = store.create(&project("other"), NEW, key(9, 2_000), now).await;
    assert!(matches!(elsewhere, Ok(Created::Now(_))), "keys are separate per project");
    let after = store.create(&demo, NEW, key(2, 3_000), UnixMillis(2_000)).await;
    assert!(matches!(after, Ok(Created::Now(order)) if order.id == made.id + 1), "the key has expired: {after:?}");
    assert_eq!(store.edition(&demo).await.unwrap().orders, 2);
}

fn page(filter: Filter, sort: Sort, after: Option<After>, limit: u32) -> PageQuery {
    PageQuery { filter, sort, after, limit }
}

async fn pages_filter(store: &impl Store) {
    let demo = project("demo");
    let orders = vec![
        Order { pet_id: Some(1), complete: Some(true), status: Status::Shipped, ..dated(1, Some(1)) },
        Order { pet_id: Some(1), complete: Some(false), ..dated(2, Some(2)) },
        Order { pet_id: Some(2), status: Status::Cancelled, ..dated(3, Some(3)) },
        Order { pet_id: Some(2), ..dated(4, None) },
    ];
    store.import(&demo, orders).await.unwrap();
    store.import(&project("other"), vec![order(9)]).await.unwrap();
    let none = Filter::default();
    let day = |day| dated(0, Some(day)).ship_date;
    for (filter, expected) in [
        (none, vec![1, 2, 3, 4]),
        (Filter { status: Some(Status::Pending), ..none }, vec![2, 4]),
        (Filter { status: Some(Status::Cancelled), ..none }, vec![3]),
        (Filter { pet_id: Some(1), ..none }, vec![1, 2]),
        (Filter { pet_id: Some(7), ..none }, vec![]),
        (Filter { complete: Some(true), ..none }, vec![1]),
        (Filter { complete: Some(false), ..none }, vec![2]),
        (Filter { ship_date_from: day(2), ..none }, vec![2, 3]),
        (Filter { ship_date_before: day(2), ..none }, vec![1]),
        (Filter { ship_date_from: day(2), ship_date_before: day(3), ..none }, vec![2]),
        (Filter { pet_id: Some(2), status: Some(Status::Pending), ..none }, vec![4]),
    ] {
        let found = store.page(&demo, &page(filter, Sort::Id, None, 10)).await.unwrap();
        assert_eq!(ids(&found), expected, "{filter:?}");
    }
}

async fn pages_sort_and_resume(store: &impl Store) {
    let demo = project("demo");
    let days = [(1, Some(2)), (2, None), (3, Some(1)), (4, Some(2)), (5, None), (6, Some(3)), (7, Some(2))];
    store.import(&demo, days.map(|(id, day)| dated(id, day)).to_vec()).await.unwrap();
    for (sort, expected) in [
        (Sort::Id, [1, 2, 3, 4, 5, 6, 7]),
        (Sort::IdDescending, [7, 6, 5, 4, 3, 2, 1]),
        (Sort::ShipDate, [2, 5, 3, 1, 4, 7, 6]),
        (Sort::ShipDateDescending, [6, 7, 4, 1, 3, 5, 2]),
    ] {
        for limit in 1..=8 {
            let (mut seen, mut after) = (Vec::new(), None);
            loop {
                let found = store.page(&demo, &page(Filter::default(), sort, after, limit)).await.unwrap();
                let Some(last) = found.last() else { break };
                after = Some(After { ship_date_micros: last.ship_date.map(ShipDate::micros), id: last.id });
                seen.extend(ids(&found));
            }
            assert_eq!(seen, expected, "{sort:?} in pages of {limit}");
        }
    }
}

async fn concurrent_changes_agree(store: impl Store) {
    let demo = project("demo");
    store.import(&demo, (0..40).map(order).collect()).await.unwrap();
    let mut racers = tokio::task::JoinSet::new();
    for id in 0..40 {
        for _ in 0..2 {
            let (store, demo) = (store.clone(), demo.clone());
            racers.spawn(async move { store.cancel(&demo, id, AT).await.is_ok() });
        }
        let (store, demo) = (store.clone(), demo.clone());
        racers.spawn(async move { store.ship(&demo, id, AT).await.is_ok() });
    }
    let won = racers.join_all().await.into_iter().filter(|won| *won).count();
    assert_eq!(won, 40, "every order changes once");
    let summary = store.summary(&demo).await.unwrap();
    assert_eq!((summary.pending, summary.shipped + summary.cancelled), (0, 40));
    assert_eq!(store.edition(&demo).await, Ok(Edition { version: 41, orders: 40 }));
}
