//! `tollhouse init`, `demo` and `healthcheck`: for deployments of several processes.
//!
//! `init` creates what `up` creates at its first start: secrets, a local certificate authority and the wildcard
//! certificate of the platform's hosts; and passwords for the servers beside the platform. It changes no existing file,
//! so it can run at every start. With `--shares` it also copies to each process the secrets that the process needs.

mod shares;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use chassis::clock::{Clock as _, SystemClock};
use chassis::secret::{Secret, write_private};
use clap::Args;
use contract::hostname::Hostname;
use contract::trust::ORDERS_SERVICE;
use serde_json::json;

use crate::arguments::Common;
use crate::client::Client;
use crate::directory::{Address, Directory, GATEWAY_NAMES, GATEWAYS, GatewayAdmin, InternalTls, RunFile, SERVICES};
use crate::output::{answer, lines};
use crate::up::{authority, demo};

/// Passwords of the servers beside the platform, each in its own file, so that a process gets only those it needs.
const PASSWORDS: [&str; 4] = [
    "secrets/grafana.password",
    "secrets/redis.password",
    "secrets/orders-database.password",
    "secrets/domains-database.password",
];

/// The gateways of `docker-compose.yml`.
const DEFAULT_EDGES: [&str; 3] =
    ["gateway-1=gateway-1:9901", "gateway-2=gateway-2:9901", "gateway-more=gateway-more:9901"];

/// Options of `init`.
#[derive(Clone, Debug, Args)]
pub struct Init {
    /// Platform domain.
    #[arg(long, default_value = "tollhouse.localhost")]
    pub platform_domain: Hostname,
    /// Gateway name and its admin listener; a host name may have the addresses of several processes of that gateway.
    /// Repeatable.
    #[arg(long = "edge", value_name = "NAME=ADDRESS", default_values = DEFAULT_EDGES)]
    pub edges: Vec<GatewayAdmin>,
    /// Internal listener of the domains-service.
    #[arg(long, default_value = "domains-service:7003")]
    pub control: Address,
    /// Internal listener of the orders-service.
    #[arg(long, default_value = "orders-service:7004")]
    pub orders: Address,
    /// Listeners with TLS, with certificates from `tls/`: `off_loopback`,
    /// `everywhere`, or `nowhere` if the network path is private.
    #[arg(long, value_name = "WHERE", default_value = InternalTls::OffLoopback.as_str())]
    pub internal_tls: InternalTls,
    /// Port of https URLs for clients.
    #[arg(long, default_value_t = 443)]
    pub https_port: u16,
    /// Port of http URLs for clients.
    #[arg(long, default_value_t = 80)]
    pub http_port: u16,
    /// Copy to DIRECTORY/{process} exactly the secrets that each process needs.
    #[arg(long, value_name = "DIRECTORY")]
    pub shares: Option<PathBuf>,
}

pub(super) fn init(common: &Common, directory: &Directory, options: &Init) -> anyhow::Result<()> {
    // First, so that all files below are private.
    chassis::process::prepare()?;
    directory.platform_secret()?;
    Secret::load_or_create(&directory.path("secrets/sealing.key"))?;
    for gateway in GATEWAY_NAMES {
        directory.credential(GATEWAYS, gateway)?;
    }
    directory.credential(SERVICES, ORDERS_SERVICE)?;
    for name in PASSWORDS {
        password(directory, name)?;
    }
    let now = SystemClock::new().now_seconds();
    authority::ensure(directory, &options.platform_domain, now)?;
    let edge = |port| -> anyhow::Result<Address> {
        edge_address(&options.platform_domain, port).parse().map_err(anyhow::Error::msg)
    };
    let run = RunFile {
        pid: None,
        platform_domain: options.platform_domain.as_str().to_owned(),
        http: edge(options.http_port)?,
        https: edge(options.https_port)?,
        gateways: options.edges.clone(),
        control: options.control.clone(),
        orders: options.orders.clone(),
        tls: options.internal_tls,
        orders_admin: None,
        domains_admin: None,
    };
    authority::internal::ensure(directory, &run, now)?;
    directory.write_json("run.json", &run)?;
    if let Some(target) = &options.shares {
        shares::write(directory, target)?;
    }
    answer(common, &json!({ "directory": directory.path(""), "run": run }), lines);
    Ok(())
}

fn edge_address(platform_domain: &Hostname, port: u16) -> String {
    format!("{platform_domain}:{port}")
}

/// A password of letters and digits, which needs no escaping in a URL.
fn password(directory: &Directory, name: &str) -> anyhow::Result<()> {
    let path = directory.path(name);
    if path.exists() {
        return Ok(());
    }
    let bytes: [u8; 32] = chassis::random::bytes()?;
    let text: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    write_private(&path, text.as_bytes()).with_context(|| format!("writing {}", path.display()))
}

pub(super) async fn make_demo(common: &Common, directory: &Directory, client: &Client) -> anyhow::Result<()> {
    let demo = match demo::known(directory, client) {
        Some(demo) => demo,
        None => demo::make(directory, client, &SystemClock::new()).await?,
    };
    answer(common, &demo, lines);
    Ok(())
}

/// Prints the authority's certificate, for `curl --cacert` and trust stores.
pub(super) fn print_authority(directory: &Directory) -> anyhow::Result<()> {
    let path = directory.path("ca/ca.pem");
    crate::output::print(&std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?);
    Ok(())
}

pub(super) async fn healthcheck(
    directory: &Directory,
    address: &Address,
    server_name: Option<&str>,
) -> anyhow::Result<()> {
    let authority = server_name.map(|_| directory.internal_authority()).transpose()?;
    let client = crate::client::client(server_name.unwrap_or_default(), authority.as_deref())?;
    let url = format!("{}://{address}/readyz", if server_name.is_some() { "https" } else { "http" });
    let asked = client.get(&url).timeout(Duration::from_secs(2)).send().await;
    let status = asked.with_context(|| format!("{url} does not answer"))?.status();
    anyhow::ensure!(status.is_success(), "{url} answered {status}");
    Ok(())
}
