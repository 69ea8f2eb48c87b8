//! The processes of gateways that a removal waits for: each of them, also when several share a credential.

use std::sync::Arc;
use std::time::Duration;

use chassis::clock::Clock as _;
use serde_json::{Value, json};

use crate::gateways::enrolled;
use crate::stores::postgres::Server;
use crate::stores::{in_postgres, mark_of, over_postgres, set};
use crate::world::{Answer, Bend, Platform, START, eventually, while_reporting};

/// A little longer than the longest silence of a live process.
const SILENT: Duration = Duration::from_secs(6);

/// A process that reports with this token.
struct Process<'a> {
    token: &'a str,
    name: &'a str,
    place: &'a str,
}

impl Process<'_> {
    async fn sends(&self, platform: &Platform, applied: u64, goodbye: bool) {
        let answer = self.tries(platform, applied, goodbye).await;
        assert_eq!(answer.status, 204, "{answer:?}");
    }

    async fn tries(&self, platform: &Platform, applied: u64, goodbye: bool) -> Answer {
        let mark = mark_of(platform.directory.path(), applied).await;
        let body = json!({
            "node": self.name, "place": self.place, "applied": applied, "mark": mark, "version": "1", "goodbye": goodbye,
        });
        let url = format!("{}/internal/edge/nodes", platform.internal);
        let request = platform.client.post(url).bearer_auth(self.token).json(&body);
        Answer::of(request.send().await.unwrap()).await
    }

    async fn reports(&self, platform: &Platform, applied: u64) {
        self.sends(platform, applied, false).await;
    }

    /// Reports the newest revision as applied.
    async fn is_up_to_date(&self, platform: &Platform) {
        self.reports(platform, platform.newest_revision().await).await;
    }

    /// Does this while it follows.
    async fn follows<T>(&self, platform: &Platform, work: impl Future<Output = T>) -> T {
        while_reporting(async || self.is_up_to_date(platform).await, work).await
    }
}

fn one(token: &str) -> Process<'_> {
    Process { token, name: "one", place: "0000000000000001" }
}

fn two(token: &str) -> Process<'_> {
    Process { token, name: "two", place: "0000000000000002" }
}

/// A project with these names, and the newest revision.
async fn with_names(platform: &Platform, names: &[&str]) -> u64 {
    platform.project("demo", "pro").await;
    for name in names {
        platform.local_domain("demo", json!({ "name": name })).await;
    }
    platform.newest_revision().await
}

async fn remove(platform: &Platform, name: &str) -> Answer {
    platform.owner("demo").send("DELETE", &format!("/v1/projects/demo/domains/{name}"), Value::Null).await
}

/// Whether the removal of a name has ended.
async fn gone(platform: &Platform, name: &str) {
    platform.domain_when("demo", name, |domain| domain["code"] == "domain_not_found").await;
}

fn waits_for(answer: &Answer, lagging: &[&str]) {
    assert_eq!((answer.status, &answer.body["lagging"]), (202, &json!(lagging)), "{answer:?}");
}

/// Stops a control plane and starts another one over its database, at the same time of the clock.
async fn restarted(platform: Platform) -> Platform {
    restarted_after(platform, Duration::ZERO).await
}

/// The same with a control plane that was away for a time.
async fn restarted_after(mut platform: Platform, away: Duration) -> Platform {
    platform.stop().await;
    let start = platform.clock.now().plus(i64::try_from(away.as_millis()).unwrap());
    let directory = platform.directory.clone();
    Platform::bent(Bend { directory: Some(directory), start, ..Bend::default() }).await
}

/// Until the database has a row of each of these.
async fn on_record(platform: &Platform, names: &[&str]) {
    eventually(async || {
        let nodes = platform.operator("GET", "/nodes", Value::Null).await.body;
        let known: Vec<&str> =
            nodes["nodes"].as_array().unwrap().iter().filter_map(|node| node["node"].as_str()).collect();
        if known == names { Ok(()) } else { Err(nodes.to_string()) }
    })
    .await;
}

