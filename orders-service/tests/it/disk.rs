//! The real process with a failing disk: no space, a lasting lock, damaged pages, a kill in the middle of a list. Reads
//! work where possible, no acknowledged change is lost, no wrong data is returned, and the service recovers.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use chassis::clock::{Clock as _, SystemClock};
use chassis::sqlite::Sqlite;
use orders_service::Orders;
use reqwest::{Client, Method, Response};
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use serde_json::Value;
use sqlx::Executor as _;

use crate::crash::Process;
use crate::slow::{MORE_THAN_FITS, SlowReader};
use crate::world::{caller, refusal, signed, stored};

/// Deadline of every response: the gateway waits for ten seconds.
const ANSWER_MAX: Duration = Duration::from_secs(9);

struct Shop {
    process: Process,
    client: Client,
    database: PathBuf,
    directory: tempfile::TempDir,
}

impl Shop {
    async fn with(orders: i64) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let database = directory.path().join("orders.db");
        stored(&database, orders).await;
        Self { process: Process::start(&database), client: Client::new(), database, directory }
    }

    async fn ask(&self, method: Method, target: &str) -> Response {
        let began = Instant::now();
        let request = self.client.request(method.clone(), format!("http://{}{target}", self.process.http));
        let answer = signed(request, Some(caller()), SystemClock::new().now()).send().await.unwrap();
        assert!(began.elapsed() < ANSWER_MAX, "{method} {target} took {:?}", began.elapsed());
        answer
    }

    async fn cancel(&self, id: i64) -> Response {
        self.ask(Method::DELETE, &format!("/v1/store/orders/{id}")).await
    }

    async fn status(&self, id: i64) -> Value {
        self.ask(Method::GET, &format!("/v2/store/orders/{id}")).await.json::<Value>().await.unwrap()["status"].clone()
    }

    async fn metrics(&self) -> String {
        reqwest::get(format!("http://{}/metrics", self.process.admin)).await.unwrap().text().await.unwrap()
    }

    /// Limits the length of the process's files: a write beyond it fails, as on a broken disk.
    fn limit_files(&self, bytes: Option<u64>) {
        let pid = Pid::from_raw(self.process.id().try_into().unwrap());
        prlimit(pid, Resource::Fsize, Rlimit { current: bytes, maximum: None }).unwrap();
    }
}

// rule: 4.2.204
// promise: orders.13
#[tokio::test]
async fn with_a_full_disk_changes_are_refused_reads_work_and_the_service_recovers() {
    let shop = Shop::with(200).await;
    assert_eq!(shop.cancel(0).await.status(), 204);
    shop.limit_files(Some(0));
    for id in 1..4 {
        let refused = shop.cancel(id).await;
        assert_eq!(refused.headers()["retry-after"], "1");
        assert_eq!(refusal(refused).await, (503, "storage_unavailable".to_owned()));
        assert_eq!(shop.status(id).await, "pending", "the refused change was not stored");
    }
    let listed: Vec<Value> = shop.ask(Method::GET, "/v1/store/orders").await.json().await.unwrap();
    assert_eq!(listed.len(), 200, "reads work");
    assert!(shop.metrics().await.contains("orders_store_errors_total{kind=\"io\"} 3"));
    shop.limit_files(None);
    for id in 1..4 {
        assert_eq!(shop.cancel(id).await.status(), 204, "changes work again without a restart");
    }
    // Every acknowledged change is on the disk.
    let Shop { process, database, directory, .. } = shop;
    process.kill();
    let store = Orders::open(&database.clone().into()).await.unwrap();
    let summary = store.summary(&"demo".parse().unwrap()).await.unwrap();
    assert_eq!((summary.pending, summary.cancelled), (196, 4));
    store.close().await;
    drop(directory);
}

// promise: orders.14
#[tokio::test]
async fn with_a_lasting_lock_changes_get_503_in_time_and_reads_work() {
    let shop = Shop::with(20).await;
    let other = Sqlite::open(&shop.database).await.unwrap();
    let mut lock = other.write.acquire().await.unwrap();
    lock.execute("BEGIN IMMEDIATE").await.unwrap();
    let refused = shop.cancel(3).await;
    assert_eq!(refusal(refused).await, (503, "storage_unavailable".to_owned()));
    assert_eq!(shop.status(3).await, "pending");
    let listed: Vec<Value> = shop.ask(Method::GET, "/v1/store/orders").await.json().await.unwrap();
    assert_eq!(listed.len(), 20);
    assert!(shop.metrics().await.contains("orders_store_errors_total{kind=\"busy\"} 1"));
    lock.execute("ROLLBACK").await.unwrap();
    assert_eq!(shop.cancel(3).await.status(), 204);
}

/// The whole list; `None` if it was refused or broken off.
async fn listed(answer: Response) -> Option<Vec<Value>> {
    if answer.status() != 200 {
        assert_eq!(refusal(answer).await, (503, "storage_unavailable".to_owned()));
        return None;
    }
    let whole = answer.bytes().await.ok()?;
    Some(serde_json::from_slice(&whole).expect("a list that ends is valid"))
}

// promise: orders.15
#[tokio::test]
async fn damaged_pages_never_give_a_wrong_order() {
    const PAGE: usize = 4_096;
    const ORDERS: i64 = 3_000;
    let directory = tempfile::tempdir().unwrap();
    let database = directory.path().join("orders.db");
    stored(&database, ORDERS).await;
    let sound = std::fs::read(&database).unwrap();
    let first = Shop { process: Process::start(&database), client: Client::new(), database, directory };
    let truth = listed(first.ask(Method::GET, "/v1/store/orders").await).await.unwrap();
    let Shop { process, client, database, directory } = first;
    process.kill();
    let (mut noticed, mut harmless) = (0, 0);
    // The first pages are needed for a start; another test reads files with damaged first pages.
    for page in (10..sound.len() / PAGE).step_by(13) {
        let mut damaged = sound.clone();
        let middle = page * PAGE + PAGE / 2;
        damaged[middle..middle + 64].fill(0x2a);
        for left in ["-wal", "-shm"] {
            let _ = std::fs::remove_file(database.with_file_name(format!("orders.db{left}")));
        }
        std::fs::write(&database, &damaged).unwrap();
        let shop = Shop {
            process: Process::start(&database),
            client: client.clone(),
            database: database.clone(),
            directory: tempfile::tempdir().unwrap(),
        };
        if let Some(list) = listed(shop.ask(Method::GET, "/v1/store/orders").await).await {
            assert!(list == truth, "damaged page {page} gave a wrong list");
            harmless += 1;
        } else {
            assert!(shop.metrics().await.contains("orders_store_errors_total{kind=\"corrupt\"} 1"));
            noticed += 1;
        }
    }
    assert!(noticed > 0 && harmless > 0, "{noticed} noticed, {harmless} harmless");
    drop(directory);
}

// rule: 8.5
// promise: orders.6
#[tokio::test]
async fn a_reader_notices_a_kill_in_the_middle_of_a_list() {
    let Shop { process, directory, .. } = Shop::with(MORE_THAN_FITS).await;
    let (whole, is_whole) = SlowReader::ask(process.http).await.finish().await;
    assert!(is_whole, "a list of {whole} bytes");
    let reader = SlowReader::ask(process.http).await;
    process.kill();
    let (cut, is_whole) = reader.finish().await;
    assert!(!is_whole, "a broken-off list must not look complete");
    // The buffers hold only a small part of the list, as in `scale`.
    assert!(cut < whole / 2, "{cut} of {whole} bytes were on the way");
    drop(directory);
}
