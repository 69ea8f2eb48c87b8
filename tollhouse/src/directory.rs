//! The data directory of a platform on one machine, and its files.

use std::fs::File;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use chassis::secret::{Secret, read_if_there, write_private};
use serde::{Deserialize, Serialize};

/// Directory of the gateways' credentials.
pub(crate) const GATEWAYS: &str = "secrets/gateways";
/// Directory of the services' credentials.
pub(crate) const SERVICES: &str = "secrets/services";

/// File of revoked credentials. No backup has it.
pub(crate) const REVOCATIONS: &str = "revoked-credentials.jsonl";

/// The gateways of `docker-compose.yml`. Scaled gateways share a credential.
pub(crate) const GATEWAY_NAMES: [&str; 3] = ["gateway-1", "gateway-2", "gateway-more"];

/// The CA certificate of internal listeners.
pub(crate) const INTERNAL_AUTHORITY: &str = "ca/internal.pem";

/// The largest small file in bytes; settings of upstreams have a few kilobytes.
const FACTS_BYTES_MAX: u64 = 1024 * 1024;

/// The data directory.
#[derive(Clone, Debug)]
pub struct Directory(PathBuf);

/// The address of a listener for clients: `127.0.0.1:9901`, or a name and a port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Address(String);

impl Address {
    /// The name or address.
    pub fn host(&self) -> &str {
        self.0.rsplit_once(':').map_or("", |(host, _)| host).trim_matches(['[', ']'])
    }

    /// Whether the address is on loopback.
    pub fn is_loopback(&self) -> bool {
        self.host() == "localhost" || self.host().parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
    }

    /// The port. Parsing excludes an address without one.
    pub fn port(&self) -> u16 {
        self.0.rsplit_once(':').and_then(|(_, port)| port.parse().ok()).unwrap_or(0)
    }
}

impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Self {
        Self(address.to_string())
    }
}

impl std::str::FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let address = Self(text.to_owned());
        let named = text.rsplit_once(':').is_some_and(|(name, _)| !name.is_empty() && !name.contains('/'));
        if named && address.port() > 0 {
            Ok(address)
        } else {
            Err("use a name or an address, and a port: gateway:9901 or 127.0.0.1:9901".to_owned())
        }
    }
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// A gateway with its admin listener: `gateway-1=127.0.0.1:9901`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GatewayAdmin {
    /// The name of its credential; passes are valid for this gateway only.
    pub gateway: String,
    /// Its admin listener. A host name can have the addresses of several processes of this gateway.
    pub admin: Address,
}

impl std::fmt::Display for GatewayAdmin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({})", self.gateway, self.admin)
    }
}

impl std::str::FromStr for GatewayAdmin {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (gateway, admin) = text.split_once('=').unwrap_or_default();
        if !contract::trust::is_node_name(gateway) {
            return Err("use a gateway's name and its admin listener: gateway-1=127.0.0.1:9901".to_owned());
        }
        Ok(Self { gateway: gateway.to_owned(), admin: admin.parse()? })
    }
}

contract::words! {
    /// The listeners between processes with TLS: internal listeners, and admin listeners of gateways.
    #[derive(Default)]
    pub enum InternalTls {
        /// Those that are not on loopback.
        #[default]
        OffLoopback = "off_loopback",
        /// All of them.
        Everywhere = "everywhere",
        /// None of them: the operator asserts that the network path is private.
        Nowhere = "nowhere",
    }
}

impl InternalTls {
    /// Whether the listener at this address uses TLS.
    pub fn is_at(self, address: &Address) -> bool {
        self == Self::Everywhere || self == Self::OffLoopback && !address.is_loopback()
    }
}