// rule: 1.19
// promise: domains.4
#[tokio::test]
async fn a_removal_waits_for_a_silent_process_although_another_with_its_credential_is_live() {
    let platform = Platform::start().await;
    let token = enrolled(&platform, "edge").await;
    let revision = with_names(&platform, &["a.localhost"]).await;
    two(&token).reports(&platform, revision).await;
    platform.clock.advance(SILENT);
    let answer = one(&token).follows(&platform, remove(&platform, "a.localhost")).await;
    waits_for(&answer, &["edge/two"]);
    assert!(answer.header("x-edge-ack").starts_with("1/2; "), "{answer:?}");
    two(&token).is_up_to_date(&platform).await;
    gone(&platform, "a.localhost").await;
}

// promise: domains.4
#[tokio::test]
async fn after_a_restart_of_the_control_plane_each_process_is_waited_for_until_it_is_back() {
    let platform = Platform::start().await;
    let token = enrolled(&platform, "edge").await;
    let revision = with_names(&platform, &["a.localhost", "b.localhost"]).await;
    for process in [one(&token), two(&token)] {
        process.reports(&platform, revision).await;
    }
    let platform = restarted(platform).await;
    waits_for(&remove(&platform, "a.localhost").await, &["edge/one", "edge/two"]);
    waits_for(&one(&token).follows(&platform, remove(&platform, "b.localhost")).await, &["edge/two"]);
    // However late its report comes.
    platform.clock.advance(Duration::from_hours(23));
    assert_eq!(platform.owner("demo").get("/v1/projects/demo/domains/a.localhost").await.body["status"], "removing");
    two(&token).is_up_to_date(&platform).await;
    gone(&platform, "a.localhost").await;
    gone(&platform, "b.localhost").await;
}

// promise: domains.4
#[tokio::test]
async fn a_process_that_said_goodbye_is_not_waited_for_even_after_a_restart() {
    let platform = Platform::start().await;
    let token = enrolled(&platform, "edge").await;
    let revision = with_names(&platform, &["a.localhost", "b.localhost"]).await;
    for process in [one(&token), two(&token)] {
        process.reports(&platform, revision).await;
    }
    two(&token).sends(&platform, revision, true).await;
    // A report that was slower than the goodbye.
    two(&token).reports(&platform, revision).await;
    let answer = one(&token).follows(&platform, remove(&platform, "a.localhost")).await;
    assert_eq!((answer.status, answer.header("x-edge-ack").starts_with("1/1; ")), (204, true), "{answer:?}");
    let platform = restarted(platform).await;
    assert_eq!(one(&token).follows(&platform, remove(&platform, "b.localhost")).await.status, 204);
}

// promise: domains.4
#[tokio::test]
async fn a_process_whose_credential_is_revoked_is_not_waited_for() {
    let platform = Platform::start().await;
    let (stays, goes) = (enrolled(&platform, "stays").await, enrolled(&platform, "goes").await);
    let revision = with_names(&platform, &["a.localhost", "b.localhost"]).await;
    two(&goes).reports(&platform, revision).await;
    waits_for(&one(&stays).follows(&platform, remove(&platform, "a.localhost")).await, &["goes/two"]);
    assert_eq!(platform.operator("DELETE", "/credentials/gateway/goes", Value::Null).await.status, 200);
    gone(&platform, "a.localhost").await;
    assert_eq!(one(&stays).follows(&platform, remove(&platform, "b.localhost")).await.status, 204);
    // A new credential of the same name has no part in it.
    enrolled(&platform, "goes").await;
    on_record(&platform, &["stays/one"]).await;
}

