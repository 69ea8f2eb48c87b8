//! The parts, started in the order in which they need each other and stopped in the opposite one.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use chassis::clock::Clock;
use chassis::config::Source;
use chassis::logs::Logs;
use chassis::running::Running;
use chassis::shutdown::Shutdown;
use contract::project::UpstreamName;
use reqwest::Method;

use crate::arguments::Up;
use crate::client::Client;
use crate::directory::{Directory, RunFile};
use crate::test_world::TestWorld;

/// How long the parts may take to be ready before that is an error.
const READY_MAX: Duration = Duration::from_secs(20);

/// The running platform.
pub(super) struct Platform {
    /// Where it listens.
    pub(super) run: RunFile,
    edge: Running,
    services: Vec<Running>,
    edge_end: Shutdown,
    services_end: Shutdown,
}

impl Platform {
    /// Starts all parts.
    ///
    /// # Errors
    /// When one cannot start.
    pub(super) async fn start(
        directory: &Directory,
        options: &Up,
        world: Option<&TestWorld>,
        upstreams: &BTreeMap<UpstreamName, Vec<SocketAddr>>,
        logs: Arc<Logs>,
        clock: Arc<dyn Clock>,
    ) -> anyhow::Result<Self> {
        // Made here, so that every part finds the same.
        directory.platform_secret()?;
        chassis::secret::Secret::load_or_create(&directory.path("secrets/sealing.key"))?;
        let (edge_end, services_end) = (Shutdown::new(), Shutdown::new());

        let domains = domains_service::Config::read(&settings(
            "domains-service settings",
            &(domains_settings(directory, options, world) + &tracing_settings(options)),
        ))?;
        let domains = domains_service::start(domains, clock.clone(), services_end.clone()).await?;
        let orders = orders_service::Config::read(&settings(
            "orders-service settings",
            &(orders_settings(directory, domains.address("internal")?) + &tracing_settings(options)),
        ))?;
        let orders = orders_service::start(orders, clock.clone(), services_end.clone()).await?;

        let parts = [
            ("domains", domains.address("http")?),
            ("orders", orders.address("http")?),
            ("control", domains.address("internal")?),
        ];
        let edge = gateway::config::Config::read(&settings(
            "gateway settings",
            &(edge_settings(directory, options, &parts, upstreams) + &tracing_settings(options)),
        ))?;
        let edge = gateway::server::start(edge, logs, clock, edge_end.clone()).await?;
        let run = RunFile {
            pid: Some(std::process::id()),
            platform_domain: options.platform_domain.as_str().to_owned(),
            http: edge.address("http")?.into(),
            https: edge.address("https")?.into(),
            admin: edge.address("admin")?.into(),
            more_admins: Vec::new(),
            control: domains.address("internal")?.into(),
            orders: orders.address("internal")?.into(),
            orders_admin: Some(orders.address("admin")?.into()),
            domains_admin: Some(domains.address("admin")?.into()),
        };
        Ok(Self { run, edge, services: vec![domains, orders], edge_end, services_end })
    }

    /// Waits until the edge says it is ready.
    ///
    /// # Errors
    /// When it does not become ready.
    pub(super) async fn ready(&self, client: &Client) -> anyhow::Result<()> {
        let ready = async {
            while client.edge(Method::GET, "/readyz").await.is_err() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(READY_MAX, ready).await.context("the edge did not become ready; see the log directory")
    }

    /// Stops the edge first, so that nothing in progress loses its service.
    ///
    /// # Errors
    /// What a part failed with.
    pub(super) async fn stop(self) -> anyhow::Result<()> {
        self.edge_end.begin();
        let edge = self.edge.stopped().await;
        self.services_end.begin();
        for service in self.services {
            service.stopped().await?;
        }
        edge
    }
}

/// The parts read settings of this process's making through the same door as files, so the same checks apply. The
/// environment does not reach in: `up` has options.
fn settings(name: &str, text: &str) -> Source {
    Source::from_text(name, text, "TOLLHOUSE_UP", BTreeMap::new())
}

/// The routes of a part, and how long its requests may take, as the shipped configuration of the edge has them: one
/// text for both ways to run.
fn shipped(upstream: &str) -> String {
    let file: Option<toml_edit::DocumentMut> = include_str!("../../../config/gateway.toml").parse().ok();
    let table = file.as_ref().and_then(|file| file.get("upstreams")?.get(upstream));
    let settings = ["routes", "total_timeout"].into_iter().filter_map(|name| {
        let value = table?.get(name)?.to_string();
        Some(format!("{name} = {}\n", value.trim()))
    });
    settings.collect()
}

fn quoted(path: &std::path::Path) -> String {
    toml_edit::Value::from(path.display().to_string()).to_string()
}

fn secrets(directory: &Directory) -> String {
    format!("secret_file = {}\n", quoted(&directory.path("secrets/platform.key")))
}

/// One machine can afford to look at every request.
fn tracing_settings(options: &Up) -> String {
    options.trace_to.as_ref().map_or_else(String::new, |url| {
        format!("[tracing]\notlp_endpoint = {}\nsample_per_thousand = 1000\n", toml_edit::Value::from(url.as_str()))
    })
}

fn orders_settings(directory: &Directory, control: SocketAddr) -> String {
    let database = quoted(&directory.path("orders/orders.sqlite"));
    format!(
        "{}database = {database}\nlisten = \"127.0.0.1:0\"\ninternal_listen = \"127.0.0.1:0\"\nadmin_listen = \"127.0.0.1:0\"\n[events]\nurl = \"http://{control}\"\n",
        secrets(directory)
    )
}

fn domains_settings(directory: &Directory, options: &Up, world: Option<&TestWorld>) -> String {
    let path = |name: &str| quoted(&directory.path(name));
    let mut text = secrets(directory);
    let _ = writeln!(text, "sealing_secret_file = {}", path("secrets/sealing.key"));
    let _ = writeln!(text, "database = {}", path("domains/domains.sqlite"));
    let _ = writeln!(text, "platform_domain = \"{}\"", options.platform_domain);
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
    parts: &[(&str, SocketAddr); 3],
    upstreams: &BTreeMap<UpstreamName, Vec<SocketAddr>>,
) -> String {
    let path = |name: &str| quoted(&directory.path(name));
    let [(_, domains), (_, orders), (_, control)] = parts;
    let address = |port| SocketAddr::new(options.listen, port);
    let mut text = secrets(directory);
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
        let _ = write!(text, "[upstreams.{name}]\nendpoints = [\"{address}\"]\n{}", shipped(name));
    }
    for (name, addresses) in upstreams {
        let list: Vec<String> = addresses.iter().map(|address| format!("\"{address}\"")).collect();
        let _ = write!(text, "[upstreams.{name}]\nendpoints = [{}]\n", list.join(", "));
    }
    text
}
