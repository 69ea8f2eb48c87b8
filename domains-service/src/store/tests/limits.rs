//! Damaged numbers of limits: work continues, and orders wait as long as the limit requires, not for ever.

use chassis::sql::query;

use super::*;
use crate::limits::{Demand, Limit};

async fn free_at(store: &Store, name: &str) -> i64 {
    let found = query_scalar::<i64>("SELECT free_at FROM acme_limits WHERE name = $1");
    found.bind(name).fetch_one(store.reader()).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_that_is_free_later_than_it_can_be_is_free_when_it_can_be() {
    let limit = Limit { burst: 3, refill: 1_000 };
    let demand = Demand { name: "one orders ".to_owned(), limit, takes: true };
    for damaged in [i64::MAX, NOW.0 + 4_000] {
        for name in [demand.name.clone(), demand.queue()] {
            for (mut store, _directory) in both().await {
                assert_eq!(store.admit(std::slice::from_ref(&demand), false).await.unwrap(), Ok(()));
                let text = "INSERT INTO acme_limits (name, free_at) VALUES ($1, $2)
                     ON CONFLICT (name) DO UPDATE SET free_at = excluded.free_at";
                query(text).bind(&name).bind(damaged).execute(store.writer()).await.unwrap();
                let position = store.admit(std::slice::from_ref(&demand), false).await.unwrap().unwrap_err();
                // A burst, a position of each domain (there is none), and its own.
                assert!(position.at <= NOW.plus(5_000), "{name}: {position:?}");
                if name == demand.name {
                    assert_eq!(free_at(&store, &name).await, NOW.0 + 3_000);
                }
                store.clock = Arc::new(ManualClock::at(NOW.plus(6_000)));
                assert_eq!(
                    store.admit(std::slice::from_ref(&demand), false).await.unwrap(),
                    Ok(()),
                    "{name} {damaged}"
                );
            }
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
