//! Tables that grow with names and with reports of other services: each is filled, and stops at the bound in
//! docs/reference/bounds.md.

use contract::event::OrderEvent;
use contract::hostname::Hostname;

use super::*;
use crate::domain::proof::ProofKey;
use crate::limits::{Demand, Limit, QueueKind};
use crate::project::ProjectRef;
use crate::store::acme::OrderRecord;
use crate::store::queue::Applicant;

/// More rows than any page or batch reads at once.
const MANY: i64 = 300;

fn demo() -> ProjectRef {
    "demo".parse().unwrap()
}

fn name(number: i64) -> Hostname {
    Hostname::parse(&format!("shop{number}.example")).unwrap()
}

async fn rows(store: &Store, statement: &'static str) -> i64 {
    query_scalar::<i64>(statement).fetch_one(store.reader()).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn holders_orders_and_limits_of_authorities_end_with_the_names_they_are_of() {
    for (store, _directory) in both().await {
        let limit = Limit { burst: 4, refill: 10 };
        for round in 0..2 {
            for number in 0..MANY {
                let mut write = store.write().await.unwrap();
                domains::set_holder(write.connection(), &name(number), &demo()).await.unwrap();
                write.commit().await.unwrap();
                for authority in ["first", "second"] {
                    let order = OrderRecord {
                        authority: authority.to_owned(),
                        hostname: name(number),
                        url: format!("https://{authority}.example/{round}/{number}"),
                        sealed_key: Some("sealed".to_owned()),
                        created_at: NOW,
                    };
                    store.save_order(&order).await.unwrap();
                }
                let kind = QueueKind::Exact;
                let demand = Demand { kind, name: format!("names {number}"), limit, takes: true };
                assert!(store.take(std::slice::from_ref(&demand)).await.unwrap());
                let (hostname, project) = (name(number), demo().uid);
                let applicant = Applicant { authority: "third", hostname: &hostname, project: &project };
                store.admit(applicant, &[demand]).await.unwrap().unwrap();
            }
            assert_eq!(rows(&store, "SELECT COUNT(*) FROM holders").await, MANY);
            assert_eq!(rows(&store, "SELECT COUNT(*) FROM acme_orders").await, 2 * MANY);
            assert_eq!(rows(&store, "SELECT COUNT(*) FROM acme_limits").await, MANY);
            assert_eq!(rows(&store, "SELECT COUNT(*) FROM certificate_queue").await, MANY);
        }
        // The names are released; a crash kept their orders from being abandoned.
        let mut write = store.write().await.unwrap();
        for number in 0..MANY {
            domains::release(write.connection(), &name(number), &demo(), "s", NOW).await.unwrap();
        }
        acme::tidy(write.connection(), NOW.plus(1_000)).await.unwrap();
        write.commit().await.unwrap();
        assert_eq!(rows(&store, "SELECT COUNT(*) FROM holders").await, 0);
        assert_eq!(rows(&store, "SELECT COUNT(*) FROM acme_limits").await, 0);
        assert_eq!(rows(&store, "SELECT COUNT(*) FROM certificate_queue").await, 0);
        let given_up = store.abandoned_orders(NOW.plus(1_000), 10 * MANY).await.unwrap();
        assert_eq!(i64::try_from(given_up.len()).unwrap(), 2 * MANY);
        for order in &given_up {
            store.forget_abandoned(order).await.unwrap();
        }
        assert_eq!(rows(&store, "SELECT COUNT(*) FROM acme_orders").await, 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn relayed_event_numbers_are_stored_once_and_expire() {
    for (store, _directory) in both().await {
        let proof_key = ProofKey::new(vec![1; 16]).to_text();
        query("UPDATE projects SET proof_key = $1").bind(&proof_key).execute(store.writer()).await.unwrap();
        query(
            "INSERT INTO webhook_endpoints (id, project, url, description, events, sealed_secret, created_at, updated_at)
             VALUES ('we_1', 'demo', 'https://hooks.example/', '', '[\"order.*\"]', 's', 1, 1)",
        )
        .execute(store.writer())
        .await
        .unwrap();
        let event = |number| OrderEvent {
            number,
            project: demo().uid,
            kind: "order.created".to_owned(),
            at: NOW,
            order: serde_json::Value::Null,
        };
        let events: Vec<_> = (0..MANY).map(event).collect();
        for _ in 0..3 {
            let mut write = store.write().await.unwrap();
            webhooks::take(&mut write, "one", &events).await.unwrap();
            write.commit().await.unwrap();
            assert_eq!(rows(&store, "SELECT COUNT(*) FROM taken_events").await, MANY);
            assert_eq!(rows(&store, "SELECT COUNT(*) FROM webhook_deliveries").await, MANY);
        }
        let mut write = store.write().await.unwrap();
        webhooks::forget_taken(&mut write, NOW).await.unwrap();
        webhooks::forget_taken(&mut write, NOW.plus(1)).await.unwrap();
        write.commit().await.unwrap();
        assert_eq!(rows(&store, "SELECT COUNT(*) FROM taken_events").await, 0);
    }
}
