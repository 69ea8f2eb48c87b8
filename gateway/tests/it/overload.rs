//! Memory and descriptors run short: the order in which the gateway sheds work, and operators are always answered.

use std::cmp::Ordering;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::Semaphore;

use crate::rolling::pair::Pair;
use crate::world::client::Client;
use crate::world::h2::H2;
use crate::world::{DEMO, eventually, within};

/// More than it will use.
const PLENTY: u64 = 1 << 40;

/// Sets the memory limit so that the gateway uses about this many thousandths of it, until it reports this stage.
async fn squeeze(pair: &Pair, thousandths: u64, stage: u64) {
    eventually("the stage", async || {
        let seen = pair.admin(0).metric("edge_overload_stage").await;
        match seen.cmp(&stage) {
            Ordering::Less => pair.grant_memory(pair.resident(0) * 1_000 / thousandths),
            Ordering::Equal => return Some(()),
            // It measured at a time of higher use, and a stage ends well below its start.
            Ordering::Greater => pair.grant_memory(PLENTY),
        }
        None
    })
    .await;
}

// promise: faults.21
#[tokio::test(flavor = "multi_thread")]
async fn before_memory_runs_out_idle_connections_go_then_the_lowest_plans_then_newcomers() {
    let pair = Pair::single(None).await;
    let https = pair.places()[0].https;
    let connect = async || Client::try_tls(https, DEMO).await.expect("a handshake");
    let (mut resting, mut busy) = (connect().await, connect().await);
    assert_eq!(resting.ask(&pair.ask()).await.status, 200);
    let shed = async |reason: &str| pair.admin(0).metric(&format!("edge_shed_total{{reason=\"{reason}\"}}")).await;
    assert_eq!((shed("idle").await, shed("request").await, shed("accept").await), (0, 0, 0));

    squeeze(&pair, 880, 1).await;
    let mut free = Client::try_tls(https, &pair.free_ask().host).await.expect("a handshake");
    assert_eq!(free.ask(&pair.free_ask()).await.status, 200, "no request is refused yet");
    assert_eq!(resting.rest().await, b"", "but who rests has to go");
    assert!(shed("idle").await >= 1);

    squeeze(&pair, 935, 2).await;
    let mut free = Client::try_tls(https, &pair.free_ask().host).await.expect("a handshake");
    let refused = free.ask(&pair.free_ask()).await;
    refused.refused(503, "overloaded");
    assert_eq!(refused.number("retry-after"), 1);
    busy = if busy.try_ask(&pair.ask()).await.is_some() { busy } else { connect().await };
    assert_eq!(busy.ask(&pair.ask()).await.status, 200, "the highest plan is served");
    assert_eq!(shed("request").await, 1);

    squeeze(&pair, 990, 3).await;
    let newcomer = tokio::spawn(async move { Client::try_tls(https, DEMO).await });
    assert_eq!(busy.ask(&pair.ask()).await.status, 200, "connections that are open are served");
    assert_eq!(pair.admin(0).get("/livez").await.0, 200);
    assert!(shed("accept").await >= 1);
    assert!(!newcomer.is_finished(), "a newcomer waits");

    pair.grant_memory(PLENTY);
    let mut newcomer = within(newcomer).await.unwrap().expect("and is let in");
    assert_eq!(newcomer.ask(&pair.ask()).await.status, 200);
    eventually("the stage", async || (pair.admin(0).metric("edge_overload_stage").await == 0).then_some(())).await;
    assert_eq!(free.ask(&pair.free_ask()).await.status, 200);
}

