//! The search for deliveries whose time has come.

use chassis::sql::{Found, query_as};
use contract::time::UnixMillis;

use super::super::{Result, Store};

/// Endpoints per search for due deliveries.
const ENDPOINTS_PER_SEARCH: i64 = 1_024;

/// The oldest delivery of each endpoint among the 64 that are due longest: a message whose attempt was lost in a crash
/// comes before later ones. Looks up these rows per endpoint, however many wait: one owner's backlog must not slow the
/// searches down.
pub(in crate::store) const DUE: &str = "WITH RECURSIVE waiting (endpoint) AS (
         SELECT MIN(endpoint) FROM webhook_deliveries WHERE due_at IS NOT NULL
         UNION ALL
         SELECT (SELECT MIN(d.endpoint) FROM webhook_deliveries d
                 WHERE d.due_at IS NOT NULL AND d.endpoint > waiting.endpoint)
         FROM waiting WHERE waiting.endpoint IS NOT NULL
     ), longest (endpoint, due_at, delivery) AS (
         SELECT waiting.endpoint,
             (SELECT MIN(d.due_at) FROM webhook_deliveries d WHERE d.endpoint = waiting.endpoint AND d.due_at <= $1),
             (SELECT MIN(first.id) FROM (
                  SELECT d.id FROM webhook_deliveries d WHERE d.endpoint = waiting.endpoint AND d.due_at <= $1
                  ORDER BY d.due_at, d.id LIMIT 64) AS first)
         FROM waiting
     )
     SELECT longest.delivery, longest.endpoint, e.project
     FROM longest JOIN webhook_endpoints e ON e.id = longest.endpoint JOIN projects p ON p.id = e.project
     WHERE longest.delivery IS NOT NULL AND p.removed_at IS NULL
     ORDER BY longest.due_at, longest.delivery LIMIT $2";

chassis::record! {
    /// An endpoint for which something is due, and the delivery to attempt.
    #[derive(Clone, Debug)]
    pub(crate) struct DueDelivery {
        pub(crate) delivery: i64,
        pub(crate) endpoint: String,
        pub(crate) project: String,
    }
}

impl Store {
    /// Endpoints with due deliveries, the longest-waiting first. Those of removed projects wait.
    pub(crate) async fn due_deliveries(&self, now: UnixMillis) -> Result<Vec<DueDelivery>> {
        let due: Vec<Found<DueDelivery>> =
            query_as(DUE).bind((now.0, ENDPOINTS_PER_SEARCH)).fetch_all(self.reader()).await?;
        Ok(due.into_iter().map(|found| found.row).collect())
    }
}