// promise: domains.4
#[tokio::test]
async fn a_process_started_over_the_same_directory_replaces_its_dead_predecessor() {
    let platform = Platform::start().await;
    let token = enrolled(&platform, "edge").await;
    let revision = with_names(&platform, &["a.localhost", "b.localhost"]).await;
    one(&token).reports(&platform, revision).await;
    platform.clock.advance(Duration::from_secs(1));
    let next = Process { name: "next", ..one(&token) };
    waits_for(&next.follows(&platform, remove(&platform, "a.localhost")).await, &["edge/one"]);
    platform.clock.advance(SILENT);
    next.is_up_to_date(&platform).await;
    gone(&platform, "a.localhost").await;
    let platform = restarted(platform).await;
    assert_eq!(next.follows(&platform, remove(&platform, "b.localhost")).await.status, 204);
}

#[tokio::test]
async fn a_report_needs_a_valid_sender_name() {
    let platform = Platform::start().await;
    let token = enrolled(&platform, "edge").await;
    let url = format!("{}/internal/edge/nodes", platform.internal);
    for wrong in [
        json!({ "node": "", "applied": 1, "version": "1" }),
        json!({ "node": "other/one", "applied": 1, "version": "1" }),
        json!({ "node": "one", "applied": 1, "version": "1", "place": "here" }),
        json!({ "node": "one", "applied": 1, "version": "1", "place": "00000000000000FF" }),
    ] {
        let answer =
            Answer::of(platform.client.post(&url).bearer_auth(&token).json(&wrong).send().await.unwrap()).await;
        assert_eq!(answer.code(), (400, "invalid_body"), "{wrong}");
    }
}

