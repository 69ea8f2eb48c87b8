//! The parts of the service, and their assembly.

use std::net::IpAddr;
use std::sync::Arc;

use aws_lc_rs::hmac;
use chassis::clock::Clock;
use chassis::guard::{TrustedKeys, operator_token, pass_key};
use chassis::peer::Listeners;
use chassis::seal::SealingKey;
use chassis::webhook::{Rules, Sender, SystemLookup};
use contract::time::UnixMillis;
use parking_lot::Mutex;
use serde::Serialize;
use tokio::sync::Notify;
use verification::{Dns, DnsConfig, networks};

use crate::common::{Core, Settings};
use crate::config::Config;
use crate::domain::proof::Prover;
use crate::gateways::Gateways;
use crate::issuer::Authorities;
use crate::metrics::Metrics;
use crate::nodes::Nodes;
use crate::peers::Peers;
use crate::store::Store;
use crate::throttle::Throttles;

/// A day.
const DAY_MILLIS: i64 = 86_400 * 1_000;

/// The parts of the service. Background tasks take only those that they use; request handlers have all.
pub(crate) struct App {
    pub(crate) core: Core,
    pub(crate) gateways: Gateways,
    pub(crate) issuing: Issuing,
    pub(crate) api: ApiState,
}

/// DNS, the expected records, and the issuers.
pub(crate) struct Issuing {
    pub(crate) dns: Arc<dyn Dns>,
    pub(crate) dns_config: DnsConfig,
    pub(crate) edge_addresses: Vec<IpAddr>,
    pub(crate) prover: Prover,
    pub(crate) authorities: Authorities,
    /// Wakes the worker: a domain is due.
    pub(crate) wake: Notify,
}

/// State that all request handlers share.
pub(crate) struct ApiState {
    pub(crate) throttles: Throttles,
    /// Derives the keys of operators' sessions and links, which therefore end when this key's secret changes.
    pub(crate) operators: hmac::Key,
    pub(crate) webhook_sender: Sender,
    /// The last request that failed on our side, for the status: code and time.
    pub(crate) last_trouble: Mutex<Option<(String, UnixMillis)>>,
    /// Credential files that were refused at the start, for the status.
    pub(crate) refused_files: Mutex<Vec<RefusedFile>>,
    /// The certificates of the listeners, for the status.
    pub(crate) listeners: Listeners,
}

/// A refused credential file.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct RefusedFile {
    /// Its path, as this service sees it.
    pub(crate) file: String,
    /// One of [`crate::metrics::REASONS`].
    pub(crate) reason: &'static str,
    /// The problem, and what to do.
    pub(crate) what_to_do: String,
}

impl App {
    /// Assembles the parts.
    pub(crate) fn new(
        config: Config,
        store: Store,
        nodes: Arc<Nodes>,
        clock: Arc<dyn Clock>,
        dns: Arc<dyn Dns>,
        authorities: Authorities,
        metrics: Metrics,
    ) -> anyhow::Result<Self> {
        let rules = Rules {
            allow_http: config.webhooks.allow_http,
            permits: if config.webhooks.allow_private_addresses { |_| true } else { networks::is_public },
            timeout: config.webhooks.timeout,
        };
        let api = ApiState {
            throttles: Throttles::new(clock.clone()),
            operators: hmac::Key::new(hmac::HMAC_SHA256, operator_token(&config.secret).reveal()),
            webhook_sender: Sender::new(rules, Arc::new(SystemLookup))?,
            last_trouble: Mutex::default(),
            refused_files: Mutex::default(),
            listeners: Listeners::of([&config.tls, &config.internal_tls]),
        };
        let gateways = Gateways {
            nodes,
            peers: Peers::of(&store)?,
            pass_key: pass_key(&config.secret)?,
            trusted: TrustedKeys::none(),
            identities: Mutex::default(),
        };
        let issuing = Issuing {
            dns,
            prover: Prover::new(config.edge_zone()?),
            dns_config: config.dns,
            edge_addresses: config.edge_addresses,
            authorities,
            wake: Notify::new(),
        };
        let settings = Settings {
            plans: config.plans,
            platform: config.platform_domain,
            environment: config.environment,
            names: config.names,
            removed_kept_millis: i64::from(config.removed_projects_kept_days) * DAY_MILLIS,
        };
        let core = Core { store, clock, sealing: SealingKey::of(&config.sealing_secret)?, metrics, settings };
        Ok(Self { core, gateways, issuing, api })
    }
}
