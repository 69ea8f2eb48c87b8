//! A deployment of several processes: a control plane, an orders-service, and several gateways, each with its own
//! settings, from the libraries of the programs. With PostgreSQL, each gateway has its own control plane and
//! orders-service.

#[path = "../../chassis/tests/support/postgres.rs"]
pub(crate) mod postgres;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::process::Command;
use std::sync::Arc;

use chassis::clock::{Clock as _, SystemClock};
use chassis::config::Source;
use chassis::guard::{operator_token, pass, pass_key};
use chassis::logs::Logs;
use chassis::running::Running;
use chassis::secret::Secret;
use chassis::shutdown::Shutdown;
use contract::trust::{ORDERS_SERVICE, PassFor};
use reqwest::{Client, Method, RequestBuilder};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::world::{ThisMachine, tollhouse, until};

/// The platform domain of every deployment; deployments differ by their ports.
const DOMAIN: &str = "tollhouse.localhost";

/// The running deployment. Dropping it ends its processes.
pub(crate) struct Deployment {
    controls: Vec<SocketAddr>,
    orders: Vec<SocketAddr>,
    gateways: Vec<Edge>,
    secret: Secret,
    services: Vec<Services>,
    pub(crate) directory: TempDir,
}

impl Drop for Deployment {
    fn drop(&mut self) {
        self.gateways.iter().for_each(|gateway| gateway.end.begin());
        self.services.iter().for_each(|services| services.end.begin());
    }
}

/// A gateway of the deployment.
struct Edge {
    settings: String,
    end: Shutdown,
    running: Running,
}

impl Edge {
    async fn start(text: String) -> Self {
        let config = gateway::config::Config::read(&settings(&text)).unwrap();
        let (logs, clock, end) =
            (Arc::new(Logs::writer_only(std::io::sink()).unwrap()), Arc::new(SystemClock::new()), Shutdown::new());
        let running = gateway::server::start(config, logs, clock, end.clone()).await.unwrap();
        Self { settings: text, end, running }
    }

    fn port(&self) -> u16 {
        self.running.address("https").unwrap().port()
    }
}

/// A control plane and an orders-service, which can be stopped and started again at the same addresses.
struct Services {
    /// Settings of both, without addresses.
    settings: [String; 2],
    end: Shutdown,
    running: Option<[Running; 2]>,
}

impl Services {
    /// Starts both. `at` has the addresses of an earlier start.
    async fn begin(&mut self, at: Option<[Addresses; 2]>) {
        let clock = Arc::new(SystemClock::new());
        self.end = Shutdown::new();
        let [domains_at, orders_at] = at.unwrap_or_default().map(|at| at.settings());
        let domains = settings(&format!("{domains_at}{}", self.settings[0]));
        let domains = domains_service::Config::read(&domains).unwrap();
        let domains = domains_service::start(domains, clock.clone(), self.end.clone()).await.unwrap();
        let control = domains.address("internal").unwrap();
        let events = format!("[events]\nurl = \"http://{control}\"\n");
        let orders = settings(&format!("{orders_at}{}{events}", self.settings[1]));
        let orders = orders_service::Config::read(&orders).unwrap();
        let orders = orders_service::start(orders, clock, self.end.clone()).await.unwrap();
        self.running = Some([domains, orders]);
    }

    fn running(&self) -> &[Running; 2] {
        self.running.as_ref().unwrap()
    }

    /// Stops both cleanly; returns their addresses.
    async fn end(&mut self) -> [Addresses; 2] {
        self.end.begin();
        let running = self.running.take().unwrap();
        let at = [Addresses::of(&running[0]), Addresses::of(&running[1])];
        for service in running {
            service.stopped().await.unwrap();
        }
        at
    }
}

/// The address of a service; any free port at first.
struct Addresses([SocketAddr; 3]);

const LISTENERS: [&str; 3] = ["http", "internal", "admin"];

impl Addresses {
    fn of(running: &Running) -> Self {
        Self(LISTENERS.map(|name| running.address(name).unwrap()))
    }

    fn settings(&self) -> String {
        let [http, internal, admin] = self.0;
        format!("listen = \"{http}\"\ninternal_listen = \"{internal}\"\nadmin_listen = \"{admin}\"\n")
    }
}

