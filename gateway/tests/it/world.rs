//! The world a gateway lives in, in miniature: a control plane, two upstreams, certificates, a clock that stands still,
//! and clients. Everything is on ports of its own, so tests run beside each other.
//!
//! | Host | Project | Access | Upstream |
//! |---|---|---|---|
//! | `DEMO`, `DEMO_TOO` (one tenant, two names of the platform), `SHOP` (own certificate) | `demo`, Pro | key |
//! `orders` |
//! | `OTHER` | `other`, Free | key | `orders` |
//! | `BLOG` | `blog`, Pro | public | `blog` |

pub(crate) mod certificates;
pub(crate) mod client;
pub(crate) mod control;
pub(crate) mod credentials;
pub(crate) mod entities;
pub(crate) mod frames;
pub(crate) mod h2;
pub(crate) mod h2_upstream;
pub(crate) mod observed;
pub(crate) mod process;
pub(crate) mod relay;
pub(crate) mod secure;
pub(crate) mod upstream;
pub(crate) mod visitor;
pub(crate) mod wire;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use chassis::clock::{Clock as _, ManualClock};
use chassis::config::Source;
use chassis::logs::Logs;
use chassis::running::Running;
use chassis::shutdown::Shutdown;
use contract::feed::Entity;
use contract::plan::Plan;
use contract::time::UnixMillis;
use gateway::config::{Config, ENVIRONMENT_PREFIX};
use tempfile::TempDir;

use self::client::{Ask, Client, Reply};
use self::control::ControlPlane;
use self::entities::{TestKey, certificate, project, public, site};
use self::h2::H2;
use self::observed::{Admin, Log};
use self::upstream::Upstream;

pub(crate) const DEMO: &str = "demo.tollhouse.localhost";
pub(crate) const DEMO_TOO: &str = "demo-too.tollhouse.localhost";
pub(crate) const OTHER: &str = "other.tollhouse.localhost";
pub(crate) const BLOG: &str = "blog.tollhouse.localhost";
pub(crate) const SHOP: &str = "shop.example";
/// The path of `listOrders`.
pub(crate) const ORDERS: &str = "/v1/store/orders";

pub(crate) const SEALING_SECRET: &str = "the secret that private keys are sealed with";

/// 2027-01-15T08:00:10Z: ten seconds into a minute, eight hours into a day.
pub(crate) const NOW: i64 = 1_800_000_010;
/// Where the minute of [`NOW`] ends.
pub(crate) const MINUTE_END: i64 = 1_800_000_060;
/// Where the day of [`NOW`] ends.
pub(crate) const DAY_END: i64 = 1_800_057_600;

/// Longer than any step takes; a test that waits this long has failed.
const PATIENCE: Duration = Duration::from_secs(20);

/// The differences between worlds.
pub(crate) struct Setup {
    /// The entities that the control plane publishes.
    pub(crate) entities: Vec<Entity>,
    /// Addresses of the `orders` upstream; empty: the fake one.
    pub(crate) orders_endpoints: Vec<SocketAddr>,
    /// Addresses of the `blog` upstream; empty: the fake one.
    pub(crate) blog_endpoints: Vec<SocketAddr>,
    /// Lines for `[upstreams.orders]`.
    pub(crate) orders: &'static str,
    /// Browser settings of `orders`: lines for the same table.
    pub(crate) browsers: &'static str,
    /// Lines for `[upstreams.blog]`.
    pub(crate) blog: &'static str,
    /// Endpoints of the `blog` upstream as URLs; empty: the addresses.
    pub(crate) blog_urls: Vec<String>,
    /// Tables below `[upstreams.blog]`.
    pub(crate) blog_tables: String,
    /// The fake upstreams speak HTTP/2 without TLS.
    pub(crate) upstreams_of_http2: bool,
    /// The control plane sends no keys until the test does.
    pub(crate) sends_no_keys: bool,
    /// Lines before the first table.
    pub(crate) root: String,
    /// Lines for `[quota]`.
    pub(crate) quota: &'static str,
    /// Where HTTPS is listened for.
    pub(crate) https: &'static str,
    /// Lines for `[listen]`.
    pub(crate) listen: &'static str,
    /// Lines for `[feed]`.
    pub(crate) feed: &'static str,
    /// Lines for `[drain]`.
    pub(crate) drain: &'static str,
    /// The control plane's address refuses connections until the control plane is revived.
    pub(crate) control_plane_is_dead: bool,
    /// Chain and key of the platform's certificate, PEM.
    pub(crate) platform: (String, String),
    /// Where log lines go, when not to the world's own buffer.
    pub(crate) logs: Option<Arc<Logs>>,
}

