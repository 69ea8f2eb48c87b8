//! The composition root: builds the parts and the listeners, and defines the order of start and shutdown.
//!
//! The data plane (listeners `http` and `https`) runs on pingora's runtimes in a thread of its own; the admin listener
//! and the follower of the change stream run on the caller's runtime. On shutdown the gateway first reports that it is
//! not ready and keeps accepting (lame duck), then stops accepting and finishes the requests in progress, then exits.

mod counting;
mod hooks;
mod lifecycle;
mod parts;
mod reload;
mod secrets;
mod watcher;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use chassis::clock::Clock;
use chassis::config::FileWatch;
use chassis::guard::PassGuard;
use chassis::logs::Logs;
use chassis::metrics;
use chassis::peer::Listeners;
use chassis::running::Running;
use chassis::serve::{ServeLimits, bind, serve_over};
use chassis::shutdown::Shutdown;
use chassis::supervise::Supervisor;
use chassis::watchdog::{Watchdog, WatchdogLimits};
use parking_lot::Mutex;
use pingora::server::configuration::ServerConf;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use self::hooks::EdgeHooks;
use self::lifecycle::{DataPlane, housekeep};
use self::parts::Parts;
use self::reload::{Reload, ReloadMetrics};
use crate::admin::Live;
use crate::config::Config;
use crate::exchange::Gateway;
use crate::overload::{Memory, Reading};
use crate::usage::Reporter;
use listener::{Connections, Listener, ListenerSettings, ListenerState};
use replica::follow::Follower;
use upstreams::Upstreams;

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
pub async fn start(
    config: Config,
    logs: Arc<Logs>,
    clock: Arc<dyn Clock>,
    shutdown: Shutdown,
) -> anyhow::Result<Running> {
    // Before pingora installs ring: aws-lc-rs has post-quantum key exchange and cheaper handshakes. An error means that
    // it is installed already.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let (parts, exporter) = Parts::open(&config, &logs, &clock).await?;
    let descriptors = chassis::process::prepare()?;
    let upstreams = upstreams(&config, part(descriptors, IDLE_PART), &shutdown).await;
    let gateway = parts.gateway(&config, upstreams)?;
    let watchdog = watchdog(clock)?;
    let settings = listener_settings(&config, descriptors);
    let connections = Connections::new(&settings);
    let (mut data_plane, [http, https]) =
        open_listeners(&config, (&parts, &gateway), &connections, settings, &watchdog).await?;
    let live = Arc::new(Live::new(&parts.node, &connections, &parts.health, &shutdown));
    let (mut admin, reload) = open_admin(&config, (&parts, &gateway, &live), &logs).await?;
    let addresses = [("http", http), ("https", https), ("admin", admin.address)];

    // The draining gateway follows changes too: it stops serving a name that is removed meanwhile.
    let (serving_end, chores_end) = (Shutdown::new(), Shutdown::new());
    let follower = Arc::new(parts.follower(&config, connections));
    let background = background(&config, &gateway, &live, (&parts.tasks, &serving_end));
    let Parts { replica, telemetry, quota, usage, platform, fleet_clock, tasks, .. } = parts;
    let follow = |follower: Arc<Follower>, end| async move { follower.run(end).await };
    let follower_task = tasks.spawn("change_stream", &serving_end, follower, follow);
    let chores = Arc::new(lifecycle::Chores {
        quota: quota.clone(),
        telemetry: telemetry.clone(),
        logs,
        live: live.clone(),
        watchdog,
        clock: fleet_clock,
    });
    let on_disk = Arc::new(lifecycle::OnDisk { usage, replica, platform, data_directory: config.data_directory });
    let housekeeping =
        tasks.spawn("chores", &chores_end, (chores, on_disk), |(chores, disk), end| housekeep(chores, disk, end));
    if let Some(reload) = reload {
        let run = |reload: Arc<Reload>, end| async move { reload.run(end).await };
        tasks.spawn("settings_reload", &chores_end, Arc::new(reload), run);
    }
    let exporter = exporter.map(|exporter| exporter.start(&tasks, &chores_end));
    let task = tokio::spawn(async move {
        let listeners = data_plane.ends_in_order(&mut admin.task, &shutdown).await;
        let drained = data_plane.drain(&live, &telemetry, config.drain).await;
        serving_end.begin();
        let (_, ()) = tokio::join!(follower_task, quota.hand_back_all());
        for task in background {
            task.abort();
        }
        // The last round of chores writes the returned units.
        chores_end.begin();
        let _ = housekeeping.await;
        if let Some(exporter) = exporter {
            // It has its own deadline.
            let _ = exporter.await;
        }
        admin.end.begin();
        // Scrapes in progress are not waited for. A task that panicked was awaited above.
        if !admin.task.is_finished() {
            let _ = admin.task.await;
        }
        listeners.and(drained)
    });
    Ok(Running::new("gateway", addresses, task))
}

