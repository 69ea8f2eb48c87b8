//! Wires the parts into a running service: three listeners over one store.

use std::sync::Arc;

use anyhow::Context as _;
use chassis::clock::Clock;
use chassis::guard::{GatewayGuard, PassGuard, TrustedKeys};
use chassis::health::Health;
use chassis::peer::{Listeners, ServerTls};
use chassis::running::Running;
use chassis::serve::{ServeLimits, ServiceListeners, bind, serve, serve_over};
use chassis::shutdown::Shutdown;
use chassis::sql::{self, StoreMetrics};
use chassis::trace::{Exporter, Traced, Tracer, traced};
use chassis::{admin, metrics};
use contract::trust::ORDERS_SERVICE;
use parking_lot::Mutex;

use crate::api::{self, Api};
use crate::config::Config;
use crate::control_plane::{ControlPlane, run_periodically};
use crate::erasure::Eraser;
use crate::internal::{self, Internal};
use crate::metrics::Metrics;
use crate::orders::Orders;
use crate::outbox_relay::OutboxRelay;
use crate::trusted_keys::{KeyRefresh, KeySets};

/// Most connections of operators at a time.
const INTERNAL_CONNECTIONS_MAX: usize = 64;

/// Opens the database and serves until `shutdown`. Listeners: `http`, `internal`, `admin`.
///
/// # Errors
/// If the database cannot be opened or an address is in use.
pub async fn start(config: Config, clock: Arc<dyn Clock>, shutdown: Shutdown) -> anyhow::Result<Running> {
    if !config.create_database {
        sql::Database::must_exist(&config.database).await?;
    }
    let orders = Orders::open(&config.database).await?;
    start_with(config, orders, clock, shutdown).await
}

/// Like [`start`], with a store that the caller opened and may use as well. The service closes it when it stops.
pub async fn start_with(
    config: Config,
    orders: Orders,
    clock: Arc<dyn Clock>,
    shutdown: Shutdown,
) -> anyhow::Result<Running> {
    let registry = metrics::registry(env!("CARGO_PKG_VERSION"))?;
    let (tracer, exporter) = tracing(&config, &registry)?;
    let traced_by = Traced { tracer, clock: clock.clone() };
    let health = Health::new();
    let listening = health.condition("listening");
    let (keys, operator_keys) = (TrustedKeys::none(), TrustedKeys::none());
    let operations = api::names().chain(internal::OPERATIONS.iter().map(|operation| (operation.id, false)));
    let api = Api {
        guard: GatewayGuard::new(keys.clone(), config.audience.as_str(), clock.clone()),
        store: orders.store(),
        clock: clock.clone(),
        metrics: Metrics::new(&registry, operations)?,
        environment: config.environment,
        pets: Arc::new(config.pets),
    };
    ServerTls::show(&registry, [("http", &config.tls), ("internal", &config.internal_tls)])?;
    let trust_confirmed = api.metrics.trust_confirmed.clone();
    let watched = StoreMetrics::register(&registry, "orders")?;
    if let sql::Location::Sqlite(path) = &config.database {
        metrics::free_disk(&registry, "orders_disk_free_ratio", path)?;
    }
    let tasks = api.metrics.tasks.clone();
    let database = (orders.store().database(), watched);
    tasks.spawn("database_watch", &shutdown, database, |(database, metrics), end| sql::watch(database, metrics, end));
    let control_plane = ControlPlane::new(config.control_plane, config.credential)?;
    let internal = Internal {
        orders: orders.clone(),
        clock: clock.clone(),
        metrics: api.metrics.clone(),
        control_plane: control_plane.clone(),
        listeners: Listeners::of([&config.tls, &config.internal_tls]),
    };
    let outbox_relay =
        OutboxRelay { orders: orders.clone(), metrics: api.metrics.clone(), control_plane: control_plane.clone() };
    let eraser = Eraser { orders: orders.clone(), clock: clock.clone(), control_plane: control_plane.clone() };
    let http = bind(config.listen).await?;
    let operators = bind(config.internal_listen).await?;
    let watchers = bind(config.admin_listen).await?;
    let addresses =
        [("http", http.local_addr()?), ("internal", operators.local_addr()?), ("admin", watchers.local_addr()?)];
    let limits = ServeLimits::default();
    let operators_limits = ServeLimits { connections_max: INTERNAL_CONNECTIONS_MAX, ..limits };
    let mut key_sets = KeySets { gateways: Some(keys.clone()), operators: operator_keys.clone() };
    if let Some(file) = &config.key_set_file {
        keys.read(file)?;
        let source = (keys.clone(), file.clone());
        tasks.spawn("key_file", &shutdown, source, |(keys, file), end| keys.keep_read(file, end));
        key_sets.gateways = None;
    }
    let confirmed = (clock.clone(), trust_confirmed);
    let key_refresh = KeyRefresh::with_saved_keys(key_sets, control_plane, config.trust_file, confirmed);
    key_refresh.begin().await;
    tasks.spawn("trusted_keys", &shutdown, Arc::new(key_refresh), run_periodically);
    let passes = PassGuard::of_service(operator_keys, ORDERS_SERVICE, clock);
    let api = api::router(api).layer(axum::middleware::from_fn_with_state(traced_by, traced));
    let relaying = tasks.spawn("outbox_relay", &shutdown, Arc::new(outbox_relay), run_periodically);
    let erasing = tasks.spawn("erasure", &shutdown, Arc::new(eraser), run_periodically);
    let [tls, internal_tls] = [config.tls, config.internal_tls].map(|tls| tls.map(|tls| (tls, tasks.clone())));
    let public = serve_over(http, tls, api, limits, shutdown.clone());
    let inside = internal::router(internal, Arc::new(Mutex::new(config.effective)), passes);
    let private = serve_over(operators, internal_tls, inside, operators_limits, shutdown.clone());
    // The admin listener ends last: until then it reports that the others drain.
    let admin_end = Shutdown::new();
    let admin_limits = ServeLimits { connections_max: admin::CONCURRENT_REQUESTS_MAX, ..limits };
    let answers = admin::answer_to(admin::router(health.clone(), registry), config.admin_hosts);
    let watching = serve(watchers, answers, admin_limits, admin_end.clone());
    listening.set(true);
    let exporter_end = Shutdown::new();
    let exporter = exporter.map(|exporter| exporter.start(&tasks, &exporter_end));
    let mut listeners = ServiceListeners::start([public, private], watching, admin_end);
    let task = tokio::spawn(async move {
        let mut result = listeners.drained(&shutdown, &health).await;
        for worker in [relaying, erasing] {
            result = result.and(worker.await.context("a worker ended unexpectedly"));
        }
        orders.close().await;
        exporter_end.begin();
        if let Some(exporter) = exporter {
            result = result.and(exporter.await.context("the exporter of traces ended unexpectedly"));
        }
        result.and(listeners.end().await)
    });
    let [http, internal, admin] = addresses.map(|(_, address)| address);
    tracing::info!(%http, %internal, %admin, "orders-service is listening");
    Ok(Running::new("orders-service", addresses, task))
}

/// The tracer, and the exporter if `tracing.otlp_endpoint` is set.
fn tracing(config: &Config, registry: &metrics::Registry) -> anyhow::Result<(Tracer, Option<Exporter>)> {
    let help = "Spans of traces, by result.";
    let spans = metrics::counter_vec(registry, "orders_trace_spans_total", help, &["result"])?;
    Tracer::new(&config.tracing, "orders-service", &spans)
}
