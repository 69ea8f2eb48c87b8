//! Metrics of the database: whether it answers, and how many connections are used. Checked every second.
//!
//! While a server does not answer, callers wait only briefly for a connection to it ([`super::pool`]): a request is
//! refused at once and not after seconds. A check within a second detects that the server is back.

use std::time::Duration;

use prometheus::{IntGauge, IntGaugeVec, Registry};

use super::{Database, REPAIR, query, remedy};
use crate::metrics::{gauge, gauge_vec};
use crate::shutdown::Shutdown;

/// Interval of the checks.
const INTERVAL: Duration = Duration::from_secs(1);

/// The longest time for a trivial query; a slower database counts as not answering.
const ANSWER_WAIT_MAX: Duration = Duration::from_secs(2);

/// Metrics of a database.
#[derive(Clone, Debug)]
pub struct StoreMetrics {
    up: IntGauge,
    connections: IntGaugeVec,
    connections_max: IntGauge,
}

impl StoreMetrics {
    /// Registers `{prefix}_store_up`, `{prefix}_store_connections` and `{prefix}_store_connections_max`.
    ///
    /// # Errors
    /// If a name is taken: a programming mistake, found at start.
    pub fn register(registry: &Registry, prefix: &str) -> anyhow::Result<Self> {
        let name = |what: &str| format!("{prefix}_store_{what}");
        let metrics = Self {
            up: gauge(registry, &name("up"), "1 while the database answers; checked every second.")?,
            connections: gauge_vec(registry, &name("connections"), "Connections to the database.", &["state"])?,
            connections_max: gauge(registry, &name("connections_max"), "The maximum of connections to the database.")?,
        };
        for state in ["busy", "idle"] {
            metrics.connections.with_label_values(&[state]).set(0);
        }
        Ok(metrics)
    }

    fn show_up(&self, up: bool) {
        self.up.set(i64::from(up));
    }

    fn show_use(&self, database: &Database) {
        let mut usage = vec![database.write.usage()];
        if database.write.sqlite().is_some() {
            usage.push(database.read.usage());
        }
        let sum = |part: fn(&super::PoolUse) -> u32| usage.iter().map(|usage| i64::from(part(usage))).sum();
        self.connections.with_label_values(&["busy"]).set(sum(|usage| usage.busy));
        self.connections.with_label_values(&["idle"]).set(sum(|usage| usage.idle));
        self.connections_max.set(sum(|usage| usage.max));
    }
}

/// Checks every second until `shutdown`.
pub async fn watch(database: Database, metrics: StoreMetrics, shutdown: Shutdown) {
    let mut was_up = true;
    while !shutdown.has_begun() {
        // Before the query below, whose own connection is not back in the pool yet when the answer arrives.
        metrics.show_use(&database);
        let answer = tokio::time::timeout(ANSWER_WAIT_MAX, answers(&database)).await;
        let up = matches!(answer, Ok(Ok(())));
        database.read.set_up(up);
        database.write.set_up(up);
        metrics.show_up(up);
        match (was_up, answer) {
            (true, Ok(Err(error))) => {
                let what_to_do = remedy(&error);
                tracing::error!(%error, what_to_do, "the database does not answer; checking it every second");
            }
            (true, Err(_)) => {
                tracing::error!(what_to_do = REPAIR, "the database does not answer in time; checking it every second");
            }
            (false, Ok(Ok(()))) => tracing::info!("the database answers again"),
            _ => {}
        }
        was_up = up;
        shutdown.pause(INTERVAL).await;
    }
}

async fn answers(database: &Database) -> Result<(), sqlx::Error> {
    let mut connection = database.read.acquire_patiently().await?;
    query("SELECT 1").execute(&mut connection).await?;
    Ok(())
}
