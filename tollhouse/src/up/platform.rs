//! Starts the services and the gateway in the order of their dependencies, and stops them in reverse order.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use chassis::clock::Clock;
use chassis::config::Source;
use chassis::logs::Logs;
use chassis::running::Running;
use chassis::shutdown::Shutdown;
use contract::hostname::Hostname;
use contract::key::Environment;
use contract::project::UpstreamName;
use contract::trust::ORDERS_SERVICE;
use futures_util::future::select_all;
use reqwest::Method;
use toml_edit::{DocumentMut, Item, TableLike};

use super::upstreams::GivenUpstream;
use crate::arguments::Up;
use crate::client::Client;
use crate::directory::{Directory, GATEWAYS, GatewayAdmin, InternalTls, REVOCATIONS, RunFile, SERVICES};
use crate::test_world::TestWorld;

/// Longest wait for readiness.
const READY_MAX: Duration = Duration::from_secs(20);

/// The name of the gateway.
const NAME: &str = "gateway";

/// The running platform.
pub(super) struct Platform {
    /// Its addresses.
    pub(super) run: RunFile,
    edge: Running,
    services: Vec<Running>,
    edge_end: Shutdown,
    services_end: Shutdown,
}

/// The arguments of a start.
pub(super) struct Given<'a> {
    pub(super) options: &'a Up,
    /// The platform's domain.
    pub(super) domain: &'a Hostname,
    pub(super) environment: Environment,
    /// Missing databases are made.
    pub(super) create_databases: bool,
    pub(super) world: Option<&'a TestWorld>,
    pub(super) upstreams: &'a BTreeMap<UpstreamName, GivenUpstream>,
}

impl Platform {
    /// Starts all parts.
    pub(super) async fn start(
        directory: &Directory,
        given: &Given<'_>,
        logs: Arc<Logs>,
        clock: Arc<dyn Clock>,
    ) -> anyhow::Result<Self> {
        let Given { options, domain, environment, create_databases, world, upstreams } = *given;
        let deployment = format!("environment = \"{environment}\"\n");
        let of_services = format!("{deployment}create_database = {create_databases}\n");
        // Created here, so that all parts use the same.
        directory.platform_secret()?;
        let credential = directory.credential(GATEWAYS, NAME)?;
        let of_orders = directory.credential(SERVICES, ORDERS_SERVICE)?;
        chassis::secret::Secret::load_or_create(&directory.path("secrets/sealing.key"))?;
        let (edge_end, services_end) = (Shutdown::new(), Shutdown::new());

        let domains = domains_service::Config::read(&settings(
            "domains-service settings",
            DOMAINS,
            &(of_services.clone() + &domains_settings(directory, domain, world) + &tracing_settings(options)),
        )?)?;
        let domains = domains_service::start(domains, clock.clone(), services_end.clone()).await?;
        let orders = orders_service::Config::read(&settings(
            "orders-service settings",
            ORDERS,
            &(of_services
                + &orders_settings(directory, &of_orders, domains.address("internal")?)
                + &tracing_settings(options)),
        )?)?;
        let orders = orders_service::start(orders, clock.clone(), services_end.clone()).await?;

        let parts = [
            ("domains", domains.address("http")?),
            ("orders", orders.address("http")?),
            ("control", domains.address("internal")?),
        ];
        let edge = gateway::config::Config::read(&settings(
            "gateway settings",
            GATEWAY,
            &(deployment
                + &edge_settings(directory, options, &credential, &parts, upstreams)
                + &tracing_settings(options)),
        )?)?;
        let edge = gateway::server::start(edge, logs, clock, edge_end.clone()).await?;
        let run = RunFile {
            pid: Some(std::process::id()),
            platform_domain: domain.as_str().to_owned(),
            http: edge.address("http")?.into(),
            https: edge.address("https")?.into(),
            gateways: vec![GatewayAdmin { gateway: NAME.to_owned(), admin: edge.address("admin")?.into() }],
            control: domains.address("internal")?.into(),
            orders: orders.address("internal")?.into(),
            tls: InternalTls::OffLoopback,
            orders_admin: Some(orders.address("admin")?.into()),
            domains_admin: Some(domains.address("admin")?.into()),
        };
        Ok(Self { run, edge, services: vec![domains, orders], edge_end, services_end })
    }

