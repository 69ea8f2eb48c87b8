//! A store with very many orders: time to the first byte of a list, its throughput and memory, the cost of concurrent
//! cancellations, and the effect of a stalled reader on others. `bench/run orders` runs this with a million orders.

mod peers;

use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::{Duration, Instant};

use chassis::clock::{Clock as _, SystemClock};
use reqwest::{Client, Method, RequestBuilder, Response};

use crate::crash::Process;
use crate::postgres::server::Server;
use crate::slow::{MORE_THAN_FITS, SlowReader};
use crate::world::{caller, control_plane, extent, lines, operator_pass, signed};

/// Lists read at the same time.
const LISTS: usize = 50;

/// Bound of the process's memory while these lists are read, in bytes, independent of their length.
const MEMORY_MAX: u64 = 256 * 1_024 * 1_024;

/// Bound of the additional memory for lists of ten times as many orders, in bytes: the caches of the database's
/// connections grow towards their bounds.
const GROWTH_MAX: u64 = 18 * 1_024 * 1_024;

/// Clients that cancel at the same time.
const CLIENTS: usize = 64;

/// The store of the service.
enum Kept {
    File(PathBuf),
    /// Dropping this stops the server.
    Server {
        _server: Box<Server>,
        url: String,
    },
}

impl Kept {
    /// A PostgreSQL server for this test that waits for its disk, as in production.
    fn on_a_server() -> Self {
        let server = Server::start(&["fsync = on", "full_page_writes = on"]);
        let url = server.database();
        Self::Server { _server: Box::new(server), url }
    }
}

/// The service as a separate process.
struct Service {
    process: Process,
    client: Client,
    kept: Kept,
    _directory: tempfile::TempDir,
}

impl Service {
    /// Starts the service with this number of orders; also returns the time of their import.
    async fn with(orders: i64) -> (Self, Duration) {
        let directory = tempfile::tempdir().unwrap();
        let database = directory.path().join("orders.db");
        Self::keeping(orders, Kept::File(database), directory).await
    }

    async fn keeping(orders: i64, kept: Kept, directory: tempfile::TempDir) -> (Self, Duration) {
        const PIECE: i64 = 10_000;
        let control = format!("http://{}", control_plane());
        let control = ("TOLLHOUSE_ORDERS_EVENTS_URL", control.as_str());
        let trust = directory.path().join("trust.json");
        let start = |kept: &Kept| match kept {
            Kept::File(file) => Process::start_with(file, &[control]),
            Kept::Server { url, .. } => {
                let store = [("TOLLHOUSE_ORDERS_STORE_KIND", "postgres"), ("TOLLHOUSE_ORDERS_STORE_URL", url)];
                let trust = ("TOLLHOUSE_ORDERS_IDENTITY_TRUST_FILE", trust.to_str().unwrap());
                Process::start_on(&[&store[..], &[control, trust]].concat())
            }
        };
        let mut service = Self { process: start(&kept), client: Client::new(), kept, _directory: directory };
        let pieces = (0..orders)
            .step_by(usize::try_from(PIECE).unwrap())
            .map(move |first| Ok::<_, std::io::Error>(lines(first..(first + PIECE).min(orders))));
        let body = reqwest::Body::wrap_stream(futures_util::stream::iter(pieces));
        let url = format!("http://{}/internal/orders/demo/import", service.process.internal);
        let pass = operator_pass(SystemClock::new().now());
        let began = Instant::now();
        let answer = service.client.post(url).bearer_auth(pass).body(body).send().await.unwrap();
        assert_eq!(answer.text().await.unwrap(), format!("{{\"imported\":{orders}}}"));
        let took = began.elapsed();
        // A restart, because lists could use the memory that the import allocated.
        service.process = start(&service.kept);
        (service, took)
    }

    fn request(&self, method: &Method, target: &str) -> RequestBuilder {
        let request = self.client.request(method.clone(), format!("http://{}{target}", self.process.http));
        signed(request, Some(caller()), SystemClock::new().now())
    }

    async fn list(&self) -> Response {
        let answer = self.request(&Method::GET, "/v1/store/orders").send().await.unwrap();
        assert_eq!(answer.status(), 200);
        answer
    }

    async fn cancel(&self, id: i64) -> u16 {
        self.request(&Method::DELETE, &format!("/v1/store/orders/{id}")).send().await.unwrap().status().as_u16()
    }

    fn memory(&self, name: &str) -> u64 {
        memory(self.process.id(), name)
    }

    /// Resets the peak.
    fn reset_peak(&self) {
        std::fs::write(format!("/proc/{}/clear_refs", self.process.id()), "5").unwrap();
    }

