use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::http::HeaderMap;
use axum::routing::post;
use parking_lot::Mutex;

use super::*;

const ID: &str = "msg_1";

/// A resolver that gives prepared answers in order, and counts the queries.
struct Scripted {
    answers: Mutex<Vec<Vec<IpAddr>>>,
    lookups: AtomicUsize,
}

impl Scripted {
    fn new(answers: &[&[&str]]) -> Arc<Self> {
        let parse = |list: &&[&str]| list.iter().map(|address| address.parse().unwrap()).collect();
        Arc::new(Self { answers: Mutex::new(answers.iter().rev().map(parse).collect()), lookups: AtomicUsize::new(0) })
    }
}

#[async_trait]
impl Lookup for Scripted {
    async fn lookup(&self, _: &str) -> io::Result<Vec<IpAddr>> {
        self.lookups.fetch_add(1, Ordering::SeqCst);
        self.answers.lock().pop().ok_or_else(|| io::Error::other("no such name"))
    }
}

/// Loopback counts as the internet here; everything else is forbidden.
fn only_this_machine(address: IpAddr) -> bool {
    address == IpAddr::V4(Ipv4Addr::LOCALHOST)
}

fn sender(lookup: Arc<dyn Lookup>, timeout: Duration) -> Sender {
    Sender::new(Rules { allow_http: true, permits: only_this_machine, timeout }, lookup).unwrap()
}

async fn send(sender: &Sender, url: &str) -> Attempt {
    let secrets = [SigningSecret::from_bytes(vec![1; 32]).unwrap(), SigningSecret::from_bytes(vec![2; 32]).unwrap()];
    sender.send(url, &Message { id: ID, at: UnixSeconds(7), body: "{}", secrets: &secrets }).await
}

/// A receiver with a path per behaviour.
async fn receiver() -> SocketAddr {
    let router = Router::new()
        .route(
            "/ok",
            post(|headers: HeaderMap| async move {
                let secret = SigningSecret::from_bytes(vec![2; 32]).unwrap();
                let signature = headers["webhook-signature"].to_str().unwrap().split(' ').nth(1).unwrap().to_owned();
                let good = signature == secret.sign(ID, UnixSeconds(7), b"{}")
                    && headers["webhook-id"] == ID
                    && headers["webhook-timestamp"] == "7"
                    && headers["content-type"] == "application/json";
                if good { StatusCode::NO_CONTENT } else { StatusCode::BAD_REQUEST }
            }),
        )
        .route("/busy", post(|| async { (StatusCode::SERVICE_UNAVAILABLE, [("retry-after", "90")]) }))
        .route("/gone", post(|| async { StatusCode::GONE }))
        .route("/moved", post(|| async { (StatusCode::PERMANENT_REDIRECT, [("location", "/ok")]) }))
        .route("/never", post(|| async { std::future::pending::<StatusCode>().await }))
        .route(
            "/endless",
            post(|| async {
                axum::body::Body::from_stream(futures_util::stream::repeat_with(|| {
                    Ok::<_, io::Error>(vec![0_u8; 65_536])
                }))
            }),
        );
    let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    address
}

#[tokio::test]
async fn every_answer_has_its_result() {
    let at = receiver().await;
    let sender = sender(Arc::new(SystemLookup), Duration::from_millis(500));
    let result = async |path: &str| send(&sender, &format!("http://{at}{path}")).await;
    let delivered = result("/ok").await;
    assert_eq!(
        (delivered.result, delivered.status, delivered.explanation),
        (AttemptResult::Delivered, Some(204), None)
    );
    let busy = result("/busy").await;
    assert_eq!((busy.result, busy.retry_after), (AttemptResult::Refused, Some(Duration::from_secs(90))));
    assert_eq!(result("/gone").await.result, AttemptResult::Gone);
    let moved = result("/moved").await;
    assert_eq!((moved.result, moved.status), (AttemptResult::Refused, Some(308)));
    assert_eq!(result("/never").await.result, AttemptResult::Timeout);
    assert_eq!(result("/nothing").await.status, Some(404));
    // An endless body is not waited for.
    assert_eq!(result("/endless").await.result, AttemptResult::Delivered);
}