/// The names of all that are waited for.
async fn names(platform: &Platform) -> Vec<String> {
    let nodes = platform.operator("GET", "/nodes", Value::Null).await.body;
    nodes["nodes"].as_array().unwrap().iter().map(|node| node["node"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn processes_on_record_are_bounded_for_each_credential() {
    let platform = Platform::start().await;
    let (shared, honest) = (enrolled(&platform, "shared").await, enrolled(&platform, "honest").await);
    let revision = with_names(&platform, &["a.localhost"]).await;
    one(&honest).reports(&platform, revision).await;
    one(&shared).reports(&platform, revision).await;
    // At its shutdown a control plane writes the processes to the database.
    let platform = restarted(platform).await;
    platform.clock.advance(SILENT);
    // Invented processes push out no sibling that serves, cut off.
    let mut refused = 0;
    for index in 0..200 {
        platform.clock.advance(Duration::from_millis(1));
        let (name, place) = (format!("p{index:03}"), format!("{:016x}", index + 0x100));
        let invented = Process { token: &shared, name: &name, place: &place };
        let answer = invented.tries(&platform, revision, false).await;
        assert!(answer.status == 204 || answer.code() == (429, "too_many_processes"), "{answer:?}");
        refused += usize::from(answer.status == 429);
    }
    assert_eq!(refused, 200 - 127);
    let feed = format!("{}/internal/edge/feed?node=more&after=0", platform.internal);
    let feed = platform.client.get(feed).bearer_auth(&shared).send().await.unwrap();
    assert_eq!(Answer::of(feed).await.code(), (429, "too_many_processes"), "who is not on record is told nothing");
    // Processes on record continue.
    one(&honest).reports(&platform, revision).await;
    let answer = remove(&platform, "a.localhost").await;
    let lagging = answer.body["lagging"].as_array().unwrap();
    assert!(answer.status == 202 && lagging.contains(&json!("shared/one")), "{answer:?}");
    let platform = restarted(platform).await;
    let known = names(&platform).await;
    assert_eq!((known.len(), known[0].as_str(), known[1].as_str()), (129, "honest/one", "shared/one"), "{known:?}");
    let more = Process { name: "more", ..two(&shared) };
    assert_eq!(more.tries(&platform, revision, false).await.code(), (429, "too_many_processes"));
    // Starts over the same directory replace each other.
    for index in 0..150 {
        platform.clock.advance(SILENT);
        let name = format!("p{index:03}");
        Process { name: &name, ..two(&honest) }.reports(&platform, revision).await;
    }
    let known = names(&platform).await;
    let of_honest: Vec<_> = known.iter().filter(|name| name.starts_with("honest/")).collect();
    assert_eq!(of_honest, ["honest/one", "honest/p149"]);
}

#[tokio::test]
async fn an_unknown_revision_confirms_nothing() {
    let platform = Platform::start().await;
    let token = enrolled(&platform, "edge").await;
    let newest = with_names(&platform, &["a.localhost"]).await;
    one(&token).reports(&platform, newest).await;
    for applied in [newest + 1, u64::MAX] {
        let answer = one(&token).tries(&platform, applied, false).await;
        assert_eq!(answer.code(), (400, "unknown_revision"), "{answer:?}");
        let answer = two(&token).tries(&platform, applied, false).await;
        assert_eq!(answer.code(), (400, "unknown_revision"), "{answer:?}");
    }
    let nodes = platform.operator("GET", "/nodes", Value::Null).await.body;
    assert_eq!((&nodes["nodes"][0]["node"], &nodes["nodes"][0]["applied"]), (&json!("edge/one"), &json!(0)), "{nodes}");
    waits_for(&remove(&platform, "a.localhost").await, &["edge/one"]);
    one(&token).is_up_to_date(&platform).await;
    gone(&platform, "a.localhost").await;
}

// promise: domains.4
#[tokio::test(flavor = "multi_thread")]
async fn every_replica_waits_for_processes_that_report_to_any_replica() {
    if !over_postgres() {
        return; // one process has one database
    }
    let directory = Arc::new(in_postgres(&Server::shared().database()));
    let start = || Platform::bent(Bend { directory: Some(directory.clone()), start: START, ..Bend::default() });
    let (left, mut right) = (start().await, start().await);
    let token = enrolled(&left, "edge").await;
    let revision = with_names(&left, &["a.localhost", "b.localhost"]).await;
    one(&token).reports(&left, revision).await;
    two(&token).reports(&right, revision).await;
    on_record(&left, &["edge/one", "edge/two"]).await;
    right.stop().await;
    left.clock.advance(SILENT);
    waits_for(&one(&token).follows(&left, remove(&left, "a.localhost")).await, &["edge/two"]);
    // A replica that received no report itself knows both from the database.
    let third = start().await;
    waits_for(&one(&token).follows(&left, remove(&third, "b.localhost")).await, &["edge/two"]);
    one(&token).is_up_to_date(&left).await;
    two(&token).sends(&third, revision, true).await;
    for replica in [&left, &third] {
        gone(replica, "a.localhost").await;
        gone(replica, "b.localhost").await;
    }
}

// promise: domains.4
#[tokio::test]
async fn the_absence_of_the_control_plane_is_no_silence_of_a_process() {
    let platform = Platform::start().await;
    let token = enrolled(&platform, "edge").await;
    let revision = with_names(&platform, &["a.localhost"]).await;
    two(&token).reports(&platform, revision).await;
    on_record(&platform, &["edge/two"]).await;
    // The control plane is stopped over a weekend, or its machine starts with a wrong clock.
    let platform = restarted_after(platform, Duration::from_hours(25)).await;
    waits_for(&remove(&platform, "a.localhost").await, &["edge/two"]);
    platform.clock.advance(Duration::from_hours(23));
    waits_for(&one(&token).follows(&platform, remove(&platform, "a.localhost")).await, &["edge/two"]);
    platform.clock.advance(Duration::from_hours(2));
    gone(&platform, "a.localhost").await;
}

#[tokio::test]
async fn a_row_with_an_impossible_revision_confirms_no_change() {
    let platform = Platform::start().await;
    let token = enrolled(&platform, "edge").await;
    let revision = with_names(&platform, &["a.localhost"]).await;
    two(&token).reports(&platform, revision).await;
    on_record(&platform, &["edge/two"]).await;
    let applied = i64::MAX.to_string();
    set(platform.directory.path(), "processes", "applied", "process = 'two'", Some(&applied)).await;
    let platform = restarted(platform).await;
    platform.clock.advance(SILENT);
    let answer = one(&token).follows(&platform, remove(&platform, "a.localhost")).await;
    waits_for(&answer, &["edge/two"]);
}