impl Default for Addresses {
    fn default() -> Self {
        Self([SocketAddr::from(([127, 0, 0, 1], 0)); 3])
    }
}

fn settings(text: &str) -> Source {
    Source::from_text("settings of a test", text, "DEPLOYMENT", BTreeMap::new())
}

/// The name of a gateway's credential.
fn on_record(gateway: usize) -> String {
    format!("gateway-{}", gateway + 1)
}

/// The credential of a gateway, below the directory of the deployment.
fn credential(gateway: usize) -> String {
    format!("secrets/gateways/{}.key", on_record(gateway))
}

impl Deployment {
    /// A deployment of an environment (`live` or `test`), with this number of gateways.
    pub(crate) async fn start(environment: &str, gateways: usize) -> Self {
        Self::start_with(environment, gateways, "").await
    }

    /// Like [`Deployment::start`], with additional settings for gateways.
    pub(crate) async fn start_with(environment: &str, gateways: usize, more: &str) -> Self {
        Self::in_files(tempfile::tempdir().unwrap(), environment, (gateways, more)).await
    }

    async fn in_files(directory: TempDir, environment: &str, gateways: (usize, &str)) -> Self {
        let store = |name: &str| format!("database = \"{}\"\n", directory.path().join(name).display());
        let (domains, orders) = (store("domains.sqlite"), store("orders.sqlite"));
        Self::over(directory, environment, gateways, 1, &domains, &orders).await
    }

    /// A deployment with several replicas over one PostgreSQL server; each gateway has its own services.
    pub(crate) async fn of_replicas(replicas: usize) -> Self {
        let server = postgres::Server::shared();
        let store = || format!("[store]\nkind = \"postgres\"\nurl = \"{}\"\nconnections = 5\n", server.database());
        let (domains, orders) = (store(), store());
        Self::over(tempfile::tempdir().unwrap(), "live", (replicas, ""), replicas, &domains, &orders).await
    }

    /// A deployment with one replica, over these databases of a PostgreSQL server.
    pub(crate) async fn over_databases(domains: &str, orders: &str) -> Self {
        let store = |url: &str| format!("[store]\nkind = \"postgres\"\nurl = \"{url}\"\nconnections = 5\n");
        Self::over(tempfile::tempdir().unwrap(), "live", (1, ""), 1, &store(domains), &store(orders)).await
    }

    /// Stops a deployment and starts one of another environment with its databases and secrets.
    pub(crate) async fn copy(mut original: Self, environment: &str) -> Self {
        for services in &mut original.services {
            services.end().await;
        }
        let directory = tempfile::tempdir().unwrap();
        for part in ["secrets", "ca", "domains.sqlite", "orders.sqlite"] {
            let from = original.directory.path().join(part);
            assert!(Command::new("cp").arg("-r").arg(from).arg(directory.path()).status().unwrap().success(), "{part}");
        }
        Self::in_files(directory, environment, (1, "")).await
    }

    /// Stops the services but not the gateways, runs `job`, and starts the services again at the same addresses.
    pub(crate) async fn while_services_are_down(&mut self, job: impl AsyncFnOnce(&Self)) {
        let mut services = std::mem::take(&mut self.services);
        let mut places = Vec::new();
        for services in &mut services {
            places.push(services.end().await);
        }
        job(self).await;
        for (services, at) in services.iter_mut().zip(places) {
            services.begin(Some(at)).await;
        }
        self.services = services;
    }

