//! The upstreams: named services of the configuration, with their endpoints, routes, connections and limits.

mod address;
mod host_port;
mod budget;
mod cors;
mod error_page;
pub mod fields;
mod route;
mod tls;
mod stream;
mod pool;
mod bulkhead;
mod endpoint;
mod endpoints;
mod transport;
mod dial;
mod health;
pub mod fuzzing;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use chassis::shutdown::Shutdown;
use chassis::supervise::Supervisor;
use contract::project::UpstreamName;
use http::HeaderValue;
use tokio::sync::{Notify, Semaphore};
use tokio_util::task::AbortOnDropHandle;

pub use address::EndpointAddress;
pub use budget::RetryBudget;
pub use bulkhead::{Bulkhead, Busy, Permit};
pub use cors::{AllowedOrigin, Cors, Hsts, Origin};
pub use dial::{ConnectError, UpstreamConnection, connect};
pub use endpoint::Endpoint;
pub use endpoints::Endpoints;
pub use error_page::ErrorPage;
pub use health::{HealthCheck, Question};
pub use host_port::{EndpointUrl, HostPort, Scheme};
pub use pool::http1::announces_body;
pub use pool::http2::StreamPermit;
pub use pool::{ConnectionLimits, Lifetime, PoolKey, Requirements, Tenant};
pub use route::{AnnouncedBody, Route, RouteError, RouteTable};
pub use stream::{DialError, DialFailure, Stream};
pub use tls::{KeyPin, Tls, TlsSettings, reason as tls_reason};
pub use transport::Transport;

use self::fields::FieldRules;

/// How often the names of endpoints are looked up.
const LOOK_UP_EVERY: Duration = Duration::from_secs(5);

/// How often names are looked up while an upstream has no address, or one of its addresses accepts no connections.
const LOOK_UP_AGAIN: Duration = Duration::from_secs(1);

/// How often names are looked up while a starting gateway waits for addresses.
const LOOK_UP_SOON: Duration = Duration::from_millis(200);

/// How soon the health checks of reloaded upstreams begin.
const RELOADED_WITHIN: Duration = Duration::from_secs(1);

contract::words! {
    /// How an upstream learns who is calling, besides the unsigned `X-Tollhouse-…` fields.
    pub enum IdentityForm {
        /// Not at all.
        None = "none",
        /// A signed token, which it verifies with public keys.
        Jwt = "jwt",
    }
}

/// One upstream as configured.
#[derive(Clone, Debug)]
pub struct UpstreamSettings {
    /// Its name.
    pub name: UpstreamName,
    /// Its addresses, Unix sockets, or names with ports, at least one.
    pub endpoints: Vec<HostPort>,
    /// The protocol.
    pub transport: Transport,
    /// The host in its requests; `None`: the host of the client's request.
    pub host: Option<HeaderValue>,
    /// Time to connect, including the TLS handshake.
    pub connect_timeout: Duration,
    /// Time to the first byte of the response, and between two reads.
    pub first_byte_timeout: Duration,
    /// Time for a whole request, from its first byte to the last of its response; `None`: unlimited while both sides
    /// keep the minimum rate.
    pub total_timeout: Option<Duration>,
    /// Requests in progress at once, 1 to a million; further ones are refused with 503 `overloaded`. One project gets
    /// at most seven eighths of them, and one visitor of its site three quarters of those.
    pub in_flight_max: u32,
    /// The limits of its WebSockets.
    pub websockets: WebSocketLimits,
    /// How long its connections are used.
    pub connections: ConnectionLimits,
    /// Whether requests of several tenants may share a connection: only for upstreams that never send bytes after a
    /// complete response.
    pub shared_connections: bool,
    /// Calls of gRPC-Web are translated to gRPC.
    pub grpc_web: bool,
    /// The largest request body in bytes, for routes without a limit.
    pub body_bytes_max: u64,
    /// Health checks of its addresses; `None`: only requests find failures.
    pub health: Option<HealthCheck>,
    /// How it learns who is calling.
    pub identity: IdentityForm,
    /// Whether it gets the presented API key: only the control plane does, because it looks keys up itself.
    pub takes_keys: bool,
    /// Its paths and methods; empty: every path and method.
    pub routes: Vec<Route>,
    /// The request fields that reach it.
    pub fields: FieldRules,
    /// Who answers browsers on pages of other origins.
    pub cors: Cors,
    /// Who sends `Strict-Transport-Security`.
    pub hsts: Hsts,
    /// The page that visitors of its sites see for a refusal; `None`: the gateway's page.
    pub error_page: Option<ErrorPage>,
}

