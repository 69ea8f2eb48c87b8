//! A receiver on loopback with scripted answers, which keeps the requests.

use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::watch;

use crate::world::eventually;

/// One request it got.
#[derive(Clone, Debug)]
pub(crate) struct Received {
    headers: HeaderMap,
    pub(crate) body: String,
}

impl Received {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }
}

#[derive(Default)]
struct Script {
    received: Mutex<Vec<Received>>,
    /// The next statuses; 204 when empty.
    statuses: Mutex<VecDeque<u16>>,
}

pub(crate) struct Receiver {
    pub(crate) address: SocketAddr,
    script: Arc<Script>,
    hangs: watch::Sender<bool>,
}

impl Receiver {
    pub(crate) async fn start() -> Self {
        let script = Arc::new(Script::default());
        let (hangs, hung) = watch::channel(false);
        let router = Router::new().route("/in", post(take)).with_state((script.clone(), hung));
        let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { address, script, hangs }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/in", self.address)
    }

    /// Its answers to the next requests; later ones get 204.
    pub(crate) fn answer_with(&self, statuses: &[u16]) {
        self.script.statuses.lock().extend(statuses);
    }

    /// Whether requests are kept waiting.
    pub(crate) fn hang(&self, hangs: bool) {
        self.hangs.send_replace(hangs);
    }

    pub(crate) fn all(&self) -> Vec<Received> {
        self.script.received.lock().clone()
    }

    /// The numbers of the events that it received.
    pub(crate) fn numbers(&self) -> Vec<i64> {
        self.all().iter().map(|message| message.json()["data"]["event_id"].as_i64().unwrap()).collect()
    }

    /// Waits for the request with this index, and returns it.
    pub(crate) async fn message(&self, index: usize) -> Received {
        eventually(async || {
            let message = self.script.received.lock().get(index).cloned();
            message.ok_or_else(|| format!("message {index} did not arrive; there are {:#?}", self.all()))
        })
        .await
    }
}

async fn take(
    State((script, mut hangs)): State<(Arc<Script>, watch::Receiver<bool>)>,
    headers: HeaderMap,
    body: String,
) -> StatusCode {
    script.received.lock().push(Received { headers, body });
    // The sender may have disconnected by then.
    let _ = hangs.wait_for(|hangs| !hangs).await;
    let status = script.statuses.lock().pop_front().unwrap_or(204);
    StatusCode::from_u16(status).unwrap()
}