/// Opens the listeners `http` and `https`, and starts the data plane.
async fn open_listeners(
    config: &Config,
    (parts, gateway): (&Parts, &Arc<Gateway>),
    connections: &Arc<Connections>,
    settings: Arc<ListenerSettings>,
    watchdog: &Watchdog,
) -> anyhow::Result<(DataPlane, [SocketAddr; 2])> {
    let hooks = Arc::new(EdgeHooks::new(gateway.clone(), connections.clone()));
    let tickets = parts.secrets.tickets.clone();
    let http =
        Listener::plain("http", config.http, gateway.clone(), hooks.clone(), connections.clone(), settings.clone())
            .threads(config.threads)
            .with_heartbeat(watchdog.watch("http"));
    let https = Listener::tls("https", config.https, gateway.clone(), hooks, connections.clone(), settings, tickets)?
        .threads(config.threads)
        .with_heartbeat(watchdog.watch("https"));
    let data_plane = DataPlane::start(server_conf(config), http, https)?;
    let [plain_state, tls_state] = data_plane.listeners();
    let plain = listening(plain_state, "http").await?;
    let tls = listening(tls_state, "https").await?;
    // Redirects name the port, and port 0 is resolved only now.
    gateway.pipeline.https_port.get_or_init(|| tls.port());
    parts.health.condition("listeners").set(true);
    Ok((data_plane, [plain, tls]))
}

/// The admin listener. It outlives the data plane: operators watch the drain.
struct AdminListener {
    address: SocketAddr,
    end: Shutdown,
    task: JoinHandle<anyhow::Result<()>>,
}

/// Opens the admin listener. Returns the reload of settings too, if they come from a file.
async fn open_admin(
    config: &Config,
    (parts, gateway, live): (&Parts, &Arc<Gateway>, &Arc<Live>),
    logs: &Arc<Logs>,
) -> anyhow::Result<(AdminListener, Option<Reload>)> {
    let listener = bind(config.admin).await?;
    let address = listener.local_addr()?;
    let view = crate::admin::View {
        gateway: gateway.clone(),
        live: live.clone(),
        clock: parts.clock.clone(),
        fleet_clock: parts.fleet_clock.clone(),
        listeners: Listeners::of([&config.admin_tls]),
        tasks: parts.tasks.clone(),
    };
    let (router, reload) = admin_router(config, parts.secrets.operators.clone(), view, parts.registry.clone(), logs)?;
    let end = Shutdown::new();
    let tls = config.admin_tls.clone().map(|tls| (tls, parts.tasks.clone()));
    let task = tokio::spawn(serve_over(listener, tls, router, admin_limits(), end.clone()));
    Ok((AdminListener { address, end, task }, reload))
}

/// The upstreams, with their addresses, before the listeners open. While the listeners are closed, a balancer that
/// still sends requests here tries another gateway; it would forward a 502 to the client.
async fn upstreams(config: &Config, idle_max: usize, shutdown: &Shutdown) -> Arc<Upstreams> {
    let upstreams = Arc::new(Upstreams::new(config.upstreams.clone(), idle_max));
    tokio::select! {
        () = upstreams.look_up_first(FIRST_LOOK_UP_MAX) => {}
        () = shutdown.begun() => {}
    }
    upstreams
}

/// Starts the tasks that run as long as requests are served. None of them returns; abort them.
fn background(
    config: &Config,
    gateway: &Gateway,
    live: &Live,
    (tasks, end): (&Supervisor, &Shutdown),
) -> [JoinHandle<()>; 7] {
    let pipeline = &gateway.pipeline;
    let (upstreams, quota) = (&pipeline.upstreams, &pipeline.quota);
    let watched = (pipeline.overload.clone(), memory(config), live.connections.clone());
    let reporter = Arc::new(Reporter {
        control: config.feed.clone(),
        token: config.credential.clone(),
        node: live.node.clone(),
        counts: gateway.telemetry.usage.clone(),
        quota: quota.clone(),
        clock: pipeline.clock.clone(),
    });
    let supervisor = tasks.clone();
    [
        tasks.spawn("memory_watch", end, watched, |(overload, memory, connections), _| {
            overload.watch(memory, connections)
        }),
        tasks.spawn("name_lookups", end, upstreams.clone(), |upstreams, _| upstreams.keep_looked_up()),
        tasks.spawn("health_checks", end, upstreams.clone(), move |upstreams, _| {
            upstreams.keep_checked(supervisor.clone())
        }),
        tasks.spawn("upstream_probes", end, upstreams.clone(), |upstreams, _| upstreams.keep_probed()),
        tasks.spawn("usage_reports", end, reporter, |reporter, _| async move { reporter.run().await }),
        tasks.spawn("quota_heartbeats", end, quota.clone(), |quota, _| async move { quota.send_heartbeats().await }),
        tasks.spawn("quota_notifications", end, quota.clone(), |quota, _| async move { quota.listen().await }),
    ]
}

