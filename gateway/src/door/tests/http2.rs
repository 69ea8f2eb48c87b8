//! HTTP/2 through a door and the real proxy.

use std::sync::Arc;
use std::time::Duration;

use rustls::sign::CertifiedKey;
use tokio::net::TcpStream;

use super::backend::proxy;
use super::certificates::{certificate, client};
use super::listeners::{Open, open_with, soon};
use crate::door::fakes::FakeDoorman;
use crate::door::{ConnectionEvent, DoorSettings};

async fn secure(settings: DoorSettings) -> (Open, Arc<CertifiedKey>) {
    let (proxy, _, _) = proxy().await;
    let (doorman, key) = (FakeDoorman::default(), certificate(&["a.example"]));
    doorman.certificates.lock().insert("a.example".parse().unwrap(), Arc::clone(&key));
    (open_with(proxy, settings, true, Arc::new(doorman), [1; 32]).await, key)
}

fn browser(open: &Open, key: &CertifiedKey) -> reqwest::Client {
    let tls = (*client(key, &[b"h2"])).clone();
    let builder = reqwest::Client::builder().tls_backend_preconfigured(tls).no_proxy();
    builder.resolve("a.example", open.address).build().unwrap()
}

async fn get(browser: &reqwest::Client, open: &Open, path: &str) -> String {
    let url = format!("https://a.example:{}{path}", open.address.port());
    let response = browser.get(url).send().await.unwrap();
    assert_eq!((response.status(), response.version()), (http::StatusCode::OK, http::Version::HTTP_2));
    response.text().await.unwrap()
}

#[tokio::test]
async fn streams_share_one_connection() {
    let (open, key) = secure(DoorSettings::default()).await;
    let browser = browser(&open, &key);
    assert_eq!(get(&browser, &open, "/1").await, "GET /1 0\n");
    let (second, third) = tokio::join!(get(&browser, &open, "/2"), get(&browser, &open, "/3"));
    assert_eq!((second.as_str(), third.as_str()), ("GET /2 0\n", "GET /3 0\n"));
    assert_eq!(open.doorman.count(ConnectionEvent::Opened), 1);
    assert_eq!(open.connections.in_flight(), 0);
}

#[tokio::test]
async fn a_connection_goes_away_after_its_last_request() {
    let (open, key) = secure(DoorSettings { requests_per_connection: 2, ..DoorSettings::default() }).await;
    let browser = browser(&open, &key);
    for path in ["/1", "/2"] {
        assert_eq!(get(&browser, &open, path).await, format!("GET {path} 0\n"));
    }
    soon(open.connections.idle()).await;
    assert_eq!(get(&browser, &open, "/3").await, "GET /3 0\n");
    assert_eq!(open.doorman.count(ConnectionEvent::Opened), 2);
}

#[tokio::test]
async fn a_connection_goes_away_when_it_is_old_or_the_process_is_to_end() {
    let aged = DoorSettings { connection_age: Duration::from_secs(1), ..DoorSettings::default() };
    let (open, key) = secure(aged).await;
    let browser_of_old = browser(&open, &key);
    assert_eq!(get(&browser_of_old, &open, "/").await, "GET / 0\n");
    soon(open.connections.idle()).await;

    let (open, key) = secure(DoorSettings::default()).await;
    let browser = browser(&open, &key);
    assert_eq!(get(&browser, &open, "/").await, "GET / 0\n");
    open.shutdown.send(true).unwrap();
    soon(open.connections.idle()).await;
    assert!(TcpStream::connect(open.address).await.is_err());
}

#[tokio::test]
async fn a_host_that_goes_away_takes_its_connections_with_it() {
    let (open, key) = secure(DoorSettings::default()).await;
    let browser = browser(&open, &key);
    assert_eq!(get(&browser, &open, "/").await, "GET / 0\n");
    assert_eq!(open.connections.close_where(|host| host.as_str() == "a.example"), 1);
    soon(open.connections.idle()).await;
    assert_eq!(open.doorman.count(ConnectionEvent::Ended), 1);
}
