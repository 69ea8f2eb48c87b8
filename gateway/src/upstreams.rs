//! Where requests go: named backends of the configuration, their endpoints, their routes, and how much each may carry.

mod browser;
mod budget;
mod bulkhead;
mod dial;
mod endpoint;
mod error_page;
mod health;
mod idle;
mod host_port;
mod pool;
mod route;
mod sessions;
mod tls;
mod transport;

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use contract::project::{ProjectUid, UpstreamName};
use http::HeaderValue;
use tokio::sync::{Notify, Semaphore};
use tokio_util::task::AbortOnDropHandle;

pub(crate) use browser::{Cors, Hsts, Origin, Readers};
pub(crate) use budget::RetryBudget;
use bulkhead::Bulkhead;
pub(crate) use bulkhead::{Busy, Permit};
pub(crate) use dial::{DialError, DialFailure, Stream, dial};
pub(crate) use endpoint::{Endpoint, Endpoints};
pub(crate) use error_page::ErrorPage;
pub(crate) use health::{HealthCheck, Question};
pub(crate) use host_port::{EndpointUrl, HostPort, Scheme};
pub(crate) use idle::announces_body;
pub(crate) use pool::{Demands, Tenant, Trust};
pub(crate) use route::{Route, RouteError, RouteTable};
pub(crate) use sessions::Lease;
pub(crate) use tls::{Tls, TlsSettings, reason as tls_reason};
pub(crate) use transport::Transport;

use crate::fields::FieldRules;

/// How often the names among endpoints are looked up.
const LOOK_UP_EVERY: Duration = Duration::from_secs(5);

/// How often while an upstream has no address at all, or one of its addresses takes no connections.
const LOOK_UP_AGAIN: Duration = Duration::from_secs(1);

/// How often while a gateway that starts waits for it.
const LOOK_UP_SOON: Duration = Duration::from_millis(200);

/// How soon the health of upstreams that came with a reload is asked for.
const RELOADED_WITHIN: Duration = Duration::from_secs(1);

/// Between two connections to an address whose last connection failed.
const PROBE_EVERY: Duration = Duration::from_secs(1);

contract::words! {
    /// How an upstream is told who is calling, beside `X-Tollhouse-…` in plain words.
    pub enum IdentityForm {
        /// Not at all.
        None = "none",
        /// A signed token that it can verify with public keys.
        Jwt = "jwt",
    }
}

/// One backend as configured.
#[derive(Clone, Debug)]
pub(crate) struct UpstreamSettings {
    /// Its name.
    pub name: UpstreamName,
    /// Its addresses or names with ports, at least one.
    pub endpoints: Vec<HostPort>,
    /// How it is spoken to there.
    pub transport: Transport,
    /// The host it is asked for; `None`: the one the client asked for.
    pub host: Option<HeaderValue>,
    /// Time to connect, a TLS handshake included.
    pub connect_timeout: Duration,
    /// Time to the first byte of the response, and between two reads.
    pub first_byte_timeout: Duration,
    /// Time for a request as a whole, from its first byte to the last of its response; `None`: as long as both sides
    /// keep their pace.
    pub total_timeout: Option<Duration>,
    /// Requests in progress at once, 1 to a million; the next is refused with 503 `overloaded`. One project has seven
    /// eighths of them at most, and a visitor of its site three quarters of those.
    pub in_flight_max: u32,
    /// Whether requests of several tenants may follow each other on one connection: for upstreams that never send a byte
    /// too many or too late.
    pub shared_connections: bool,
    /// The largest request body in bytes, for routes that do not say.
    pub body_bytes_max: u64,
    /// How its addresses are asked for their health; `None`: requests alone find out.
    pub health: Option<HealthCheck>,
    /// How it is told who is calling.
    pub identity: IdentityForm,
    /// Whether it is handed the API key that the client presented: the control plane alone, which looks it up itself.
    pub takes_keys: bool,
    /// Which paths and methods exist; empty: every path and method.
    pub routes: Vec<Route>,
    /// Which fields of a request reach it.
    pub fields: FieldRules,
    /// Who answers browsers that read its responses from other sites' pages.
    pub cors: Cors,
    /// Who says that it is reached over TLS alone.
    pub hsts: Hsts,
    /// What visitors of its sites see when a request of theirs is refused; `None`: a page of ours.
    pub error_page: Option<ErrorPage>,
}

/// One backend at work.
#[derive(Debug)]
pub(crate) struct Upstream {
    /// As configured.
    pub settings: UpstreamSettings,
    /// Its addresses and what we know of them.
    pub endpoints: Endpoints,
    /// Its paths.
    pub routes: RouteTable,
    /// How many requests may be sent a second time.
    pub retries: RetryBudget,
    bulkhead: Arc<Bulkhead>,
}

