//! redis-server processes on free ports, in directories that go away with them.

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// A server of this test.
pub(crate) struct Redis {
    pub(crate) port: u16,
    process: Child,
    options: Vec<String>,
    directory: TempDir,
}

impl Redis {
    pub(crate) fn start() -> Self {
        Self::with(&[])
    }

    /// With further options of redis-server.
    pub(crate) fn with(options: &[&str]) -> Self {
        let options: Vec<String> = options.iter().map(|option| (*option).to_owned()).collect();
        let directory = tempfile::tempdir().unwrap();
        // Somebody else may take a port between our looking and the server's.
        for _ in 0..10 {
            let port = free_port();
            if let Some(process) = spawn(port, &options, &directory) {
                return Self { port, process, options, directory };
            }
        }
        panic!("redis-server did not start ten times in a row");
    }

    /// A sentinel with this configuration.
    pub(crate) fn sentinel(configuration: &std::path::Path) -> Self {
        Self::with(&[&format!("@{}", configuration.display()), "--sentinel"])
    }

    /// Ends the process as a power cut does.
    pub(crate) fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    /// Starts it again on the same port; without a dump it is empty.
    pub(crate) fn restart(&mut self) {
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            if let Some(process) = spawn(self.port, &self.options, &self.directory) {
                self.process = process;
                return;
            }
            assert!(Instant::now() < deadline, "redis-server did not start again on port {}", self.port);
        }
    }

    /// SIGSTOP: the kernel goes on accepting for it.
    pub(crate) fn freeze(&self) {
        self.signal("STOP");
    }

    pub(crate) fn thaw(&self) {
        self.signal("CONT");
    }

    fn signal(&self, name: &str) {
        let status = Command::new("kill").args([&format!("-{name}"), &self.process.id().to_string()]).status();
        assert!(status.unwrap().success());
    }

    /// A command from outside; its answer as text.
    pub(crate) fn ask(&self, command: &[&str]) -> String {
        ask(self.port, command)
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A command to the server at this port.
pub(crate) fn ask(port: u16, command: &[&str]) -> String {
    let output = Command::new("redis-cli").args(["-p", &port.to_string()]).args(command).output();
    let output = output.expect("redis-cli is needed: install the package redis-tools (./check does)");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

fn free_port() -> u16 {
    // Below the range that the kernel gives to clients, and with room for the Cluster's own port 10,000 above.
    loop {
        let port = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
        let port = 10_000 + port % 20_000;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() && TcpListener::bind(("127.0.0.1", port + 10_000)).is_ok() {
            return port;
        }
    }
}

fn spawn(port: u16, options: &[String], directory: &TempDir) -> Option<Child> {
    let mut command = Command::new("redis-server");
    // A configuration file comes before all options; what a sentinel is told to save it refuses.
    match options.split_first() {
        Some((file, rest)) if file.starts_with('@') => {
            command.arg(file.trim_start_matches('@')).args(["--port", &port.to_string(), "--bind", "127.0.0.1"]);
            command.args(rest);
        }
        _ => {
            command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]);
            command.args(options);
        }
    }
    let mut child = command
        .current_dir(directory.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("redis-server is needed: install the package redis-server (./check does)");
    let deadline = Instant::now() + Duration::from_secs(20);
    while child.try_wait().unwrap().is_none() {
        let answer = ask(port, &["PING"]);
        if answer == "PONG" || answer.starts_with("NOAUTH") {
            return Some(child);
        }
        assert!(Instant::now() < deadline, "redis-server does not answer on port {port}");
        std::thread::yield_now();
    }
    None
}
