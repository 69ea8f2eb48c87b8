//! The faults, and their expected symptoms.

use crate::fleet::Fleet;

/// One fault.
pub(crate) struct Fault {
    /// Its name in the table.
    pub(crate) name: &'static str,
    /// Causes the fault.
    pub(crate) inject: fn(&mut Fleet) -> anyhow::Result<()>,
    /// Ends the fault.
    pub(crate) recover: fn(&mut Fleet) -> anyhow::Result<()>,
    /// Part of the line under `trouble` in `tollhouse status`.
    pub(crate) status: &'static str,
    /// A Prometheus query with a result during the fault.
    pub(crate) metric: &'static str,
    /// The metric in it; a dashboard shows it.
    pub(crate) shown: &'static str,
    /// The alerts that must fire.
    pub(crate) alerts: &'static [&'static str],
}

/// The faults of a platform with SQLite files, in this order.
pub(crate) const OVER_FILES: &[Fault] = &[
    Fault {
        name: "Redis is killed",
        inject: |fleet| fleet.kill("redis"),
        recover: |fleet| fleet.begin("redis"),
        status: "counts without the quota store (share)",
        metric: "edge_quota_mode{mode=\"share\"} == 1",
        shown: "edge_quota_mode",
        alerts: &["EdgeQuotaDegraded", "EdgeQuotaDegradedLong"],
    },
    Fault {
        name: "Redis hangs (SIGSTOP)",
        inject: |fleet| fleet.signal("redis", "-STOP"),
        recover: |fleet| fleet.signal("redis", "-CONT"),
        status: "counts without the quota store (share)",
        metric: "edge_quota_mode{mode=\"share\"} == 1",
        shown: "edge_quota_mode",
        alerts: &["EdgeQuotaDegraded", "EdgeQuotaDegradedLong"],
    },
    Fault {
        name: "Redis is full",
        inject: |fleet| {
            fleet.redis(&["EVAL", "return redis.call('SET', 'ballast', string.rep('x', 3000000))", "0"])?;
            fleet.redis(&["CONFIG", "SET", "maxmemory", "1mb"])
        },
        recover: |fleet| {
            fleet.redis(&["CONFIG", "SET", "maxmemory", "0"])?;
            fleet.redis(&["DEL", "ballast"])
        },
        status: "raise maxmemory of Redis",
        metric: "sum(rate(edge_quota_store_calls_total{result=\"out_of_memory\"}[5s])) > 0",
        shown: "edge_quota_store_calls_total",
        alerts: &["EdgeQuotaStoreFailing"],
    },
    Fault {
        name: "The domains-service is killed",
        inject: |fleet| fleet.kill("domains-service"),
        recover: |fleet| fleet.begin("domains-service"),
        status: "the domains-service does not answer",
        metric: "time() - edge_feed_received_timestamp_seconds > 5",
        shown: "edge_feed_received_timestamp_seconds",
        alerts: &["ServiceDown", "EdgeFeedStale"],
    },
    Fault {
        name: "The orders-service is killed",
        inject: |fleet| fleet.kill("orders-service"),
        recover: |fleet| fleet.begin("orders-service"),
        status: "the orders-service does not answer",
        metric: "sum(rate(edge_upstream_requests_total{outcome=\"connect_error\"}[5s])) > 0",
        shown: "edge_upstream_requests_total",
        alerts: &["ServiceDown", "EdgeUpstreamFailing", "EdgeErrorBudgetBurnFast"],
    },
    Fault {
        name: "One of two gateways is killed",
        inject: |fleet| fleet.kill("gateway-1"),
        recover: |fleet| fleet.begin("gateway-1"),
        status: "does not answer",
        metric: "up{job=\"gateway\"} == 0",
        shown: "up{job=",
        alerts: &["EdgeDown"],
    },
    Fault {
        name: "The disk of the orders is full",
        inject: |fleet| fleet.fill("orders"),
        recover: |fleet| fleet.clear("orders"),
        status: "the database of the orders-service failed",
        metric: "sum(increase(orders_store_errors_total{kind=\"full\"}[5s])) > 0",
        shown: "orders_store_errors_total",
        alerts: &["OrdersStoreErrors", "EdgeErrorBudgetBurnFast"],
    },
    Fault {
        name: "The disk of the domains is full",
        inject: |fleet| fleet.fill("domains"),
        recover: |fleet| fleet.clear("domains"),
        status: "the database of the domains-service failed",
        metric: "sum(increase(domains_http_requests_total{status_class=\"5xx\"}[5s])) > 0",
        shown: "domains_http_requests_total",
        alerts: &["DomainsErrors"],
    },
    Fault {
        name: "The disk of one gateway is full",
        inject: |fleet| {
            fleet.fill("gateway-2")?;
            // Updates of existing rows fit into the file; new rows do not.
            fleet.attach(25)
        },
        recover: |fleet| fleet.clear("gateway-2"),
        status: "serves its previous replica",
        metric: "min(edge_replica_revision) < scalar(max(domains_revision offset 3s))",
        shown: "edge_replica_revision",
        alerts: &["EdgeReplicaLagging"],
    },
];

/// The query for the databases of both services.
const BOTH_DOWN: &str = "orders_store_up + on () domains_store_up == 0";

/// The faults of a platform with a PostgreSQL server.
pub(crate) const OVER_SERVER: &[Fault] = &[
    Fault {
        name: "PostgreSQL is stopped",
        inject: Fleet::stop_server,
        recover: |fleet| fleet.begin("postgres"),
        status: "the database of the domains-service failed",
        metric: BOTH_DOWN,
        shown: "orders_store_up",
        alerts: &["StoreDown", "OrdersStoreErrors", "DomainsErrors", "EdgeErrorBudgetBurnFast"],
    },
    Fault {
        name: "PostgreSQL hangs (SIGSTOP)",
        inject: |fleet| fleet.signal_server("-STOP"),
        recover: |fleet| fleet.signal_server("-CONT"),
        status: "the database of the orders-service failed",
        metric: BOTH_DOWN,
        shown: "domains_store_up",
        alerts: &["StoreDown", "OrdersStoreErrors", "DomainsErrors", "EdgeErrorBudgetBurnFast"],
    },
    Fault {
        name: "The disk of PostgreSQL is full",
        inject: |fleet| fleet.fill("postgres"),
        recover: |fleet| {
            fleet.clear("postgres")?;
            fleet.revive_server()
        },
        status: "the database of the orders-service failed",
        metric: "sum(increase(orders_store_errors_total[5s])) > 0",
        shown: "orders_store_errors_total",
        alerts: &["OrdersStoreErrors", "EdgeErrorBudgetBurnFast"],
    },
];
