//! Output never delays requests: an unread log, and metrics with many readers at once.

use std::process::Stdio;

use crate::rolling::pair::Pair;
use crate::world::client::Client;
use crate::world::{DEMO, World};

// promise: faults.24
#[tokio::test(flavor = "multi_thread")]
async fn an_unread_log_delays_no_request_and_no_shutdown() {
    let mut pair = Pair::prepare("0s").await;
    pair.run_into(0, Stdio::piped());
    pair.serves().await;
    let mut client = Client::try_tls(pair.places()[0].https, DEMO).await.expect("a handshake");
    // A pipe holds 64 KiB, which is a hundred lines or so.
    for _ in 0..500 {
        assert_eq!(client.ask(&pair.ask()).await.status, 200);
    }
    assert!(pair.terminate(0).await.success());
}

// promise: faults.25
#[tokio::test(flavor = "multi_thread")]
async fn many_scrapes_at_once_are_answered_and_delay_no_request() {
    let world = World::start().await;
    let admin = world.admin;
    let scrapes: Vec<_> = (0..100).map(|_| tokio::spawn(async move { admin.get("/metrics").await })).collect();
    let mut client = world.tls(DEMO).await;
    for _ in 0..20 {
        assert_eq!(client.ask(&world.list()).await.status, 200);
    }
    for scrape in scrapes {
        let (status, text) = scrape.await.unwrap();
        assert!(status == 200 && text.contains("edge_requests_total"), "{status}");
    }
}