// Measuring memory four times a second is too late for requests that begin at once.
// promise: faults.21
#[tokio::test(flavor = "multi_thread")]
async fn no_more_requests_begin_at_once_than_there_is_memory_for() {
    const AT_ONCE: usize = 60;
    let pair = Pair::single(None).await;
    let asking = H2::connect(pair.places()[0].https, DEMO).await;
    let admin = pair.admin(0);
    let shed = async || admin.metric("edge_shed_total{reason=\"request\"}").await;
    squeeze(&pair, 880, 1).await;
    let before = pair.asked();
    let gate = Arc::new(Semaphore::new(0));
    pair.hold(AT_ONCE, &gate);
    let ask = pair.ask();
    let asked = join_all((0..AT_ONCE).map(|_| asking.try_ask(&ask)));
    let opened = async {
        // No request ends before all have begun or were refused, so none can use memory that another has freed.
        let decided = async || shed().await + (pair.asked() - before) as u64;
        eventually("all to be decided", async || (decided().await == AT_ONCE as u64).then_some(())).await;
        gate.add_permits(AT_ONCE);
    };
    let (replies, ()) = tokio::join!(asked, opened);
    let replies: Vec<_> = replies.into_iter().map(|reply| reply.expect("an answer")).collect();
    let (served, refused): (Vec<_>, Vec<_>) = replies.iter().partition(|reply| reply.status == 200);
    assert!((8..AT_ONCE / 2).contains(&served.len()), "{} were served", served.len());
    assert_eq!(shed().await, refused.len() as u64);
    for reply in refused {
        reply.refused(503, "overloaded");
    }
    pair.grant_memory(PLENTY);
    eventually("room", async || (admin.metric("edge_overload_stage").await == 0).then_some(())).await;
    let replies = join_all((0..AT_ONCE).map(|_| asking.try_ask(&ask))).await;
    assert!(replies.into_iter().all(|reply| reply.expect("an answer").status == 200), "there is memory for all");
}

// A23, F35
// promise: edge.28
#[tokio::test(flavor = "multi_thread")]
async fn clients_cannot_have_the_descriptors_that_operators_need() {
    let pair = Pair::single(Some(1_024)).await;
    let place = pair.places()[0];
    let mut open = Vec::new();
    for number in 0..600_u32 {
        // One address may have 256 connections.
        let from = IpAddr::V4(Ipv4Addr::new(127, 0, 1, u8::try_from(number / 100).unwrap() + 1));
        open.push(Client::from(place.http, from).await);
    }
    let admin = pair.admin(0);
    let turned_away = "edge_connection_events_total{event=\"too_many\"}";
    // Two fifths of 1,024 are admitted.
    eventually("clients to be turned away", async || (admin.metric(turned_away).await >= 191).then_some(())).await;
    assert_eq!(admin.metric("edge_connections").await, 409);
    for _ in 0..20 {
        assert_eq!(admin.get("/livez").await.0, 200);
        assert_eq!(admin.get("/readyz").await.0, 200);
    }
    drop(open);
    let mut client = Client::try_tls(place.https, DEMO).await;
    eventually("a place", async || {
        if client.is_err() {
            client = Client::try_tls(place.https, DEMO).await;
        }
        let asked = client.as_mut().ok()?.try_ask(&pair.ask()).await;
        (asked?.status == 200).then_some(())
    })
    .await;
}

// A23: with 128 descriptors the gateway still serves and does not run out.
// promise: edge.28
#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_without_descriptors_does_not_start() {
    let mut pair = Pair::prepare("0s").await;
    pair.limit_descriptors(128);
    pair.run(0);
    assert!(!pair.ended(0).await.success());
}

// promise: edge.12
#[tokio::test(flavor = "multi_thread")]
async fn one_address_cannot_have_all_connections() {
    let pair = Pair::single(None).await;
    let http = pair.places()[0].http;
    let mut open = Vec::new();
    for _ in 0..300 {
        open.push(Client::plain(http).await);
    }
    let turned_away = "edge_connection_events_total{event=\"too_many_from_address\"}";
    eventually("some to be turned away", async || (pair.admin(0).metric(turned_away).await >= 44).then_some(())).await;
    let elsewhere = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));
    let mut other = Client::from(http, elsewhere).await;
    let reply = tokio::time::timeout(Duration::from_secs(10), other.try_ask(&pair.ask())).await.unwrap();
    assert_eq!(
        reply.expect("an answer").status,
        403,
        "another address is as welcome as ever: a key, but no encryption"
    );
}