impl Upstream {
    fn new(settings: UpstreamSettings, idle: Arc<Semaphore>) -> Self {
        settings.transport.shout(&settings.name);
        let by_name = settings.transport.tls().is_some();
        Self {
            endpoints: Endpoints::new(&settings.endpoints, idle, by_name),
            routes: RouteTable::new(settings.routes.clone()),
            retries: RetryBudget::default(),
            bulkhead: Arc::new(Bulkhead::new(settings.in_flight_max)),
            settings,
        }
    }

    /// Acquires a permit for a request that this project pays for, sent by this visitor. The platform's own hosts have no
    /// project, and a caller with a key does not count as a visitor.
    pub(crate) fn acquire(&self, project: Option<&ProjectUid>, visitor: Option<IpAddr>) -> Result<Permit, Busy> {
        self.bulkhead.acquire(project, visitor)
    }

    /// The tenant whose connections a request with this permit may use.
    pub(crate) fn tenant(&self, permit: &Permit) -> Tenant {
        if self.settings.shared_connections { Tenant::default() } else { permit.tenant() }
    }

    /// Connections that may wait for a request beside those in use: with them there are `in_flight_max`.
    pub(crate) fn idle_max(&self) -> usize {
        usize::try_from(self.settings.in_flight_max.saturating_sub(self.in_flight())).unwrap_or(usize::MAX)
    }

    async fn keep_checked(self: Arc<Self>) {
        let Some(check) = &self.settings.health else { return };
        loop {
            self.endpoints.check(check, &self.settings).await;
            tokio::time::sleep(check.every).await;
        }
    }

    /// Requests in progress.
    pub(crate) fn in_flight(&self) -> u32 {
        self.bulkhead.taken()
    }
}

/// All backends.
#[derive(Debug)]
pub(crate) struct Upstreams {
    all: ArcSwap<HashMap<UpstreamName, Arc<Upstream>>>,
    look_up_now: Notify,
    /// Permits for connections that wait for a request.
    idle: Arc<Semaphore>,
}

impl Upstreams {
    /// From the configuration. At most `idle_max` connections to all of them together wait for a request.
    pub(crate) fn new(settings: impl IntoIterator<Item = UpstreamSettings>, idle_max: usize) -> Self {
        let idle = Arc::new(Semaphore::new(idle_max.min(Semaphore::MAX_PERMITS)));
        let new = |one: UpstreamSettings| (one.name.clone(), Arc::new(Upstream::new(one, idle.clone())));
        let all = settings.into_iter().map(new).collect();
        Self { all: ArcSwap::from_pointee(all), look_up_now: Notify::new(), idle }
    }

    /// The backend with this name.
    pub(crate) fn find(&self, name: &UpstreamName) -> Option<Arc<Upstream>> {
        self.all.load().get(name).cloned()
    }

    /// Takes other settings. Upstreams that have not `changed` stay as they are, with what is known of them; requests in
    /// progress end where they began. Names of new ones are looked up before they are used.
    pub(crate) async fn replace(&self, settings: Vec<UpstreamSettings>, changed: impl Fn(&str) -> bool) {
        let before = self.all.load_full();
        let mut all = HashMap::with_capacity(settings.len());
        for one in settings {
            let name = one.name.clone();
            let upstream = match before.get(&name) {
                Some(known) if !changed(name.as_str()) => known.clone(),
                _ => {
                    let upstream = Upstream::new(one, self.idle.clone());
                    if upstream.endpoints.have_names() {
                        upstream.endpoints.look_up().await;
                    }
                    Arc::new(upstream)
                }
            };
            all.insert(name, upstream);
        }
        self.all.store(Arc::new(all));
    }

    /// Looks up the names among the endpoints until each upstream has an address, for at most `wait_max`: where a
    /// gateway starts, names may not be known yet (a container whose network is being made). Names that nobody knows hold
    /// it up for so long and no longer.
    pub(crate) async fn look_up_first(&self, wait_max: Duration) {
        let looking = async {
            while !self.look_up().await {
                tokio::time::sleep(LOOK_UP_SOON).await;
            }
        };
        if tokio::time::timeout(wait_max, looking).await.is_err() {
            let all = self.all();
            let lost = all.iter().filter(|upstream| upstream.endpoints.is_empty());
            let names = lost.map(|upstream| upstream.settings.name.as_str()).collect::<Vec<_>>().join(", ");
            tracing::warn!(upstreams = names, "starting without an address of some upstreams");
        }
    }

