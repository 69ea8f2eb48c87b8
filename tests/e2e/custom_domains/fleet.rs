//! A platform with a test world and two additional gateways, each at a different address and all at the same
//! ports, so that the authority can query any of them.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::routing::get;
use chassis::clock::SystemClock;
use chassis::config::Source;
use chassis::logs::Logs;
use chassis::running::Running;
use chassis::shutdown::Shutdown;
use reqwest::Client;
use serde_json::Value;

use crate::world::{Platform, until};

/// Number of gateways, including the platform's own.
pub(super) const GATEWAYS: u8 = 3;

/// Most platforms that are started to find ports that are free for all gateways.
const ATTEMPTS: u8 = 4;

/// See the module.
pub(super) struct Fleet {
    pub(super) platform: Platform,
    run: Value,
    root: reqwest::Certificate,
    end: Shutdown,
    gateways: Vec<Running>,
}

impl Drop for Fleet {
    fn drop(&mut self) {
        self.end.begin();
    }
}

impl Fleet {
    /// With an authority in this mode, and a public site at every domain of the project `site`. The ports that the
    /// platform got can be in use at the addresses of the other gateways; then it starts another platform.
    pub(super) async fn start(mode: &str) -> Self {
        for _ in 1..ATTEMPTS {
            match Self::attempt(mode).await {
                Err(error) if format!("{error:#}").contains("Address already in use") => eprintln!("{error:#}"),
                outcome => return outcome.unwrap(),
            }
        }
        Self::attempt(mode).await.unwrap()
    }

    async fn attempt(mode: &str) -> anyhow::Result<Self> {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let site = listener.local_addr().unwrap();
        tokio::spawn(async move { axum::serve(listener, Router::new().fallback(get(|| async { "hello" }))).await });
        let upstream = format!("site=http://{site}");
        let platform = Platform::start_with(&["--upstream", &upstream, &format!("--test-world={mode}")]);
        let arguments = ["--plan", "enterprise", "--upstream", "site", "--access", "public"];
        platform.json(&[&["project", "create", "site"], &arguments[..]].concat());
        let run: Value = serde_json::from_slice(&std::fs::read(platform.path("run.json")).unwrap()).unwrap();
        let root = std::fs::read(platform.path("test-world/root.pem")).unwrap();
        let root = reqwest::Certificate::from_pem(&root).unwrap();
        let end = Shutdown::new();
        let mut gateways = Vec::new();
        let logs = Arc::new(Logs::writer_only(std::io::sink()).unwrap());
        for number in 2..=GATEWAYS {
            let settings = settings(&platform, &run, number, site);
            let source = Source::from_text("gateway settings", &settings, "FLEET", BTreeMap::new());
            let config = gateway::config::Config::read(&source).unwrap();
            let clock = Arc::new(SystemClock::new());
            let started = gateway::server::start(config, logs.clone(), clock, end.clone()).await;
            gateways.push(started.inspect_err(|_| end.begin())?);
        }
        let fleet = Self { platform, run, root, end, gateways };
        let edge = "*.edge.tollhouse.localhost A 127.0.0.";
        for number in 2..=GATEWAYS {
            fleet.dns_line(&format!("{edge}{number}"));
        }
        until("every gateway follows the control plane", async || {
            let status = fleet.platform.json(&["status"]);
            status
                .pointer("/nodes/nodes")
                .and_then(Value::as_array)
                .is_some_and(|nodes| nodes.len() >= usize::from(GATEWAYS))
        })
        .await;
        Ok(fleet)
    }

    /// A client that reaches every name at one gateway and trusts the authority. Each call makes a new one, and with it
    /// new connections.
    pub(super) fn client(&self, gateway: u8) -> Client {
        self.builder(gateway).build().unwrap()
    }

    /// The same, speaking HTTP/1.1 only.
    pub(super) fn old_client(&self, gateway: u8) -> Client {
        self.builder(gateway).http1_only().build().unwrap()
    }

    fn builder(&self, gateway: u8) -> reqwest::ClientBuilder {
        let at = At(SocketAddr::from(([127, 0, 0, gateway + 1], 0)));
        Client::builder().tls_certs_only([self.root.clone()]).no_proxy().dns_resolver(at)
    }