    fn peak(&self) -> u64 {
        self.memory("VmHWM:")
    }
}

/// A line of a process's status, in bytes.
fn memory(process: u32, name: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with(name)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1_024
}

/// Reads a list to its end; returns the time of the first byte, the bytes and the orders. It counts opening braces
/// while it reads, so the reader needs no memory: each order has one, and no value contains one.
async fn read(mut answer: Response, began: Instant) -> (Duration, u64, i64) {
    let (mut first, mut bytes, mut orders) = (None, 0, 0);
    let (mut opened, mut closed) = (false, false);
    while let Some(piece) = answer.chunk().await.unwrap() {
        first.get_or_insert_with(|| began.elapsed());
        opened |= bytes == 0 && piece.first() == Some(&b'[');
        bytes += u64::try_from(piece.len()).unwrap();
        orders += piece.split(|byte| *byte == b'{').skip(1).map(|_| 1).sum::<i64>();
        closed = piece.last() == Some(&b']');
    }
    assert!(opened && closed, "a list of {bytes} bytes is not whole");
    (first.unwrap(), bytes, orders)
}

#[expect(clippy::cast_precision_loss, reason = "figures for people")]
fn rate(count: i64, time: Duration) -> f64 {
    count as f64 / time.as_secs_f64()
}

fn row(what: &str, figure: &str) {
    println!("| {what} | {figure} |");
}

const MEGABYTE: u64 = 1_000_000;

/// The memory that concurrent lists add to a service that has just started, and
/// their total bytes.
async fn held(lists: usize, orders: i64) -> (u64, u64) {
    let (service, _) = Service::with(orders).await;
    let service = Arc::new(service);
    let idle = service.memory("VmRSS:");
    let mut readers = tokio::task::JoinSet::new();
    for _ in 0..lists {
        let service = service.clone();
        readers.spawn(async move { read(service.list().await, Instant::now()).await });
    }
    let mut bytes = 0;
    while let Some(listed) = readers.join_next().await {
        let (_, read, listed) = listed.unwrap();
        assert_eq!(listed, orders);
        bytes += read;
    }
    (service.peak() - idle, bytes)
}

// rule: 8.5
// promise: orders.4
#[tokio::test(flavor = "multi_thread")]
async fn lists_of_ten_times_as_many_orders_need_no_more_memory() {
    let (short, few) = held(30, 2_000).await;
    let (long, many) = held(30, 20_000).await;
    assert!(many > few + GROWTH_MAX * 3 / 2, "lists of {few} and of {many} bytes, kept whole, would not be seen");
    assert!(long < short + GROWTH_MAX, "lists of {few} bytes held {short}, lists of {many} held {long}");
}

// rule: 8.5
// promise: orders.4
#[tokio::test(flavor = "multi_thread")]
async fn very_many_orders_are_listed_in_constant_memory_while_others_are_cancelled() {
    let orders = extent("BENCH_ORDERS", 5_000);
    let (service, imported) = Service::with(orders).await;
    row("**SQLite**", &format!("{orders} orders"));
    measure(Arc::new(service), orders, imported).await;
}

// rule: 8.5
#[tokio::test(flavor = "multi_thread")]
async fn very_many_orders_are_listed_over_postgresql_as_well() {
    let orders = extent("BENCH_ORDERS", 5_000);
    let directory = tempfile::tempdir().unwrap();
    let (service, imported) = Service::keeping(orders, Kept::on_a_server(), directory).await;
    row("**PostgreSQL**", &format!("{orders} orders"));
    measure(Arc::new(service), orders, imported).await;
}

