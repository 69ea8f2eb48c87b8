//! The platform as several processes on this machine: two gateways, both services, Redis and Prometheus; with files, or
//! with a PostgreSQL server.

mod ports;
mod prometheus;
mod server;
pub(crate) use self::server::is_root;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use serde_json::Value;
use socket2::Socket;

use self::ports::{Ports, ports, reserve};

/// Longest start of a process.
const START_MAX: Duration = Duration::from_mins(1);

/// Size of the small file systems in megabytes. A gateway needs sixteen free.
const SMALL_DISK: u32 = 32;

/// The databases of the services.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Store {
    /// A file for each service, on a separate small disk.
    Files,
    /// A PostgreSQL server on a small disk.
    Server,
}

/// What a campaign changes about a process.
#[derive(Default)]
pub(crate) struct Change {
    /// A settings file in place of the shipped one.
    pub(crate) settings: Option<PathBuf>,
    pub(crate) variables: Vec<(&'static str, String)>,
}

/// The running platform.
pub(crate) struct Fleet {
    pub(crate) ports: Ports,
    pub(crate) directory: PathBuf,
    /// By process; taken at its next start.
    pub(crate) changes: BTreeMap<&'static str, Change>,
    /// Further processes with their command lines.
    pub(crate) others: BTreeMap<&'static str, Vec<String>>,
    store: Store,
    programs: PathBuf,
    pub(crate) repository: PathBuf,
    processes: BTreeMap<&'static str, Child>,
    disks: Vec<PathBuf>,
    /// Sockets that do not listen: no other process of this machine gets the port, even while its server is down.
    reserved: Vec<Socket>,
}

impl Fleet {
    pub(crate) async fn start(
        programs: &Path,
        repository: &Path,
        directory: &Path,
        store: Store,
    ) -> anyhow::Result<Self> {
        anyhow::ensure!(is_root()?, "small file systems, which can be filled, need root");
        let mut fleet = Self::prepare(programs, repository, directory, store).await?;
        for name in ["redis", "domains-service", "orders-service", "gateway-1", "gateway-2", "prometheus"] {
            fleet.begin(name)?;
        }
        let ports = fleet.ports;
        fleet.answers(ports.admin[0], "/readyz").await?;
        fleet.answers(ports.admin[1], "/readyz").await?;
        fleet.answers(ports.prometheus, "/-/ready").await?;
        Ok(fleet)
    }

    /// Makes all files, and starts the PostgreSQL server if there is one.
    pub(crate) async fn prepare(
        programs: &Path,
        repository: &Path,
        directory: &Path,
        store: Store,
    ) -> anyhow::Result<Self> {
        let mut reserved = Vec::new();
        let mut fleet = Self {
            ports: ports(&mut reserved)?,
            changes: BTreeMap::new(),
            others: BTreeMap::new(),
            reserved,
            directory: directory.to_owned(),
            store,
            programs: programs.canonicalize()?,
            repository: repository.canonicalize()?,
            processes: BTreeMap::new(),
            disks: Vec::new(),
        };
        for name in ["orders", "domains", "gateway-2"] {
            fleet.mount(name, SMALL_DISK)?;
        }
        if store == Store::Server {
            fleet.start_server().await?;
        }
        let ports = fleet.ports;
        let at = |port: u16| format!("127.0.0.1:{port}");
        let init = [
            "init".to_owned(),
            format!("--edge=gateway-1={}", at(ports.admin[0])),
            format!("--edge=gateway-2={}", at(ports.admin[1])),
            format!("--control={}", at(ports.control)),
            format!("--orders={}", at(ports.orders)),
            format!("--http-port={}", ports.http[0]),
            format!("--https-port={}", ports.https[0]),
        ];
        fleet.tollhouse(&init.each_ref().map(String::as_str))?;
        Ok(fleet)
    }

    /// A further port.
    pub(crate) fn port(&mut self) -> anyhow::Result<u16> {
        reserve(&mut self.reserved)
    }

    fn mount(&mut self, name: &str, megabytes: u32) -> anyhow::Result<()> {
        let place = self.directory.join(name);
        std::fs::create_dir_all(&place)?;
        // Only root can fill a disk.
        if !is_root()? {
            return Ok(());
        }
        let size = format!("size={megabytes}m");
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(&place).status()?;
        anyhow::ensure!(mounted.success(), "a small file system cannot be mounted: {mounted}");
        self.disks.push(place);
        Ok(())
    }

    /// Starts a process that is not running.
    pub(crate) fn begin(&mut self, name: &'static str) -> anyhow::Result<()> {
        let mut command = self.command(name)?;
        if let Some(change) = self.changes.get(name) {
            command.envs(change.variables.iter().map(|(name, value)| (name, value)));
        }
        let log =
            std::fs::OpenOptions::new().create(true).append(true).open(self.directory.join(format!("{name}.log")))?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let child = command.spawn().with_context(|| format!("starting {name}: is it installed?"))?;
        self.processes.insert(name, child);
        Ok(())
    }

