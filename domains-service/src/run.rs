//! From a configuration to a running service.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use async_trait::async_trait;
use axum::extract::{Request, State};
use axum::middleware::{self, Next};
use axum::response::Response;
use chassis::clock::Clock;
use chassis::guard::GatewayGuard;
use chassis::health::Health;
use chassis::metrics::Registry;
use chassis::peer::ServerTls;
use chassis::running::Running;
use chassis::serve::{ServeLimits, ServiceListeners, bind, serve, serve_over};
use chassis::shutdown::Shutdown;
use chassis::sql::{self, StoreMetrics};
use chassis::trace::{Exporter, Traced, Tracer, traced};
use contract::feed::Entity;
use contract::project::Access;
use contract::site::{Serves, Site};
use parking_lot::Mutex;
use tokio::task::JoinHandle;

use crate::api;
use crate::app::App;
use crate::common::Core;
use crate::config::Config;
use crate::delivery;
use crate::enrolment;
use crate::gateways::Gateways;
use crate::issuer::acme::AcmeAuthority;
use crate::issuer::{Authorities, Issuer, LocalAuthority};
use crate::key_rotation;
use crate::keyring;
use crate::metrics::Metrics;
use crate::nodes::record;
use crate::pages::Pages;
use crate::revocations;
use crate::store::{Store, projects};
use crate::worker;
use verification::wire::WireDns;
use verification::{Dns, DnsReply, NoAnswer, RecordKind};

/// The label of the platform's own API below its domain, and the upstream that stands behind it.
const API_LABEL: &str = "api";
const API_UPSTREAM: &str = "domains";

/// The upstream that stands behind the dashboard: the same service, with limits of its own.
const DASHBOARD_UPSTREAM: &str = "dashboard";

/// Requests in progress at the end get this long.
const DRAIN_TIME_MAX: Duration = Duration::from_secs(25);

/// The plans whose figures are published.
const PUBLISHED_PLANS: &str = "published_plans";

/// Projects read at once when plans are brought up to date.
const PROJECTS_PER_READ: i64 = 500;

/// The external dependencies: DNS and certificate authorities.
pub struct World {
    /// DNS.
    pub dns: Arc<dyn Dns>,
    /// Certificate authorities.
    pub authorities: Authorities,
}

impl World {
    /// The world as the configuration describes it.
    ///
    /// # Errors
    /// When the system names no resolver, or the local authority's files are unusable.
    pub fn from_config(config: &Config) -> anyhow::Result<Self> {
        let local = config.local_authority.as_ref().map(LocalAuthority::load).transpose()?;
        let local = local.map(|authority| Arc::new(authority) as Arc<dyn Issuer>);
        Ok(Self { dns: Arc::new(WireDns::new(&config.dns)?), authorities: Authorities { local, public: Vec::new() } })
    }
}

/// Starts the service. It runs until `shutdown`, then finishes requests in progress.
///
/// # Errors
/// When the database, an address, a resolver or the local authority cannot be used.
pub async fn start(config: Config, clock: Arc<dyn Clock>, shutdown: Shutdown) -> anyhow::Result<Running> {
    let world = World::from_config(&config)?;
    start_in(config, world, clock, shutdown).await
}