/// A gateway and its surroundings.
pub(crate) struct World {
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) control: ControlPlane,
    pub(crate) orders: Upstream,
    pub(crate) blog: Upstream,
    /// A key of the `demo` project.
    pub(crate) key: TestKey,
    /// A key of the `other` project.
    pub(crate) other_key: TestKey,
    pub(crate) log: Log,
    pub(crate) http: SocketAddr,
    pub(crate) https: SocketAddr,
    pub(crate) admin: Admin,
    configuration: String,
    logs: Arc<Logs>,
    running: Option<Running>,
    shutdown: Shutdown,
    /// Removed when the world ends.
    directory: TempDir,
}

impl World {
    pub(crate) async fn start() -> Self {
        Self::with(|_| {}).await
    }

    pub(crate) async fn with(change: impl FnOnce(&mut Setup)) -> Self {
        let (key, other_key) = (TestKey::new("demo", 1), TestKey::new("other", 1));
        let mut setup = Setup {
            entities: published(&key, &other_key),
            orders_endpoints: Vec::new(),
            blog_endpoints: Vec::new(),
            orders: "",
            browsers: "cors = \"open\"\nhsts = \"on\"",
            blog: "",
            blog_urls: Vec::new(),
            blog_tables: String::new(),
            upstreams_of_http2: false,
            sends_no_keys: false,
            root: String::new(),
            quota: "",
            https: "127.0.0.1:0",
            listen: "",
            feed: "",
            drain: "lame_duck = \"0s\"\nrequests = \"5s\"",
            control_plane_is_dead: false,
            platform: certificates::platform().clone(),
            logs: None,
        };
        change(&mut setup);
        let fake =
            || async { if setup.upstreams_of_http2 { Upstream::over_http2().await } else { Upstream::start().await } };
        let (orders, blog) = (fake().await, fake().await);
        if setup.orders_endpoints.is_empty() {
            setup.orders_endpoints.push(orders.address);
        }
        if setup.blog_endpoints.is_empty() {
            setup.blog_endpoints.push(blog.address);
        }
        let control = ControlPlane::start(std::mem::take(&mut setup.entities));
        if setup.sends_no_keys {
            control.send_no_keys();
        }
        if setup.control_plane_is_dead {
            control.die().await;
        }
        let directory = tempfile::tempdir().unwrap();
        let configuration = configuration(&setup, &control, &directory);
        let log = Log::default();
        let logs = setup.logs.take().unwrap_or_else(|| Arc::new(Logs::writer_only(log.clone()).unwrap()));
        let clock = Arc::new(ManualClock::at(UnixMillis(NOW * 1_000)));
        let nowhere = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut world = Self {
            clock,
            control,
            orders,
            blog,
            key,
            other_key,
            log,
            http: nowhere,
            https: nowhere,
            admin: Admin(nowhere),
            configuration,
            logs,
            running: None,
            shutdown: Shutdown::new(),
            directory,
        };
        world.run().await;
        if !setup.control_plane_is_dead {
            world.control.applied(1).await;
        }
        world
    }

    /// Starts the gateway, again or for the first time, on its data directory.
    pub(crate) async fn run(&mut self) {
        self.reconfigure(str::to_owned);
        let source = Source::read(Some(&self.settings_file()), ENVIRONMENT_PREFIX).unwrap();
        let config = Config::read(&source).expect("the configuration is good");
        self.shutdown = Shutdown::new();
        let started = gateway::server::start(config, self.logs.clone(), self.clock.clone(), self.shutdown.clone());
        let running = within(started).await.expect("the gateway starts");
        self.http = running.address("http").unwrap();
        self.https = running.address("https").unwrap();
        self.admin = Admin(running.address("admin").unwrap());
        self.running = Some(running);
    }

    /// Waits until the gateway is ready.
    pub(crate) async fn is_ready(&self) {
        eventually("the gateway is ready", async || (self.admin.get("/readyz").await.0 == 200).then_some(())).await;
    }

    /// Atomically replaces the gateway's settings with the result of `change`, as a deployment does.
    pub(crate) fn reconfigure(&self, change: impl FnOnce(&str) -> String) {
        let fresh = self.settings_file().with_extension("new");
        std::fs::write(&fresh, change(&self.configuration)).unwrap();
        std::fs::rename(&fresh, self.settings_file()).unwrap();
    }

    /// Replaces the platform's chain and key.
    pub(crate) fn put_platform_certificate(&self, pair: &(String, String)) {
        certificates::write(self.directory.path(), pair);
    }

    /// A file of the gateway's data directory.
    pub(crate) fn data(&self, name: &str) -> std::path::PathBuf {
        self.directory.path().join("data").join(name)
    }

    pub(crate) fn settings_file(&self) -> std::path::PathBuf {
        self.directory.path().join("gateway.toml")
    }

    /// Announces the end without waiting for it.
    pub(crate) fn begin_stop(&self) {
        self.shutdown.begin();
    }

