//! Two gateway processes at fixed addresses, a control plane and an upstream.

use std::net::SocketAddr;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Arc;

use contract::feed::Entity;
use contract::plan::Plan;
use tempfile::TempDir;
use tokio::sync::Semaphore;

use crate::world::client::Ask;
use crate::world::control::ControlPlane;
use crate::world::entities::{TestKey, limited, project, site};
use crate::world::h2::H2;
use crate::world::observed::Admin;
use crate::world::process::{Gateway, Place};
use crate::world::upstream::{Act, Upstream, response};
use crate::world::{DEMO, ORDERS, OTHER, eventually};

pub(crate) struct Pair {
    places: [Place; 2],
    processes: [Option<Gateway>; 2],
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
        std::fs::create_dir(directory.path().join("group")).unwrap();
        Self {
            places: [Place::free(), Place::free()],
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
        self.processes[node].take().expect("a gateway").ended().await
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
        let process = self.processes[node].as_ref().expect("a running gateway").0.id();
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
        self.processes[node] = Some(Gateway(command.spawn().unwrap()));
    }

    /// Makes the second gateway's data directory a copy of the first's, with these files left out.
    pub(crate) fn copy_data(&self, left_out: &[&str]) {
        let [from, to] = self.places.map(|place| place.data(self.directory.path()));
        let _ = std::fs::remove_dir_all(&to);
        let copied = Command::new("cp").arg("-a").args([&from, &to]).status().unwrap();
        assert!(copied.success());
        for name in left_out {
            std::fs::remove_file(to.join(name)).unwrap();
        }
    }

    /// Announces the end, as a deployment does, and waits for it.
    pub(crate) async fn terminate(&mut self, node: usize) -> ExitStatus {
        self.processes[node].as_ref().expect("a running gateway").terminate();
        self.ended(node).await
    }

    /// As a power cut does.
    pub(crate) fn kill(&mut self, node: usize) {
        self.processes[node].take().expect("a running gateway").kill();
    }

    fn configuration(&self, node: usize) -> String {
        let tables = format!(
            r#"
            [drain]
            lame_duck = "{lame_duck}"
            [overload]
            control_group = "{group}"
            [upstreams.orders]
            endpoints = ["{orders}"]
            in_flight_max = 10000
            routes = [{{ path = "{ORDERS}", methods = ["GET"] }}]
            "#,
            lame_duck = self.lame_duck,
            group = self.directory.path().join("group").display(),
            orders = self.orders.address,
        );
        self.places[node].settings(self.directory.path(), node, 1, self.control.address, &tables)
    }
}