    fn command(&self, name: &'static str) -> anyhow::Result<Command> {
        let ports = self.ports;
        let at = |port: u16| format!("127.0.0.1:{port}");
        let file = |name: &str| self.directory.join(name).display().to_string();
        let changed = self.changes.get(name).and_then(|change| change.settings.clone());
        let ours = |program: &str, prefix: &str, settings: &[(&str, String)]| {
            let mut command = Command::new(self.programs.join(program));
            let shipped = format!("config/{program}.toml").into();
            command.current_dir(&self.repository).arg("--config").arg(changed.as_ref().unwrap_or(&shipped));
            for (setting, value) in settings {
                command.env(format!("TOLLHOUSE_{prefix}_{setting}"), value);
            }
            command
        };
        let sealing = ("SEALING_SECRET_FILE", file("secrets/sealing.key"));
        let gateway = |index: usize| {
            let of = |pair: [u16; 2]| at(pair.get(index).copied().unwrap_or_default());
            let settings = [
                ("CREDENTIAL_FILE", file(&format!("secrets/gateways/gateway-{}.key", index + 1))),
                sealing.clone(),
                ("DATA_DIRECTORY", file(&format!("gateway-{}", index + 1))),
                ("LISTEN_HTTP", of(ports.http)),
                ("LISTEN_HTTPS", of(ports.https)),
                ("LISTEN_ADMIN", of(ports.admin)),
                ("TLS_PLATFORM_CERTIFICATE_FILE", file("ca/platform.pem")),
                ("TLS_PLATFORM_KEY_FILE", file("ca/platform.key")),
                ("FEED_URL", format!("http://{}", at(ports.control))),
                ("QUOTA_STORE", "redis".to_owned()),
                ("QUOTA_REDIS_URLS", format!("redis://{}", at(ports.redis))),
                ("UPSTREAMS_ORDERS_ENDPOINTS", at(ports.orders_http)),
                ("UPSTREAMS_DOMAINS_ENDPOINTS", at(ports.domains_http)),
            ];
            ours("gateway", "GATEWAY", &settings)
        };
        let [kind, kept] = match self.store {
            Store::Files => ["sqlite", "DATABASE"],
            Store::Server => ["postgres", "STORE_URL"],
        };
        let kind = ("STORE_KIND", kind.to_owned());
        let created = ("CREATE_DATABASE", "true".to_owned());
        let kept = |name: &str| match self.store {
            Store::Files => (kept, file(&format!("{name}/{name}.sqlite"))),
            Store::Server => (kept, self.database_url(name)),
        };
        Ok(match name {
            "gateway-1" => gateway(0),
            "gateway-2" => gateway(1),
            "orders-service" => ours(
                name,
                "ORDERS",
                &[
                    ("CREDENTIAL_FILE", file("secrets/services/orders-service.key")),
                    ("IDENTITY_TRUST_FILE", file("orders-trust.json")),
                    created,
                    kind,
                    kept("orders"),
                    ("LISTEN", at(ports.orders_http)),
                    ("INTERNAL_LISTEN", at(ports.orders)),
                    ("ADMIN_LISTEN", at(ports.orders_admin)),
                    ("EVENTS_URL", format!("http://{}", at(ports.control))),
                ],
            ),
            "domains-service" => ours(
                name,
                "DOMAINS",
                &[
                    ("SECRET_FILE", file("secrets/platform.key")),
                    ("GATEWAYS_DIRECTORY", file("secrets/gateways")),
                    ("REVOCATIONS_FILE", file("revoked-credentials.jsonl")),
                    ("SERVICES_DIRECTORY", file("secrets/services")),
                    sealing,
                    created,
                    kind,
                    kept("domains"),
                    ("PLATFORM_DOMAIN", "tollhouse.localhost".to_owned()),
                    ("PLANS", self.repository.join("config/plans.toml").display().to_string()),
                    ("ALLOW_LOCAL_NAMES", "true".to_owned()),
                    ("LOCAL_AUTHORITY_CA_CERTIFICATE_FILE", file("ca/ca.pem")),
                    ("LOCAL_AUTHORITY_CA_KEY_FILE", file("ca/ca.key")),
                    ("LISTEN", at(ports.domains_http)),
                    ("INTERNAL_LISTEN", at(ports.control)),
                    ("ADMIN_LISTEN", at(ports.domains_admin)),
                ],
            ),
            other => self.command_of_others(other)?,
        })
    }

    /// The command of a program that is not the platform's.
    fn command_of_others(&self, name: &str) -> anyhow::Result<Command> {
        let ports = self.ports;
        let file = |name: &str| self.directory.join(name).display().to_string();
        Ok(match name {
            "redis" => {
                let mut command = Command::new("redis-server");
                command.args(["--bind", "127.0.0.1", "--save", "", "--port"]).arg(ports.redis.to_string());
                command
            }
            "postgres" => self.server_command()?,
            "prometheus" => {
                self.configure_prometheus()?;
                let mut command = Command::new("prometheus");
                command
                    .arg(format!("--config.file={}", file("prometheus.yml")))
                    .arg(format!("--storage.tsdb.path={}", file("prometheus")))
                    .arg(format!("--web.listen-address={}", format_args!("127.0.0.1:{}", ports.prometheus)));
                command
            }
            other => {
                let line = self.others.get(other).with_context(|| format!("there is no process {other}"))?;
                let (program, arguments) = line.split_first().context("a program")?;
                let mut command = Command::new(program);
                command.args(arguments);
                command
            }
        })
    }

