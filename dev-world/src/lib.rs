//! A world to try custom domains in: DNS that does as a file says, and a certificate authority that asks it.
//!
//! Names under `.test` and `.example` (RFC 2606) belong to nobody, so here they may belong to you. What the platform
//! does is what it does in production: it asks all nameservers of a zone, proves control of names to an authority that
//! speaks ACME, and renews. The authority is `pebble`, which must be installed.
//!
//! No part of the product: `tollhouse` has it when it is built with the feature `test-world`, and containers have it as a
//! program of its own, `dev-world` ([`alone`]).

mod zones;
pub mod records;
mod pebble;
mod dns;
pub mod alone;

use std::fmt::Write as _;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use contract::hostname::Hostname;

use self::dns::TestDns;
use self::pebble::Pebble;

/// Where everything of the test world is, below the data directory.
const DIRECTORY: &str = "test-world";

/// The file with all records.
const ZONES: &str = "test-world/zones.txt";

/// What certificates of the test world are trusted by, below the data directory.
pub const ROOT: &str = "test-world/root.pem";

contract::words! {
    /// How the authority behaves.
    pub enum Manners {
        /// It answers at once.
        Gentle = "gentle",
        /// It refuses half of all nonces and takes seconds to validate, as authorities on the internet may.
        Strict = "strict",
        /// It answers at once, and its certificates live for a minute: renewal can be watched.
        Brief = "brief",
    }
}

/// The running test world. It ends when it is dropped.
pub struct TestWorld {
    dns: TestDns,
    pebble: Pebble,
    zones: PathBuf,
}

impl TestWorld {
    /// Starts DNS; the authority follows when the edge has its ports.
    ///
    /// # Errors
    /// When there are no free ports or a file cannot be written.
    pub async fn start(data: &Path, platform: &Hostname, manners: Manners) -> anyhow::Result<Self> {
        std::fs::create_dir_all(data.join(DIRECTORY))?;
        let zones = data.join(ZONES);
        if !zones.exists() {
            std::fs::write(&zones, zones::first(platform, Ipv4Addr::LOCALHOST))?;
        }
        let dns = TestDns::start(zones.clone()).await?;
        let pebble = Pebble::prepare(&data.join(DIRECTORY), manners)?;
        Ok(Self { dns, pebble, zones })
    }

    /// What the control plane is told of this world.
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

    /// Starts the authority, which validates at these ports of the edge (HTTP and HTTPS), and writes down what its
    /// certificates are trusted by.
    ///
    /// # Errors
    /// When `pebble` is not installed or does not start.
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
