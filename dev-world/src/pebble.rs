//! The certificate authority of the test world: `pebble`, with its own configuration.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::Context as _;
use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use serde_json::json;
use tokio::process::{Child, Command};

use super::AuthorityMode;

/// The longest start of the authority.
const START_MAX: Duration = Duration::from_secs(20);

/// Validity of its certificates, in seconds: 90 days.
pub(super) const VALIDITY_SECONDS: u32 = 90 * 86_400;

/// The validity in short mode, in seconds.
const BRIEF_SECONDS: u32 = 60;

/// The root certificate of its own TLS, in its directory.
pub(super) const CA_FILE: &str = "pebble-ca.pem";

/// The running authority. It stops when dropped.
pub(super) struct Pebble {
    directory: PathBuf,
    port: u16,
    management_port: u16,
    mode: AuthorityMode,
    process: Option<Child>,
}

impl Pebble {
    /// Chooses ports and makes the certificate of its own TLS.
    pub(super) fn prepare(directory: &Path, mode: AuthorityMode) -> anyhow::Result<Self> {
        make_certificate(directory, &["localhost", "127.0.0.1"])?;
        let (port, management_port) = (free_port()?, free_port()?);
        Ok(Self { directory: directory.to_owned(), port, management_port, mode, process: None })
    }

    pub(super) fn directory_url(&self) -> String {
        format!("https://127.0.0.1:{}/dir", self.port)
    }

    /// The root certificate of its own TLS.
    pub(super) fn trusted_by(&self) -> PathBuf {
        self.directory.join(CA_FILE)
    }

    /// Starts it; returns the PEM of its root certificate.
    pub(super) async fn start(&mut self, http: u16, https: u16, dns: SocketAddr) -> anyhow::Result<String> {
        let settings = Settings {
            listen: SocketAddr::from(([127, 0, 0, 1], self.port)),
            management: SocketAddr::from(([127, 0, 0, 1], self.management_port)),
            http,
            https,
            validity_seconds: if self.mode == AuthorityMode::Brief { BRIEF_SECONDS } else { VALIDITY_SECONDS },
        };
        let file = settings.write(&self.directory)?;
        let log = std::fs::File::create(self.directory.join("pebble.log"))?;
        let mut command = Command::new("pebble");
        command.arg("-config").arg(file).args(["-dnsserver", &dns.to_string()]);
        match self.mode {
            AuthorityMode::Gentle | AuthorityMode::Brief => {
                command.env("PEBBLE_VA_NOSLEEP", "1").env("PEBBLE_WFE_NONCEREJECT", "0")
            }
            AuthorityMode::Strict => command.env_remove("PEBBLE_VA_NOSLEEP").env("PEBBLE_WFE_NONCEREJECT", "50"),
        };
        let spawned = command.stdout(log.try_clone()?).stderr(log).stdin(Stdio::null()).kill_on_drop(true).spawn();
        self.process = Some(spawned.context(
            "the test world's certificate authority is `pebble`, which is not installed (Debian: apt-get install pebble)",
        )?);
        self.root().await
    }

    async fn root(&self) -> anyhow::Result<String> {
        let roots = Roots::new(&self.directory, &format!("127.0.0.1:{}", self.management_port))?;
        let asking = async {
            loop {
                if let Some(root) = roots.ask().await {
                    return root;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        let asked = tokio::time::timeout(START_MAX, asking).await;
        asked.with_context(|| format!("pebble does not answer; see {}", self.directory.join("pebble.log").display()))
    }
}

/// Settings of one authority.
pub(super) struct Settings {
    /// The address of ACME.
    pub(super) listen: SocketAddr,
    /// The address that serves its root certificate.
    pub(super) management: SocketAddr,
    /// The edge's ports for validation.
    pub(super) http: u16,
    pub(super) https: u16,
    pub(super) validity_seconds: u32,
}

impl Settings {
    /// Writes the configuration into the directory of its certificate; returns the file.
    pub(super) fn write(&self, directory: &Path) -> anyhow::Result<PathBuf> {
        let configuration = json!({ "pebble": {
            "listenAddress": self.listen,
            "managementListenAddress": self.management,
            "certificate": directory.join("pebble.pem"),
            "privateKey": directory.join("pebble.key"),
            "httpPort": self.http,
            "tlsPort": self.https,
            "ocspResponderURL": "",
            "externalAccountBindingRequired": false,
            "certificateValidityPeriod": self.validity_seconds,
        }});
        let file = directory.join("pebble.json");
        std::fs::write(&file, configuration.to_string())?;
        Ok(file)
    }
}

/// Makes the certificate of its own TLS, and its root.
pub(super) fn make_certificate(directory: &Path, names: &[&str]) -> anyhow::Result<()> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new(Vec::new())?;
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = params.self_signed(&key)?.pem();
    let issuer = Issuer::new(params, key);
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>())?;
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    std::fs::write(directory.join("pebble.pem"), params.signed_by(&key, &issuer)?.pem())?;
    chassis::secret::write_private(&directory.join("pebble.key"), key.serialize_pem().as_bytes())?;
    std::fs::write(directory.join(CA_FILE), authority)?;
    Ok(())
}

/// Fetches the root certificate of an authority.
pub(super) struct Roots {
    client: reqwest::Client,
    url: String,
}

impl Roots {
    /// Of the authority with this management address.
    pub(super) fn new(directory: &Path, management: &str) -> anyhow::Result<Self> {
        let trusted = reqwest::Certificate::from_pem(&std::fs::read(directory.join(CA_FILE))?)?;
        let client = reqwest::Client::builder().tls_certs_only([trusted]).no_proxy().timeout(START_MAX).build()?;
        Ok(Self { client, url: format!("https://{management}/roots/0") })
    }

    /// The PEM, if it answers.
    pub(super) async fn ask(&self) -> Option<String> {
        let text = self.client.get(&self.url).send().await.ok()?.text().await.ok()?;
        text.contains("BEGIN CERTIFICATE").then_some(text)
    }
}

fn free_port() -> anyhow::Result<u16> {
    Ok(std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}