async fn measure(service: Arc<Service>, orders: i64, imported: Duration) {
    row("Import", &format!("{:.0} orders/s, all or none, durable", rate(orders, imported)));

    // One list, while another client cancels.
    service.reset_peak();
    let idle = service.memory("VmRSS:");
    let (reading, cancelled) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicI64::new(0)));
    let canceller = tokio::spawn({
        let (service, reading, cancelled) = (service.clone(), reading.clone(), cancelled.clone());
        async move {
            while reading.load(Ordering::Acquire) {
                let id = cancelled.fetch_add(1, Ordering::AcqRel);
                assert_eq!(service.cancel(id).await, 204, "order {id}");
            }
        }
    });
    let began = Instant::now();
    let (first, bytes, listed) = read(service.list().await, began).await;
    let took = began.elapsed();
    reading.store(false, Ordering::Release);
    canceller.await.unwrap();
    assert_eq!(listed, orders, "each order, once");
    let meanwhile = cancelled.load(Ordering::Acquire);
    assert!(meanwhile > 0, "cancellations work while a list is read");
    row("List, first byte", &format!("{:.1} ms", first.as_secs_f64() * 1_000.0));
    row(
        "List, whole",
        &format!("{:.2} s, {:.0} orders/s, {} MB", took.as_secs_f64(), rate(orders, took), bytes / MEGABYTE),
    );
    row("Cancelled by another client meanwhile", &meanwhile.to_string());
    row(
        "Memory of the process: idle, peak with one list",
        &format!("{} MB, {} MB", idle / MEGABYTE, service.peak() / MEGABYTE),
    );
    peers::beside_programs(&service.kept, orders).await;

    // An unchanged list is 304.
    let tag = service.list().await.headers()["etag"].clone();
    let began = Instant::now();
    let unchanged =
        service.request(&Method::GET, "/v1/store/orders").header("if-none-match", tag).send().await.unwrap();
    assert_eq!(unchanged.status(), 304);
    row("List, unchanged (304)", &format!("{:.1} ms", began.elapsed().as_secs_f64() * 1_000.0));

    // Concurrent lists.
    service.reset_peak();
    let began = Instant::now();
    let mut readers = tokio::task::JoinSet::new();
    for _ in 0..LISTS {
        let service = service.clone();
        readers.spawn(async move { read(service.list().await, began).await.2 });
    }
    while let Some(listed) = readers.join_next().await {
        assert_eq!(listed.unwrap(), orders);
    }
    let (took, peak) = (began.elapsed(), service.peak());
    assert!(peak < MEMORY_MAX, "{LISTS} lists held {peak} bytes");
    let all = orders * i64::try_from(LISTS).unwrap();
    row(
        &format!("{LISTS} whole lists at once"),
        &format!("{:.1} s, {:.0} orders/s in all", took.as_secs_f64(), rate(all, took)),
    );
    row(&format!("Memory of the process, peak with {LISTS} lists"), &format!("{} MB", peak / MEGABYTE));

    // Durable cancellations.
    let next = Arc::new(AtomicI64::new(meanwhile));
    for (clients, most) in [(1, (orders / 10).min(1_000)), (CLIENTS, (orders / 4).min(20_000))] {
        let end = next.load(Ordering::Acquire) + most;
        let began = Instant::now();
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..clients {
            let (service, next) = (service.clone(), next.clone());
            tasks.spawn(async move {
                loop {
                    let id = next.fetch_add(1, Ordering::AcqRel);
                    if id >= end {
                        return;
                    }
                    assert_eq!(service.cancel(id).await, 204, "order {id}");
                }
            });
        }
        while let Some(ended) = tasks.join_next().await {
            ended.unwrap();
        }
        let took = began.elapsed();
        next.store(end, Ordering::Release);
        row(&format!("Cancel, durable, {clients} at once"), &format!("{:.0} per second", rate(most, took)));
    }
    peers::beside_updates(&service.kept);
}

// promise: orders.7
#[tokio::test(flavor = "multi_thread")]
async fn a_stalled_reader_holds_no_lock_snapshot_or_connection_of_the_database() {
    let (service, _) = Service::with(MORE_THAN_FITS).await;
    // More stalled readers than the database has connections.
    let readers = chassis::sqlite::READERS_MAX + 4;
    let mut stalled = Vec::new();
    for _ in 0..readers {
        stalled.push(SlowReader::ask(service.process.http).await);
    }
    // Other clients read and write.
    for id in 0..20 {
        assert_eq!(service.cancel(id).await, 204);
        let one = service.request(&Method::GET, &format!("/v2/store/orders/{id}")).send().await.unwrap();
        assert_eq!(one.json::<serde_json::Value>().await.unwrap()["status"], "cancelled");
    }
    let Kept::File(file) = &service.kept else { panic!("it is kept in a file") };
    // A snapshot in use keeps SQLite from emptying its log, which the first figure reports. Soon
    // all buffers of the connections are full, and the service reads no further rows.
    let mut pause = tokio::time::interval(Duration::from_millis(50));
    let began = Instant::now();
    loop {
        let emptied = Command::new("sqlite3").arg(file).arg("PRAGMA wal_checkpoint(TRUNCATE)").output();
        let emptied = emptied.expect("sqlite3 is missing: install sqlite3").stdout;
        if emptied.trim_ascii() == b"0|0|0" {
            break;
        }
        let said = String::from_utf8_lossy(&emptied);
        assert!(began.elapsed() < Duration::from_secs(30), "a reader holds a snapshot: {said}");
        pause.tick().await;
    }
    // A reader that continues gets the whole list.
    let (bytes, whole) = stalled.swap_remove(0).finish().await;
    assert!(whole, "a list of {bytes} bytes");
}
