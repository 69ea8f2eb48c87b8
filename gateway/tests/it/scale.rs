//! Very many domains: how soon a gateway is ready, what it holds in memory, and what a name costs that nobody has asked
//! for yet. `bench/many-domains` runs this with a million.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use chassis::seal::SealingKey;
use chassis::secret::Secret;
use contract::certificate::{CertificateBundle, SealedKey};
use contract::feed::Entity;
use contract::time::UnixSeconds;

use crate::fleet::{extent, free_address};
use crate::world::client::{Ask, Client, handshake};
use crate::world::control::ControlPlane;
use crate::world::entities::{public, site};
use crate::world::observed::Admin;
use crate::world::upstream::Upstream;
use crate::world::wire::Wire;
use crate::world::{PLATFORM_SECRET, SEALING_SECRET, certificates};

/// The longest the first snapshot of a million may take on a slow machine.
const LOADING_MAX: Duration = Duration::from_mins(20);

/// Clients that shake hands at the same time.
const CLIENTS: usize = 4;

fn name(number: u32) -> String {
    format!("shop{number}.customers.example")
}

/// One gateway process over a directory that outlives it.
struct Gateway {
    process: Child,
    https: SocketAddr,
    admin: Admin,
}

impl Gateway {
    /// Starts it; returns it when it is ready and has the snapshot, and how long that took.
    async fn start(configuration: &PathBuf, https: SocketAddr, admin: SocketAddr) -> (Self, Duration) {
        let began = Instant::now();
        #[expect(clippy::disallowed_methods, reason = "a bench chooses what it measures")]
        let program = std::env::var_os("GATEWAY").unwrap_or_else(|| env!("CARGO_BIN_EXE_gateway").into());
        let process = Command::new(program)
            .arg("--config")
            .arg(configuration)
            .stdout(Stdio::null())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        let gateway = Self { process, https, admin: Admin(admin) };
        let ready = async {
            loop {
                let listens = tokio::net::TcpStream::connect(admin).await.is_ok();
                if listens && gateway.admin.get("/readyz").await.0 == 200 {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(LOADING_MAX, ready).await.expect("the gateway becomes ready");
        (gateway, began.elapsed())
    }

    /// Bytes in memory.
    fn resident(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1_024
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Shakes hands once for each of so many names; how long each took, in order of length.
async fn shake_hands(https: SocketAddr, names: u32) -> Vec<Duration> {
    let next = Arc::new(AtomicU32::new(0));
    let mut clients = tokio::task::JoinSet::new();
    for _ in 0..CLIENTS {
        let next = next.clone();
        clients.spawn(async move {
            let mut times = Vec::new();
            loop {
                let number = next.fetch_add(1, Ordering::SeqCst);
                if number >= names {
                    return times;
                }
                let began = Instant::now();
                let stream = handshake(https, Some(&name(number)), certificates::client(&[b"http/1.1"])).await;
                times.push(began.elapsed());
                drop(stream.expect("a handshake"));
            }
        });
    }
    let mut times = Vec::new();
    while let Some(some) = clients.join_next().await {
        times.extend(some.unwrap());
    }
    times.sort_unstable();
    times
}

fn share(times: &[Duration], percent: usize) -> Duration {
    times[(times.len() * percent / 100).min(times.len() - 1)]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_that_restarts_with_many_domains_serves_them_from_its_own_file() {
    let domains = extent("SCALE_DOMAINS", 2_000);
    let hot = extent("SCALE_HOT", 200).min(domains);
    let blog = Upstream::start().await;
    let (chain, key) = certificates::leaf(&["*.customers.example"]);
    let seal = SealingKey::new(&Secret::parse(SEALING_SECRET).unwrap()).unwrap();
    let mut entities = vec![Entity::Project(public("blog"))];
    for number in 0..domains {
        let host = name(number);
        entities.push(site(&host, "blog"));
        entities.push(Entity::Certificate(CertificateBundle {
            hostname: host.parse().unwrap(),
            chain_pem: chain.clone(),
            key: SealedKey(seal.seal(key.as_bytes(), &host).unwrap()),
            not_before: UnixSeconds(0),
            not_after: UnixSeconds(4_000_000_000),
        }));
    }
    let control = ControlPlane::start(&Secret::parse(PLATFORM_SECRET).unwrap(), entities).await;
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str| directory.path().join(name);
    let (platform_chain, platform_key) = certificates::platform();
    std::fs::write(file("platform.pem"), platform_chain).unwrap();
    std::fs::write(file("platform.key"), platform_key).unwrap();
    let [http, https, admin] = [(); 3].map(|()| free_address());
    let text = format!(
        r#"
        data_directory = "{data}"
        secret = "{PLATFORM_SECRET}"
        sealing_secret = "{SEALING_SECRET}"
        threads = 2
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
        lame_duck = "0s"
        [upstreams.blog]
        endpoints = ["{blog}"]
        "#,
        data = file("data").display(),
        chain = file("platform.pem").display(),
        key = file("platform.key").display(),
        feed = control.address,
        blog = blog.address,
    );
    let configuration = file("gateway.toml");
    std::fs::write(&configuration, text).unwrap();
    let (first, took) = Gateway::start(&configuration, https, admin).await;
    println!("{domains} domains: the first snapshot was taken in {took:?}");
    drop(first);
    // From here on there is only the file.
    control.die().await;
    let (gateway, took) = Gateway::start(&configuration, https, admin).await;
    println!("{domains} domains: ready {took:?} after a restart, with {} MB", gateway.resident() / 1_000_000);
    for turn in ["cold", "hot"] {
        let times = shake_hands(gateway.https, hot).await;
        println!(
            "{hot} {turn} names: handshakes took {:?} (half), {:?} (99 of 100); {} MB",
            share(&times, 50),
            share(&times, 99),
            gateway.resident() / 1_000_000
        );
    }
    let host = name(domains - 1);
    let stream = handshake(gateway.https, Some(&host), certificates::client(&[b"http/1.1"])).await.unwrap();
    let reply = Client { wire: Wire::new(stream) }.ask(&Ask::get(&host, "/")).await;
    assert_eq!(reply.status, 200);
}
