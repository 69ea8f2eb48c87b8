//! A Redis with a password, as the quota store of gateways.

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};

use chassis::secret::write_private;
use tempfile::TempDir;

/// The quota store.
pub(super) struct Redis {
    process: Child,
    port: u16,
    directory: TempDir,
}

const REDIS_PASSWORD: &str = "counted";

impl Redis {
    pub(super) fn start() -> Self {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let directory = tempfile::tempdir().unwrap();
        let process = Command::new("redis-server")
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--requirepass", REDIS_PASSWORD])
            .current_dir(directory.path())
            .stdout(Stdio::null())
            .spawn()
            .expect("redis-server is needed: install the package redis-server (./check does)");
        Self { process, port, directory }
    }

    /// The settings of a gateway with this quota store.
    pub(super) fn settings(&self) -> String {
        let file = self.directory.path().join("password");
        write_private(&file, REDIS_PASSWORD.as_bytes()).unwrap();
        format!(
            "[quota]\nstore = \"redis\"\n[quota.redis]\nurls = [\"redis://127.0.0.1:{}\"]\npassword_file = \"{}\"\n",
            self.port,
            file.display()
        )
    }

    /// Whether a gateway's password deletes a count.
    pub(super) fn deletes_a_count(&self) -> bool {
        let ask = |words: &[&str]| {
            let mut command = Command::new("redis-cli");
            command.args(["--no-auth-warning", "-a", REDIS_PASSWORD, "-p", &self.port.to_string()]).args(words);
            String::from_utf8(command.output().unwrap().stdout).unwrap()
        };
        let keys = ask(&["KEYS", "tollhouse:*"]);
        let Some(count) = keys.lines().next() else { return false };
        ask(&["DEL", count]).trim() == "1"
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}
