//! Gateways in processes of their own: where they listen, the settings that all of them need, and the process.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};

use super::credentials::credential;
use super::{SEALING_SECRET, certificates, eventually};
use crate::fleet::free_address;

/// Where one gateway listens, in every life.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) http: SocketAddr,
    pub(crate) https: SocketAddr,
    pub(crate) admin: SocketAddr,
}

impl Place {
    pub(crate) fn free() -> Self {
        Self { http: free_address(), https: free_address(), admin: free_address() }
    }

    /// The data directory. Two gateways may have one credential, but never one directory.
    pub(crate) fn data(self, directory: &Path) -> PathBuf {
        directory.join(format!("data-{}", self.admin.port()))
    }

    /// Settings of gateway `node` here, with these further tables; its data is below `directory`, and so is the
    /// platform's certificate, which this writes.
    pub(crate) fn settings(self, directory: &Path, node: usize, threads: u8, feed: SocketAddr, tables: &str) -> String {
        certificates::write(directory, certificates::platform());
        let file = |name: &str| directory.join(name).display().to_string();
        format!(
            r#"
            data_directory = "{data}"
            credential = "{credential}"
            sealing_secret = "{SEALING_SECRET}"
            threads = {threads}
            [listen]
            http = "{http}"
            https = "{https}"
            admin = "{admin}"
            [tls]
            platform_certificate_file = "{chain}"
            platform_key_file = "{key}"
            [feed]
            url = "http://{feed}"
            {tables}
            "#,
            data = self.data(directory).display(),
            credential = credential(node),
            http = self.http,
            https = self.https,
            admin = self.admin,
            chain = file("platform.pem"),
            key = file("platform.key"),
        )
    }
}

/// A gateway's process; dropping it kills it.
pub(crate) struct Gateway(pub(crate) Child);

impl Gateway {
    /// As a power cut does.
    pub(crate) fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }

    /// Announces the end, as a deployment does.
    pub(crate) fn terminate(&self) {
        let signalled = Command::new("kill").args(["-TERM", &self.0.id().to_string()]).status().unwrap();
        assert!(signalled.success());
    }

    pub(crate) async fn ended(&mut self) -> ExitStatus {
        eventually("the process ends", async || self.0.try_wait().unwrap()).await
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
