//! Where requests go: named backends of the configuration, their endpoints, their routes, and how much each may carry.

mod budget;
mod endpoint;
mod health;
mod route;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use contract::project::UpstreamName;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::task::AbortOnDropHandle;

pub use budget::RetryBudget;
pub use endpoint::{Endpoint, Endpoints, Place};
pub use health::HealthCheck;
pub use route::{Route, RouteError, RouteTable};

/// How often the names among endpoints are looked up.
const LOOK_UP_EVERY: Duration = Duration::from_secs(5);

/// How soon the health of upstreams that came with a reload is asked for.
const RELOADED_WITHIN: Duration = Duration::from_secs(1);

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

    async fn keep_checked(self: Arc<Self>) {
        let Some(check) = &self.settings.health else { return };
        loop {
            self.endpoints.check(check).await;
            tokio::time::sleep(check.every).await;
        }
    }

    /// Requests in progress.
    pub fn in_flight(&self) -> usize {
        self.settings.in_flight_max.saturating_sub(self.places.available_permits())
    }
}

/// All backends.
#[derive(Debug)]
pub struct Upstreams(ArcSwap<HashMap<UpstreamName, Arc<Upstream>>>);

impl Upstreams {
    /// From the configuration.
    pub fn new(settings: impl IntoIterator<Item = UpstreamSettings>) -> Self {
        let all = settings.into_iter().map(|one| (one.name.clone(), Arc::new(Upstream::new(one)))).collect();
        Self(ArcSwap::from_pointee(all))
    }

    /// The backend with this name.
    pub fn find(&self, name: &UpstreamName) -> Option<Arc<Upstream>> {
        self.0.load().get(name).cloned()
    }

    /// Takes other settings. Upstreams that have not `changed` stay as they are, with what is known of them; requests in
    /// progress end where they began. Names of new ones are looked up before they are used.
    pub async fn replace(&self, settings: Vec<UpstreamSettings>, changed: impl Fn(&str) -> bool) {
        let before = self.0.load_full();
        let mut all = HashMap::with_capacity(settings.len());
        for one in settings {
            let name = one.name.clone();
            let upstream = match before.get(&name) {
                Some(known) if !changed(name.as_str()) => known.clone(),
                _ => {
                    let upstream = Upstream::new(one);
                    if upstream.endpoints.have_names() {
                        upstream.endpoints.look_up().await;
                    }
                    Arc::new(upstream)
                }
            };
            all.insert(name, upstream);
        }
        self.0.store(Arc::new(all));
    }

    /// Looks up the names among the endpoints, now and every five seconds, until dropped.
    pub async fn keep_looked_up(self: Arc<Self>) {
        loop {
            for upstream in self.all().into_iter().filter(|upstream| upstream.endpoints.have_names()) {
                upstream.endpoints.look_up().await;
            }
            tokio::time::sleep(LOOK_UP_EVERY).await;
        }
    }

    /// Asks the addresses of those that want it for their health, until dropped; also of those that come with a reload.
    pub async fn keep_checked(self: Arc<Self>) {
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

    /// All of them.
    pub fn all(&self) -> Vec<Arc<Upstream>> {
        self.0.load().values().cloned().collect()
    }
}
