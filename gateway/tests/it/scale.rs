//! Very many domains: time until a gateway is ready, its memory, and the cost of the first request for a name.
//! `bench/run many-domains` runs this with up to a million, beside peers with the same.

mod peers;
mod process;

use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use chassis::seal::SealingKey;
use chassis::secret::Secret;
use contract::certificate::{CertificateBundle, SealedKey};
use contract::feed::Entity;
use contract::time::UnixSeconds;

use self::process::Process;
use crate::fleet::extent;
use crate::world::client::{Ask, Client, handshake};
use crate::world::control::ControlPlane;
use crate::world::entities::{public, site};
use crate::world::observed::Admin;
use crate::world::process::Place;
use crate::world::upstream::Upstream;
use crate::world::wire::Wire;
use crate::world::{SEALING_SECRET, certificates};

/// Maximum duration of the first snapshot of a million names on a slow machine.
const LOADING_MAX: Duration = Duration::from_mins(20);

/// Interval between two questions whether a starting process is ready.
const POLL: Duration = Duration::from_millis(2);

/// Clients that perform TLS handshakes at the same time.
const CLIENTS: usize = 4;

fn name(number: u32) -> String {
    format!("shop{number}.customers.example")
}

/// The environment's value for a long run, if any.
#[expect(clippy::disallowed_methods, reason = "a benchmark chooses what it measures")]
fn chosen(variable: &str) -> Option<String> {
    std::env::var(variable).ok()
}

/// Starts a gateway over a directory that outlives it; returns it when it is ready and has the snapshot, and how long
/// that took.
async fn start(configuration: &Path, Place { https, admin, .. }: Place) -> (Process, Duration) {
    let began = Instant::now();
    let program = chosen("GATEWAY").unwrap_or_else(|| env!("CARGO_BIN_EXE_gateway").to_owned());
    let process = Process::start(&program, &["--config"], configuration, https);
    let ready = async {
        loop {
            let listens = tokio::net::TcpStream::connect(admin).await.is_ok();
            if listens && Admin(admin).get("/readyz").await.0 == 200 {
                return;
            }
            tokio::time::sleep(POLL).await;
        }
    };
    tokio::time::timeout(LOADING_MAX, ready).await.expect("the gateway becomes ready");
    (process, began.elapsed())
}

/// Makes one handshake for each of `names` names; returns the durations, sorted.
async fn shake_hands(https: SocketAddr, names: u32) -> Vec<Duration> {
    // One thread for all clients: several would wait for each other where they have one core.
    let clients = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(futures_util::future::join_all((0..CLIENTS).map(|first| client(https, first, names))))
    };
    let mut times = tokio::task::spawn_blocking(clients).await.unwrap().concat();
    times.sort_unstable();
    times
}

/// Makes the handshakes of one client's names, one after the other.
async fn client(https: SocketAddr, first: usize, names: u32) -> Vec<Duration> {
    let mut times = Vec::new();
    for number in (0..names).skip(first).step_by(CLIENTS) {
        let began = Instant::now();
        let stream = handshake(https, Some(&name(number)), certificates::client(&[b"http/1.1"])).await;
        times.push(began.elapsed());
        drop(stream.expect("a handshake"));
    }
    times
}

fn share(times: &[Duration], percent: usize) -> Duration {
    times[(times.len() * percent / 100).min(times.len() - 1)]
}

/// A figure and its unit, of one process.
type Figure = (String, f64);

/// The figures of a process that was ready after `ready`: handshakes for `names` new names, and then for the same
/// again.
async fn measured(process: &Process, ready: Duration, names: u32) -> Vec<Figure> {
    let milliseconds = |time: Duration| time.as_secs_f64() * 1e3;
    let megabytes = || f64::from(process.resident_kib()) * 1.024e-3;
    let mut shown =
        vec![("ready after, ms".to_owned(), milliseconds(ready)), ("memory when ready, MB".to_owned(), megabytes())];
    for turn in ["cold", "hot"] {
        let before = process.cpu();
        let times = shake_hands(process.https, names).await;
        let each = process.cpu().saturating_sub(before) / names;
        shown.push((format!("{turn} handshake, half, ms"), milliseconds(share(&times, 50))));
        shown.push((format!("{turn} handshake, 99 of 100, ms"), milliseconds(share(&times, 99))));
        shown.push((format!("{turn} handshake, CPU, ms"), milliseconds(each)));
        shown.push((format!("memory after {turn} handshakes, MB"), megabytes()));
    }
    shown
}

/// A table of the figures, each of the others with its ratio to the first.
fn table(title: &str, shown: &[(&str, Vec<Figure>)]) -> String {
    let heads: Vec<&str> = shown.iter().map(|(name, _)| *name).collect();
    let mut lines =
        vec![format!("| {title} | {} |", heads.join(" | ")), format!("|{}", "---|".repeat(heads.len() + 1))];
    for (row, (figure, ours)) in shown[0].1.iter().enumerate() {
        let theirs = shown[1..].iter().map(|(_, figures)| figures[row].1);
        let cells = theirs.map(|theirs| format!(" {theirs:.2} (×{:.2}) |", ours / theirs));
        lines.push(format!("| {figure} | {ours:.2} |{}", cells.collect::<String>()));
    }
    lines.join("\n")
}

// The control plane and the clients are here too, on one core with `SCALE_CORE`.
// promise: domains.27
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
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
    let control = ControlPlane::start(entities);
    let directory = tempfile::tempdir().unwrap();
    let place = Place::free();
    let tables = format!("[drain]\nlame_duck = \"0s\"\n[upstreams.blog]\nendpoints = [\"{}\"]", blog.address);
    let configuration = directory.path().join("gateway.toml");
    std::fs::write(&configuration, place.settings(directory.path(), 0, 1, control.address, &tables)).unwrap();
    let (first, took) = start(&configuration, place).await;
    println!("{domains} domains: the first snapshot was taken in {took:?}");
    drop(first);
    // From here on the gateway has only its file.
    control.die().await;
    let (gateway, took) = start(&configuration, place).await;
    let mut shown = vec![("Tollhouse", measured(&gateway, took, hot).await)];
    let host = name(domains - 1);
    let stream = handshake(place.https, Some(&host), certificates::client(&[b"http/1.1"])).await.unwrap();
    let reply = Client { wire: Wire::new(stream) }.ask(&Ask::get(&host, "/")).await;
    assert_eq!(reply.status, 200);
    drop(gateway);
    let others = peers::wanted();
    if !others.is_empty() {
        peers::write_certificates(directory.path(), domains, &format!("{chain}{key}"));
    }
    for peer in others {
        let (process, took) = peers::start(directory.path(), peer).await;
        shown.push((peer.0, measured(&process, took, hot).await));
    }
    println!("{}", table(&format!("{domains} domains, {hot} names"), &shown));
}
