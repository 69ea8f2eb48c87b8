//! A deployment as operators have it: a control plane, a service of orders, and so many gateways over both, each part
//! with settings of its own, out of the same libraries as the programs. Or, over PostgreSQL, a control plane and a
//! service of orders for each gateway.

#[path = "../../../chassis/tests/support/postgres.rs"]
pub(crate) mod postgres;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use chassis::clock::SystemClock;
use chassis::config::Source;
use chassis::guard::operator_token;
use chassis::logs::Logs;
use chassis::running::Running;
use chassis::secret::Secret;
use chassis::shutdown::Shutdown;
use reqwest::{Client, Method, RequestBuilder};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::world::{ThisMachine, tollhouse, until};

/// The platform's domain of every deployment: only ports set them apart.
const DOMAIN: &str = "tollhouse.localhost";

/// See the module. Dropping it ends its parts.
pub(crate) struct Deployment {
    controls: Vec<SocketAddr>,
    orders: Vec<SocketAddr>,
    gateways: Vec<SocketAddr>,
    secret: Secret,
    end: Shutdown,
    directory: TempDir,
}

impl Drop for Deployment {
    fn drop(&mut self) {
        self.end.begin();
    }
}

fn settings(text: &str) -> Source {
    Source::from_text("settings of a test", text, "DEPLOYMENT", BTreeMap::new())
}

/// Settings every part has.
fn common(directory: &Path, environment: &str) -> String {
    format!("environment = \"{environment}\"\nsecret_file = \"{}\"\n", directory.join("secrets/platform.key").display())
}

const ANYWHERE: &str = "listen = \"127.0.0.1:0\"\ninternal_listen = \"127.0.0.1:0\"\nadmin_listen = \"127.0.0.1:0\"\n";

