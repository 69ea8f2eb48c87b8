//! Damaged numbers at their maximum.

use chassis::sql::query;

use super::counters::put_right;
use super::{Actor, NOW, both};

#[tokio::test(flavor = "multi_thread")]
async fn a_process_seen_in_the_future_was_seen_now_and_events_are_numbered_on_after_the_highest_number() {
    for (store, _directory) in both().await {
        for statement in [
            "INSERT INTO credentials (digest, kind, name, created_at) VALUES ('d', 'gateway', 'edge', 1)",
            "INSERT INTO processes (gateway, process, place, version, applied, first_seen_at, last_seen_at)
             VALUES ('edge', 'a', '', '', 0, 1, 9223372036854775807)",
        ] {
            query(statement).execute(store.writer()).await.unwrap();
        }
        let is_sqlite = store.writer().sqlite().is_some();
        if is_sqlite {
            let event = "INSERT INTO events (id, project, kind, actor, detail, at_ms)
                         VALUES (9223372036854775807, 'demo', 'old', 'system', '{}', 1)";
            query(event).execute(store.writer()).await.unwrap();
        }
        put_right(&store).await;
        assert_eq!(store.last_seen().await.unwrap(), Some(NOW));
        let demo = "demo".parse().unwrap();
        for _ in 0..2 {
            let mut write = store.write().await.unwrap();
            write.record(&demo, None, "new", &Actor::system(), serde_json::json!({})).await.unwrap();
            write.commit().await.unwrap();
        }
        let ids: Vec<i64> = store.events(&demo, None, None).await.unwrap().iter().map(|one| one.event.id).collect();
        let expected: &[i64] = if is_sqlite { &[3, 2, 1] } else { &[2, 1] };
        assert_eq!(ids, expected, "newest first");
    }
}
