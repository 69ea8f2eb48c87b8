//! The test world in containers: this process serves DNS and prepares the certificate authority, which runs in another
//! container.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use chassis::shutdown::Shutdown;
use contract::hostname::Hostname;

use super::dns::TestDns;
use super::pebble::{CA_FILE, Roots, Settings, VALIDITY_SECONDS, make_certificate};
use super::{DIRECTORY, ROOT, ZONES, zones};

/// The ports of the authority in its container.
const AUTHORITY_PORT: u16 = 14_000;
const MANAGEMENT_PORT: u16 = 15_000;

/// The ports of gateways in their containers.
const EDGE_PORTS: (u16, u16) = (8080, 8443);

/// Interval of fetching the authority's root certificate: it has a new one after every start.
const ROOT_FETCH_INTERVAL: Duration = Duration::from_secs(1);

/// Addresses of the test world.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// Address for DNS, UDP and TCP
    #[arg(long, default_value = "0.0.0.0:8053")]
    pub listen: SocketAddr,
    /// The edge's IPv4 address, for the CNAME targets of projects
    #[arg(long)]
    pub edge: Ipv4Addr,
    /// Hostname of the authority (pebble), which listens on 14000 and 15000 and validates at ports 8080 and 8443
    #[arg(long, default_value = "pebble")]
    pub authority: String,
    /// Domain of the platform: projects are published at {project}.NAME
    #[arg(long, default_value = "tollhouse.localhost")]
    pub platform_domain: Hostname,
}

/// Writes the authority's configuration, then serves DNS until the process is stopped.
///
/// # Errors
/// If a file cannot be written, or the address is in use.
pub async fn run(data: &Path, options: &Options) -> anyhow::Result<()> {
    let folder = data.join(DIRECTORY);
    std::fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
    let file = data.join(ZONES);
    if !file.exists() {
        std::fs::write(&file, zones::initial(&options.platform_domain, options.edge))?;
    }
    let _dns = TestDns::resolver(file, options.listen).await.with_context(|| format!("DNS at {}", options.listen))?;
    // Created once: other containers have already read it.
    if !folder.join(CA_FILE).exists() {
        make_certificate(&folder, &[&options.authority])?;
    }
    let at = |port| SocketAddr::from(([0, 0, 0, 0], port));
    let (http, https) = EDGE_PORTS;
    let (listen, management) = (at(AUTHORITY_PORT), at(MANAGEMENT_PORT));
    Settings { listen, management, http, https, validity_seconds: VALIDITY_SECONDS }.write(&folder)?;
    let roots = Roots::new(&folder, &format!("{}:{MANAGEMENT_PORT}", options.authority))?;
    let end = Shutdown::new();
    end.on_signals()?;
    let file = data.join(ROOT);
    tokio::select! {
        failed = follow(&roots, &file) => failed,
        () = end.begun() => Ok(()),
    }
}

/// Keeps the file with the root certificate up to date.
async fn follow(roots: &Roots, file: &Path) -> anyhow::Result<()> {
    let mut known = String::new();
    loop {
        if let Some(root) = roots.ask().await
            && root != known
        {
            std::fs::write(file, &root).context("writing the authority's root certificate")?;
            known = root;
        }
        tokio::time::sleep(ROOT_FETCH_INTERVAL).await;
    }
}
