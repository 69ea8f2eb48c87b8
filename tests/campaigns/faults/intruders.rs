//! Intruders send requests during all faults: with keys that are unknown, revoked, damaged, of another environment
//! or of another tenant, and with randomly changed bytes. During every fault, none of
//! these requests may succeed, and no response may contain a secret.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use contract::key::{Environment, PresentedKey};
use parking_lot::Mutex;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::fleet::Fleet;
use crate::traffic::{HOST, client};

/// Number of intruders at each gateway.
const AT_ONCE: u64 = 8;

/// Requests on a connection and from an address. The gateway answers 429 to an address with more failures in a minute.
const FROM_ONE_ADDRESS: u32 = 40;

/// Longest wait for a response; a damaged request may never be complete.
const ANSWER_WAIT_MAX: Duration = Duration::from_millis(500);

/// A pet in the shop's orders only: a response with its number shows an order of the shop.
pub(crate) const PET: u64 = 777_000_777_000_777;

/// The request with the good key, of which one letter is changed.
const NEARLY: &str = "a key with another letter in it";

/// Requests and responses.
#[derive(Default)]
pub(crate) struct Tally {
    asked: AtomicU64,
    answers: Mutex<BTreeMap<u16, u64>>,
    /// Violations.
    harm: Mutex<Vec<String>>,
}

impl Tally {
    /// Sent requests.
    pub(crate) fn asked(&self) -> u64 {
        self.asked.load(Ordering::Relaxed)
    }

    /// Responses since the last call, by status; 0: no response in time.
    pub(crate) fn take(&self) -> BTreeMap<u16, u64> {
        std::mem::take(&mut *self.answers.lock())
    }

    /// Requests that succeeded or returned a secret.
    pub(crate) fn harm(&self) -> Vec<String> {
        self.harm.lock().clone()
    }
}

/// The intruders' keys, and the secrets that they must not get.
struct Loot {
    good: String,
    others: String,
    revoked: String,
    secrets: Vec<String>,
    connector: TlsConnector,
    tally: Arc<Tally>,
}

/// Running intruders; dropping this stops them.
pub(crate) struct Intruders {
    pub(crate) tally: Arc<Tally>,
    _tasks: JoinSet<()>,
}

impl Intruders {
    /// Creates the keys to try, besides the shop's good key, and starts intruders at both gateways.
    pub(crate) fn start(fleet: &Fleet, good: &str, seed: u64) -> anyhow::Result<Self> {
        let text = |value: &Value, name: &str| value.get(name).and_then(Value::as_str).map(str::to_owned);
        let key_of = |project: &str| -> anyhow::Result<(String, String)> {
            let made = fleet.tollhouse(&["key", "create", project])?;
            let id = text(&made, "id").or_else(|| made.pointer("/api_key/id")?.as_str().map(str::to_owned));
            Ok((text(&made, "key").context("a key")?, id.with_context(|| format!("the id of a key: {made}"))?))
        };
        fleet.tollhouse(&["project", "create", "stall", "--plan", "free"])?;
        let (others, _) = key_of("stall")?;
        let (revoked, id) = key_of("shop")?;
        fleet.tollhouse(&["key", "revoke", "shop", &id])?;
        let platform = std::fs::read_to_string(fleet.directory.join("secrets/platform.key"))?;
        let mut roots = rustls::RootCertStore::empty();
        for certificate in CertificateDer::pem_file_iter(fleet.directory.join("ca/ca.pem"))? {
            roots.add(certificate?)?;
        }
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let loot = Arc::new(Loot {
            secrets: vec![
                good.to_owned(),
                others.clone(),
                platform.trim().to_owned(),
                "PRIVATE KEY".to_owned(),
                PET.to_string(),
            ],
            good: good.to_owned(),
            others,
            revoked,
            connector: TlsConnector::from(Arc::new(config)),
            tally: Arc::default(),
        });
        let mut tasks = JoinSet::new();
        for (index, port) in (0_u64..).zip(fleet.ports.https) {
            for number in 0..AT_ONCE {
                tasks.spawn(intrude(loot.clone(), port, Random(seed ^ (index * AT_ONCE + number + 1).rotate_left(32))));
            }
        }
        Ok(Self { tally: loot.tally.clone(), _tasks: tasks })
    }
}

/// Numbers that a seed repeats (`SplitMix64`).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound.max(1) as u64).unwrap_or(0)
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> Option<T> {
        all.get(self.below(all.len())).copied()
    }
}