/// The addresses of a running platform: `run.json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RunFile {
    /// The process id; `None` if the platform has several processes.
    #[serde(default)]
    pub pid: Option<u32>,
    /// The platform's domain.
    pub platform_domain: String,
    /// Plain HTTP of the edge.
    pub http: Address,
    /// HTTPS of the edge.
    pub https: Address,
    /// The gateways; at least one.
    pub gateways: Vec<GatewayAdmin>,
    /// Internal API of the control plane.
    pub control: Address,
    /// Internal API of the orders.
    pub orders: Address,
    /// Which of these, and of the gateways' admin listeners, use TLS, with certificates of the authority in
    /// `ca/internal.pem`.
    pub tls: InternalTls,
    /// Health and metrics of the orders-service; `None` if unknown.
    #[serde(default)]
    pub orders_admin: Option<Address>,
    /// Health and metrics of the domains-service.
    #[serde(default)]
    pub domains_admin: Option<Address>,
}

impl RunFile {
    /// The admin listener of the first gateway.
    pub fn admin(&self) -> Option<&Address> {
        self.gateways.first().map(|gateway| &gateway.admin)
    }
}

impl Directory {
    /// The directory at `path`.
    pub fn new(path: &Path) -> Self {
        Self(path.to_owned())
    }

    /// A path inside.
    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Creates the directory and locks it for this process until the returned file is dropped.
    ///
    /// # Errors
    /// If it cannot be created, or another process uses it.
    pub fn take(&self) -> anyhow::Result<File> {
        std::fs::create_dir_all(&self.0).with_context(|| format!("making the data directory {}", self.0.display()))?;
        let path = self.path("lock");
        let lock = File::create(&path).with_context(|| format!("opening {}", path.display()))?;
        lock.try_lock().map_err(|_| {
            anyhow::anyhow!(
                "another tollhouse runs on {}; stop it, or choose another directory with --data-dir",
                self.0.display()
            )
        })?;
        Ok(lock)
    }

    /// The platform's secret.
    ///
    /// # Errors
    /// If the file is not usable.
    pub fn platform_secret(&self) -> anyhow::Result<Secret> {
        Secret::load_or_create(&self.path("secrets/platform.key"))
    }

    /// The credential of a gateway or service of this machine, in the directory ([`GATEWAYS`] or [`SERVICES`]) that the
    /// control plane reads when it starts.
    pub(crate) fn credential(&self, directory: &str, name: &str) -> anyhow::Result<PathBuf> {
        let path = self.path(directory).join(format!("{name}.key"));
        Secret::load_or_create(&path)?;
        Ok(path)
    }

    /// The contents of a small file of the directory; `None` if it does not exist.
    ///
    /// # Errors
    /// If it cannot be read, is not a regular file, or is larger than [`FACTS_BYTES_MAX`].
    pub(crate) fn read(&self, name: &str) -> anyhow::Result<Option<Vec<u8>>> {
        let path = self.path(name);
        let read = read_if_there(&path, FACTS_BYTES_MAX).with_context(|| format!("reading {}", path.display()));
        Ok(read?.map(|bytes| bytes.to_vec()))
    }

    /// The CA certificate of internal listeners, PEM.
    ///
    /// # Errors
    /// If it cannot be read.
    pub(crate) fn internal_authority(&self) -> anyhow::Result<Vec<u8>> {
        self.read(INTERNAL_AUTHORITY)?
            .with_context(|| format!("there is no {}", self.path(INTERNAL_AUTHORITY).display()))
    }

    /// The addresses of the running platform.
    ///
    /// # Errors
    /// If no platform runs on this directory.
    pub fn running(&self) -> anyhow::Result<RunFile> {
        let path = self.path("run.json");
        let text = self.read("run.json")?.with_context(|| {
            format!(
                "no platform runs on {} (start it with `tollhouse up`, or give its directory with --data-dir)",
                self.0.display()
            )
        })?;
        serde_json::from_slice(&text).with_context(|| format!("reading {}", path.display()))
    }

    /// Writes a small file for people and programs.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write_json(&self, name: &str, value: &impl Serialize) -> anyhow::Result<()> {
        let mut text = serde_json::to_vec_pretty(value)?;
        text.push(b'\n');
        write_private(&self.path(name), &text)
    }
}
