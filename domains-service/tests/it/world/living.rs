//! Gateways that live: they follow the stream and report what they have applied, until they die.

use std::sync::Arc;
use std::time::{Duration, Instant};

use chassis::clock::Clock as _;
use contract::feed::Frame;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::{GATEWAY, Platform, eventually};

/// A task that ends with the one that has this.
struct AbortOnDrop(JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Platform {
    /// A gateway follows the stream and reports what it has applied, again and again, until it [dies](Self::dies).
    pub(crate) async fn lives(&self, node: &'static str) {
        let token = self.gateway().await;
        let mut stream = self.follow_for(Duration::from_mins(10), &token, &format!("node={node}&after=0")).await;
        let (client, clock) = (self.client.clone(), Arc::clone(&self.clock));
        let url = format!("{}/internal/edge/nodes", self.internal);
        let applied = Arc::new(tokio::sync::watch::channel(None).0);
        let newest = applied.clone();
        let reader = tokio::spawn(async move {
            while let Some(frame) = stream.next().await {
                match frame {
                    Frame::Change(change) => drop(newest.send_replace(Some((change.revision, change.mark)))),
                    Frame::SnapshotEnd { revision, mark } => drop(newest.send_replace(Some((revision, mark)))),
                    _ => {}
                }
            }
        });
        let task = tokio::spawn(async move {
            let _reader = AbortOnDrop(reader);
            let (mut changed, mut pause) = (applied.subscribe(), tokio::time::interval(Duration::from_millis(20)));
            let (mut said, mut reported) = (None, Instant::now());
            loop {
                tokio::select! {
                    _ = changed.changed() => {}
                    _ = pause.tick() => {}
                }
                let Some((applied, mark)) = *changed.borrow_and_update() else { continue };
                // A gateway reports each second of its own time, and the test moves the service's.
                let says = Some((applied, clock.now()));
                if says == said && reported.elapsed() < Duration::from_millis(500) {
                    continue;
                }
                let body = json!({ "node": node, "applied": applied, "mark": mark, "version": "1" });
                // While the service stops, a report fails, and is repeated.
                let sent = client.post(&url).bearer_auth(&token).json(&body).send().await;
                said = says.filter(|_| sent.is_ok_and(|answer| answer.status().is_success()));
                reported = Instant::now();
            }
        });
        self.living.lock().insert(node.to_owned(), task);
        eventually(async || self.shows_live(node, true).await).await;
    }

    /// A gateway ends without a goodbye. Half a minute and more passes: a report of it may still be on its way.
    pub(crate) async fn dies(&self, node: &str) {
        self.living.lock().remove(node).expect("it lives").abort();
        eventually(async || {
            self.clock.advance(Duration::from_secs(30));
            self.shows_live(node, false).await
        })
        .await;
    }

    async fn shows_live(&self, node: &str, live: bool) -> Result<(), String> {
        let nodes = self.operator("GET", "/nodes", Value::Null).await.body;
        let is_live = |known: &Value| known["node"] == format!("{GATEWAY}/{node}") && known["live"] == true;
        let is_shown = nodes["nodes"].as_array().is_some_and(|all| all.iter().any(is_live) == live);
        if is_shown { Ok(()) } else { Err(nodes.to_string()) }
    }
}
