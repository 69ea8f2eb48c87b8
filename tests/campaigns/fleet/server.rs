//! The PostgreSQL server of a platform that keeps what must last in one.

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context as _;

use super::{Fleet, START_MAX};

/// Megabytes of its disk: a new server takes about forty, and its log twice sixteen.
const DISK: u32 = 160;

/// The server refuses to run as root; another user's server runs as that user.
const USER: &str = "nobody";

impl Fleet {
    /// Makes the server on a disk of its own, starts it, and gives each service its database.
    pub(super) async fn start_server(&mut self) -> anyhow::Result<()> {
        // The server's user must get to its disk; what else is here keeps its own rights.
        std::fs::set_permissions(&self.directory, std::fs::Permissions::from_mode(0o711))?;
        self.mount("postgres", DISK)?;
        let disk = self.directory.join("postgres");
        if is_root()? {
            let owned = Command::new("chown").arg(USER).arg(&disk).status()?;
            anyhow::ensure!(owned.success(), "the server's disk cannot be given to {USER}");
        }
        let made = as_user(&program("initdb")?)?
            .args(["--username=tollhouse", "--auth=trust", "--encoding=UTF8", "--locale=C.UTF-8", "--no-sync"])
            .arg("--pgdata")
            .arg(disk.join("data"))
            .output()?;
        anyhow::ensure!(made.status.success(), "initdb: {}", String::from_utf8_lossy(&made.stderr));
        self.begin("postgres")?;
        let began = Instant::now();
        for name in ["orders", "domains"] {
            while let Err(error) = self.sql(&format!("CREATE DATABASE {name}")) {
                anyhow::ensure!(began.elapsed() < START_MAX, "the PostgreSQL server does not start: {error:#}");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
        Ok(())
    }

    pub(super) fn database_url(&self, name: &str) -> String {
        format!("postgres://tollhouse@127.0.0.1:{}/{name}?sslmode=disable", self.ports.postgres)
    }

    pub(super) fn server_command(&self) -> anyhow::Result<Command> {
        let mut command = as_user(&program("postgres")?)?;
        command.arg("-D").arg(self.directory.join("postgres/data"));
        let port = format!("port={}", self.ports.postgres);
        let settings = [
            &port,
            "listen_addresses=127.0.0.1",
            "unix_socket_directories=",
            "shared_buffers=32MB",
            "max_wal_size=32MB",
        ];
        for setting in settings {
            command.args(["-c", setting]);
        }
        Ok(command)
    }

    fn sql(&self, statement: &str) -> anyhow::Result<()> {
        let mut command = as_user(&program("psql")?)?;
        let url = self.database_url("postgres");
        let output = command.args(["-X", "-q", "-d", &url, "-c", statement]).stdin(Stdio::null()).output()?;
        anyhow::ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Ok(())
    }

    /// Stops the server at once, as a crash would.
    pub(crate) fn stop_server(&mut self) -> anyhow::Result<()> {
        self.signal("postgres", "-QUIT")?;
        let mut child = self.processes.remove("postgres").context("the server does not run")?;
        child.wait()?;
        Ok(())
    }

    /// Sends a signal to the server and to each of its processes, of which every connection has one.
    pub(crate) fn signal_server(&self, signal: &str) -> anyhow::Result<()> {
        self.signal("postgres", signal)?;
        let parent = self.processes.get("postgres").context("the server does not run")?.id().to_string();
        for entry in std::fs::read_dir("/proc")? {
            let path = entry?.path();
            let status = std::fs::read_to_string(path.join("status")).unwrap_or_default();
            let is_child = status.lines().any(|line| line.strip_prefix("PPid:").is_some_and(|of| of.trim() == parent));
            if let (true, Some(number)) = (is_child, path.file_name()) {
                // One that has ended meanwhile needs no signal.
                Command::new("kill").arg(signal).arg(number).stderr(Stdio::null()).status()?;
            }
        }
        Ok(())
    }

    /// Starts the server if it gave up without space.
    pub(crate) fn revive_server(&mut self) -> anyhow::Result<()> {
        let ended = match self.processes.get_mut("postgres") {
            Some(child) => child.try_wait()?.is_some(),
            None => true,
        };
        if ended { self.begin("postgres") } else { Ok(()) }
    }
}

/// Whether this process may mount file systems and change users.
pub(crate) fn is_root() -> anyhow::Result<bool> {
    use std::os::unix::fs::MetadataExt as _;
    Ok(std::fs::metadata("/proc/self")?.uid() == 0)
}

fn as_user(program: &std::path::Path) -> anyhow::Result<Command> {
    let mut command = Command::new(program);
    if is_root()? {
        command = Command::new("setpriv");
        command.args(["--reuid", USER, "--regid", "nogroup", "--clear-groups"]).arg(program);
    }
    command.current_dir("/").env("LC_ALL", "C.UTF-8");
    Ok(command)
}

/// A program of the newest server that Debian has installed.
fn program(name: &str) -> anyhow::Result<PathBuf> {
    let mut versions: Vec<PathBuf> = std::fs::read_dir("/usr/lib/postgresql")
        .map(|entries| entries.filter_map(|entry| Some(entry.ok()?.path().join("bin").join(name))).collect())
        .unwrap_or_default();
    versions.retain(|path| path.exists());
    versions.sort();
    versions.pop().with_context(|| format!("there is no {name}; install it: apt-get install postgresql"))
}
