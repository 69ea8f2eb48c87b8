//! The certificate authority of the test world: `pebble`, as packaged, with a configuration of its own.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::Context as _;
use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use serde_json::json;
use tokio::process::{Child, Command};

use super::Manners;

/// The longest the authority may take to answer.
const START_MAX: Duration = Duration::from_secs(20);

/// How long its certificates are valid, in seconds: 90 days.
const VALIDITY_SECONDS: u32 = 90 * 86_400;

/// The same where renewal is to be watched.
const BRIEF_SECONDS: u32 = 60;

/// See the module. It ends when it is dropped.
pub(super) struct Pebble {
    directory: PathBuf,
    port: u16,
    management_port: u16,
    manners: Manners,
    process: Option<Child>,
}

impl Pebble {
    /// Chooses ports and makes the certificate of its own TLS.
    pub(super) fn prepare(directory: &Path, manners: Manners) -> anyhow::Result<Self> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new(Vec::new())?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        std::fs::write(directory.join("pebble-ca.pem"), params.self_signed(&key)?.pem())?;
        let issuer = Issuer::new(params, key);
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new(["localhost".to_owned(), "127.0.0.1".to_owned()])?;
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        std::fs::write(directory.join("pebble.pem"), params.signed_by(&key, &issuer)?.pem())?;
        chassis::secret::write_private(&directory.join("pebble.key"), key.serialize_pem().as_bytes())?;
        let (port, management_port) = (free_port()?, free_port()?);
        Ok(Self { directory: directory.to_owned(), port, management_port, manners, process: None })
    }

    pub(super) fn directory_url(&self) -> String {
        format!("https://127.0.0.1:{}/dir", self.port)
    }

    /// What its own TLS is trusted by.
    pub(super) fn trusted_by(&self) -> PathBuf {
        self.directory.join("pebble-ca.pem")
    }

    /// Starts it; returns what its certificates are trusted by, PEM.
    pub(super) async fn start(&mut self, http: u16, https: u16, dns: SocketAddr) -> anyhow::Result<String> {
        let configuration = json!({ "pebble": {
            "listenAddress": format!("127.0.0.1:{}", self.port),
            "managementListenAddress": format!("127.0.0.1:{}", self.management_port),
            "certificate": self.directory.join("pebble.pem"),
            "privateKey": self.directory.join("pebble.key"),
            "httpPort": http,
            "tlsPort": https,
            "ocspResponderURL": "",
            "externalAccountBindingRequired": false,
            "certificateValidityPeriod": if self.manners == Manners::Brief { BRIEF_SECONDS } else { VALIDITY_SECONDS },
        }});
        let file = self.directory.join("pebble.json");
        std::fs::write(&file, configuration.to_string())?;
        let log = std::fs::File::create(self.directory.join("pebble.log"))?;
        let mut command = Command::new("pebble");
        command.arg("-config").arg(file).args(["-dnsserver", &dns.to_string()]);
        match self.manners {
            Manners::Gentle | Manners::Brief => {
                command.env("PEBBLE_VA_NOSLEEP", "1").env("PEBBLE_WFE_NONCEREJECT", "0")
            }
            Manners::Strict => command.env_remove("PEBBLE_VA_NOSLEEP").env("PEBBLE_WFE_NONCEREJECT", "50"),
        };
        let spawned = command.stdout(log.try_clone()?).stderr(log).stdin(Stdio::null()).kill_on_drop(true).spawn();
        self.process = Some(spawned.context(
            "the test world's certificate authority is `pebble`, which is not installed (Debian: apt-get install pebble)",
        )?);
        self.root().await
    }

    async fn root(&self) -> anyhow::Result<String> {
        let trusted = reqwest::Certificate::from_pem(&std::fs::read(self.trusted_by())?)?;
        let client = reqwest::Client::builder().tls_certs_only([trusted]).no_proxy().timeout(START_MAX).build()?;
        let url = format!("https://127.0.0.1:{}/roots/0", self.management_port);
        let asking = async {
            loop {
                if let Ok(response) = client.get(&url).send().await
                    && let Ok(text) = response.text().await
                    && text.contains("BEGIN CERTIFICATE")
                {
                    return text;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        let asked = tokio::time::timeout(START_MAX, asking).await;
        asked.with_context(|| format!("pebble does not answer; see {}", self.directory.join("pebble.log").display()))
    }
}

fn free_port() -> anyhow::Result<u16> {
    Ok(std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}
