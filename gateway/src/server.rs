//! The composition root: builds the parts and the listeners, and defines the order of start and shutdown.
//!
//! The data plane (listeners `http` and `https`) runs on pingora's runtimes in a thread of its own; the admin listener
//! and the follower of the change stream run on the caller's runtime. On shutdown the gateway first reports that it is
//! not ready and keeps accepting (lame duck), then stops accepting and finishes the requests in progress, then exits.

mod counting;
mod hooks;
mod lifecycle;
mod reload;
mod secrets;
mod watcher;

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::Context as _;
use chassis::clock::Clock;
use chassis::config::FileWatch;
use chassis::guard::PassGuard;
use chassis::health::Health;
use chassis::logs::Logs;
use chassis::metrics;
use chassis::peer::{Listeners, ServerTls};
use chassis::running::Running;
use chassis::seal::SealingKey;
use chassis::serve::{ServeLimits, bind, serve_over};
use chassis::shutdown::Shutdown;
use chassis::trace::{Exporter, Tracer};
use chassis::watchdog::{Watchdog, WatchdogLimits};
use parking_lot::Mutex;
use pingora::server::configuration::ServerConf;
use tokio::sync::watch;

use self::hooks::EdgeHooks;
use self::lifecycle::DataPlane;
use self::reload::{Reload, ReloadMetrics};
use self::secrets::Secrets;
use self::watcher::EdgeWatcher;
use crate::admin::Live;
use crate::clock::FleetClock;
use crate::config::Config;
use crate::damage::REPLICA;
use crate::exchange::Exchanges;
use crate::facts::RequestId;
use crate::gateway::Gateway;
use crate::keys::Keys;
use crate::overload::{Memory, Overload, Reading};
use crate::pipeline::Pipeline;
use crate::platform_certificate::PlatformCertificate;
use crate::replica::follow::Follower;
use crate::replica::{HotBounds, Replica};
use crate::telemetry::Telemetry;
use crate::tls::CertificateOpener;
use crate::upstreams::Upstreams;
use crate::usage::Reporter;
use listener::{Connections, Listener, ListenerSettings, ListenerState};
use quota::failed_authentications::FailedAuthenticationLimits;

/// The longest time for opening a listener.
const LISTEN_WAIT_MAX: Duration = Duration::from_secs(10);

/// The longest time that a new gateway waits for the addresses of its upstreams before it opens its listeners.
const FIRST_LOOK_UP_MAX: Duration = Duration::from_secs(10);

/// The share of the file descriptors for idle connections to upstreams: one part in this many. Busy ones share with
/// those of clients, see [`ListenerSettings::for_descriptors`].
const IDLE_PART: u64 = 10;