    /// Waits for the end; returns the gateway's result.
    pub(crate) async fn stopped(&mut self) -> anyhow::Result<()> {
        let running = self.running.take().expect("a running gateway");
        within(running.stopped()).await
    }

    /// Ends a world in a test with several: a gateway left behind would write to deleted files.
    pub(crate) async fn end(mut self) {
        self.begin_stop();
        self.stopped().await.expect("a clean end");
    }

    /// A connection with TLS for this host.
    pub(crate) async fn tls(&self, host: &str) -> Client {
        Client::tls(self.https, host).await
    }

    /// A connection without.
    pub(crate) async fn plain(&self) -> Client {
        Client::plain(self.http).await
    }

    pub(crate) async fn h2(&self, host: &str) -> H2 {
        H2::connect(self.https, host).await
    }

    /// Sends one request on a new TLS connection.
    pub(crate) async fn ask(&self, ask: Ask) -> Reply {
        let name = ask.host.split(':').next().unwrap_or_default().to_owned();
        self.tls(&name).await.ask(&ask).await
    }

    /// Sends one request on a new plain connection.
    pub(crate) async fn ask_plain(&self, ask: Ask) -> Reply {
        self.plain().await.ask(&ask).await
    }

    /// The header of an operator with a pass of the control plane.
    pub(crate) fn operator(&self) -> String {
        format!("Authorization: Bearer {}\r\n", credentials::operator_pass(self.clock.now_seconds()))
    }

    /// `listOrders` with the demo project's key.
    pub(crate) fn list(&self) -> Ask {
        Ask::get(DEMO, ORDERS).key(&self.key.text)
    }

    /// Asserts that no upstream was so much as connected to.
    #[track_caller]
    pub(crate) fn assert_upstreams_untouched(&self) {
        assert_eq!((self.orders.connections(), self.blog.connections()), (0, 0));
    }
}

fn published(key: &TestKey, other_key: &TestKey) -> Vec<Entity> {
    vec![
        Entity::Project(project("demo", Plan::Pro)),
        Entity::Project(project("other", Plan::Free)),
        Entity::Project(public("blog")),
        site(DEMO, "demo"),
        site(DEMO_TOO, "demo"),
        site(OTHER, "other"),
        site(BLOG, "blog"),
        site(SHOP, "demo"),
        certificate(SHOP),
        key.entity(),
        other_key.entity(),
    ]
}

fn configuration(setup: &Setup, control: &ControlPlane, directory: &TempDir) -> String {
    certificates::write(directory.path(), &setup.platform);
    let file = |name: &str| directory.path().join(name);
    let scheme = if setup.upstreams_of_http2 { "h2c://" } else { "" };
    let urls = |all: &[SocketAddr]| all.iter().map(|one| format!("{scheme}{one}")).collect::<Vec<_>>();
    format!(
        r#"
        data_directory = "{data}"
        credential = "{credential}"
        sealing_secret = "{SEALING_SECRET}"
        threads = 1
        {root}
        [listen]
        http = "127.0.0.1:0"
        https = "{https}"
        admin = "127.0.0.1:0"
        {listen}
        [tls]
        platform_certificate_file = "{chain}"
        platform_key_file = "{key}"
        [feed]
        url = "http://{feed}"
        {feed_too}
        [quota]
        {quota}
        [drain]
        {drain}
        [upstreams.orders]
        endpoints = {endpoints:?}
        routes = [
            {{ path = "/v1/store/orders", methods = ["GET"] }},
            {{ path = "/v1/store/orders/{{orderId}}", methods = ["DELETE"] }},
            {{ path = "/v2/orders", methods = ["GET", "POST"], body_bytes_max = 100 }},
        ]
        {browsers}
        {orders}
        [upstreams.blog]
        endpoints = {blog_endpoints:?}
        {blog}
        {blog_tables}
        "#,
        data = file("data").display(),
        root = setup.root,
        https = setup.https,
        credential = credentials::credential(0),
        listen = setup.listen,
        chain = file("platform.pem").display(),
        key = file("platform.key").display(),
        feed = control.address,
        feed_too = setup.feed,
        quota = setup.quota,
        drain = setup.drain,
        endpoints = urls(&setup.orders_endpoints),
        browsers = setup.browsers,
        orders = setup.orders,
        blog_endpoints = if setup.blog_urls.is_empty() { urls(&setup.blog_endpoints) } else { setup.blog_urls.clone() },
        blog = setup.blog,
        blog_tables = setup.blog_tables,
    )
}

/// Waits for `work`, at most [`PATIENCE`].
pub(crate) async fn within<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, work).await.expect("it takes too long")
}

/// Polls until there is a result, at most [`PATIENCE`].
pub(crate) async fn eventually<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let looking = async {
        loop {
            if let Some(seen) = look().await {
                return seen;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, looking).await.unwrap_or_else(|_| panic!("timed out waiting for {what}"))
}
