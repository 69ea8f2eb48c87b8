//! The test world as containers of their own: this process is its DNS, and prepares the authority, which is another.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use chassis::shutdown::Shutdown;
use contract::hostname::Hostname;

use super::dns::TestDns;
use super::pebble::{Roots, Settings, TRUSTED_BY, VALIDITY_SECONDS, make_certificate};
use super::{DIRECTORY, ROOT, ZONES, zones};

/// Where the authority listens in its container.
const AUTHORITY_PORT: u16 = 14_000;
const MANAGEMENT_PORT: u16 = 15_000;

/// Where gateways listen in theirs.
const EDGE_PORTS: (u16, u16) = (8080, 8443);

/// Between two looks at what certificates are trusted by: the authority has a new root after every start.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Who is where.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// Where DNS listens, UDP and TCP.
    #[arg(long, default_value = "0.0.0.0:8053")]
    pub listen: SocketAddr,
    /// The address of the edge: where CNAME targets of projects lead.
    #[arg(long)]
    pub edge: Ipv4Addr,
    /// The hostname of the authority, `pebble`, which listens on 14000 and 15000 and validates at 8080 and 8443.
    #[arg(long, default_value = "pebble")]
    pub authority: String,
    /// Projects are published at {project}.NAME.
    #[arg(long, default_value = "tollhouse.localhost")]
    pub platform_domain: Hostname,
}

/// Writes what the authority starts with, then answers DNS, until the process is ended.
///
/// # Errors
/// When a file cannot be written, or the address is taken.
pub async fn run(data: &Path, options: &Options) -> anyhow::Result<()> {
    let folder = data.join(DIRECTORY);
    std::fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
    let file = data.join(ZONES);
    if !file.exists() {
        std::fs::write(&file, zones::first(&options.platform_domain, options.edge))?;
    }
    let _dns = TestDns::resolver(file, options.listen).await.with_context(|| format!("DNS at {}", options.listen))?;
    // Others have read it: it is made once.
    if !folder.join(TRUSTED_BY).exists() {
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

/// Keeps the file with the root as it is.
async fn follow(roots: &Roots, file: &Path) -> anyhow::Result<()> {
    let mut known = String::new();
    loop {
        if let Some(root) = roots.ask().await
            && root != known
        {
            std::fs::write(file, &root).context("writing down what certificates are trusted by")?;
            known = root;
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}
