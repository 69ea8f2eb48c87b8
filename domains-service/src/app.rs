//! What every part of the service shares.

use std::collections::HashSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::hmac;
use chassis::clock::Clock;
use chassis::guard::{TrustedKeys, operator_token, pass_key};
use chassis::peer::Listeners;
use chassis::seal::SealingKey;
use chassis::webhook::{Rules, Sender, SystemLookup};
use contract::feed::{Position, Revision};
use contract::hostname::Hostname;
use contract::key::Environment;
use contract::time::UnixMillis;
use contract::token::{KeySet, SigningKey};
use parking_lot::Mutex;
use serde::Serialize;
use tokio::sync::Notify;

use crate::config::{Config, NameRules, WebhookConfig};
use crate::domain::proof::Prover;
use crate::identities::Identities;
use crate::issuer::Authorities;
use crate::metrics::Metrics;
use crate::nodes::{Nodes, doubt};
use crate::peers::Peers;
use crate::plans::Plans;
use crate::store::log::claim;
use crate::store::{Store, StoreError, Write};
use crate::throttle::{Pace, Throttles};
use verification::{Dns, DnsConfig, networks};

/// How long a change waits for the gateways.
const ACKNOWLEDGEMENT_TIME_MAX: Duration = Duration::from_secs(1);

/// A day.
const DAY_MILLIS: i64 = 86_400 * 1_000;

/// What every part of the service shares.
pub(crate) struct App {
    pub(crate) store: Store,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) nodes: Arc<Nodes>,
    pub(crate) peers: Peers,
    pub(crate) metrics: Metrics,
    pub(crate) dns: Arc<dyn Dns>,
    pub(crate) authorities: Authorities,
    pub(crate) sealing: SealingKey,
    /// Signs operators' passes for services and for gateways.
    pub(crate) pass_key: SigningKey,
    /// Of all gateways on record: what the public API and the dashboard believe.
    pub(crate) trusted: TrustedKeys,
    /// The keys of all gateways on record, as they were looked up last.
    pub(crate) identities: Mutex<Arc<Identities>>,
    pub(crate) prover: Prover,
    /// What operators' sessions and links are kept under is made with this key: they end when its secret changes.
    pub(crate) operators: hmac::Key,
    pub(crate) plans: Plans,
    pub(crate) platform: Hostname,
    pub(crate) environment: Environment,
    pub(crate) names: NameRules,
    pub(crate) dns_config: DnsConfig,
    pub(crate) edge_addresses: Vec<IpAddr>,
    pub(crate) change_log_rows: u64,
    /// How long a removed project can be restored.
    pub(crate) removed_kept_millis: i64,
    pub(crate) throttles: Throttles,
    pub(crate) pace: Pace,
    pub(crate) webhooks: WebhookConfig,
    pub(crate) webhook_sender: Sender,
    /// Wakes the worker: a domain is due.
    pub(crate) wake: Notify,
    /// The newest failure of a request that was ours, for operators who ask: its code and when.
    pub(crate) last_trouble: Mutex<Option<(String, UnixMillis)>>,
    /// Credential files that were refused at the start, for operators who ask.
    pub(crate) refused_files: Mutex<Vec<RefusedFile>>,
    /// What its listeners show.
    pub(crate) listeners: Listeners,
}

/// A file whose credential is not on record.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct RefusedFile {
    /// Where it is, as this service sees it.
    pub(crate) file: String,
    /// One of [`crate::metrics::REASONS`].
    pub(crate) reason: &'static str,
    /// What is wrong with it, and what to do.
    pub(crate) what_to_do: String,
}

impl App {
    /// Puts the parts together.
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
        Ok(Self {
            peers: Peers::of(&store)?,
            store,
            nodes,
            metrics,
            dns,
            authorities,
            sealing: SealingKey::of(&config.sealing_secret)?,
            pass_key: pass_key(&config.secret)?,
            trusted: TrustedKeys::none(),
            identities: Mutex::default(),
            prover: Prover::new(config.edge_zone()?),
            operators: hmac::Key::new(hmac::HMAC_SHA256, operator_token(&config.secret).reveal()),
            plans: config.plans,
            platform: config.platform_domain,
            environment: config.environment,
            names: config.names,
            dns_config: config.dns,
            edge_addresses: config.edge_addresses,
            change_log_rows: config.change_log_rows,
            removed_kept_millis: i64::from(config.removed_projects_kept_days) * DAY_MILLIS,
            throttles: Throttles::new(clock.clone()),
            pace: Pace::new(clock.clone()),
            webhooks: config.webhooks,
            webhook_sender: Sender::new(rules, Arc::new(SystemLookup))?,
            wake: Notify::new(),
            last_trouble: Mutex::default(),
            refused_files: Mutex::default(),
            listeners: Listeners::of([&config.tls, &config.internal_tls]),
            clock,
        })
    }
}

impl App {
    /// Commits, and waits until every live gateway has applied what was committed, for a second at most: who is told
    /// that something is done finds it done.
    pub(crate) async fn commit_everywhere(&self, write: Write) -> Result<(), StoreError> {
        let revision = write.commit().await?;
        let learnt = self.nodes.acknowledged(revision, ACKNOWLEDGEMENT_TIME_MAX).await;
        if !learnt.lagging.is_empty() {
            tracing::warn!(
                revision = revision.0,
                gateways = learnt.lagging.join(", "),
                "a change is not on every gateway yet"
            );
        }
        Ok(())
    }
}

impl App {
    /// What verifies operators' passes.
    pub(crate) fn passes(&self) -> KeySet {
        [self.pass_key.public().clone()].into_iter().collect()
    }

    /// Looks up which processes of gateways are on record. Returns the newest revision, which is read before them.
    pub(crate) async fn recall_processes(&self) -> Result<Revision, StoreError> {
        let newest = self.store.newest_revision().await?;
        if self.store.has_gone_back() {
            self.went_back();
        }
        let revoked = self.store.revoked_gateways().await?;
        let mut processes = self.store.processes_heard_since(self.nodes.forgotten_before()).await?;
        let mut positions = self.nodes.positions();
        positions.extend(processes.iter().filter_map(|process| process.report.position()));
        let missing = claim::missing(&mut self.store.reader().acquire().await?, positions).await?;
        self.disbelieve_at(&missing);
        for process in &mut processes {
            doubt::without(&mut process.report, &missing);
        }
        self.nodes.recall(processes, &revoked);
        Ok(newest)
    }

    /// The database does not have these positions: who says that it has applied them acknowledges nothing.
    pub(crate) fn disbelieve_at(&self, missing: &HashSet<Position>) {
        let gateways = self.nodes.disbelieve_at(missing);
        if !gateways.is_empty() {
            tracing::warn!(
                gateways = gateways.join(", "),
                "the change log does not have the revisions that these gateways have applied: withdrawals wait for each until \
                 it reports again"
            );
        }
    }

    /// The database went back to an earlier state. Withdrawals wait for every process until it reports again.
    pub(crate) fn went_back(&self) {
        tracing::error!(
            "the database went back to an earlier state: gateways refuse to follow it, and withdrawals wait for each of them. \
             Put the right database back, or run `tollhouse node accept`"
        );
        self.nodes.disbelieve_all();
    }
}

/// A number in `0.0..1.0` for spreading moments. Should there be no randomness, everything happens at once: slower,
/// not wrong.
pub(crate) fn jitter() -> f64 {
    let bytes = chassis::random::bytes::<4>().unwrap_or_default();
    f64::from(u32::from_be_bytes(bytes)) / (f64::from(u32::MAX) + 1.0)
}
