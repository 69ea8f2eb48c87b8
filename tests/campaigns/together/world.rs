//! The platform on which draws run in turn: real processes, and proxies between the gateways and what they use.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use axum::Router;
use axum::routing::get;
use serde_json::Value;
use tempfile::TempDir;

use crate::broken::{Broken, broken, eventually, within};
use crate::clock;
use crate::fault_proxy::FaultProxy;
use crate::faults::{CALL_BUDGET, How, Part, Possible};
use crate::fleet::{Change, Fleet, Store, is_root};

/// Longest start of a platform, on a machine that is busy with others.
const START_MAX: Duration = Duration::from_mins(4);

const GATEWAYS: [&str; 2] = ["gateway-1", "gateway-2"];

/// The running platform.
pub(crate) struct World {
    pub(crate) fleet: Fleet,
    store_links: Vec<FaultProxy>,
    control_links: Vec<FaultProxy>,
    /// Gateways that need a new credential: their process that lost its data would be waited for.
    wiped: BTreeSet<usize>,
    pub(crate) is_root: bool,
    /// Whether it may wait for what takes a quarter of a minute.
    pub(crate) is_patient: bool,
    _directory: TempDir,
}

impl World {
    pub(crate) async fn start(is_patient: bool) -> Self {
        let program = Path::new(env!("CARGO_BIN_EXE_tollhouse"));
        let programs = program.parent().unwrap();
        for name in ["gateway", "domains-service", "orders-service", "dev-world"] {
            assert!(programs.join(name).exists(), "{name} is not built: cargo build --workspace --bins");
        }
        let repository = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let (directory, is_root) = (tempfile::tempdir().unwrap(), is_root().unwrap());
        let mut fleet = Fleet::prepare(programs, repository, directory.path(), Store::Server).await.unwrap();
        let (store_links, control_links): (Vec<_>, Vec<_>) =
            (0..2).map(|_| (FaultProxy::start(fleet.ports.redis), FaultProxy::start(fleet.ports.control))).unzip();
        let site = site().await;
        let shipped = std::fs::read_to_string(repository.join("config/gateway.toml")).unwrap();
        let settings = directory.path().join("gateway.toml");
        std::fs::write(&settings, format!("{shipped}\n[upstreams.site]\nendpoints = [\"{site}\"]\n")).unwrap();
        for (number, name) in GATEWAYS.into_iter().enumerate() {
            let mut variables = vec![
                ("TOLLHOUSE_GATEWAY_FEED_URL", format!("http://127.0.0.1:{}", control_links[number].port)),
                ("TOLLHOUSE_GATEWAY_QUOTA_REDIS_URLS", format!("redis://127.0.0.1:{}", store_links[number].port)),
                ("TOLLHOUSE_GATEWAY_QUOTA_REDIS_CALL_BUDGET", format!("{CALL_BUDGET}ms")),
                ("TOLLHOUSE_GATEWAY_QUOTA_BANS", "off".to_owned()),
                ("TOLLHOUSE_GATEWAY_QUOTA_FAILED_AUTHENTICATIONS_PER_MINUTE", "1000000".to_owned()),
                ("TOLLHOUSE_GATEWAY_DRAIN_LAME_DUCK", "0s".to_owned()),
            ];
            variables.extend(clock::of_program(&clock_file(directory.path(), name), 0));
            fleet.changes.insert(name, Change { settings: Some(settings.clone()), variables });
        }
        let variables = clock::of_redis(&clock_file(directory.path(), "redis"), 0).to_vec();
        fleet.changes.insert("redis", Change { settings: None, variables });
        let mut world = Self {
            fleet,
            store_links,
            control_links,
            wiped: BTreeSet::new(),
            is_root,
            is_patient,
            _directory: directory,
        };
        world.prepare_verification(programs, repository).await;
        for name in ["redis", "domains-service", "orders-service", "gateway-1", "gateway-2"] {
            world.fleet.begin(name).unwrap();
        }
        world.healed(START_MAX, Instant::now()).await.unwrap();
        world
    }

