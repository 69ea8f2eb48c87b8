//! Two gateway processes at fixed addresses, a control plane and an upstream.

use std::net::SocketAddr;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;

use contract::feed::Entity;
use contract::plan::Plan;
use tempfile::TempDir;
use tokio::sync::Semaphore;

use crate::fleet::free_address;
use crate::world::client::Ask;
use crate::world::control::ControlPlane;
use crate::world::credentials::credential;
use crate::world::entities::{TestKey, limited, project, site};
use crate::world::h2::H2;
use crate::world::observed::Admin;
use crate::world::upstream::{Act, Upstream, response};
use crate::world::{DEMO, ORDERS, OTHER, SEALING_SECRET, certificates, eventually};

/// Where one gateway listens, in every life.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) http: SocketAddr,
    pub(crate) https: SocketAddr,
    pub(crate) admin: SocketAddr,
}

pub(crate) struct Pair {
    places: [Place; 2],
    processes: [Option<Child>; 2],
    key: TestKey,
    free_key: TestKey,
    control: ControlPlane,
    orders: Upstream,
    lame_duck: &'static str,
    descriptors: Option<u32>,
    proxy: Option<SocketAddr>,
    directory: TempDir,
}

impl Pair {
    pub(crate) async fn start(lame_duck: &'static str) -> Self {
        let mut pair = Self::prepare(lame_duck).await;
        pair.run(0);
        pair.run(1);
        pair
    }

    /// One gateway, with this limit of descriptors if given.
    pub(crate) async fn single(descriptors: Option<u32>) -> Self {
        let mut pair = Self::prepare("0s").await;
        pair.descriptors = descriptors;
        pair.run(0);
        pair.serves().await;
        pair
    }

    /// Two gateways that do not run yet.
    pub(crate) async fn prepare(lame_duck: &'static str) -> Self {
        let (key, free_key) = (TestKey::new("demo", 1), TestKey::new("other", 1));
        let entities = vec![
            Entity::Project(limited("demo", 1_000_000, 100_000_000)),
            Entity::Project(project("other", Plan::Free)),
            site(DEMO, "demo"),
            site(OTHER, "other"),
            key.entity(),
            free_key.entity(),
        ];
        let directory = tempfile::tempdir().unwrap();
        let (chain, private) = certificates::platform();
        std::fs::write(directory.path().join("platform.pem"), chain).unwrap();
        std::fs::write(directory.path().join("platform.key"), private).unwrap();
        let place = || Place { http: free_address(), https: free_address(), admin: free_address() };
        std::fs::create_dir(directory.path().join("group")).unwrap();
        Self {
            places: [place(), place()],
            processes: [None, None],
            key,
            free_key,
            control: ControlPlane::start(entities),
            orders: Upstream::start().await,
            lame_duck,
            descriptors: None,
            proxy: None,
            directory,
        }
    }

    /// The control plane's address refuses connections.
    pub(crate) async fn control_dies(&self) {
        self.control.die().await;
    }

    /// The control plane comes back.
    pub(crate) fn control_comes_back(&self) {
        self.control.revive();
    }

    /// The whole log of a gateway.
    pub(crate) fn log(&self, node: usize) -> String {
        std::fs::read_to_string(self.directory.path().join(format!("gateway-{node}.log"))).unwrap()
    }

    /// Limits the descriptors of gateways that start from now on.
    pub(crate) fn limit_descriptors(&mut self, descriptors: u32) {
        self.descriptors = Some(descriptors);
    }

    /// Sets a proxy in the environment of gateways that start from now on.
    pub(crate) fn tell_of_proxy(&mut self, proxy: SocketAddr) {
        self.proxy = Some(proxy);
    }

    /// Waits until the first gateway answers a request with 200.
    pub(crate) async fn serves(&self) {
        eventually("the gateway serves", async || {
            let asking = H2::try_connect(self.places[0].https, DEMO).await.ok()?;
            (asking.try_ask(&self.ask()).await.ok()?.status == 200).then_some(())
        })
        .await;
    }

    /// Sets the memory limit of the gateways' control group, in bytes. As with the kernel's own file, a reader never
    /// sees half a figure.
    pub(crate) fn grant_memory(&self, bytes: u64) {
        let file = self.directory.path().join("group/memory.max");
        let new = file.with_extension("new");
        std::fs::write(&new, format!("{bytes}\n")).unwrap();
        std::fs::rename(new, file).unwrap();
    }

    pub(crate) fn places(&self) -> [Place; 2] {
        self.places
    }

    /// Waits for the exit of a process.
    pub(crate) async fn ended(&mut self, node: usize) -> ExitStatus {
        let mut process = self.processes[node].take().expect("a gateway");
        eventually("the process ends", async || process.try_wait().unwrap()).await
    }

    pub(crate) fn admin(&self, node: usize) -> Admin {
        Admin(self.places[node].admin)
    }