impl Deployment {
    /// Of an environment (`live` or `test`), with so many gateways.
    pub(crate) async fn start(environment: &str, gateways: usize) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let store = |name: &str| format!("database = \"{}\"\n", directory.path().join(name).display());
        let (domains, orders) = (store("domains.sqlite"), store("orders.sqlite"));
        Self::over(directory, environment, gateways, 1, &domains, &orders).await
    }

    /// Of several replicas of everything over one PostgreSQL server, each gateway over services of its own.
    pub(crate) async fn of_replicas(replicas: usize) -> Self {
        let server = postgres::Server::shared();
        let store = || format!("[store]\nkind = \"postgres\"\nurl = \"{}\"\nconnections = 5\n", server.database());
        let (domains, orders) = (store(), store());
        Self::over(tempfile::tempdir().unwrap(), "live", replicas, replicas, &domains, &orders).await
    }

    async fn over(
        directory: TempDir,
        environment: &str,
        gateways: usize,
        replicas: usize,
        domains_store: &str,
        orders_store: &str,
    ) -> Self {
        let made = tollhouse().args(["init", "--data-dir"]).arg(directory.path()).output().unwrap();
        assert!(made.status.success(), "{made:?}");
        let path = |name: &str| directory.path().join(name).display().to_string();
        let (clock, end) = (Arc::new(SystemClock::new()), Shutdown::new());
        let common = common(directory.path(), environment);
        let mut services = Vec::new();
        for _ in 0..replicas {
            let domains = settings(&format!(
                "{common}{ANYWHERE}sealing_secret_file = \"{}\"\nplatform_domain = \"{DOMAIN}\"\n{domains_store}\
                 [local_authority]\nca_certificate_file = \"{}\"\nca_key_file = \"{}\"\n",
                path("secrets/sealing.key"),
                path("ca/ca.pem"),
                path("ca/ca.key"),
            ));
            let domains = domains_service::Config::read(&domains).unwrap();
            let domains = domains_service::start(domains, clock.clone(), end.clone()).await.unwrap();
            let control = domains.address("internal").unwrap();
            let orders = settings(&format!("{common}{ANYWHERE}{orders_store}[events]\nurl = \"http://{control}\"\n"));
            let orders = orders_service::Config::read(&orders).unwrap();
            let orders = orders_service::start(orders, clock.clone(), end.clone()).await.unwrap();
            services.push((domains, orders));
        }

        let logs = Arc::new(Logs::writer_only(std::io::sink()));
        let mut addresses = Vec::new();
        for number in 0..gateways {
            let (domains, orders) = &services[number % replicas];
            let text = edge(&common, &path, number, [domains, orders]);
            let config = gateway::config::Config::read(&settings(&text)).unwrap();
            let gateway = gateway::server::start(config, logs.clone(), clock.clone(), end.clone()).await.unwrap();
            addresses.push(gateway.address("https").unwrap());
        }
        let secret = Secret::load_or_create(&directory.path().join("secrets/platform.key")).unwrap();
        let (controls, orders) = services
            .iter()
            .map(|(domains, orders)| (domains.address("internal").unwrap(), orders.address("internal").unwrap()))
            .unzip();
        Self { controls, orders, gateways: addresses, secret, end, directory }
    }

    /// A request of an operator to an internal listener.
    fn operator(&self, method: Method, address: SocketAddr, path: &str) -> RequestBuilder {
        let request = Client::new().request(method, format!("http://{address}/internal{path}"));
        request.bearer_auth(operator_token(&self.secret).to_token().as_str())
    }

    /// A request of an operator to one of the control planes.
    pub(crate) fn control(&self, replica: usize, method: Method, path: &str) -> RequestBuilder {
        self.operator(method, self.controls[replica], path)
    }

    /// A project with a quota that does not matter and these orders, and a key of it that may do everything. Every
    /// gateway knows the key when this returns.
    pub(crate) async fn project(&self, id: &str, orders: String) -> String {
        let limits = json!({ "per_minute": 1_000_000, "per_day": 100_000_000 });
        let project = json!({ "id": id, "plan": "enterprise", "limits": limits, "upstream": "orders" });
        let made = self.control(0, Method::POST, "/projects").json(&project).send().await.unwrap();
        assert_eq!(made.status(), 201, "{}", made.text().await.unwrap());
        self.control(0, Method::POST, &format!("/projects/{id}/deploy")).send().await.unwrap();
        let key = json!({ "label": "test", "scopes": ["orders:read", "orders:write"] });
        let keys = self.control(0, Method::POST, &format!("/projects/{id}/keys"));
        let key = keys.json(&key).send().await.unwrap().json::<Value>().await.unwrap();
        let key = key["key"].as_str().unwrap().to_owned();
        let import = self.operator(Method::POST, self.orders[0], &format!("/orders/{id}/import"));
        let imported = import.body(orders).send().await.unwrap();
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

    /// A client that trusts this deployment's authority. Each has connections of its own.
    pub(crate) fn client(&self) -> Client {
        let root = std::fs::read(self.directory.path().join("ca/ca.pem")).unwrap();
        let root = reqwest::Certificate::from_pem(&root).unwrap();
        Client::builder().tls_certs_only([root]).no_proxy().dns_resolver(ThisMachine).build().unwrap()
    }

    /// A request without a key to a project's host, by way of one of the gateways.
    pub(crate) fn request(
        &self,
        client: &Client,
        gateway: usize,
        method: Method,
        project: &str,
        path: &str,
    ) -> RequestBuilder {
        let port = self.gateways[gateway].port();
        client.request(method, format!("https://{project}.{DOMAIN}:{port}{path}"))
    }
}

fn edge(common: &str, path: &dyn Fn(&str) -> String, number: usize, [domains, orders]: [&Running; 2]) -> String {
    let shipped: toml_edit::DocumentMut = include_str!("../../../config/gateway.toml").parse().unwrap();
    let routes = shipped["upstreams"]["orders"]["routes"].to_string();
    format!(
        "{common}sealing_secret_file = \"{sealing}\"\ndata_directory = \"{data}\"\n\
         [listen]\nhttp = \"127.0.0.1:0\"\nhttps = \"127.0.0.1:0\"\nadmin = \"127.0.0.1:0\"\n\
         [tls]\nplatform_certificate_file = \"{certificate}\"\nplatform_key_file = \"{key}\"\n\
         [feed]\nurl = \"http://{control}\"\n[drain]\nlame_duck = \"0s\"\n\
         [upstreams.orders]\nendpoints = [\"{orders}\"]\nroutes = {routes}\n\
         [upstreams.domains]\nendpoints = [\"{api}\"]\n",
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