    /// Looks up the names among the endpoints every five seconds and closes connections that are idle for long, until
    /// dropped. An address that takes no connections may be that of somebody who has moved, and one that is missing may
    /// be there any moment: then the next look comes sooner.
    pub(crate) async fn keep_looked_up(self: Arc<Self>) {
        let mut complete = is_complete(&self.all());
        loop {
            tokio::time::sleep(LOOK_UP_AGAIN).await;
            if complete {
                let rest = LOOK_UP_EVERY.saturating_sub(LOOK_UP_AGAIN);
                let _ = tokio::time::timeout(rest, self.look_up_now.notified()).await;
            }
            complete = self.look_up().await;
            for upstream in self.all() {
                upstream.endpoints.tidy();
                upstream.settings.transport.reload(&upstream.settings.name).await;
            }
        }
    }

    /// Looks up all names once; whether every upstream has an address then.
    async fn look_up(&self) -> bool {
        let all = self.all();
        let named = all.iter().filter(|upstream| upstream.endpoints.have_names());
        futures_util::future::join_all(named.map(|upstream| upstream.endpoints.look_up())).await;
        is_complete(&all)
    }

    /// An address took no connection.
    pub(crate) fn look_up_now(&self) {
        self.look_up_now.notify_one();
    }

    /// Asks the addresses of those that want it for their health, until dropped; also of those that come with a reload.
    pub(crate) async fn keep_checked(self: Arc<Self>) {
        let mut asking: Vec<(Arc<Upstream>, AbortOnDropHandle<()>)> = Vec::new();
        loop {
            let all = self.all();
            asking.retain(|(known, _)| all.iter().any(|one| Arc::ptr_eq(one, known)));
            for upstream in all.into_iter().filter(|upstream| upstream.settings.health.is_some()) {
                if !asking.iter().any(|(known, _)| Arc::ptr_eq(known, &upstream)) {
                    let task = tokio::spawn(upstream.clone().keep_checked());
                    asking.push((upstream, AbortOnDropHandle::new(task)));
                }
            }
            tokio::time::sleep(RELOADED_WITHIN).await;
        }
    }

    /// Connects once a second to addresses whose last connection failed, until dropped: an upstream that is back counts as
    /// reached before a request tries it.
    pub(crate) async fn keep_probed(self: Arc<Self>) {
        loop {
            tokio::time::sleep(PROBE_EVERY).await;
            let all = self.all();
            futures_util::future::join_all(all.iter().map(|one| one.endpoints.probe(&one.settings))).await;
        }
    }

    /// All of them.
    pub(crate) fn all(&self) -> Vec<Arc<Upstream>> {
        self.all.load().values().cloned().collect()
    }
}

/// Whether every upstream has an address.
fn is_complete(all: &[Arc<Upstream>]) -> bool {
    all.iter().all(|upstream| !upstream.endpoints.is_empty())
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    const WAIT_MAX: Duration = Duration::from_secs(1);

    fn at(endpoint: &str) -> Arc<Upstreams> {
        let settings = UpstreamSettings {
            name: "shop".parse().unwrap(),
            endpoints: vec![endpoint.parse().unwrap()],
            transport: Transport::Plain,
            host: None,
            connect_timeout: Duration::from_secs(1),
            first_byte_timeout: Duration::from_secs(1),
            total_timeout: None,
            in_flight_max: 1,
            shared_connections: false,
            body_bytes_max: 1,
            health: None,
            identity: IdentityForm::None,
            takes_keys: false,
            routes: Vec::new(),
            fields: FieldRules::default(),
            cors: Cors::default(),
            hsts: Hsts::default(),
            error_page: None,
        };
        Arc::new(Upstreams::new([settings], 1))
    }

    /// Whether somebody who starts knows an address of this place when it has been looked for.
    async fn finds(endpoint: &str) -> bool {
        let upstreams = at(endpoint);
        let began = Instant::now();
        upstreams.look_up_first(WAIT_MAX).await;
        let found = !upstreams.find(&"shop".parse().unwrap()).unwrap().endpoints.is_empty();
        assert!(found || began.elapsed() >= WAIT_MAX, "it gave up too soon");
        found
    }

    #[tokio::test]
    async fn a_gateway_waits_for_the_names_of_its_upstreams_and_for_one_that_nobody_knows_not_for_ever() {
        assert!(finds("127.0.0.1:7001").await);
        assert!(finds("localhost:7001").await);
        // A label is empty: the resolver refuses it without asking anybody.
        assert!(!finds("no..such..name:7001").await);
    }
}