    async fn over(
        directory: TempDir,
        environment: &str,
        (gateways, more): (usize, &str),
        replicas: usize,
        domains_store: &str,
        orders_store: &str,
    ) -> Self {
        let made = tollhouse().args(["init", "--data-dir"]).arg(directory.path()).output().unwrap();
        assert!(made.status.success(), "{made:?}");
        let path = |name: &str| directory.path().join(name).display().to_string();
        for number in 0..gateways {
            Secret::load_or_create(&directory.path().join(credential(number))).unwrap();
        }
        let common = format!("environment = \"{environment}\"\n");
        let mut services = Vec::new();
        for _ in 0..replicas {
            let domains = format!(
                "{common}create_database = true\nsecret_file = \"{}\"\nsealing_secret_file = \"{}\"\ngateways_directory = \"{}\"\n\
                 services_directory = \"{}\"\nrevocations_file = \"{}\"\nplatform_domain = \"{DOMAIN}\"\nallow_local_names = true\n\
                 {domains_store}[local_authority]\nca_certificate_file = \"{}\"\nca_key_file = \"{}\"\n",
                path("secrets/platform.key"),
                path("secrets/sealing.key"),
                path("secrets/gateways"),
                path("secrets/services"),
                path("revoked.jsonl"),
                path("ca/ca.pem"),
                path("ca/ca.key"),
            );
            let orders = format!(
                "{common}create_database = true\ncredential_file = \"{}\"\n{orders_store}[identity]\ntrust_file = \"{}\"\n",
                path("secrets/services/orders-service.key"),
                path("orders-trust.json"),
            );
            let mut both = Services { settings: [domains, orders], end: Shutdown::new(), running: None };
            both.begin(None).await;
            services.push(both);
        }
        let mut edges = Vec::new();
        for number in 0..gateways {
            let settings = edge(&common, &path, number, services[number % replicas].running());
            edges.push(Edge::start(settings + more).await);
        }
        let secret = Secret::load_or_create(&directory.path().join("secrets/platform.key")).unwrap();
        let internal = |service: usize| {
            services.iter().map(|both| both.running()[service].address("internal").unwrap()).collect::<Vec<_>>()
        };
        let (controls, orders) = (internal(0), internal(1));
        Self { controls, orders, gateways: edges, secret, services, directory }
    }

    /// Stops a gateway in order, and starts it again with its data directory, at another port.
    pub(crate) async fn restart_gateway(&mut self, number: usize) {
        let Edge { settings, end, running } = self.gateways.remove(number);
        end.begin();
        running.stopped().await.unwrap();
        self.gateways.insert(number, Edge::start(settings).await);
        until("the gateway is ready", async || self.admin(number, "/status").await["ready"] == true).await;
    }

    /// The response of a gateway's admin listener at a path.
    pub(crate) async fn admin(&self, gateway: usize, path: &str) -> Value {
        self.at_admin(gateway, Method::GET, path).await
    }

    /// Makes a gateway accept the control plane's data; returns the changes.
    pub(crate) async fn accept(&self, gateway: usize) -> Value {
        self.at_admin(gateway, Method::POST, "/replica/accept").await;
        let mut said = Value::Null;
        until("the snapshot is taken", async || {
            said = self.admin(gateway, "/replica/accept").await;
            said["state"] == "taken"
        })
        .await;
        said
    }

    /// Whether the admin listener of a gateway accepts a pass.
    pub(crate) async fn admin_opens(&self, gateway: usize, pass: &str) -> bool {
        let address = self.gateways[gateway].running.address("admin").unwrap();
        Client::new().get(format!("http://{address}/changes")).bearer_auth(pass).send().await.unwrap().status() == 200
    }

    /// The address of a listener of the first control plane (`domains`) or orders-service (`orders`).
    pub(crate) fn service(&self, name: &str, listener: &str) -> SocketAddr {
        self.services[0].running()[usize::from(name == "orders")].address(listener).unwrap()
    }

    async fn at_admin(&self, gateway: usize, method: Method, path: &str) -> Value {
        let address = self.gateways[gateway].running.address("admin").unwrap();
        let pass = self.pass(&PassFor::gateway(&on_record(gateway)));
        let request = Client::new().request(method, format!("http://{address}{path}")).bearer_auth(pass);
        request.send().await.unwrap().json().await.unwrap()
    }

    /// The HTTPS address of a gateway.
    pub(crate) fn port(&self, gateway: usize) -> u16 {
        self.gateways[gateway].port()
    }

    /// A pass of an operator for this listener.
    pub(crate) fn pass(&self, to: &PassFor) -> String {
        pass(&pass_key(&self.secret).unwrap(), to, SystemClock::new().now_seconds())
    }

    /// A request of an operator to one of the control planes.
    pub(crate) fn control(&self, replica: usize, method: Method, path: &str) -> RequestBuilder {
        let url = format!("http://{}/internal{path}", self.controls[replica]);
        Client::new().request(method, url).bearer_auth(operator_token(&self.secret).to_token().as_str())
    }