/// Starts the gateway: listeners `http`, `https` and `admin`.
///
/// # Errors
/// If a listener, file or secret cannot be used, with the reason.
#[expect(clippy::too_many_lines, reason = "the parts, in the order in which they are put together")]
pub async fn start(
    config: Config,
    logs: Arc<Logs>,
    clock: Arc<dyn Clock>,
    shutdown: Shutdown,
) -> anyhow::Result<Running> {
    // Before pingora installs ring: aws-lc-rs has post-quantum key exchange and cheaper handshakes. An error means that
    // it is installed already.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let node = node_name()?;
    let opener = CertificateOpener::new(SealingKey::of(&config.sealing_secret)?);
    let replica = Arc::new(Replica::open(&config.data_directory.join(REPLICA), &opener, HotBounds::default())?);
    let place = crate::place::identity(&config.data_directory, || Ok(replica.came_to_new_place()?))?;
    replica.begin(config.serve_before_heard);
    let registry = metrics::registry(env!("CARGO_PKG_VERSION"))?;
    metrics::free_disk(&registry, "edge_disk_free_ratio", &config.data_directory)?;
    ServerTls::show(&registry, [("admin", &config.admin_tls)])?;
    let health = not_ready_yet();
    let (tracer, exporter) = tracing(&config, &registry)?;
    let telemetry = Arc::new(Telemetry::new(&registry, logs.lines(), clock.clone(), &node, tracer)?);
    telemetry.show_damaged(&config.data_directory);
    let platform = platform_certificate(&config)?;
    let (quota, usage) = counting::open(&config, place, clock.clone(), &registry).await?;
    telemetry.quota.show_mode(quota.mode());
    let fleet_clock = Arc::new(FleetClock::new(clock.clone(), quota.clone()));
    let secrets = Secrets::of(&config, telemetry.gateway.clone(), clock.clone(), fleet_clock.clone())?;
    let descriptors = chassis::process::prepare()?;
    let settings = listener_settings(&config, descriptors);
    let connections = Connections::new(&settings);
    let upstreams = upstreams(&config, part(descriptors, IDLE_PART), &shutdown).await;
    let pipeline = Pipeline {
        replica: replica.clone(),
        keys: Keys::new(replica.clone(), config.environment),
        quota: quota.clone(),
        shadow_plans: config.quota.shadow_plans.clone(),
        failed_authentications: FailedAuthenticationLimits::new(
            config.quota.failed_authentications_per_minute,
            std::hash::RandomState::new(),
        ),
        overload: Arc::new(Overload::new(&registry)?),
        identity_tokens: secrets.identity_tokens.clone(),
        upstreams,
        platform_certificate: platform.clone(),
        https_port: config.public_https_port.map_or_else(OnceLock::new, OnceLock::from),
        clock: fleet_clock.clone(),
    };
    let gateway = Arc::new(Gateway {
        pipeline,
        telemetry: telemetry.clone(),
        clock: fleet_clock.clone(),
        health: health.clone(),
    });
    let hooks = Arc::new(EdgeHooks::new(gateway.clone(), connections.clone()));
    let tickets = secrets.tickets.clone();
    let watchdog = watchdog(clock.clone())?;
    let handler = Arc::new(Exchanges(gateway.clone()));
    let http =
        Listener::plain("http", config.http, handler.clone(), hooks.clone(), connections.clone(), settings.clone())
            .threads(config.threads)
            .with_heartbeat(watchdog.watch("http"));
    let https = Listener::tls("https", config.https, handler, hooks, connections.clone(), settings, tickets)?
        .threads(config.threads)
        .with_heartbeat(watchdog.watch("https"));
    let (plain_state, tls_state) = (http.listening(), https.listening());
    let data_plane = DataPlane::start(server_conf(&config), http, https)?;
    let plain_address = listening(plain_state, "http").await?;
    let tls_address = listening(tls_state, "https").await?;
    // Redirects name the port, and port 0 is resolved only now.
    gateway.pipeline.https_port.get_or_init(|| tls_address.port());
    health.condition("listeners").set(true);

    let live = Arc::new(Live::new(&node, &connections, &health, &shutdown));
    let admin_listener = bind(config.admin).await?;
    let admin_address = admin_listener.local_addr()?;
    let view = crate::admin::View {
        gateway: gateway.clone(),
        live: live.clone(),
        clock: clock.clone(),
        fleet_clock: fleet_clock.clone(),
        listeners: Listeners::of([&config.admin_tls]),
    };
    let (admin, reload) = admin_router(&config, secrets.operators.clone(), view, registry, &logs)?;
    // The admin listener outlives the data plane: operators watch the drain.
    let admin_end = Shutdown::new();
    let admin_task =
        tokio::spawn(serve_over(admin_listener, config.admin_tls.clone(), admin, admin_limits(), admin_end.clone()));

    let kept = replica.clone();
    let watcher =
        Arc::new(EdgeWatcher::new(replica.clone(), connections, telemetry.clone(), fleet_clock.clone(), &health));
    let follower = Follower {
        control: config.feed.clone(),
        token: config.credential.clone(),
        node,
        gateway: telemetry.gateway.clone(),
        place,
        keyring: Arc::new(move |sealed| secrets.keyring.take(sealed)),
        replica,
        watcher,
        clock: clock.clone(),
    };
    let ledger_task = tokio::spawn({
        let quota = quota.clone();
        async move { quota.run().await }
    });
    let background = tokio::spawn(background(&config, &gateway, &live));
    // The draining gateway follows changes too: it stops serving a name that is removed meanwhile.
    let serving_end = Shutdown::new();
    let follower_task = tokio::spawn(follower.run(serving_end.clone()));
    let chores_end = Shutdown::new();
    let exporter = beside(exporter, reload, &chores_end);
    let chores = lifecycle::Chores {
        quota: quota.clone(),
        telemetry: telemetry.clone(),
        logs,
        live: live.clone(),
        watchdog,
        clock: fleet_clock.clone(),
        exporter,
        end: chores_end.clone(),
    };
    let on_disk = lifecycle::OnDisk { usage, replica: kept, platform, data_directory: config.data_directory };
    let housekeeping = tokio::spawn(lifecycle::housekeep(chores, on_disk));
    let task = tokio::spawn(async move {
        shutdown.begun().await;
        let drained = data_plane.drain(&live, &telemetry, config.lame_duck, config.drain).await;
        serving_end.begin();
        let (_, ()) = tokio::join!(follower_task, quota.hand_back_all());
        ledger_task.abort();
        background.abort();
        // The last round of chores writes the units that were handed back.
        chores_end.begin();
        let _ = housekeeping.await;
        admin_end.begin();
        // Scrapes in progress are not waited for.
        let _ = admin_task.await;
        drained
    });
    Ok(Running::new("gateway", [("http", plain_address), ("https", tls_address), ("admin", admin_address)], task))
}

