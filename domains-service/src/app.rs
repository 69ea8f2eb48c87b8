//! The parts of the service, and their assembly.

use std::net::IpAddr;
use std::sync::Arc;

use aws_lc_rs::hmac;
use axum::extract::FromRef;
use chassis::guard::operator_token;
use chassis::peer::Listeners;
use chassis::webhook::{Rules, Sender, SystemLookup};
use contract::time::UnixMillis;
use parking_lot::Mutex;
use serde::Serialize;
use verification::{Dns, DnsConfig, networks};

use crate::common::Core;
use crate::config::Config;
use crate::gateways::Gateways;
use crate::issuer::Authorities;
use crate::throttle::Throttles;

/// The parts of the service. A function takes those that it uses; request handlers get them by `State`.
#[derive(Clone)]
pub(crate) struct App {
    pub(crate) core: Arc<Core>,
    pub(crate) gateways: Arc<Gateways>,
    pub(crate) issuing: Arc<Issuing>,
    pub(crate) api: Arc<ApiState>,
}

/// DNS, the addresses of the edge, and the issuers.
pub(crate) struct Issuing {
    pub(crate) core: Arc<Core>,
    pub(crate) dns: Arc<dyn Dns>,
    pub(crate) dns_config: DnsConfig,
    pub(crate) edge_addresses: Vec<IpAddr>,
    pub(crate) authorities: Authorities,
}

/// State of the API, the dashboard and webhooks.
pub(crate) struct ApiState {
    pub(crate) core: Arc<Core>,
    pub(crate) throttles: Throttles,
    /// Derives the keys of operators' sessions and links, which therefore end when this key's secret changes.
    pub(crate) operators: hmac::Key,
    pub(crate) webhook_sender: Sender,
    pub(crate) faults: Faults,
}

/// Faults that the status shows.
pub(crate) struct Faults {
    /// The last request that failed on our side: code and time.
    pub(crate) last_trouble: Mutex<Option<(String, UnixMillis)>>,
    /// Credential files that were refused at the start.
    pub(crate) refused_files: Mutex<Vec<RefusedFile>>,
    /// The certificates of the listeners.
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
        config: &Config,
        core: Arc<Core>,
        gateways: Arc<Gateways>,
        dns: Arc<dyn Dns>,
        authorities: Authorities,
    ) -> anyhow::Result<Self> {
        let rules = Rules {
            allow_http: config.webhooks.allow_http,
            permits: if config.webhooks.allow_private_addresses { |_| true } else { networks::is_public },
            timeout: config.webhooks.timeout,
        };
        let faults = Faults {
            last_trouble: Mutex::default(),
            refused_files: Mutex::default(),
            listeners: Listeners::of([&config.tls, &config.internal_tls]),
        };
        let api = Arc::new(ApiState {
            core: core.clone(),
            throttles: Throttles::new(core.clock.clone()),
            operators: hmac::Key::new(hmac::HMAC_SHA256, operator_token(&config.secret).reveal()),
            webhook_sender: Sender::new(rules, Arc::new(SystemLookup))?,
            faults,
        });
        let issuing = Arc::new(Issuing {
            core: core.clone(),
            dns,
            dns_config: config.dns.clone(),
            edge_addresses: config.edge_addresses.clone(),
            authorities,
        });
        Ok(Self { core, gateways, issuing, api })
    }
}

/// Lets request handlers take a part as their `State`.
macro_rules! parts {
    ($($name:ident: $part:ty),+) => {
        $(impl FromRef<App> for Arc<$part> {
            fn from_ref(app: &App) -> Self {
                app.$name.clone()
            }
        })+
    };
}

parts!(core: Core, gateways: Gateways, issuing: Issuing, api: ApiState);
