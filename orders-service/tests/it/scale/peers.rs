//! The same rows read by other programs, for comparison: the stores' own clients, and Datasette.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use reqwest::Client;

use super::{Kept, MEGABYTE, memory, rate, read, row};
use crate::world::until;

/// The time a program takes to read the same rows from the same file.
fn beside(program: &str, arguments: &[&str]) -> Duration {
    let began = Instant::now();
    let status = Command::new(program).args(arguments).stdout(Stdio::null()).status();
    let status = status.unwrap_or_else(|error| panic!("{program} is missing ({error}): install {program}"));
    assert!(status.success(), "{program} {arguments:?}");
    began.elapsed()
}

const COLUMNS: &str =
    "SELECT id, pet_id, quantity, ship_date_micros, complete FROM orders WHERE project = 'demo' ORDER BY id";

/// The time the store's own client takes for the same rows, as text and as JSON.
pub(super) async fn beside_programs(kept: &Kept, orders: i64) {
    let object = "'id', id, 'petId', pet_id, 'quantity', quantity, 'complete', complete";
    let all = "FROM orders WHERE project = 'demo' ORDER BY id";
    let print = |program: &str, form: &str, took: Duration| {
        row(&format!("`{program}`, the same rows as {form}"), &format!("{:.0} orders/s", rate(orders, took)));
    };
    match kept {
        Kept::File(file) => {
            let read = |query: &str| beside("sqlite3", &["-readonly", file.to_str().unwrap(), query]);
            print("sqlite3", "text", read(COLUMNS));
            print("sqlite3", "JSON", read(&format!("SELECT json_object({object}) {all}")));
            beside_datasette(file, orders).await;
        }
        Kept::Server { url, .. } => {
            let read = |query: &str| beside("psql", &[url, "-qAtc", &format!("COPY ({query}) TO STDOUT")]);
            print("psql", "text", read(COLUMNS));
            print("psql", "JSON", read(&format!("SELECT json_build_object({object}) {all}")));
        }
    }
}

/// Durable changes of single rows with the store's own client, one after the other.
pub(super) fn beside_updates(kept: &Kept) {
    const UPDATES: i64 = 200;
    let single = "UPDATE orders SET quantity = 1 WHERE project = 'demo' AND id = 1;\n";
    let script = single.repeat(usize::try_from(UPDATES).unwrap());
    let (program, took) = match kept {
        Kept::File(file) => {
            let script = format!("PRAGMA synchronous = FULL; {script}");
            ("sqlite3", beside("sqlite3", &[file.to_str().unwrap(), &script]))
        }
        Kept::Server { url, .. } => {
            let directory = tempfile::tempdir().unwrap();
            let file = directory.path().join("updates.sql");
            std::fs::write(&file, script).unwrap();
            ("psql", beside("psql", &[url, "-q", "-f", file.to_str().unwrap()]))
        }
    };
    row(
        &format!("`{program}`, updates of one row, durable, 1 at once"),
        &format!("{:.0} per second", rate(UPDATES, took)),
    );
}

/// Datasette, which serves SQLite files as JSON over HTTP, asked for the same list, if `bench/run orders` has installed
/// it.
#[expect(clippy::disallowed_methods, reason = "a tool of a long run, no setting of the product")]
async fn beside_datasette(database: &Path, orders: i64) {
    let Ok(program) = std::env::var("BENCH_DATASETTE") else { return };
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let limits = ["--setting", "max_returned_rows", "100000000", "--setting", "sql_time_limit_ms", "600000"];
    let child = Command::new(program)
        .args(["serve", "--port", &port.to_string()])
        .args(limits)
        .arg(database)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let peer = Ended(child);
    let client = Client::new();
    let versions = format!("http://127.0.0.1:{port}/-/versions.json");
    until("datasette answers", async || client.get(&versions).send().await.is_ok()).await;
    let query = "select+id,pet_id,quantity,complete+from+orders+where+project='demo'+order+by+id";
    let url = format!("http://127.0.0.1:{port}/orders.json?_shape=array&sql={query}");
    let began = Instant::now();
    let answer = client.get(url).send().await.unwrap();
    assert_eq!(answer.status(), 200);
    let (first, _, listed) = read(answer, began).await;
    assert_eq!(listed, orders);
    let took = began.elapsed();
    row("Datasette, the same list: first byte", &format!("{:.1} s", first.as_secs_f64()));
    row("Datasette, the same list: whole", &format!("{:.1} s, {:.0} orders/s", took.as_secs_f64(), rate(orders, took)));
    row("Memory of Datasette, peak", &format!("{} MB", memory(peer.0.id(), "VmHWM:") / MEGABYTE));
}

/// A process that is killed at the end of its test.
struct Ended(std::process::Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