async fn intrude(loot: Arc<Loot>, port: u16, mut random: Random) {
    loop {
        let Ok(mut stream) = connect(&loot, port, &mut random).await else {
            // The gateway was killed.
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        for _ in 0..FROM_ONE_ADDRESS {
            let (what, request) = request(&loot, &mut random);
            loot.tally.asked.fetch_add(1, Ordering::Relaxed);
            let answer = tokio::time::timeout(ANSWER_WAIT_MAX, exchange(&mut stream, &request)).await;
            let answer = answer.ok().and_then(Result::ok).unwrap_or_default();
            if !judge(&loot, what, &answer) {
                break;
            }
        }
    }
}

/// Connects from another address of this machine each time.
async fn connect(loot: &Loot, port: u16, random: &mut Random) -> anyhow::Result<TlsStream<TcpStream>> {
    let [a, b, c, ..] = random.next().to_be_bytes();
    let socket = TcpSocket::new_v4()?;
    socket.bind(SocketAddr::from((Ipv4Addr::new(127, a.max(1), b, c.clamp(1, 254)), 0)))?;
    let connecting = async {
        let tcp = socket.connect(SocketAddr::from(([127, 0, 0, 1], port))).await?;
        anyhow::Ok(loot.connector.connect(ServerName::try_from(HOST)?, tcp).await?)
    };
    tokio::time::timeout(Duration::from_secs(2), connecting).await?
}

/// The name of an attempt, and its bytes.
fn request(loot: &Loot, random: &mut Random) -> (&'static str, Vec<u8>) {
    let fresh = |random: &mut Random, environment| {
        let mut bytes = [0; 30];
        bytes.fill_with(|| random.next().to_be_bytes()[0]);
        PresentedKey::generate(environment, &bytes).reveal().to_owned()
    };
    let (what, key) = match random.below(8) {
        0 => ("a revoked key", loot.revoked.clone()),
        1 => ("another tenant's key", loot.others.clone()),
        2 => ("a key of another environment", fresh(random, Environment::Test)),
        3 => (NEARLY, damaged(&loot.good, random)),
        4 => ("a part of a key", loot.good.chars().take(random.below(loot.good.len())).collect()),
        5 => ("a key in capitals", loot.good.to_uppercase()),
        _ => ("an unknown key", fresh(random, Environment::Live)),
    };
    let target = random
        .of(&["GET /v1/store/orders", "DELETE /v1/store/orders/1", "GET /v2/store/orders?limit=1", "GET /v1/pets/1"])
        .unwrap_or("GET /");
    let scheme = random.of(&["Bearer ", "bearer ", "Basic ", ""]).unwrap_or_default();
    let mut bytes = format!("{target} HTTP/1.1\r\nHost: {HOST}\r\nAuthorization: {scheme}{key}\r\n\r\n").into_bytes();
    // A second change could restore the letter.
    if what == NEARLY || random.below(3) != 0 {
        return (what, bytes);
    }
    for _ in 0..=random.below(4) {
        let place = random.below(bytes.len());
        let byte = random.next().to_be_bytes()[0];
        match (random.below(3), bytes.get_mut(place)) {
            (0, Some(at)) => *at = byte,
            (1, _) => bytes.insert(place, byte),
            _ => drop(bytes.remove(place)),
        }
    }
    ("a damaged request", bytes)
}

/// The text with one letter changed.
fn damaged(key: &str, random: &mut Random) -> String {
    let mut letters: Vec<char> = key.chars().collect();
    let place = random.below(letters.len());
    if let Some(letter) = letters.get_mut(place) {
        *letter = if *letter == 'q' { 'r' } else { 'q' };
    }
    letters.into_iter().collect()
}

/// Reads the response up to the end of its body.
async fn exchange(stream: &mut TlsStream<TcpStream>, request: &[u8]) -> std::io::Result<Vec<u8>> {
    stream.write_all(request).await?;
    stream.flush().await?;
    let mut bytes = Vec::with_capacity(2048);
    while stream.read_buf(&mut bytes).await? > 0 {
        let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") else { continue };
        let head = String::from_utf8_lossy(bytes.get(..end).unwrap_or_default()).to_ascii_lowercase();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length:"));
        if bytes.len() >= end + 4 + length.and_then(|length| length.trim().parse().ok()).unwrap_or(0) {
            break;
        }
    }
    Ok(bytes)
}

/// Counts a response; returns whether the connection can be used again.
fn judge(loot: &Loot, what: &str, answer: &[u8]) -> bool {
    let text = String::from_utf8_lossy(answer);
    let status: u16 = text.get(9..12).and_then(|digits| digits.parse().ok()).unwrap_or(0);
    *loot.tally.answers.lock().entry(status).or_default() += 1;
    let got = loot.secrets.iter().any(|secret| text.contains(secret));
    if got || (200..300).contains(&status) {
        loot.tally.harm.lock().push(format!("{what}: {text}"));
    }
    status != 0 && !text.to_ascii_lowercase().contains("connection: close")
}

/// A customer places an order that only the shop may see, in each round again: its success shows that the intruders'
/// requests could have succeeded.
pub(crate) async fn order(fleet: &Fleet, key: &str) -> anyhow::Result<()> {
    let began = Instant::now();
    for port in fleet.ports.https {
        let client = client(fleet, port, Duration::from_secs(5))?;
        let order = serde_json::json!({ "petId": PET, "quantity": 1, "shipDate": "2030-01-01T00:00:00Z" });
        let request = client.post(format!("https://{HOST}:{port}/v2/store/orders")).bearer_auth(key).json(&order);
        loop {
            let sent = request.try_clone().context("a request that can be repeated")?.send().await;
            if sent.is_ok_and(|answer| answer.status() == 201) {
                break;
            }
            anyhow::ensure!(began.elapsed() < Duration::from_secs(90), "a customer with a good key is not served");
            tokio::time::sleep(Duration::from_millis(250)).await;
        }
    }
    Ok(())
}
