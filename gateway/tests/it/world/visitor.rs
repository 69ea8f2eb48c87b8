//! A client that notices when a request fails.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::task::JoinHandle;

use super::client::{Ask, Client};
use super::{BLOG, World};

/// Interval of a visitor's requests, which leaves most of the machine to the rest of the test.
const INTERVAL: Duration = Duration::from_millis(2);

/// Reads the blog, one request after the other on one connection, while something else is done to the gateway.
pub(crate) struct Visitor {
    leaves: Arc<AtomicBool>,
    visit: JoinHandle<u32>,
}

impl Visitor {
    pub(crate) fn of(world: &World) -> Self {
        let leaves = Arc::new(AtomicBool::new(false));
        let (stop, to) = (leaves.clone(), world.https);
        let visit = tokio::spawn(async move {
            let mut client = Client::tls(to, BLOG).await;
            let mut answers = 0;
            let mut interval = tokio::time::interval(INTERVAL);
            while !stop.load(Ordering::SeqCst) {
                interval.tick().await;
                let reply = client.ask(&Ask::get(BLOG, "/")).await;
                assert_eq!(reply.status, 200, "after {answers} requests: {reply:?}");
                answers += 1;
                if reply.header("connection") == Some("close") {
                    client = Client::tls(to, BLOG).await;
                }
            }
            answers
        });
        Self { leaves, visit }
    }

    /// Sends the visitor away; how many requests there were, each answered with 200.
    pub(crate) async fn leave(self) -> u32 {
        self.leaves.store(true, Ordering::SeqCst);
        let answers = self.visit.await.expect("no request failed");
        assert!(answers > 0, "no request was sent");
        answers
    }
}
