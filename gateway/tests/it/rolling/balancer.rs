//! A load balancer: it knows which gateways report that they are ready, and retries nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use crate::world::client::status_of;
use crate::world::eventually;
use crate::world::process::Place;
use crate::world::wire::Wire;

/// Interval of its checks.
const LOOK_EVERY: Duration = Duration::from_millis(20);

pub(super) struct Balancer {
    places: [Place; 2],
    /// The number of the ready start of each gateway; 0: not ready.
    lives: [AtomicU64; 2],
    watching: parking_lot::Mutex<Option<JoinHandle<()>>>,
}

impl Balancer {
    pub(super) fn start(places: [Place; 2]) -> Arc<Self> {
        let balancer = Arc::new(Self { places, lives: Default::default(), watching: parking_lot::Mutex::default() });
        let watching = Arc::downgrade(&balancer);
        let task = tokio::spawn(async move {
            let mut lives = 0;
            while let Some(balancer) = watching.upgrade() {
                for (place, life) in balancer.places.iter().zip(&balancer.lives) {
                    let ready = is_ready(place).await;
                    let known = life.load(Ordering::SeqCst);
                    if ready && known == 0 {
                        lives += 1;
                        life.store(lives, Ordering::SeqCst);
                    } else if !ready {
                        life.store(0, Ordering::SeqCst);
                    }
                }
                drop(balancer);
                tokio::time::sleep(LOOK_EVERY).await;
            }
        });
        *balancer.watching.lock() = Some(task);
        balancer
    }

    /// Waits until `count` gateways are ready.
    pub(super) async fn ready(&self, count: usize) {
        eventually("gateways to be ready", async || {
            let ready = self.lives.iter().filter(|life| life.load(Ordering::SeqCst) > 0).count();
            (ready == count).then_some(())
        })
        .await;
    }

    /// A ready gateway, by turns, with the number of its start.
    pub(super) fn choose(&self, turn: usize) -> Option<(usize, u64, Place)> {
        (turn..turn + 2).map(|turn| turn % 2).find_map(|node| {
            let life = self.lives[node].load(Ordering::SeqCst);
            (life > 0).then_some((node, life, self.places[node]))
        })
    }

    /// Called when no connection could be opened: no request goes there before it reports ready again.
    pub(super) fn refused(&self, node: usize, life: u64) {
        // Another client may have noticed the same death already.
        let _ = self.lives[node].compare_exchange(life, 0, Ordering::SeqCst, Ordering::SeqCst);
    }
}

async fn is_ready(place: &Place) -> bool {
    let asking = async {
        let mut wire = Wire::new(TcpStream::connect(place.admin).await.ok()?);
        wire.send(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await.ok()?;
        Some(status_of(&wire.head().await.ok()??))
    };
    let answer = tokio::time::timeout(Duration::from_secs(1), asking).await;
    answer.is_ok_and(|status| status == Some(200))
}