/// The conditions of readiness, before the admin listener opens: a gateway that has its listeners and has not looked
/// for a replica yet is not ready.
fn not_ready_yet() -> Health {
    let health = Health::new();
    for name in ["listeners", "replica"] {
        health.condition(name).set(false);
    }
    health
}

/// The upstreams, with their addresses, before the listeners open. While a listener is closed, a balancer that still
/// counts on this gateway tries another one; a 502 it would pass on.
async fn upstreams(config: &Config, idle_max: usize, shutdown: &Shutdown) -> Arc<Upstreams> {
    let upstreams = Arc::new(Upstreams::new(config.upstreams.clone(), idle_max));
    tokio::select! {
        () = upstreams.look_up_first(FIRST_LOOK_UP_MAX) => {}
        () = shutdown.begun() => {}
    }
    upstreams
}

/// Starts the exporter of traces and the reload of settings, if configured. Returns the exporter's task, which must
/// finish.
fn beside(
    exporter: Option<Exporter>,
    reload: Option<(Reload, FileWatch)>,
    end: &Shutdown,
) -> Option<tokio::task::JoinHandle<()>> {
    if let Some((reload, file)) = reload {
        tokio::spawn(reload.run(file, end.clone()));
    }
    exporter.map(|exporter| tokio::spawn(exporter.run(end.clone())))
}

/// The tasks beside the requests, until the future is dropped: looking up names of upstreams, health checks of their
/// addresses, watching memory, reporting usage.
fn background(config: &Config, gateway: &Gateway, live: &Live) -> impl Future<Output = ()> + use<> {
    let pipeline = &gateway.pipeline;
    let watching = pipeline.overload.clone().watch(memory(config), live.connections.clone());
    let looking_up = pipeline.upstreams.clone().keep_looked_up();
    let checking = pipeline.upstreams.clone().keep_checked();
    let probing = pipeline.upstreams.clone().keep_probed();
    let reporter = Reporter {
        control: config.feed.clone(),
        token: config.credential.clone(),
        node: live.node.clone(),
        counts: gateway.telemetry.usage.clone(),
        quota: pipeline.quota.clone(),
        clock: pipeline.clock.clone(),
    };
    async move {
        tokio::join!(watching, looking_up, checking, probing, reporter.run());
    }
}

/// Traces, if an exporter is configured.
fn tracing(config: &Config, registry: &metrics::Registry) -> anyhow::Result<(Tracer, Option<Exporter>)> {
    let help = "Spans of traces, by what became of them.";
    let spans = metrics::counter_vec(registry, "edge_trace_spans_total", help, &["result"])?;
    Tracer::new(&config.tracing, "gateway", &spans)
}