    /// How often a gateway has answered a challenge, in a request or in a handshake.
    pub(super) async fn proofs_shown(&self, gateway: u8) -> u64 {
        let metrics = match usize::from(gateway).checked_sub(1) {
            None => self.platform.admin("/metrics").await,
            Some(number) => {
                let address = self.gateways[number].address("admin").unwrap();
                reqwest::get(format!("http://{address}/metrics")).await.unwrap().text().await.unwrap()
            }
        };
        let of = |line: &str| {
            line.starts_with("edge_tls_handshakes_total{outcome=\"challenge\"}")
                || (line.starts_with("edge_requests_total{")
                    && line.contains("surface=\"challenge\"")
                    && line.contains("status_class=\"2xx\""))
        };
        let figure = |line: &str| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap();
        metrics.lines().filter(|line| of(line)).map(figure).sum()
    }

    pub(super) fn url(&self, name: &str) -> String {
        let https = self.run["https"].as_str().unwrap().parse::<SocketAddr>().unwrap();
        format!("https://{name}:{}/", https.port())
    }

    /// Where the project's domains must point.
    pub(super) fn target(&self) -> String {
        self.platform.json(&["project", "show", "site"])["cname_target"].as_str().unwrap().to_owned()
    }

    pub(super) fn point_here(&self, name: &str) {
        self.dns_set(name, "CNAME", &self.target());
    }

    pub(super) fn dns_set(&self, name: &str, kind: &str, value: &str) {
        let output = self.platform.command(&["dns", "set", name, kind, value]);
        assert!(output.status.success(), "{output:?}");
    }

    /// A line of the file with all records, as it is.
    pub(super) fn dns_line(&self, line: &str) {
        let file = self.platform.path("test-world/zones.txt");
        let text = std::fs::read_to_string(&file).unwrap();
        std::fs::write(file, format!("{text}{line}\n")).unwrap();
    }

    pub(super) fn domain(&self, name: &str) -> Value {
        self.platform.json(&["domain", "show", "site", name])
    }

    pub(super) fn events(&self, name: &str) -> Vec<Value> {
        let events = self.platform.json(&["domain", "events", "site", name]);
        events.as_array().unwrap().clone()
    }

    pub(super) async fn active(&self, name: &str) {
        until(&format!("{name} is active"), async || {
            let domain = self.domain(name);
            let failed = domain["certificate"]["attempts"].as_u64().unwrap() > 0;
            assert!(!failed, "{domain:#}");
            domain["status"] == "active"
        })
        .await;
    }
}

fn settings(platform: &Platform, run: &Value, number: u8, site: SocketAddr) -> String {
    let path = |name: &str| platform.path(name).display().to_string();
    let made = platform.json(&["node", "add", &format!("gateway-{number}")]);
    let port = |name: &str| run[name].as_str().unwrap().parse::<SocketAddr>().unwrap().port();
    format!(
        r#"
        data_directory = "{data}"
        credential = "{credential}"
        sealing_secret_file = "{sealing_key}"
        [listen]
        http = "127.0.0.{number}:{http}"
        https = "127.0.0.{number}:{https}"
        admin = "127.0.0.{number}:0"
        [tls]
        platform_certificate_file = "{certificate}"
        platform_key_file = "{key}"
        [feed]
        url = "http://{control}"
        [drain]
        lame_duck = "0s"
        [upstreams.site]
        endpoints = ["{site}"]
        "#,
        data = path(&format!("gateway-{number}")),
        credential = made["credential"].as_str().unwrap(),
        sealing_key = path("secrets/sealing.key"),
        http = port("http"),
        https = port("https"),
        certificate = path("ca/platform.pem"),
        key = path("ca/platform.key"),
        control = run["control"].as_str().unwrap(),
    )
}

/// Every name is at one address.
struct At(SocketAddr);

impl reqwest::dns::Resolve for At {
    fn resolve(&self, _name: reqwest::dns::Name) -> reqwest::dns::Resolving {
        let addresses: reqwest::dns::Addrs = Box::new(std::iter::once(self.0));
        Box::pin(async move { Ok(addresses) })
    }
}