/// The limits of the WebSockets of an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WebSocketLimits {
    /// How many are open at once, 1 to a million. Projects and visitors have shares as of `in_flight_max`, in which
    /// WebSockets are not counted.
    pub max: u32,
    /// One without a byte in either direction for this long is ended.
    pub idle_timeout: Duration,
}

/// One upstream in use.
#[derive(Debug)]
pub struct Upstream {
    /// As configured.
    pub settings: UpstreamSettings,
    /// Its addresses and their state.
    pub endpoints: Endpoints,
    /// Its paths.
    pub routes: RouteTable,
    /// The budget of retries.
    pub retries: RetryBudget,
    bulkhead: Arc<Bulkhead>,
    websockets: Arc<Bulkhead>,
}

impl Upstream {
    fn new(settings: UpstreamSettings, idle: Arc<Semaphore>) -> Self {
        settings.transport.warn_if_insecure(&settings.name);
        let by_name = settings.transport.tls().is_some();
        let bulkhead = Bulkhead::new(settings.in_flight_max);
        let websockets = Arc::new(bulkhead.beside(settings.websockets.max));
        Self {
            endpoints: Endpoints::new(&settings.endpoints, settings.connections, idle, by_name),
            routes: RouteTable::new(settings.routes.clone()),
            retries: RetryBudget::default(),
            bulkhead: Arc::new(bulkhead),
            websockets,
            settings,
        }
    }

    /// The permits of its requests, or of its WebSockets.
    pub fn permits(&self, is_websocket: bool) -> &Arc<Bulkhead> {
        if is_websocket { &self.websockets } else { &self.bulkhead }
    }

    /// The tenant whose connections a request with this permit may use.
    pub fn tenant(&self, permit: &Permit) -> Tenant {
        if self.settings.shared_connections { Tenant::default() } else { permit.tenant() }
    }

    /// How many idle connections it may have: with those in use at most `in_flight_max`.
    pub fn idle_max(&self) -> usize {
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
    pub fn in_flight(&self) -> u32 {
        self.bulkhead.taken()
    }

    /// Open WebSockets, including those whose handshake is in progress.
    pub fn websockets(&self) -> u32 {
        self.websockets.taken()
    }
}

/// All upstreams.
#[derive(Debug)]
pub struct Upstreams {
    all: ArcSwap<HashMap<UpstreamName, Arc<Upstream>>>,
    look_up_now: Notify,
    /// Permits for connections that wait for a request.
    idle: Arc<Semaphore>,
}

impl Upstreams {
    /// Builds the upstreams of the configuration. Together they keep at most `idle_max` idle connections.
    pub fn new(settings: impl IntoIterator<Item = UpstreamSettings>, idle_max: usize) -> Self {
        let idle = Arc::new(Semaphore::new(idle_max.min(Semaphore::MAX_PERMITS)));
        let new = |one: UpstreamSettings| (one.name.clone(), Arc::new(Upstream::new(one, idle.clone())));
        let all = settings.into_iter().map(new).collect();
        Self { all: ArcSwap::from_pointee(all), look_up_now: Notify::new(), idle }
    }

    /// The upstream with this name.
    pub fn find(&self, name: &UpstreamName) -> Option<Arc<Upstream>> {
        self.all.load().get(name).cloned()
    }

    /// The names of all upstreams.
    pub fn names(&self) -> Vec<UpstreamName> {
        self.all.load().keys().cloned().collect()
    }