/// The admin router: health, metrics and the operators' views; and the reload of settings, if they come from a file.
fn admin_router(
    config: &Config,
    operators: PassGuard,
    view: crate::admin::View,
    registry: metrics::Registry,
    logs: &Arc<Logs>,
) -> anyhow::Result<(axum::Router, Option<(Reload, FileWatch)>)> {
    let running = Arc::new(Mutex::new(config.effective.clone()));
    let reload = Reload {
        metrics: ReloadMetrics::new(&registry)?,
        running: running.clone(),
        upstreams: view.gateway.pipeline.upstreams.clone(),
        logs: logs.clone(),
        telemetry: view.gateway.telemetry.clone(),
    };
    let file = config.file.as_deref().map(FileWatch::new).transpose()?;
    let settings = chassis::admin::settings("/settings", running)
        .route_layer(axum::middleware::from_fn_with_state(operators.clone(), chassis::guard::require_pass));
    let health = view.live.health.clone();
    let admin = chassis::admin::router(health, registry).merge(crate::admin::router(view, operators)).merge(settings);
    let admin = chassis::admin::answer_to(admin, config.admin_hosts.clone());
    Ok((admin, file.map(|file| (reload, file))))
}

/// Watches this runtime; the listeners' are added where they are built. A process that does not answer is restarted.
fn watchdog(clock: Arc<dyn Clock>) -> std::io::Result<Watchdog> {
    let mut said = Vec::new();
    let watchdog = Watchdog::start(clock, WatchdogLimits::default(), move |stall| {
        if said.contains(&stall.runtime) {
            std::process::abort();
        }
        // The log's thread has until the next check to write the line.
        tracing::error!(
            runtime = stall.runtime,
            silent_ms = stall.silent.as_millis(),
            "a runtime is stuck: the process ends"
        );
        said.push(stall.runtime);
    })?;
    tokio::spawn(watchdog.watch("control").beat());
    Ok(watchdog)
}

fn listener_settings(config: &Config, descriptors: u64) -> Arc<ListenerSettings> {
    let settings = ListenerSettings {
        proxy_protocol_from: config.trusted_proxies.clone(),
        forwarders: Arc::new(config.forwarders.clone()),
        ..ListenerSettings::default()
    };
    let settings = settings.for_descriptors(descriptors);
    Arc::new(match memory(config).read() {
        Reading::Limited(memory_use) => settings.for_memory(memory_use.limit()),
        _ => settings,
    })
}

fn memory(config: &Config) -> Memory {
    Memory::new(config.overload.memory_bytes_max, config.overload.control_group.clone())
}

/// One of `of` equal parts of the descriptors; at least 1.
fn part(descriptors: u64, of: u64) -> usize {
    usize::try_from(descriptors / of).unwrap_or(usize::MAX).max(1)
}

fn platform_certificate(config: &Config) -> anyhow::Result<Option<Arc<PlatformCertificate>>> {
    let files = config.platform_certificate.as_ref();
    files.map(|(chain, key)| Ok(Arc::new(PlatformCertificate::load(chain.clone(), key.clone())?))).transpose()
}

fn admin_limits() -> ServeLimits {
    ServeLimits { connections_max: 64, drain_timeout: Duration::from_secs(1), ..ServeLimits::default() }
}

/// A name that is unique to this run of the gateway.
fn node_name() -> anyhow::Result<String> {
    let name = RequestId::new(u128::from_le_bytes(chassis::random::bytes()?));
    Ok(format!("gw-{}", name.as_str().get(..12).unwrap_or("0")))
}

fn server_conf(config: &Config) -> ServerConf {
    ServerConf {
        threads: config.threads,
        // Without it a request costs a few percent less on one thread. But the library then finds runtimes by thread
        // numbers, which are reused if several gateways start and end in one process.
        work_stealing: true,
        // Our own drain has ended before pingora is told to stop.
        grace_period_seconds: Some(0),
        graceful_shutdown_timeout_seconds: Some(1),
        ..ServerConf::default()
    }
}

async fn listening(mut state: watch::Receiver<ListenerState>, name: &str) -> anyhow::Result<SocketAddr> {
    let decided = state.wait_for(|state| !matches!(state, ListenerState::NotYet));
    let decided = tokio::time::timeout(LISTEN_WAIT_MAX, decided)
        .await
        .with_context(|| format!("the {name} listener did not come up"))?
        .with_context(|| format!("the {name} listener broke off"))?;
    match &*decided {
        ListenerState::At(address) => Ok(*address),
        ListenerState::Failed(reason) => anyhow::bail!("the {name} listener: {reason}"),
        ListenerState::NotYet | ListenerState::Stopped => anyhow::bail!("the {name} listener did not come up"),
    }
}
