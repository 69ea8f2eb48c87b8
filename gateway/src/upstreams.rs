//! Where requests go: named backends of the configuration, their endpoints, their routes, and how much each may carry.

mod budget;
mod endpoint;
mod health;
mod route;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use contract::project::UpstreamName;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

pub use budget::RetryBudget;
pub use endpoint::{Endpoint, Endpoints, Place};
pub use health::HealthCheck;
pub use route::{Route, RouteError, RouteTable};

/// How often the names among endpoints are looked up.
const LOOK_UP_EVERY: Duration = Duration::from_secs(5);

/// One backend as configured.
#[derive(Clone, Debug)]
pub struct UpstreamSettings {
    /// Its name.
    pub name: UpstreamName,
    /// Where it answers, at least one place.
    pub endpoints: Vec<Place>,
    /// Time to connect.
    pub connect_timeout: Duration,
    /// Time to the first byte of the response, and between two reads.
    pub first_byte_timeout: Duration,
    /// Time for a request as a whole, from its first byte to the last of its response; `None`: as long as both sides
    /// keep their pace.
    pub total_timeout: Option<Duration>,
    /// Requests in progress at once; the next is refused with 503 `overloaded`.
    pub in_flight_max: usize,
    /// The largest request body in bytes, for routes that do not say.
    pub body_bytes_max: u64,
    /// How its addresses are asked for their health; `None`: requests alone find out.
    pub health: Option<HealthCheck>,
    /// Which paths and methods exist; empty: every path and method.
    pub routes: Vec<Route>,
}

/// One backend at work.
#[derive(Debug)]
pub struct Upstream {
    /// As configured.
    pub settings: UpstreamSettings,
    /// Its addresses and what we know of them.
    pub endpoints: Endpoints,
    /// Its paths.
    pub routes: RouteTable,
    /// How many requests may be sent a second time.
    pub retries: RetryBudget,
    places: Arc<Semaphore>,
}

impl Upstream {
    fn new(settings: UpstreamSettings) -> Self {
        Self {
            endpoints: Endpoints::new(&settings.endpoints),
            routes: RouteTable::new(settings.routes.clone()),
            retries: RetryBudget::default(),
            places: Arc::new(Semaphore::new(settings.in_flight_max)),
            settings,
        }
    }

    /// A place among the requests in progress; `None` when all are taken.
    pub fn enter(&self) -> Option<OwnedSemaphorePermit> {
        self.places.clone().try_acquire_owned().ok()
    }

    /// Requests in progress.
    pub fn in_flight(&self) -> usize {
        self.settings.in_flight_max.saturating_sub(self.places.available_permits())
    }
}

/// All backends.
#[derive(Debug)]
pub struct Upstreams(HashMap<UpstreamName, Arc<Upstream>>);

impl Upstreams {
    /// From the configuration.
    pub fn new(settings: impl IntoIterator<Item = UpstreamSettings>) -> Self {
        Self(settings.into_iter().map(|one| (one.name.clone(), Arc::new(Upstream::new(one)))).collect())
    }

    /// The backend with this name.
    pub fn find(&self, name: &UpstreamName) -> Option<&Arc<Upstream>> {
        self.0.get(name)
    }

    /// Looks up the names among the endpoints, now and every five seconds, until dropped.
    pub async fn keep_looked_up(self: Arc<Self>) {
        if !self.iter().any(|upstream| upstream.endpoints.have_names()) {
            return;
        }
        loop {
            for upstream in self.iter().filter(|upstream| upstream.endpoints.have_names()) {
                upstream.endpoints.look_up().await;
            }
            tokio::time::sleep(LOOK_UP_EVERY).await;
        }
    }

    /// Asks the addresses of those that want it for their health, until dropped.
    pub async fn keep_checked(self: Arc<Self>) {
        let checks = self.iter().filter_map(|upstream| Some((upstream, upstream.settings.health.as_ref()?)));
        let asking = checks.map(|(upstream, check)| async move {
            loop {
                upstream.endpoints.check(check).await;
                tokio::time::sleep(check.every).await;
            }
        });
        futures_util::future::join_all(asking).await;
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Upstream>> {
        self.0.values()
    }
}