/// As [`start`], in a world of the caller's.
pub async fn start_in(
    config: Config,
    world: World,
    clock: Arc<dyn Clock>,
    shutdown: Shutdown,
) -> anyhow::Result<Running> {
    let registry = chassis::metrics::registry(env!("CARGO_PKG_VERSION"))?;
    let metrics = Metrics::register(&registry)?;
    ServerTls::show(&registry, [("http", &config.tls), ("internal", &config.internal_tls)])?;
    let watched = StoreMetrics::register(&registry, "domains")?;
    if let sql::Location::Sqlite(path) = &config.database {
        chassis::metrics::free_disk(&registry, "domains_disk_free_ratio", path)?;
    }
    let (tracer, exporter) = tracing(&config, &registry)?;
    let traced_by = Traced { tracer, clock: clock.clone() };
    let store = open_store(&config, clock.clone()).await?;
    let (http, internal, admin) =
        (bind(config.listen).await?, bind(config.internal_listen).await?, bind(config.admin_listen).await?);
    let addresses =
        [("http", http.local_addr()?), ("internal", internal.local_addr()?), ("admin", admin.local_addr()?)];
    let [tls, internal_tls] =
        [&config.tls, &config.internal_tls].map(|tls| tls.clone().map(|tls| (tls, metrics.tasks.clone())));
    let core = Arc::new(Core::new(&config, store, clock.clone(), metrics)?);
    let gateways = Arc::new(Gateways::new(&config, core.clone())?);
    let mut authorities = world.authorities;
    add_acme(&mut authorities, &config, &gateways).await?;
    let dns = Arc::new(CountedDns { dns: world.dns, metrics: core.metrics.clone() });
    let app = App::new(&config, core, gateways, dns, authorities)?;
    let App { core, gateways, .. } = &app;
    key_rotation::check(core, config.sealing_secret_lost).await?;
    publish_platform(core).await?;
    revocations::revoke_again(gateways).await?;
    enrolment::at_start(&app.api, &config).await?;
    if let Some(last) = core.store.last_seen().await? {
        gateways.nodes.last_seen_before_start(last);
    }
    gateways.load_processes().await?;
    keyring::rotate_if_due(gateways).await?;
    core.store.reload_credentials().await?;
    let health = Health::new();
    let listening = health.condition("listening");

    let limits = ServeLimits { drain_timeout: DRAIN_TIME_MAX, ..ServeLimits::default() };
    let guard = GatewayGuard::new(gateways.trusted.clone(), API_UPSTREAM, clock);
    let for_pages = guard.for_audience(DASHBOARD_UPSTREAM);
    let pages = dashboard::router(Pages::of(app.clone()), for_pages, shutdown.clone());
    let public = dashboard::beside(api::public(app.clone(), guard), pages, &core.settings.platform)
        .layer(middleware::from_fn_with_state(traced_by, traced));
    let inside = api::internal(app.clone(), Arc::new(Mutex::new(config.effective)), shutdown.clone());
    let for_admin = chassis::admin::answer_to(admin_router(gateways, &health, registry), config.admin_hosts);
    // The admin listener outlives the others, so that a drain can be watched.
    let admin_shutdown = Shutdown::new();

    let exporter_end = Shutdown::new();
    let exporter = exporter.map(|exporter| exporter.start(&core.metrics.tasks, &exporter_end));
    let serving = [
        serve_over(http, tls, public, limits, shutdown.clone()),
        serve_over(internal, internal_tls, inside, limits, shutdown.clone()),
    ];
    let watching = serve(admin, for_admin, ServeLimits::default(), admin_shutdown.clone());
    let mut listeners = ServiceListeners::start(serving, watching, admin_shutdown);
    let workers = workers(&app, watched, (config.change_log_rows, config.webhooks.disable_after), &shutdown);
    listening.set(true);
    let task = tokio::spawn(async move {
        let mut result = listeners.drained(&shutdown, &health).await;
        for worker in workers {
            result = result.and(worker.await.context("a worker ended unexpectedly"));
        }
        exporter_end.begin();
        if let Some(exporter) = exporter {
            result = result.and(exporter.await.context("the exporter of traces ended unexpectedly"));
        }
        result = result.and(listeners.end().await);
        app.core.store.database().close().await;
        result
    });
    Ok(Running::new("domains-service", addresses, task))
}

/// Adds the authorities that the settings name, each with its account.
async fn add_acme(authorities: &mut Authorities, config: &Config, gateways: &Gateways) -> anyhow::Result<()> {
    for settings in &config.authorities {
        let authority = AcmeAuthority::new(settings.clone(), gateways);
        let authority = authority.with_context(|| format!("the certificate authority {:?}", settings.name))?;
        // The first order reads the account again, and fails with the reason.
        if let Err(error) = authority.load_account().await {
            tracing::warn!(
                authority = settings.name,
                error = format!("{error:#}"),
                "cannot read the account of a certificate authority; the next order reads it again"
            );
        }
        authorities.public.push(Arc::new(authority));
    }
    Ok(())
}

/// Opens the database, with the file of revoked credentials.
async fn open_store(config: &Config, clock: Arc<dyn Clock>) -> anyhow::Result<Store> {
    let revocations = revocations::open(&config.revocations_file)?;
    if !config.create_database {
        sql::Database::must_exist(&config.database).await?;
    }
    Ok(Store::open(&config.database, clock).await?.with_revocations(revocations))
}

