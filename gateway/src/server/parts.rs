//! The parts of a gateway that exist before its listeners: the replica, the quota, the keys and the metrics.

use std::sync::{Arc, OnceLock};

use chassis::clock::Clock;
use chassis::health::Health;
use chassis::logs::Logs;
use chassis::metrics;
use chassis::peer::ServerTls;
use chassis::seal::SealingKey;
use chassis::supervise::Supervisor;
use chassis::trace::{Exporter, Tracer};

use super::counting::{self, UsageFile};
use super::secrets::Secrets;
use super::watcher::EdgeWatcher;
use crate::clock::FleetClock;
use crate::config::Config;
use crate::exchange::Gateway;
use crate::overload::Overload;
use crate::pipeline::Pipeline;
use crate::platform_certificate::PlatformCertificate;
use crate::request_id::RequestId;
use crate::telemetry::Telemetry;
use listener::Connections;
use quota::Quota;
use quota::failed_authentications::FailedAuthenticationLimits;
use replica::CertificateOpener;
use replica::damage::REPLICA;
use replica::follow::Follower;
use replica::{HotBounds, Replica};
use upstreams::Upstreams;

/// The parts, from which `start` builds listeners and tasks.
pub(super) struct Parts {
    /// The id of this process.
    pub(super) node: String,
    /// The identity of the data directory.
    place: u64,
    pub(super) replica: Arc<Replica>,
    pub(super) registry: metrics::Registry,
    pub(super) health: Health,
    pub(super) telemetry: Arc<Telemetry>,
    pub(super) platform: Option<Arc<PlatformCertificate>>,
    pub(super) quota: Quota,
    pub(super) usage: UsageFile,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) fleet_clock: Arc<FleetClock>,
    pub(super) secrets: Secrets,
    /// Restarts background tasks.
    pub(super) tasks: Supervisor,
}

impl Parts {
    /// Opens the data directory and what is stored in it. Returns the exporter of traces too, if one is configured.
    pub(super) async fn open(
        config: &Config,
        logs: &Logs,
        clock: &Arc<dyn Clock>,
    ) -> anyhow::Result<(Self, Option<Exporter>)> {
        let node = node_name()?;
        let opener = CertificateOpener::new(SealingKey::of(&config.sealing_secret)?);
        let replica = Arc::new(Replica::open(&config.data_directory.join(REPLICA), &opener, HotBounds::default())?);
        let place = crate::place::identity(&config.data_directory, || Ok(replica.came_to_new_place()?))?;
        replica.begin(config.serve_before_registered);
        let registry = metrics::registry(env!("CARGO_PKG_VERSION"))?;
        metrics::free_disk(&registry, "edge_disk_free_ratio", &config.data_directory)?;
        ServerTls::show(&registry, [("admin", &config.admin_tls)])?;
        let (tracer, exporter) = tracing(config, &registry)?;
        let telemetry = Arc::new(Telemetry::new(&registry, logs.lines(), clock.clone(), &node, tracer)?);
        telemetry.show_damaged(&config.data_directory);
        let platform = platform_certificate(config)?;
        let tasks = Supervisor::register(&registry, "edge_task_restarts_total")?;
        let (quota, usage) = counting::open(config, place, clock.clone(), (&registry, &tasks)).await?;
        telemetry.quota.show_mode(quota.mode());
        let fleet_clock = Arc::new(FleetClock::new(clock.clone(), quota.clone()));
        let secrets = Secrets::of(config, telemetry.gateway.clone(), clock.clone(), fleet_clock.clone())?;
        let (health, clock) = (not_ready_yet(), clock.clone());
        let parts = Self {
            node,
            place,
            replica,
            registry,
            health,
            telemetry,
            platform,
            quota,
            usage,
            clock,
            fleet_clock,
            secrets,
            tasks,
        };
        Ok((parts, exporter))
    }

    /// The stages of requests to these upstreams.
    pub(super) fn gateway(&self, config: &Config, upstreams: Arc<Upstreams>) -> anyhow::Result<Arc<Gateway>> {
        let failed_authentications = FailedAuthenticationLimits::new(
            config.quota.failed_authentications_per_minute,
            std::hash::RandomState::new(),
        );
        let pipeline = Pipeline {
            replica: self.replica.clone(),
            environment: config.environment,
            quota: self.quota.clone(),
            shadow_plans: config.quota.shadow_plans.clone(),
            failed_authentications,
            overload: Arc::new(Overload::new(&self.registry)?),
            identity_tokens: self.secrets.identity_tokens.clone(),
            upstreams,
            platform_certificate: self.platform.clone(),
            https_port: config.public_https_port.map_or_else(OnceLock::new, OnceLock::from),
            health: self.health.clone(),
            clock: self.fleet_clock.clone(),
        };
        let (telemetry, clock) = (self.telemetry.clone(), self.fleet_clock.clone());
        Ok(Arc::new(Gateway { pipeline, telemetry, clock }))
    }

    /// The tasks that follow the control plane's changes and close connections of names that are no longer served.
    pub(super) fn follower(&self, config: &Config, connections: Arc<Connections>) -> Follower {
        let (replica, telemetry, clock) = (self.replica.clone(), self.telemetry.clone(), self.fleet_clock.clone());
        let watcher = EdgeWatcher::new(replica, connections, telemetry, (clock, self.quota.clone()), &self.health);
        let keyring = self.secrets.keyring.clone();
        Follower {
            control: config.feed.clone(),
            token: config.credential.clone(),
            node: self.node.clone(),
            gateway: self.telemetry.gateway.clone(),
            place: self.place,
            keyring: Arc::new(move |sealed| keyring.take(sealed)),
            replica: self.replica.clone(),
            watcher: Arc::new(watcher),
            clock: self.clock.clone(),
        }
    }
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

fn platform_certificate(config: &Config) -> anyhow::Result<Option<Arc<PlatformCertificate>>> {
    let files = config.platform_certificate.as_ref();
    files.map(|(chain, key)| Ok(Arc::new(PlatformCertificate::load(chain.clone(), key.clone())?))).transpose()
}

/// Traces, if an exporter is configured.
fn tracing(config: &Config, registry: &metrics::Registry) -> anyhow::Result<(Tracer, Option<Exporter>)> {
    let help = "Spans of traces, by result.";
    let spans = metrics::counter_vec(registry, "edge_trace_spans_total", help, &["result"])?;
    Tracer::new(&config.tracing, "gateway", &spans)
}

/// A name that is unique to this run of the gateway.
fn node_name() -> anyhow::Result<String> {
    let name = RequestId::new(u128::from_le_bytes(chassis::random::bytes()?));
    Ok(format!("gw-{}", name.as_str().get(..12).unwrap_or("0")))
}