    /// The resolver and the authority, and the control plane's settings for them.
    async fn prepare_verification(&mut self, programs: &Path, repository: &Path) {
        let (dns, acme, management) =
            (self.fleet.port().unwrap(), self.fleet.port().unwrap(), self.fleet.port().unwrap());
        let place = self.fleet.directory.clone();
        let resolver = [
            &programs.join("dev-world").display().to_string(),
            "serve",
            &format!("--listen=127.0.0.1:{dns}"),
            "--edge=127.0.0.1",
            "--authority=localhost",
            "--data-dir",
            &place.display().to_string(),
        ];
        self.fleet.others.insert("resolver", resolver.map(str::to_owned).to_vec());
        self.fleet.begin("resolver").unwrap();
        let made = place.join("test-world/pebble.json");
        // It may be half-written.
        let read = async || serde_json::from_slice::<Value>(&std::fs::read(&made).ok()?).ok();
        let mut settings = within(START_MAX, "the test world is prepared", read).await.unwrap();
        settings["pebble"]["listenAddress"] = format!("127.0.0.1:{acme}").into();
        settings["pebble"]["managementListenAddress"] = format!("127.0.0.1:{management}").into();
        settings["pebble"]["httpPort"] = self.fleet.ports.http[0].into();
        settings["pebble"]["tlsPort"] = self.fleet.ports.https[0].into();
        let file = place.join("authority.json");
        std::fs::write(&file, settings.to_string()).unwrap();
        let authority = ["pebble", "-config", &file.display().to_string(), "-dnsserver", &format!("127.0.0.1:{dns}")];
        self.fleet.others.insert("authority", authority.map(str::to_owned).to_vec());
        let quick = [("PEBBLE_VA_NOSLEEP", "1".to_owned()), ("PEBBLE_WFE_NONCEREJECT", "0".to_owned())];
        self.fleet.changes.insert("authority", Change { settings: None, variables: quick.to_vec() });
        self.fleet.begin("authority").unwrap();
        let shipped = std::fs::read_to_string(repository.join("config/dev/domains-service.toml")).unwrap();
        let text = shipped
            .replace("https://pebble:14000/dir", &format!("https://localhost:{acme}/dir"))
            .replace("/data/test-world", &place.join("test-world").display().to_string());
        let file = place.join("domains-service.toml");
        std::fs::write(&file, text).unwrap();
        let variables = vec![("TOLLHOUSE_DOMAINS_DNS_NAMESERVERS", format!("127.0.0.1:{dns}"))];
        self.fleet.changes.insert("domains-service", Change { settings: Some(file), variables });
    }

    /// Lets DNS send a name to the platform.
    pub(crate) fn point(&self, name: &str, target: &str) {
        use std::io::Write as _;
        let zones = self.fleet.directory.join("test-world/zones.txt");
        let mut file = std::fs::File::options().append(true).open(zones).unwrap();
        writeln!(file, "{name} CNAME {target}").unwrap();
    }

    /// Causes a fault.
    pub(crate) fn begin(&mut self, what: &Possible) {
        let process = process(what.part);
        match (what.part, what.how) {
            (Part::StoreLink(number), how) => disturb(&self.store_links[number], how),
            (Part::ControlLink(number), how) => disturb(&self.control_links[number], how),
            (Part::Clock(_) | Part::StoreClock, How::Step(by)) => self.step(process, by),
            (Part::Database, How::Stop) => self.fleet.signal_server("-STOP").unwrap(),
            (Part::Database, How::Kill) => self.fleet.stop_server().unwrap(),
            (_, How::Fill) => self.fleet.fill(process).unwrap(),
            (_, How::Stop) => self.fleet.signal(process, "-STOP").unwrap(),
            (_, How::Kill) => self.fleet.kill(process).unwrap(),
            (_, How::Quit) => self.fleet.quit(process).unwrap(),
            (Part::Store, How::Wipe) => self.fleet.redis(&["FLUSHALL"]).unwrap(),
            (Part::Gateway(number), How::Wipe) => {
                self.fleet.kill(process).unwrap();
                empty(&self.fleet.directory.join(process));
                self.wiped.insert(number);
            }
            other => panic!("there is no such fault: {other:?}"),
        }
    }

    /// Ends a fault.
    pub(crate) async fn end(&mut self, what: &Possible) -> Result<(), Broken> {
        let process = process(what.part);
        match (what.part, what.how) {
            (Part::StoreLink(number), _) => restore(&self.store_links[number]),
            (Part::ControlLink(number), _) => restore(&self.control_links[number]),
            (Part::Clock(_) | Part::StoreClock, _) => self.step(process, 0),
            (Part::Store, How::Wipe) => {}
            (Part::Database, How::Stop) => self.fleet.signal_server("-CONT").unwrap(),
            (_, How::Fill) => self.fleet.clear(process).unwrap(),
            (_, How::Stop) => self.fleet.signal(process, "-CONT").unwrap(),
            _ => self.fleet.begin(process).unwrap(),
        }
        if let Some(number) = what.gateway_restarted() {
            let address = SocketAddr::from(([127, 0, 0, 1], self.fleet.ports.https[number]));
            let connects = async || tokio::net::TcpStream::connect(address).await.ok();
            let outcome = eventually("a gateway that starts accepts connections", connects).await;
            outcome.map_err(|error| error.with(process))?;
        }
        Ok(())
    }

    /// Sets the clock of a process to this many seconds off.
    fn step(&self, process: &str, by: i64) {
        clock::set(&clock_file(&self.fleet.directory, process), by);
    }

