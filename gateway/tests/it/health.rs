//! Health checks of upstream addresses.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};

use tokio::net::{TcpListener, TcpStream};

use crate::world::wire::Wire;
use crate::world::{DEMO, World, eventually};

/// A server with scripted health, which counts all other requests.
struct Patient {
    address: SocketAddr,
    health: Arc<AtomicU16>,
    requests: Arc<AtomicUsize>,
}

impl Patient {
    async fn start(health: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let patient = Self { address, health: Arc::new(AtomicU16::new(health)), requests: Arc::default() };
        let (health, requests) = (patient.health.clone(), patient.requests.clone());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, health.clone(), requests.clone()));
            }
        });
        patient
    }

    fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }
}

async fn serve(stream: TcpStream, health: Arc<AtomicU16>, requests: Arc<AtomicUsize>) {
    let mut wire = Wire::new(stream);
    while let Ok(Some(head)) = wire.head().await {
        let is_check = head.first_line.starts_with("GET /healthz ");
        let status = if is_check { health.load(Ordering::SeqCst) } else { 200 };
        requests.fetch_add(usize::from(!is_check), Ordering::SeqCst);
        let answer = format!("HTTP/1.1 {status} X\r\nContent-Length: 2\r\n\r\n[]");
        if wire.send(answer.as_bytes()).await.is_err() {
            return;
        }
    }
}

const CHECK: &str = "health = { path = \"/healthz\", every = \"20ms\", timeout = \"2s\", falls = 2, rises = 2 }";

// promise: faults.10
#[tokio::test]
async fn an_unhealthy_address_gets_no_requests_until_it_recovers() {
    let (well, unwell) = (Patient::start(200).await, Patient::start(503).await);
    let endpoints = vec![well.address, unwell.address];
    let world = World::with(|setup| (setup.orders_endpoints, setup.orders) = (endpoints, CHECK)).await;
    let mut client = world.tls(DEMO).await;
    // Until two checks have failed both get their turn.
    eventually("a turn without the one that is unwell", async || {
        let before = unwell.requests();
        for _ in 0..4 {
            assert_eq!(client.ask(&world.list()).await.status, 200);
        }
        (unwell.requests() == before).then_some(())
    })
    .await;
    let before = (well.requests(), unwell.requests());
    for _ in 0..10 {
        assert_eq!(client.ask(&world.list()).await.status, 200);
    }
    assert_eq!((well.requests(), unwell.requests()), (before.0 + 10, before.1));
    unwell.health.store(204, Ordering::SeqCst);
    eventually("its turn", async || {
        assert!(matches!(client.ask(&world.list()).await.status, 200 | 429));
        (unwell.requests() > before.1).then_some(())
    })
    .await;
}

#[tokio::test]
async fn requests_are_sent_although_every_address_is_unhealthy() {
    let unwell = Patient::start(500).await;
    let endpoints = vec![unwell.address];
    let world = World::with(|setup| (setup.orders_endpoints, setup.orders) = (endpoints, CHECK)).await;
    let mut client = world.tls(DEMO).await;
    for _ in 0..20 {
        assert_eq!(client.ask(&world.list()).await.status, 200);
    }
}