    /// Requests that came to the upstream.
    pub(crate) fn asked(&self) -> usize {
        self.orders.requests().len()
    }

    /// The upstream answers the next `requests` requests, each with a permit of the gate.
    pub(crate) fn hold(&self, requests: usize, gate: &Arc<Semaphore>) {
        let whole = response("200 OK", "", "[]").into_bytes();
        (0..requests).for_each(|_| self.orders.next(Act::AnswerInTwo(Vec::new(), gate.clone(), whole.clone())));
    }

    /// Private memory of a gateway, in bytes.
    pub(crate) fn resident(&self, node: usize) -> u64 {
        let process = self.processes[node].as_ref().expect("a running gateway").id();
        let text = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix("RssAnon:")).expect("a line about memory");
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1_024
    }

    pub(crate) fn key(&self) -> &str {
        &self.key.text
    }

    /// A request of a project on the free plan.
    pub(crate) fn free_ask(&self) -> Ask {
        Ask::get(OTHER, ORDERS).key(&self.free_key.text)
    }

    pub(crate) fn ask(&self) -> Ask {
        Ask::get(DEMO, ORDERS).key(&self.key.text)
    }

    /// Starts a gateway over its data directory.
    pub(crate) fn run(&mut self, node: usize) {
        let log = self.directory.path().join(format!("gateway-{node}.log"));
        let log = std::fs::File::options().append(true).create(true).open(log).unwrap();
        self.run_into(node, log.into());
    }

    /// The same with its lines going elsewhere.
    pub(crate) fn run_into(&mut self, node: usize, lines: Stdio) {
        let file = |name: &str| self.directory.path().join(name);
        let configuration = file(&format!("gateway-{node}.toml"));
        std::fs::write(&configuration, self.configuration(node)).unwrap();
        let program = env!("CARGO_BIN_EXE_gateway");
        let mut command = Command::new(if self.descriptors.is_some() { "sh" } else { program });
        if let Some(descriptors) = self.descriptors {
            command.args(["-c", &format!("ulimit -n {descriptors}; exec \"$0\" \"$@\""), program]);
        }
        command.arg("--config").arg(&configuration).stdout(lines).stderr(Stdio::inherit());
        if let Some(proxy) = self.proxy {
            for name in ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"] {
                command.env(name, format!("http://{proxy}"));
            }
        }
        self.processes[node] = Some(command.spawn().unwrap());
    }

    /// Makes the second gateway's data directory a copy of the first's, with these files left out.
    pub(crate) fn copy_data(&self, left_out: &[&str]) {
        let [from, to] = [0, 1].map(|node| self.directory.path().join(format!("data-{node}")));
        let _ = std::fs::remove_dir_all(&to);
        let copied = Command::new("cp").arg("-a").args([&from, &to]).status().unwrap();
        assert!(copied.success());
        for name in left_out {
            std::fs::remove_file(to.join(name)).unwrap();
        }
    }

    /// Announces the end, as a deployment does, and waits for it.
    pub(crate) async fn terminate(&mut self, node: usize) -> ExitStatus {
        let mut process = self.processes[node].take().expect("a running gateway");
        let told = Command::new("kill").args(["-TERM", &process.id().to_string()]).status().unwrap();
        assert!(told.success());
        eventually("the process ends", async || process.try_wait().unwrap()).await
    }

    /// As a power cut does.
    pub(crate) fn kill(&mut self, node: usize) {
        let mut process = self.processes[node].take().expect("a running gateway");
        process.kill().unwrap();
        process.wait().unwrap();
    }

    fn configuration(&self, node: usize) -> String {
        let file = |name: &str| self.directory.path().join(name).display().to_string();
        let place = self.places[node];
        format!(
            r#"
            data_directory = "{data}"
            credential = "{credential}"
            sealing_secret = "{SEALING_SECRET}"
            threads = 1
            [listen]
            http = "{http}"
            https = "{https}"
            admin = "{admin}"
            [tls]
            platform_certificate_file = "{chain}"
            platform_key_file = "{key}"
            [feed]
            url = "http://{feed}"
            [drain]
            lame_duck = "{lame_duck}"
            [overload]
            control_group = "{group}"
            [upstreams.orders]
            endpoints = ["{orders}"]
            in_flight_max = 10000
            routes = [{{ path = "{ORDERS}", methods = ["GET"] }}]
            "#,
            data = file(&format!("data-{node}")),
            credential = credential(node),
            http = place.http,
            https = place.https,
            admin = place.admin,
            chain = file("platform.pem"),
            key = file("platform.key"),
            feed = self.control.address,
            lame_duck = self.lame_duck,
            group = file("group"),
            orders = self.orders.address,
        )
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        for process in self.processes.iter_mut().flatten() {
            // The process may have ended already.
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}