    /// A project with a large quota and these orders, and its key with all scopes, which every gateway knows.
    pub(crate) async fn project(&self, id: &str, orders: String) -> String {
        let limits = json!({ "per_minute": 1_000_000, "per_day": 100_000_000 });
        let project = json!({ "id": id, "plan": "enterprise", "limits": limits, "upstream": "orders" });
        let made = self.control(0, Method::POST, "/projects").json(&project).send().await.unwrap();
        assert_eq!(made.status(), 201);
        let made: Value = made.json().await.unwrap();
        let uid = made["uid"].as_str().unwrap();
        self.control(0, Method::POST, &format!("/projects/{id}/deploy")).send().await.unwrap();
        let key = self.key(id).await;
        let import = Client::new().post(format!("http://{}/internal/orders/{uid}/import", self.orders[0]));
        let imported =
            import.bearer_auth(self.pass(&PassFor::service(ORDERS_SERVICE))).body(orders).send().await.unwrap();
        assert_eq!(imported.status(), 200, "{}", imported.text().await.unwrap());
        let client = self.client();
        for gateway in 0..self.gateways.len() {
            until("the gateway knows the project", async || {
                let pets = self.request(&client, gateway, Method::GET, id, "/v1/pets/0").bearer_auth(&key).send();
                pets.await.is_ok_and(|answer| answer.status() == 404 || answer.status() == 200)
            })
            .await;
        }
        key
    }

    /// A new key of a project, to list and cancel.
    pub(crate) async fn key(&self, project: &str) -> String {
        let key = json!({ "label": "test", "scopes": ["orders:read", "orders:write"] });
        let keys = self.control(0, Method::POST, &format!("/projects/{project}/keys"));
        let key = keys.json(&key).send().await.unwrap().json::<Value>().await.unwrap();
        key["key"].as_str().unwrap().to_owned()
    }

    /// A client that trusts this deployment's authority. Each client has its own connections.
    pub(crate) fn client(&self) -> Client {
        let root = std::fs::read(self.directory.path().join("ca/ca.pem")).unwrap();
        let root = reqwest::Certificate::from_pem(&root).unwrap();
        Client::builder().tls_certs_only([root]).no_proxy().dns_resolver(ThisMachine).build().unwrap()
    }

    /// A request without a key to a project's host, through a gateway.
    pub(crate) fn request(
        &self,
        client: &Client,
        gateway: usize,
        method: Method,
        project: &str,
        path: &str,
    ) -> RequestBuilder {
        self.request_to(client, gateway, method, &format!("{project}.{DOMAIN}"), path)
    }

    /// The same for any host.
    pub(crate) fn request_to(
        &self,
        client: &Client,
        gateway: usize,
        method: Method,
        host: &str,
        path: &str,
    ) -> RequestBuilder {
        let port = self.port(gateway);
        client.request(method, format!("https://{host}:{port}{path}"))
    }
}

fn edge(common: &str, path: &dyn Fn(&str) -> String, number: usize, [domains, orders]: &[Running; 2]) -> String {
    let shipped: toml_edit::DocumentMut = include_str!("../../config/gateway.toml").parse().unwrap();
    let routes = shipped["upstreams"]["orders"]["routes"].to_string();
    format!(
        "{common}credential_file = \"{credential}\"\nsealing_secret_file = \"{sealing}\"\ndata_directory = \"{data}\"\n\
         [listen]\nhttp = \"127.0.0.1:0\"\nhttps = \"127.0.0.1:0\"\nadmin = \"127.0.0.1:0\"\n\
         [tls]\nplatform_certificate_file = \"{certificate}\"\nplatform_key_file = \"{key}\"\n\
         [feed]\nurl = \"http://{control}\"\n[drain]\nlame_duck = \"0s\"\n\
         [upstreams.orders]\nendpoints = [\"{orders}\"]\nroutes = {routes}\n\
         [upstreams.domains]\nendpoints = [\"{api}\"]\n",
        credential = path(&credential(number)),
        sealing = path("secrets/sealing.key"),
        data = path(&format!("gateway-{number}")),
        certificate = path("ca/platform.pem"),
        key = path("ca/platform.key"),
        control = domains.address("internal").unwrap(),
        orders = orders.address("http").unwrap(),
        routes = routes.trim(),
        api = domains.address("http").unwrap(),
    )
}