/// The admin router: health, metrics and the operators' views; and the reload of settings, if they come from a file.
fn admin_router(
    config: &Config,
    operators: PassGuard,
    view: crate::admin::View,
    registry: metrics::Registry,
    logs: &Arc<Logs>,
) -> anyhow::Result<(axum::Router, Option<Reload>)> {
    let running = Arc::new(Mutex::new(config.effective.clone()));
    let metrics = ReloadMetrics::new(&registry)?;
    let file = config.file.as_deref().map(FileWatch::new).transpose()?;
    let reload = file.map(|file| Reload {
        metrics,
        file: file.into(),
        running: running.clone(),
        upstreams: view.gateway.pipeline.upstreams.clone(),
        replica: view.gateway.pipeline.replica.clone(),
        logs: logs.clone(),
        telemetry: view.gateway.telemetry.clone(),
    });
    let settings = chassis::admin::settings("/settings", running)
        .route_layer(axum::middleware::from_fn_with_state(operators.clone(), chassis::guard::require_pass));
    let health = view.live.health.clone();
    let admin = chassis::admin::router(health, registry).merge(crate::admin::router(view, operators)).merge(settings);
    let admin = chassis::admin::answer_to(admin, config.admin_hosts.clone());
    Ok((admin, reload))
}

/// Watches this runtime; the listeners' are added where they are built. A process that does not answer is restarted.
fn watchdog(clock: Arc<dyn Clock>) -> std::io::Result<Watchdog> {
    let mut logged = Vec::new();
    let watchdog = Watchdog::start(clock, WatchdogLimits::default(), move |stall| {
        if logged.contains(&stall.runtime) {
            std::process::abort();
        }
        // The log's thread has until the next check to write the line.
        tracing::error!(
            runtime = stall.runtime,
            silent_ms = stall.silent.as_millis(),
            "a runtime is blocked; ending the process so that its supervisor restarts it"
        );
        logged.push(stall.runtime);
    })?;
    tokio::spawn(watchdog.watch("control").beat());
    Ok(watchdog)
}

fn listener_settings(config: &Config, descriptors: u64) -> Arc<ListenerSettings> {
    let settings = ListenerSettings {
        proxy_protocol_from: config.trusted_proxies.clone(),
        forwarders: Arc::new(config.forwarders.clone()),
        requests_per_connection: config.connections.requests,
        connection_age: config.connections.age,
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

fn admin_limits() -> ServeLimits {
    ServeLimits { connections_max: 64, drain_timeout: Duration::from_secs(1), ..ServeLimits::default() }
}

fn server_conf(config: &Config) -> ServerConf {
    ServerConf {
        threads: config.threads,
        // Without it a request costs a few percent less on one thread. But the library then finds runtimes by thread
        // numbers, which are reused if several gateways start and end in one process.
        work_stealing: true,
        // Our own drain has ended before pingora stops.
        grace_period_seconds: Some(0),
        graceful_shutdown_timeout_seconds: Some(1),
        ..ServerConf::default()
    }
}

async fn listening(mut state: watch::Receiver<ListenerState>, name: &str) -> anyhow::Result<SocketAddr> {
    let decided = state.wait_for(|state| !matches!(state, ListenerState::NotYet));
    let decided = tokio::time::timeout(LISTEN_WAIT_MAX, decided)
        .await
        .with_context(|| format!("the {name} listener did not start"))?
        .with_context(|| format!("the {name} listener failed"))?;
    match &*decided {
        ListenerState::At(address) => Ok(*address),
        ListenerState::Failed(reason) => anyhow::bail!("the {name} listener: {reason}"),
        ListenerState::NotYet | ListenerState::Stopped => anyhow::bail!("the {name} listener did not start"),
    }
}