    /// Restores the health of everything, as an operator does: starts what ended without its database, if that was in
    /// trouble, and gives wiped gateways a new credential.
    pub(crate) async fn heal(&mut self, database_failed: bool) -> Result<(), Broken> {
        const NEED_THE_DATABASE: [&str; 3] = ["postgres", "domains-service", "orders-service"];
        for name in self.fleet.ended().unwrap() {
            if !database_failed || !NEED_THE_DATABASE.contains(&name) {
                return broken("no process ends by itself", name);
            }
            self.fleet.begin(name).unwrap();
        }
        for number in std::mem::take(&mut self.wiped) {
            self.enrol(number).await?;
        }
        Ok(())
    }

    /// Waits until `tollhouse status` says nothing that is newer than this moment.
    pub(crate) async fn healed(&mut self, patience: Duration, since: Instant) -> Result<(), Broken> {
        let mut last = String::new();
        let healthy = async || {
            let status = match self.status() {
                Ok(status) => status,
                Err(error) => {
                    last = error;
                    return None;
                }
            };
            let trouble = crate::said::trouble(&status);
            if let Some(defect) = trouble.iter().find(|line| crate::said::is_defect(line)) {
                return Some(broken("status names no defect", defect));
            }
            last = trouble.into_iter().filter(|line| crate::said::is_new(line, since)).collect();
            let edges = status["edges"].as_array()?;
            let newest = status["nodes"]["revision"].as_u64()?;
            let counts = |edge: &Value| ["lease", "exact"].iter().any(|mode| edge["quota"]["mode"] == *mode);
            let follows = |edge: &Value| edge["ready"] == true && edge["revision"].as_u64() >= Some(newest);
            (last.is_empty() && edges.iter().all(|edge| counts(edge) && follows(edge))).then_some(Ok(()))
        };
        let outcome = within(patience, "everything is healthy", healthy).await;
        outcome.map_err(|error| error.with(last))?
    }

    /// Gives a gateway that lost its data directory a new credential, so that nothing waits for its former process.
    async fn enrol(&mut self, number: usize) -> Result<(), Broken> {
        let name = GATEWAYS[number];
        let mut credential = None;
        let enrolled = async || {
            let _ = self.fleet.tollhouse(&["node", "revoke", name]);
            let made = self.fleet.tollhouse(&["node", "add", name]).ok()?;
            credential = made["credential"].as_str().map(str::to_owned);
            credential.as_ref().map(|_| ())
        };
        eventually("a gateway gets a new credential", enrolled).await?;
        let file = self.fleet.directory.join(format!("secrets/gateways/{name}.key"));
        std::fs::write(file, credential.unwrap()).unwrap();
        self.fleet.kill(name).unwrap();
        self.fleet.begin(name).unwrap();
        Ok(())
    }

    /// `tollhouse status`.
    pub(crate) fn status(&self) -> Result<Value, String> {
        tokio::task::block_in_place(|| self.fleet.tollhouse(&["status"])).map_err(|error| format!("{error:#}"))
    }
}

/// The process of a part, which is also the name of its disk.
fn process(part: Part) -> &'static str {
    match part {
        Part::Store | Part::StoreClock | Part::StoreLink(_) => "redis",
        Part::Database => "postgres",
        Part::Control | Part::ControlLink(_) => "domains-service",
        Part::Gateway(number) | Part::Clock(number) => GATEWAYS[number],
        Part::Resolver => "resolver",
        Part::Authority => "authority",
    }
}

fn disturb(link: &FaultProxy, how: How) {
    match how {
        How::Delay(by) => link.delay(Duration::from_millis(by)),
        How::Cut => link.cut(true),
        _ => link.swallow(true),
    }
}

fn restore(link: &FaultProxy) {
    link.delay(Duration::ZERO);
    link.swallow(false);
    // A connection that lost a part of its data cannot go on.
    link.cut(false);
}

/// Removes everything in a directory, which may be a file system.
fn empty(directory: &Path) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { std::fs::remove_dir_all(path).unwrap() } else { std::fs::remove_file(path).unwrap() }
    }
}

/// The upstream of every project: in this process, because it never fails.
async fn site() -> SocketAddr {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let router = Router::new().fallback(get(|| async { "hello" }));
    tokio::spawn(async move { axum::serve(listener, router).await });
    address
}

fn clock_file(directory: &Path, process: &str) -> PathBuf {
    directory.join(format!("{process}.clock"))
}

/// Says which faults are left out.
pub(crate) fn say_what_is_left_out() {
    if !is_root().unwrap() {
        let left_out: Vec<&str> =
            crate::faults::POSSIBLE.iter().filter(|what| what.needs_root()).map(|what| what.name).collect();
        eprintln!("NOT CHECKED without root: {}", left_out.join(", "));
    }
}