    /// Takes new settings. Upstreams that have not `changed` keep their state; requests in progress end with the
    /// upstream that they began with. Names of new ones are looked up before they are used.
    pub async fn replace(&self, settings: Vec<UpstreamSettings>, changed: impl Fn(&str) -> bool) {
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

    /// Looks up the names of endpoints until each upstream has an address, for at most `wait_max`: when a gateway
    /// starts, the network of its container may not know all names yet.
    pub async fn look_up_first(&self, wait_max: Duration) {
        let looking = async {
            while !self.look_up().await {
                tokio::time::sleep(LOOK_UP_SOON).await;
            }
        };
        if tokio::time::timeout(wait_max, looking).await.is_err() {
            let all = self.all();
            let lost = all.iter().filter(|upstream| upstream.endpoints.is_empty());
            let names = lost.map(|upstream| upstream.settings.name.as_str()).collect::<Vec<_>>().join(", ");
            tracing::warn!(
                upstreams = names,
                "cannot resolve these upstreams; starting without them. Their projects get 503 until DNS has their \
                 names"
            );
        }
    }

    /// Looks up the names of endpoints every five seconds and closes connections that were idle for too long, until
    /// dropped. It looks up sooner if an address accepts no connections, because the name may have a new address, and
    /// if an upstream has no address.
    pub async fn keep_looked_up(self: Arc<Self>) {
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

    /// Looks up all names once; returns whether every upstream has an address then.
    async fn look_up(&self) -> bool {
        let all = self.all();
        let named = all.iter().filter(|upstream| upstream.endpoints.have_names());
        futures_util::future::join_all(named.map(|upstream| upstream.endpoints.look_up())).await;
        is_complete(&all)
    }

    /// An address accepted no connection: looks up names soon.
    pub fn look_up_now(&self) {
        self.look_up_now.notify_one();
    }

    /// Runs the configured health checks until dropped, also those of reloaded upstreams. A panic of one upstream's
    /// checks restarts these alone.
    pub async fn keep_checked(self: Arc<Self>, tasks: Supervisor) {
        let mut checking: Vec<(Arc<Upstream>, AbortOnDropHandle<()>)> = Vec::new();
        loop {
            let all = self.all();
            checking.retain(|(known, _)| all.iter().any(|one| Arc::ptr_eq(one, known)));
            for upstream in all.into_iter().filter(|upstream| upstream.settings.health.is_some()) {
                if !checking.iter().any(|(known, _)| Arc::ptr_eq(known, &upstream)) {
                    let check = |upstream: Arc<Upstream>, _| upstream.keep_checked();
                    let task = tasks.spawn("health_checks", &Shutdown::new(), upstream.clone(), check);
                    checking.push((upstream, AbortOnDropHandle::new(task)));
                }
            }
            tokio::time::sleep(RELOADED_WITHIN).await;
        }
    }

    /// Connects once a second to addresses whose last connection failed, until dropped, so that an upstream that works
    /// again is found before a request tries it.
    pub async fn keep_probed(self: Arc<Self>) {
        health::keep_probed(&self).await;
    }

    /// All upstreams.
    pub fn all(&self) -> Vec<Arc<Upstream>> {
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
            websockets: WebSocketLimits { max: 1, idle_timeout: Duration::from_secs(1) },
            connections: ConnectionLimits { age: Duration::from_secs(1), requests: 1 },
            shared_connections: false,
            grpc_web: false,
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

    /// Whether a starting gateway finds an address of this endpoint.
    async fn finds(endpoint: &str) -> bool {
        let upstreams = at(endpoint);
        let began = Instant::now();
        upstreams.look_up_first(WAIT_MAX).await;
        let found = !upstreams.find(&"shop".parse().unwrap()).unwrap().endpoints.is_empty();
        assert!(found || began.elapsed() >= WAIT_MAX, "it gave up too soon");
        found
    }

    #[tokio::test]
    async fn a_starting_gateway_waits_for_names_of_upstreams_for_a_limited_time() {
        assert!(finds("127.0.0.1:7001").await);
        assert!(finds("localhost:7001").await);
        // A label is empty: the resolver refuses it without a query.
        assert!(!finds("no..such..name:7001").await);
    }
}