/// Starts the background work, until `shutdown`. `change_log_rows` and `disable_after`: see the settings of these
/// names.
fn workers(
    App { core, gateways, issuing, api }: &App,
    watched: StoreMetrics,
    (change_log_rows, disable_after): (u64, Duration),
    end: &Shutdown,
) -> [JoinHandle<()>; 13] {
    let (tasks, database) = (&core.metrics.tasks, core.store.database());
    let watch = |(database, metrics), end| sql::watch(database, metrics, end);
    let processes = (core.store.clone(), gateways.nodes.clone());
    let peers = (gateways.peers.clone(), gateways.nodes.clone());
    let tidy = move |gateways, end| worker::tidy(gateways, change_log_rows, end);
    let deliver = move |api, end| delivery::deliver(api, disable_after, end);
    [
        tasks.spawn("reconcile_domains", end, issuing.clone(), worker::reconcile_domains),
        tasks.spawn("offer_turns", end, issuing.clone(), worker::offer_turns),
        tasks.spawn("end_withdrawals", end, gateways.clone(), worker::end_withdrawals),
        tasks.spawn("database_watch", end, (database, watched), watch),
        tasks.spawn("replica_notices", end, peers, |(peers, nodes), end| peers.listen(nodes, end)),
        tasks.spawn("gateway_processes", end, processes, |(store, nodes), end| record::keep(store, nodes, end)),
        tasks.spawn("sealing_rotation", end, gateways.clone(), key_rotation::rotate),
        tasks.spawn("keyring_rotation", end, gateways.clone(), keyring::keep),
        tasks.spawn("credentials", end, core.store.clone(), Store::keep_credentials),
        tasks.spawn("revocations", end, gateways.clone(), revocations::keep),
        tasks.spawn("cleanup", end, gateways.clone(), tidy),
        tasks.spawn("abandon_orders", end, issuing.clone(), worker::abandon_orders),
        tasks.spawn("webhook_deliveries", end, api.clone(), deliver),
    ]
}

/// Traces, if anybody collects them.
fn tracing(config: &Config, registry: &Registry) -> anyhow::Result<(Tracer, Option<Exporter>)> {
    let help = "Spans of traces, by result.";
    let spans = chassis::metrics::counter_vec(registry, "domains_trace_spans_total", help, &["result"])?;
    Tracer::new(&config.tracing, "domains-service", &spans)
}

/// The admin listener's router. The gauges are brought up to date before they are shown.
fn admin_router(gateways: &Arc<Gateways>, health: &Health, registry: Registry) -> axum::Router {
    chassis::admin::router(health.clone(), registry).layer(middleware::from_fn_with_state(gateways.clone(), measured))
}

async fn measured(State(gateways): State<Arc<Gateways>>, request: Request, next: Next) -> Response {
    if request.uri().path() == "/metrics"
        && let Err(error) = worker::measure(&gateways).await
    {
        tracing::warn!(%error, "cannot update the gauges of /metrics; showing older values");
    }
    next.run(request).await
}

/// Publishes the platform's own sites, and projects whose plan's figures were changed in the configuration.
async fn publish_platform(core: &Core) -> anyhow::Result<()> {
    let mut write = core.store.write().await?;
    for (label, upstream, access) in
        [(API_LABEL, API_UPSTREAM, Access::Key), (dashboard::LABEL, DASHBOARD_UPSTREAM, Access::Public)]
    {
        let hostname = core.settings.platform.child(label).context("the platform's domain is too long")?;
        let serves = Serves::Platform { upstream: upstream.parse()?, access };
        write.put(Entity::Site(Site { hostname, serves, redirect: None })).await?;
    }
    write.commit().await?;
    let plans = format!("{:?}", core.settings.plans);
    if core.store.setting(PUBLISHED_PLANS).await?.as_ref() == Some(&plans) {
        return Ok(()); // a million projects need not be read to find that nothing changed
    }
    let mut after = String::new();
    loop {
        let found = core.store.projects(&after, PROJECTS_PER_READ).await?;
        let Some(last) = found.last() else { break };
        after = last.id.to_string();
        let mut write = core.store.write().await?;
        // A project that cannot be read stays at the edge as it is.
        for seen in found.iter().filter(|seen| seen.unreadable.is_none()) {
            // Read again: nothing else writes yet, but another process may.
            if let Some(project) = projects::find_project(write.connection(), &seen.id).await? {
                write.put(Entity::Project(project.published(&core.settings.plans))).await?;
            }
        }
        write.commit().await?;
    }
    core.store.set_setting(PUBLISHED_PLANS, &plans).await?;
    Ok(())
}

/// DNS, counted.
struct CountedDns {
    dns: Arc<dyn Dns>,
    metrics: Metrics,
}

impl CountedDns {
    fn count(&self, kind: RecordKind, reply: Result<DnsReply, NoAnswer>) -> Result<DnsReply, NoAnswer> {
        let result = reply.as_ref().map_or_else(|failure| failure.as_str(), |_| "ok");
        self.metrics.dns_queries.with_label_values(&[kind.as_str(), result]).inc();
        reply
    }
}

#[async_trait]
impl Dns for CountedDns {
    async fn recurse(&self, name: &str, kind: RecordKind) -> Result<DnsReply, NoAnswer> {
        self.count(kind, self.dns.recurse(name, kind).await)
    }

    async fn ask(&self, server: std::net::IpAddr, name: &str, kind: RecordKind) -> Result<DnsReply, NoAnswer> {
        self.count(kind, self.dns.ask(server, name, kind).await)
    }
}