#[tokio::test]
async fn a_closed_port_is_unreachable() {
    let sender = sender(Arc::new(SystemLookup), Duration::from_secs(5));
    let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let at = listener.local_addr().unwrap();
    drop(listener);
    let attempt = send(&sender, &format!("http://{at}/")).await;
    assert_eq!(attempt.result, AttemptResult::Unreachable);
    assert_eq!(attempt.explanation, Some("cannot connect; check the port and the certificate"));
}

#[tokio::test]
async fn a_failure_is_described_by_its_class_without_text_of_the_receiver() {
    // Sends text that is neither TLS nor HTTP.
    let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let at = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = tokio::io::AsyncWriteExt::write_all(&mut stream, b"SSH-2.0-secret-host\r\n").await;
        }
    });
    let sender = sender(Arc::new(SystemLookup), Duration::from_secs(5));
    for (url, expected) in [
        (format!("https://{at}/"), "cannot connect; check the port and the certificate"),
        (format!("http://{at}/"), "the connection ended before a response"),
        ("http://127.0.0.9:1/".to_owned(), "the address may not be used; change the URL"),
    ] {
        assert_eq!(send(&sender, &url).await.explanation, Some(expected), "{url}");
    }
    let at = receiver().await;
    let refused = send(&sender, &format!("http://{at}/nothing")).await;
    assert_eq!(
        (refused.status, refused.explanation),
        (Some(404), Some("the receiver answered with another status than 2xx"))
    );
}

#[tokio::test]
async fn the_address_that_was_checked_is_the_one_connected_to() {
    let port = receiver().await.port();
    // The name changes its address after the first query, to get past a check.
    let lookup = Scripted::new(&[&["127.0.0.1"], &["127.0.0.2"], &["169.254.169.254", "10.0.0.1", "::1"]]);
    let sender = sender(lookup.clone(), Duration::from_secs(5));
    let url = format!("http://receiver.example:{port}/ok");
    assert_eq!(send(&sender, &url).await.result, AttemptResult::Delivered);
    assert_eq!(lookup.lookups.load(Ordering::SeqCst), 1);
    for _ in 0..2 {
        assert_eq!(send(&sender, &url).await.result, AttemptResult::Blocked);
    }
    assert_eq!(send(&sender, &url).await.result, AttemptResult::Unreachable, "a name without addresses");
}

#[test]
fn addresses_that_must_not_be_used_are_refused() {
    let rules = |allow_http| Rules { allow_http, permits: |address| !address.is_loopback(), timeout: CONNECT_TIME_MAX };
    let strict = Sender::new(rules(false), Arc::new(SystemLookup)).unwrap();
    for (url, expected) in [
        ("http://hooks.example.com/", BadUrl::Scheme),
        ("ftp://hooks.example.com/", BadUrl::Scheme),
        ("file:///etc/passwd", BadUrl::Scheme),
        ("hooks.example.com", BadUrl::Malformed),
        ("https://hooks.example.com/\u{1b}[2J", BadUrl::Malformed),
        ("https://hooks.example.com/\nforged", BadUrl::Malformed),
        ("https://hooks.example.com/\u{202e}moc", BadUrl::Malformed),
        ("https://", BadUrl::Malformed),
        ("https://user@hooks.example.com/", BadUrl::Parts),
        ("https://:secret@hooks.example.com/", BadUrl::Parts),
        ("https://hooks.example.com/#part", BadUrl::Parts),
        ("https://127.0.0.1/", BadUrl::Address),
        ("https://127.1/", BadUrl::Address),
        ("https://2130706433/", BadUrl::Address),
        ("https://0x7f000001/", BadUrl::Address),
        ("https://0177.0.0.1/", BadUrl::Address),
        ("https://[::1]/", BadUrl::Address),
    ] {
        assert_eq!(strict.check(url).unwrap_err(), expected, "{url}");
    }
    assert!(strict.check(&format!("https://hooks.example.com/{}", "x".repeat(URL_BYTES_MAX))).is_err());
    assert!(strict.check("https://hooks.example.com:8443/in?token=a").is_ok());
    let lax = Sender::new(rules(true), Arc::new(SystemLookup)).unwrap();
    assert!(lax.check("http://hooks.example.com/").is_ok());
}