    /// `kill -9`.
    pub(crate) fn kill(&mut self, name: &str) -> anyhow::Result<()> {
        let mut child = self.processes.remove(name).with_context(|| format!("{name} does not run"))?;
        child.kill()?;
        child.wait()?;
        Ok(())
    }

    /// SIGTERM; waits for the end.
    pub(crate) fn quit(&mut self, name: &str) -> anyhow::Result<()> {
        self.signal(name, "-TERM")?;
        let mut child = self.processes.remove(name).with_context(|| format!("{name} does not run"))?;
        let status = child.wait()?;
        anyhow::ensure!(status.success(), "{name} ended with {status}");
        Ok(())
    }

    /// The ids of the processes that run.
    pub(crate) fn ids(&self) -> Vec<u32> {
        self.processes.values().map(Child::id).collect()
    }

    /// Processes that have ended by themselves.
    pub(crate) fn ended(&mut self) -> anyhow::Result<Vec<&'static str>> {
        let mut ended = Vec::new();
        for (name, child) in &mut self.processes {
            if child.try_wait()?.is_some() {
                ended.push(*name);
            }
        }
        Ok(ended)
    }

    /// `kill -STOP` or `kill -CONT`.
    pub(crate) fn signal(&self, name: &str, signal: &str) -> anyhow::Result<()> {
        let child = self.processes.get(name).with_context(|| format!("{name} does not run"))?;
        let sent = Command::new("kill").arg(signal).arg(child.id().to_string()).status()?;
        anyhow::ensure!(sent.success(), "kill {signal} {name}: {sent}");
        Ok(())
    }

    /// A command to Redis.
    pub(crate) fn redis(&self, words: &[&str]) -> anyhow::Result<()> {
        self.redis_says(words).map(drop)
    }

    /// A command to Redis, and its reply.
    pub(crate) fn redis_says(&self, words: &[&str]) -> anyhow::Result<String> {
        let port = self.ports.redis.to_string();
        let sent = Command::new("redis-cli").args(["-p", &port]).args(words).output()?;
        anyhow::ensure!(sent.status.success(), "redis-cli {words:?}: {sent:?}");
        Ok(String::from_utf8_lossy(&sent.stdout).into_owned())
    }

    /// Fills a small disk to its last byte.
    pub(crate) fn fill(&self, disk: &str) -> anyhow::Result<()> {
        use std::io::Write as _;
        let mut file = std::fs::File::create(self.directory.join(disk).join("ballast"))?;
        for size in [64 * 1024, 512] {
            let piece = vec![0; size];
            while file.write_all(&piece).is_ok() {}
        }
        Ok(())
    }

    /// Frees the disk.
    pub(crate) fn clear(&self, disk: &str) -> anyhow::Result<()> {
        Ok(std::fs::remove_file(self.directory.join(disk).join("ballast"))?)
    }

    /// Publishes domains with their certificates, which every gateway must store.
    pub(crate) fn attach(&self, domains: u32) -> anyhow::Result<()> {
        for number in 0..domains {
            self.tollhouse(&["domain", "add", "shop", &format!("shop-{number}.localhost")])?;
        }
        Ok(())
    }

    /// A command of the operator; its JSON.
    pub(crate) fn tollhouse(&self, arguments: &[&str]) -> anyhow::Result<Value> {
        let output = Command::new(self.programs.join("tollhouse"))
            .args(arguments)
            .arg("--json")
            .arg("--data-dir")
            .arg(&self.directory)
            .output()?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        // 3: the command succeeded and reports a problem.
        let carried_out = matches!(output.status.code(), Some(0 | 3));
        anyhow::ensure!(carried_out, "tollhouse {}: {said}", arguments.join(" "));
        serde_json::from_slice(&output.stdout).with_context(|| format!("tollhouse {}", arguments.join(" ")))
    }

    async fn answers(&self, port: u16, path: &str) -> anyhow::Result<()> {
        let began = Instant::now();
        let client = reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(2)).build()?;
        let url = format!("http://127.0.0.1:{port}{path}");
        while !client.get(&url).send().await.is_ok_and(|answer| answer.status().is_success()) {
            anyhow::ensure!(
                began.elapsed() < START_MAX,
                "{url} did not answer; the logs are in {}",
                self.directory.display()
            );
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        Ok(())
    }

    /// Stops all processes and unmounts the small disks.
    pub(crate) fn end(&mut self) {
        if self.processes.contains_key("postgres") {
            let _ = self.signal_server("-CONT");
            let _ = self.stop_server();
        }
        for child in self.processes.values_mut() {
            let _ = child.kill();
            let _ = child.wait();
        }
        self.processes.clear();
        for disk in self.disks.drain(..) {
            let _ = Command::new("umount").arg(disk).status();
        }
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        self.end();
    }
}
