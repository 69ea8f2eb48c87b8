//! The search for due deliveries, in both databases.

use chassis::sql::query;

use super::super::webhooks::DUE;
use super::*;

/// Due deliveries of one endpoint. Both databases prefer an index long before.
const BACKLOG: i64 = 5_000;

/// Three endpoints of a project: one with a backlog, one with a delivery that is due now and an older one that waits
/// for its next attempt, and one with nothing due.
async fn with_deliveries(store: &Store) {
    for endpoint in ["backlog", "later", "usual"] {
        let text = "INSERT INTO webhook_endpoints (id, project, url, description, events, sealed_secret, created_at, updated_at)
             VALUES ($1, 'demo', '', '', '[]', '', 1, 1)";
        query(text).bind(endpoint).execute(store.writer()).await.unwrap();
    }
    let text = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < $1)
         INSERT INTO webhook_deliveries (endpoint, message, kind, body, state, attempts, due_at, created_at)
         SELECT 'backlog', 'msg', 'domain.created', '{}', 'waiting', 0, $2 - 10, 1 FROM n";
    query(text).bind((BACKLOG, NOW.0)).execute(store.writer()).await.unwrap();
    for (endpoint, due) in [("usual", NOW.0 + 1), ("later", NOW.0 + 1), ("usual", NOW.0), ("usual", NOW.0 - 1)] {
        let text = "INSERT INTO webhook_deliveries (endpoint, message, kind, body, state, attempts, due_at, created_at)
             VALUES ($1, 'msg', 'domain.created', '{}', 'waiting', 0, $2, 1)";
        query(text).bind((endpoint, due)).execute(store.writer()).await.unwrap();
    }
    query("ANALYZE").execute(store.writer()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_oldest_due_delivery_of_each_endpoint_is_found() {
    for (store, _directory) in both().await {
        assert!(store.due_deliveries(NOW).await.unwrap().is_empty());
        with_deliveries(&store).await;
        let due = store.due_deliveries(NOW).await.unwrap();
        let found: Vec<_> = due.iter().map(|due| (due.endpoint.as_str(), due.delivery, due.project.as_str())).collect();
        assert_eq!(found, [("backlog", 1, "demo"), ("usual", BACKLOG + 3, "demo")]);
        query("UPDATE projects SET removed_at = 1").execute(store.writer()).await.unwrap();
        assert!(store.due_deliveries(NOW).await.unwrap().is_empty(), "those of removed projects wait");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_search_for_due_deliveries_reads_no_backlog() {
    for (store, _directory) in both().await {
        with_deliveries(&store).await;
        let (explain, is_read_whole): (_, fn(&str) -> bool) = match store.database.kind() {
            // A search goes down the index; a scan goes along the table or the index.
            chassis::sql::Kind::Sqlite => {
                ("EXPLAIN QUERY PLAN ", |line| line.contains("SCAN d") || line.contains("SCAN webhook_deliveries"))
            }
            chassis::sql::Kind::Postgres => ("EXPLAIN ", |line| line.contains("Seq Scan on webhook_deliveries")),
        };
        let text = format!("{explain}{}", DUE.replace("$1", &NOW.0.to_string()).replace("$2", "1024"));
        let plan = match (store.reader().sqlite(), store.reader().postgres()) {
            (Some(pool), _) => {
                let rows: Vec<(i64, i64, i64, String)> =
                    sqlx::query_as(sqlx::AssertSqlSafe(text)).fetch_all(pool).await.unwrap();
                rows.into_iter().map(|(_, _, _, line)| line).collect::<Vec<_>>()
            }
            (None, pool) => sqlx::query_scalar(sqlx::AssertSqlSafe(text)).fetch_all(pool.unwrap()).await.unwrap(),
        };
        assert!(plan.iter().any(|line| line.contains("webhook_deliveries_due")), "{plan:#?}");
        assert!(!plan.iter().any(|line| is_read_whole(line)), "{plan:#?}");
    }
}
