//! `tollhouse up --test-world` as a process, with commands of a user.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

/// A running platform. Dropping it ends the process and removes its directory.
pub(crate) struct Platform {
    directory: TempDir,
    process: Child,
    pub(crate) demo: Value,
}

impl Platform {
    pub(crate) fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut process = tollhouse()
            .args(["up", "--json", "--test-world", "--http-port", "0", "--https-port", "0", "--admin-port", "0"])
            .arg("--data-dir")
            .arg(directory.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(line.starts_with('{'), "tollhouse up did not come up: {line:?}");
        let demo = serde_json::from_slice(&std::fs::read(directory.path().join("demo.json")).unwrap()).unwrap();
        Self { directory, process, demo }
    }

    /// An address of the dashboard.
    pub(crate) fn dashboard(&self, path: &str) -> String {
        let domain = self.demo["platform_domain"].as_str().unwrap();
        format!("https://dashboard.{domain}:{}{path}", self.demo["https_port"])
    }

    /// The first key of a plan's demo project, with all scopes.
    pub(crate) fn key(&self, plan: &str) -> String {
        let projects = self.demo["projects"].as_array().unwrap();
        let project = projects.iter().find(|project| project["plan"] == plan).unwrap();
        project["keys"][0]["key"].as_str().unwrap().to_owned()
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Output {
        tollhouse().args(arguments).arg("--data-dir").arg(self.directory.path()).output().unwrap()
    }

    /// A command that must succeed; its JSON.
    pub(crate) fn json(&self, arguments: &[&str]) -> Value {
        let output = self.command(&[arguments, &["--json"]].concat());
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// Sets a DNS record of the test world.
    pub(crate) fn dns(&self, name: &str, kind: &str, value: &str) {
        let output = self.command(&["dns", "set", name, kind, value]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    /// Appends lines to the zone file of the test world's nameservers.
    pub(crate) fn world(&self, lines: &[String]) {
        let file = self.directory.path().join("test-world/zones.txt");
        let text = std::fs::read_to_string(&file).unwrap() + &lines.join("\n") + "\n";
        // Atomically, because the nameservers can read it at any time.
        std::fs::write(file.with_extension("new"), text).unwrap();
        std::fs::rename(file.with_extension("new"), &file).unwrap();
    }

    /// The records that a project must create for a name.
    pub(crate) fn records(&self, project: &str, name: &str) -> Vec<(String, String)> {
        let checked = self.json(&["domain", "check", project, name]);
        let field = |record: &Value, name: &str| record[name].as_str().unwrap().to_owned();
        let records = checked["records"].as_array().unwrap().iter();
        records.map(|record| (field(record, "type"), field(record, "value"))).collect()
    }

    /// A client that resolves every name to this machine, accepts every certificate and does not follow redirects.
    pub(crate) fn visitor(&self, host: &str) -> (reqwest::Client, String) {
        let port = self.demo["https_port"].as_u64().unwrap();
        let client = reqwest::Client::builder()
            .tls_danger_accept_invalid_certs(true)
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .resolve(host, std::net::SocketAddr::from(([127, 0, 0, 1], 0)))
            .build()
            .unwrap();
        (client, format!("https://{host}:{port}"))
    }
}

impl Drop for Platform {
    fn drop(&mut self) {
        // SIGTERM, not SIGKILL: it must also stop the authority that it started.
        let pid = self.process.id().to_string();
        let _ = Command::new("kill").args(["-INT", &pid]).status();
        let _ = self.process.wait();
    }
}

fn tollhouse() -> Command {
    Command::new(env!("CARGO_BIN_EXE_tollhouse"))
}
