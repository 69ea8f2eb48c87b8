//! Repeated `kill -9` of the real process: no acknowledged cancellation is lost.

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use chassis::clock::{Clock as _, SystemClock};
use contract::time::UnixMillis;
use orders_service::Orders;
use reqwest::{Client, Method};

use crate::world::{CREDENTIAL, caller, control_plane, extent, signed, stored};

/// Number of kills; `bench/run orders-kill` sets a larger one.
const KILLS: i64 = 20;
const ORDERS_PER_KILL: i64 = 1_000;

/// Deadline for a response or a broken connection.
const ANSWER_WAIT_MAX: Duration = Duration::from_mins(1);

/// The service as a separate process.
pub(crate) struct Process {
    child: Child,
    pub(crate) http: SocketAddr,
    pub(crate) internal: SocketAddr,
    pub(crate) admin: SocketAddr,
}

impl Process {
    pub(crate) fn start(database: &Path) -> Self {
        let control = format!("http://{}", control_plane());
        Self::start_with(database, &[("TOLLHOUSE_ORDERS_EVENTS_URL", &control)])
    }

    pub(crate) fn start_with(database: &Path, settings: &[(&str, &str)]) -> Self {
        let file = [("TOLLHOUSE_ORDERS_DATABASE", database.to_str().unwrap())];
        Self::start_on(&[&file[..], settings].concat())
    }

    /// Starts the service with settings of its store.
    pub(crate) fn start_on(settings: &[(&str, &str)]) -> Self {
        // SIGXFSZ would end the process; ignored, a write beyond the limit fails with an error, which some tests need.
        let mut child = Command::new("sh")
            .args(["-c", "trap '' XFSZ; exec \"$0\"", env!("CARGO_BIN_EXE_orders-service")])
            .env("TOLLHOUSE_ORDERS_CREDENTIAL", CREDENTIAL)
            .env("TOLLHOUSE_ORDERS_CREATE_DATABASE", "true")
            .env("TOLLHOUSE_ORDERS_LISTEN", "127.0.0.1:0")
            .env("TOLLHOUSE_ORDERS_INTERNAL_LISTEN", "127.0.0.1:0")
            .env("TOLLHOUSE_ORDERS_ADMIN_LISTEN", "127.0.0.1:0")
            .envs(settings.iter().copied())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let listening = output
            .lines()
            .map(|line| serde_json::from_str::<serde_json::Value>(&line.unwrap()).unwrap())
            .find(|line| line["http"].is_string())
            .expect("the service prints its addresses");
        let address = |listener: &str| listening[listener].as_str().unwrap().parse().unwrap();
        Self { child, http: address("http"), internal: address("internal"), admin: address("admin") }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// `kill -9`, as `drop` does.
    pub(crate) fn kill(self) {
        drop(self);
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// Cancels orders from `next` on with several clients until the process ends; returns the acknowledged ids and
/// the highest id of a request.
pub(crate) async fn cancel_until_gone(
    http: SocketAddr,
    next: i64,
    kill_after: usize,
    kill: impl FnOnce(),
) -> (Vec<i64>, i64) {
    const CLIENTS: i64 = 8;
    let (acknowledge, mut acknowledged) = tokio::sync::mpsc::channel(64);
    for lane in 0..CLIENTS {
        let acknowledge = acknowledge.clone();
        tokio::spawn(async move {
            let client = Client::new();
            let clock = SystemClock::new();
            let mut id = next + lane;
            loop {
                let target = format!("/v1/store/orders/{id}");
                let request = client.request(Method::DELETE, format!("http://{http}{target}"));
                let answer = signed(request, Some(caller()), clock.now()).send().await;
                let status = answer.ok().map(|response| response.status().as_u16());
                if acknowledge.send((id, status)).await.is_err() || status.is_none() {
                    return;
                }
                id += CLIENTS;
            }
        });
    }
    drop(acknowledge);
    let (mut sure, mut highest) = (Vec::new(), next);
    let mut kill = Some(kill);
    loop {
        let next = tokio::time::timeout(ANSWER_WAIT_MAX, acknowledged.recv()).await;
        let Some((id, status)) = next.expect("an answer, or the end of the process") else { break };
        highest = highest.max(id);
        match status {
            Some(204) => sure.push(id),
            Some(other) => panic!("order {id}: {other}"),
            None => {}
        }
        if sure.len() >= kill_after
            && let Some(kill) = kill.take()
        {
            kill();
        }
    }
    (sure, highest)
}

// rule: 4.2.204
// promise: orders.11, faults.13
#[tokio::test(flavor = "multi_thread")]
async fn every_acknowledged_cancellation_survives_kill_9() {
    let kills = extent("KILLS", KILLS);
    let given = kills * ORDERS_PER_KILL;
    let directory = tempfile::tempdir().unwrap();
    let database = directory.path().join("orders.db");
    let project = "demo".parse().unwrap();
    stored(&database, given).await;
    let mut next = 0;
    let mut acknowledged = Vec::new();
    for round in 0..kills {
        let process = Process::start(&database);
        let http = process.http;
        // The kill follows the first to some hundredth response, so it meets the writer in different states.
        let kill_after = 1 + usize::try_from(round % KILLS).unwrap() * 7;
        let (sure, highest) = cancel_until_gone(http, next, kill_after, move || process.kill()).await;
        assert!(sure.len() >= kill_after);
        acknowledged.extend(sure);
        next = highest + 1;
    }
    let orders = Orders::open(&database.clone().into()).await.unwrap();
    let store = orders.store();
    for id in &acknowledged {
        let order = store.find(&project, *id).await.unwrap().unwrap();
        assert_eq!(order.status.as_str(), "cancelled", "order {id} was acknowledged and is not cancelled");
        let events = store.events(&project, *id).await.unwrap().unwrap();
        assert_eq!(events.len(), 1, "order {id} has its event, once");
        assert!(events[0].at > UnixMillis(0));
    }
    let summary = orders.summary(&project).await.unwrap();
    assert_eq!(summary.pending + summary.cancelled, given);
    assert!(summary.cancelled >= i64::try_from(acknowledged.len()).unwrap());
    // The version counts exactly the import and the cancellations, so no change is half done.
    assert_eq!(store.edition(&project).await.unwrap().version, 1 + summary.cancelled);
    // Each has one undelivered event.
    let waiting = store.undelivered(u32::MAX).await.unwrap();
    assert_eq!((waiting.events.len(), waiting.damaged.len()), (usize::try_from(summary.cancelled).unwrap(), 0));
    println!("{kills} kills, {} acknowledged cancels, each of them found again with one event", acknowledged.len());
    orders.close().await;
}

#[test]
fn check_config_reports_problems_without_serving() {
    let run = |credential: &str| {
        Command::new(env!("CARGO_BIN_EXE_orders-service"))
            .env("TOLLHOUSE_ORDERS_CREDENTIAL", credential)
            .arg("--check-config")
            .output()
            .unwrap()
    };
    let good = run(CREDENTIAL);
    assert!(good.status.success());
    let bad = run("short");
    assert!(!bad.status.success());
    assert!(String::from_utf8(bad.stderr).unwrap().contains("has 1 problem"));
}