    /// Waits until the gateway is ready.
    pub(super) async fn ready(&self, client: &Client) -> anyhow::Result<()> {
        let ready = async {
            while client.edge(Method::GET, "/readyz").await.is_err() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(READY_MAX, ready)
            .await
            .context("the gateway did not become ready in time; see the log directory")
    }

    /// Waits until a part has ended by itself, after a panic.
    pub(super) async fn part_ends(&self) {
        let parts = self.services.iter().chain([&self.edge]);
        select_all(parts.map(|part| Box::pin(part.ends()))).await;
    }

    /// Stops the gateway first, so that requests in progress keep their service.
    pub(super) async fn stop(self) -> anyhow::Result<()> {
        self.edge_end.begin();
        let mut ended = self.edge.stopped().await;
        self.services_end.begin();
        for service in self.services {
            ended = ended.and(service.stopped().await);
        }
        ended
    }
}

/// The sample configuration of each process.
const GATEWAY: &str = include_str!("../../../config/gateway.toml");
const DOMAINS: &str = include_str!("../../../config/domains-service.toml");
const ORDERS: &str = include_str!("../../../config/orders-service.toml");

/// Settings of the sample files that depend on the machine and are removed.
const OF_A_PLACE: [(&str, &str); 2] = [("listen", "public_https_port"), ("", "plans")];

/// The settings of a process: the sample file, so that both ways to run have the same limits, with the values that only
/// this process knows. They are read like a file, with the same checks. The environment is ignored: `up` has options.
fn settings(name: &str, shipped: &str, ours: &str) -> anyhow::Result<Source> {
    let mut document: DocumentMut = shipped.parse().context("the sample settings")?;
    for (section, setting) in OF_A_PLACE {
        let root = document.as_table_mut();
        let table = if section.is_empty() { Some(root) } else { root.get_mut(section).and_then(Item::as_table_mut) };
        if let Some(table) = table {
            table.remove(setting);
        }
    }
    let ours: DocumentMut = ours.parse().with_context(|| format!("the {name}"))?;
    overlay(document.as_table_mut(), ours.as_table());
    Ok(Source::from_text(name, &document.to_string(), "TOLLHOUSE_UP", BTreeMap::new()))
}

/// Sets every value of `ours` in `base`.
fn overlay(base: &mut dyn TableLike, ours: &dyn TableLike) {
    for (key, item) in ours.iter() {
        match (base.get_mut(key).and_then(Item::as_table_like_mut), item.as_table_like()) {
            (Some(base), Some(ours)) => overlay(base, ours),
            _ => {
                base.insert(key, item.clone());
            }
        }
    }
}

fn quoted(path: &Path) -> String {
    toml_edit::Value::from(path.display().to_string()).to_string()
}

/// Traces every request: on one machine this is cheap.
fn tracing_settings(options: &Up) -> String {
    options.trace_to.as_ref().map_or_else(String::new, |url| {
        format!("[tracing]\notlp_endpoint = {}\nsample_per_thousand = 1000\n", toml_edit::Value::from(url.as_str()))
    })
}

fn orders_settings(directory: &Directory, credential: &Path, control: SocketAddr) -> String {
    let database = quoted(&directory.path("orders/orders.sqlite"));
    format!(
        "credential_file = {}\ndatabase = {database}\nlisten = \"127.0.0.1:0\"\ninternal_listen = \"127.0.0.1:0\"\nadmin_listen = \"127.0.0.1:0\"\n[events]\nurl = \"http://{control}\"\n",
        quoted(credential)
    )
}

fn domains_settings(directory: &Directory, domain: &Hostname, world: Option<&TestWorld>) -> String {
    let path = |name: &str| quoted(&directory.path(name));
    let mut text = format!("secret_file = {}\n", path("secrets/platform.key"));
    let _ = writeln!(text, "sealing_secret_file = {}", path("secrets/sealing.key"));
    let _ = writeln!(text, "gateways_directory = {}", path(GATEWAYS));
    let _ = writeln!(text, "services_directory = {}", path(SERVICES));
    let _ = writeln!(text, "revocations_file = {}", path(REVOCATIONS));
    let _ = writeln!(text, "database = {}", path("domains/domains.sqlite"));
    let _ = writeln!(text, "platform_domain = \"{domain}\"");
    text.push_str("listen = \"127.0.0.1:0\"\ninternal_listen = \"127.0.0.1:0\"\nadmin_listen = \"127.0.0.1:0\"\n");
    text.push_str("allow_local_names = true\n");
    if world.is_some() {
        text.push_str("allow_test_names = true\n");
    }
    let _ = writeln!(
        text,
        "[local_authority]\nca_certificate_file = {}\nca_key_file = {}",
        path("ca/ca.pem"),
        path("ca/ca.key")
    );
    if let Some(world) = world {
        text.push_str(&world.settings());
    }
    text
}

fn edge_settings(
    directory: &Directory,
    options: &Up,
    credential: &Path,
    parts: &[(&str, SocketAddr); 3],
    upstreams: &BTreeMap<UpstreamName, GivenUpstream>,
) -> String {
    let path = |name: &str| quoted(&directory.path(name));
    let [(_, domains), (_, orders), (_, control)] = parts;
    let address = |port| SocketAddr::new(options.listen, port);
    let mut text = format!("credential_file = {}\n", quoted(credential));
    let _ = write!(
        text,
        "sealing_secret_file = {}\ndata_directory = {}\n\
         [listen]\nhttp = \"{}\"\nhttps = \"{}\"\nadmin = \"127.0.0.1:{}\"\n\
         [tls]\nplatform_certificate_file = {}\nplatform_key_file = {}\n\
         [feed]\nurl = \"http://{control}\"\n\
         [drain]\nlame_duck = \"0s\"\n",
        path("secrets/sealing.key"),
        path("gateway"),
        address(options.http_port),
        address(options.https_port),
        options.admin_port,
        path("ca/platform.pem"),
        path("ca/platform.key"),
    );
    for (name, address) in [("orders", orders), ("domains", domains), ("dashboard", domains)] {
        let _ = write!(text, "[upstreams.{name}]\nendpoints = [\"{address}\"]\n");
    }
    for (name, upstream) in upstreams {
        let list: Vec<String> = upstream.endpoints.iter().map(|endpoint| format!("\"{endpoint}\"")).collect();
        let _ = write!(text, "[upstreams.{name}]\nendpoints = [{}]\n", list.join(", "));
        for (setting, value) in &upstream.settings {
            let _ = writeln!(text, "{setting} = {value}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directory() -> (tempfile::TempDir, Directory) {
        let place = tempfile::tempdir().unwrap();
        let directory = Directory::new(place.path());
        (place, directory)
    }

    /// Every setting of a text, by its path.
    fn flat(path: &str, table: &dyn TableLike, all: &mut BTreeMap<String, String>) {
        for (key, item) in table.iter() {
            let path = if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
            if let Some(table) = item.as_table_like() {
                flat(&path, table, all);
            } else {
                let mut item = item.clone();
                if let Some(value) = item.as_value_mut() {
                    value.decor_mut().clear(); // comments
                }
                all.insert(path, item.to_string());
            }
        }
    }

    /// The settings of `up` that differ from the sample file.
    fn different(shipped: &str, ours: &str) -> Vec<String> {
        let (mut of_file, mut of_up) = (BTreeMap::new(), BTreeMap::new());
        flat("", shipped.parse::<DocumentMut>().unwrap().as_table(), &mut of_file);
        let mut document: DocumentMut = shipped.parse().unwrap();
        overlay(document.as_table_mut(), ours.parse::<DocumentMut>().unwrap().as_table());
        flat("", document.as_table(), &mut of_up);
        of_up.into_iter().filter(|(path, value)| of_file.get(path) != Some(value)).map(|(path, _)| path).collect()
    }

    #[test]
    fn up_has_the_limits_of_the_sample_files() {
        let (_place, directory) = directory();
        let options = Up::usual();
        let at = SocketAddr::from(([127, 0, 0, 1], 7));
        let credential = directory.credential(GATEWAYS, NAME).unwrap();
        let parts = [("domains", at), ("orders", at), ("control", at)];
        let edge = edge_settings(&directory, &options, &credential, &parts, &BTreeMap::new());
        assert_eq!(
            different(GATEWAY, &edge),
            [
                "credential_file",
                "data_directory",
                "drain.lame_duck",
                "feed.url",
                "listen.http",
                "listen.https",
                "sealing_secret_file",
                "tls.platform_certificate_file",
                "tls.platform_key_file",
                "upstreams.dashboard.endpoints",
                "upstreams.domains.endpoints",
                "upstreams.orders.endpoints",
            ]
        );
        let orders = orders_settings(&directory, &credential, at);
        let places = ["admin_listen", "credential_file", "database", "events.url", "internal_listen", "listen"];
        assert_eq!(different(ORDERS, &orders), places);
        let domains = domains_settings(&directory, &"tollhouse.localhost".parse().unwrap(), None);
        let places = [
            "admin_listen",
            "database",
            "gateways_directory",
            "internal_listen",
            "listen",
            "local_authority.ca_certificate_file",
            "local_authority.ca_key_file",
            "revocations_file",
            "sealing_secret_file",
            "secret_file",
            "services_directory",
        ];
        assert_eq!(different(DOMAINS, &domains), places);
        // And the dashboard's own, which were other ones here.
        let source = settings("edge", GATEWAY, &edge).unwrap();
        std::fs::create_dir_all(directory.path("secrets")).unwrap();
        directory.platform_secret().unwrap();
        chassis::secret::Secret::load_or_create(&directory.path("secrets/sealing.key")).unwrap();
        let config = gateway::config::Config::read(&source).unwrap();
        assert_eq!(config.effective.value("upstreams.dashboard.first_byte_timeout"), Some("30s"));
    }
}
