//! The test world as containers of their own: this process is its DNS, and prepares the authority, which is another.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use chassis::shutdown::Shutdown;

use super::dns::TestDns;
use super::pebble::{Roots, Settings, TRUSTED_BY, VALIDITY_SECONDS, make_certificate};
use super::{DIRECTORY, ROOT, ZONES, zones};
use crate::arguments::TestWorldOptions;
use crate::directory::Directory;

/// Where the authority listens in its container.
const AUTHORITY_PORT: u16 = 14_000;
const MANAGEMENT_PORT: u16 = 15_000;

/// Where gateways listen in theirs.
const EDGE_PORTS: (u16, u16) = (8080, 8443);

/// Between two looks at what certificates are trusted by: the authority has a new root after every start.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Writes what the authority starts with, then answers DNS, until the process is ended.
///
/// # Errors
/// When a file cannot be written, or the address is taken.
pub(crate) async fn run(directory: &Directory, options: &TestWorldOptions) -> anyhow::Result<()> {
    let folder = directory.path(DIRECTORY);
    std::fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
    let file = directory.path(ZONES);
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
    let file = directory.path(ROOT);
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
