//! Damaged numbers of limits: work continues, and orders wait as long as the limit requires, not for ever.

use chassis::sql::query;
use contract::hostname::Hostname;
use contract::project::ProjectUid;

use super::*;
use crate::limits::{Demand, Limit, QueueKind};
use crate::store::queue::Applicant;

async fn free_at(store: &Store, name: &str) -> i64 {
    let found = query_scalar::<i64>("SELECT free_at FROM acme_limits WHERE name = $1");
    found.bind(name).fetch_one(store.reader()).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_that_is_free_later_than_it_can_be_is_free_when_it_can_be() {
    let limit = Limit { burst: 3, refill: 1_000 };
    let demand = Demand { kind: QueueKind::Orders, name: "one orders ".to_owned(), limit, takes: true };
    let (hostname, project) = ("shop.example".parse().unwrap(), ProjectUid::from_random([1; 16]));
    let applicant = Applicant { authority: "one", hostname: &hostname, project: &project };
    for damaged in [i64::MAX, NOW.0 + 4_000] {
        for (mut store, _directory) in both().await {
            assert!(store.take(std::slice::from_ref(&demand)).await.unwrap());
            let text = "UPDATE acme_limits SET free_at = $1 WHERE name = $2";
            query(text).bind((damaged, &demand.name)).execute(store.writer()).await.unwrap();
            let (_, place) = store.admit(applicant, std::slice::from_ref(&demand)).await.unwrap().unwrap_err();
            assert_eq!((place.number, place.at), (1, Some(NOW.plus(1_000))), "{damaged}");
            assert_eq!(free_at(&store, &demand.name).await, NOW.0 + 3_000);
            // The repair stays, also when nothing else is written.
            for takes in [false, true] {
                query(text).bind((damaged, &demand.name)).execute(store.writer()).await.unwrap();
                if takes {
                    assert!(!store.take(std::slice::from_ref(&demand)).await.unwrap());
                } else {
                    store.admit(applicant, std::slice::from_ref(&demand)).await.unwrap().unwrap_err();
                }
                assert_eq!(free_at(&store, &demand.name).await, NOW.0 + 3_000, "{damaged}");
            }
            store.clock = Arc::new(ManualClock::at(NOW.plus(1_000)));
            assert_eq!(store.admit(applicant, std::slice::from_ref(&demand)).await.unwrap(), Ok(()), "{damaged}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_with_a_damaged_place_delays_no_other() {
    let limit = Limit { burst: 1, refill: 1_000 };
    let demand = Demand { kind: QueueKind::Orders, name: "one orders ".to_owned(), limit, takes: true };
    let names: [Hostname; 3] = ["a.example", "b.example", "c.example"].map(|name| name.parse().unwrap());
    let project = ProjectUid::from_random([1; 16]);
    let apply = async |store: &Store, name: &Hostname| {
        let applicant = Applicant { authority: "one", hostname: name, project: &project };
        store.admit(applicant, std::slice::from_ref(&demand)).await.unwrap().map_err(|(_, place)| place)
    };
    for damaged in [i64::MAX, i64::MIN] {
        for (store, _directory) in both().await {
            assert!(store.take(std::slice::from_ref(&demand)).await.unwrap());
            for name in &names {
                apply(&store, name).await.unwrap_err();
            }
            let text = "UPDATE certificate_queue SET since = $1 WHERE hostname = 'b.example'";
            query(text).bind(damaged).execute(store.writer()).await.unwrap();
            let later: Hostname = "later.example".parse().unwrap();
            // Whatever place the damaged row has, it has one, and the others theirs.
            assert_eq!(apply(&store, &names[0]).await.unwrap_err().number, if damaged > 0 { 1 } else { 2 });
            assert_eq!(apply(&store, &later).await.unwrap_err().number, if damaged > 0 { 3 } else { 4 });
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_domain_with_a_damaged_fence_can_be_leased() {
    let (stores, domain) = with_domain().await;
    for damaged in [i64::MAX, 1 << 62, i64::MIN] {
        let text = "UPDATE domains SET lease_fence = $1, lease_until = 0";
        query(text).bind(damaged).execute(stores[0].writer()).await.unwrap();
        let fences = [NOW.plus(10), NOW.plus(20)].map(|now| (now, now.plus(5)));
        let mut given = Vec::new();
        for (now, until) in fences {
            given.push(stores[0].lease_domain(&domain, now, until).await.unwrap().unwrap());
        }
        assert!(given[0] != damaged && given[0] != given[1], "{damaged}: {given:?}");
    }
}
