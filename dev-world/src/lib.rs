//! A test world for custom domains: DNS that answers from a file, and a certificate authority that queries it.
//!
//! Names under `.test` and `.example` are reserved (RFC 2606), so they can be used freely here. The platform does the
//! same as in production: it queries all nameservers of a zone, proves control of names to an authority over ACME, and
//! renews certificates. The authority is `pebble`, which must be installed.
//!
//! Not part of the product: `tollhouse` contains it when built with the feature `test-world`, and containers run it as
//! a separate program, `dev-world` ([`standalone`]).

mod zones;
pub mod records;
mod pebble;
mod dns;
pub mod standalone;

use std::fmt::Write as _;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use contract::hostname::Hostname;

use self::dns::TestDns;
use self::pebble::Pebble;

/// The directory of the test world, below the data directory.
const DIRECTORY: &str = "test-world";

/// The file with all records.
const ZONES: &str = "test-world/zones.txt";

/// The authority's root certificate, below the data directory.
pub const ROOT: &str = "test-world/root.pem";

contract::words! {
    /// Behaviour of the certificate authority.
    pub enum AuthorityMode {
        /// It answers at once.
        Gentle = "gentle",
        /// It rejects half of all nonces and takes seconds to validate, as real authorities may.
        Strict = "strict",
        /// It answers at once, and its certificates are valid for a minute, to show renewals.
        Brief = "brief",
    }
}

/// The running test world. It stops when dropped.
pub struct TestWorld {
    dns: TestDns,
    pebble: Pebble,
    zones: PathBuf,
}

impl TestWorld {
    /// Starts DNS. The authority starts later, when the edge has its ports.
    ///
    /// # Errors
    /// If there are no free ports or a file cannot be written.
    pub async fn start(data: &Path, platform: &Hostname, mode: AuthorityMode) -> anyhow::Result<Self> {
        std::fs::create_dir_all(data.join(DIRECTORY))?;
        let zones = data.join(ZONES);
        if !zones.exists() {
            std::fs::write(&zones, zones::initial(platform, Ipv4Addr::LOCALHOST))?;
        }
        let dns = TestDns::start(zones.clone()).await?;
        let pebble = Pebble::prepare(&data.join(DIRECTORY), mode)?;
        Ok(Self { dns, pebble, zones })
    }

    /// The control plane's settings for this world.
    pub fn settings(&self) -> String {
        let mut text = String::new();
        let dns = self.dns.address();
        let _ = write!(
            text,
            "[webhooks]\nallow_http = true\nallow_private_addresses = true\n\
             [dns]\nnameservers = [\"{dns}\"]\nauthoritative_port = {}\nallow_private_nameservers = true\n\
             [[authorities]]\nname = \"pebble\"\ndirectory_url = \"{}\"\ncaa_identity = \"pebble.example\"\n\
             ca_certificate_file = {}\nmirror_limits = false\n",
            dns.port(),
            self.pebble.directory_url(),
            toml_edit::Value::from(self.pebble.trusted_by().display().to_string()),
        );
        text
    }

    /// Starts the authority, which validates at these ports of the edge (HTTP and HTTPS), and writes its root
    /// certificate.
    ///
    /// # Errors
    /// If `pebble` is not installed or does not start.
    pub async fn open(&mut self, data: &Path, (http, https): (u16, u16)) -> anyhow::Result<()> {
        let root = self.pebble.start(http, https, self.dns.address()).await?;
        std::fs::write(data.join(ROOT), root)?;
        Ok(())
    }

    /// The file with all records.
    pub fn zones(&self) -> &Path {
        &self.zones
    }
}
