//! A custom service behind the gateway: an echo server as an API with keys and as a public site with WebSocket.

use axum::Router;
use axum::extract::ws::{Message, WebSocketUpgrade};
use axum::http::{HeaderMap, Method};
use axum::routing::any;
use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio_rustls::TlsConnector;
use tokio_tungstenite::client_async;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;

use crate::world::{Platform, error, until};

/// A service that echoes requests and WebSocket messages.
async fn echo() -> String {
    let seen = |method: Method, headers: HeaderMap, body: String| async move {
        let headers: serde_json::Map<String, Value> =
            headers.iter().map(|(name, value)| (name.to_string(), json!(value.to_str().unwrap_or("?")))).collect();
        axum::Json(json!({ "method": method.as_str(), "headers": headers, "body": body }))
    };
    let socket = |upgrade: WebSocketUpgrade| async {
        upgrade.on_upgrade(|mut socket| async move {
            while let Some(Ok(Message::Text(text))) = socket.recv().await {
                if socket.send(Message::Text(text)).await.is_err() {
                    return;
                }
            }
        })
    };
    let router = Router::new().route("/socket", any(socket)).fallback(seen);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await });
    format!("echo=http://{address}")
}

/// One platform for both steps; each step uses a different project.
#[tokio::test]
async fn a_custom_service_works_behind_the_gateway() {
    let platform = Platform::start_with(&["--upstream", &echo().await]);
    a_service_of_ones_own_stands_behind_the_edge(&platform).await;
    a_public_site_needs_no_key_and_speaks_websocket(&platform).await;
}

/// `--upstream-setting` accepts the settings of gateway.toml and saves them.
#[tokio::test]
async fn an_upstream_has_its_configured_limits() {
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("echo=http://{}", silent.local_addr().unwrap());
    let settings = ["echo.first_byte_timeout=100ms", "echo.body_bytes_max=10"];
    let [first, second] = settings.map(|setting| ["--upstream-setting", setting]);
    let mut platform = Platform::start_with(&[&["--upstream", &url][..], &first, &second].concat());
    platform.json(&["project", "create", "open", "--plan", "free", "--upstream", "echo", "--access", "public"]);
    limits_hold(&platform).await;
    platform.stop();
    platform.arguments.clear();
    platform.up();
    limits_hold(&platform).await;
}

async fn limits_hold(platform: &Platform) {
    let client = platform.client();
    let url = format!("https://open.tollhouse.localhost:{}/", platform.https_port());
    until("it is published", async || client.get(&url).send().await.is_ok()).await;
    assert_eq!(error(client.get(&url).send().await.unwrap()).await, (504, "upstream_timeout".to_owned()));
    let large = client.post(&url).body("12345678901").send().await.unwrap();
    assert_eq!(error(large).await, (413, "body_too_large".to_owned()));
}

async fn a_service_of_ones_own_stands_behind_the_edge(platform: &Platform) {
    platform.json(&["project", "create", "mine", "--plan", "pro", "--upstream", "echo"]);
    let key = platform.json(&["key", "create", "mine"])["key"].as_str().unwrap().to_owned();
    let client = platform.client();
    let url = format!("https://mine.tollhouse.localhost:{}/any/path?x=1", platform.https_port());
    until("it is published", async || client.get(&url).send().await.is_ok()).await;
    let forged = client
        .post(&url)
        .bearer_auth(&key)
        .header("x-tollhouse-project", "evil")
        .header("tollhouse-identity-token", "v1.forged.forged")
        .header("x-forwarded-for", "6.6.6.6")
        .body("hello")
        .send()
        .await
        .unwrap();
    assert_eq!(forged.status(), 200);
    let seen: Value = forged.json().await.unwrap();
    assert_eq!((&seen["method"], &seen["body"]), (&json!("POST"), &json!("hello")));
    let headers = &seen["headers"];
    assert_eq!(headers["x-tollhouse-project"], "mine");
    assert_eq!(headers["x-tollhouse-plan"], "pro");
    assert_eq!(headers["x-forwarded-for"], "127.0.0.1");
    assert_eq!(headers["x-forwarded-proto"], "https");
    assert_eq!(headers["x-real-ip"], "127.0.0.1");
    let port = platform.https_port();
    assert_eq!(headers["host"], format!("mine.tollhouse.localhost:{port}"), "the address that its clients use");
    assert_eq!(headers["x-forwarded-host"], headers["host"]);
    assert_eq!(headers["x-forwarded-port"], port.to_string());
    assert_eq!(headers["traceparent"], Value::Null, "without a collector the gateway adds no trace");
    assert_eq!(headers["tollhouse-identity-token"], Value::Null, "this upstream has not asked who is calling");
    assert_eq!(headers["authorization"], Value::Null, "the key stays at the edge");
    let unknown = client.get(&url).send().await.unwrap();
    assert_eq!(error(unknown).await, (401, "missing_api_key".to_owned()));
}

async fn a_public_site_needs_no_key_and_speaks_websocket(platform: &Platform) {
    platform.json(&["project", "create", "open", "--plan", "free", "--upstream", "echo", "--access", "public"]);
    let client = platform.client();
    let host = "open.tollhouse.localhost";
    let url = format!("https://{host}:{}/", platform.https_port());
    until("it is published", async || client.get(&url).send().await.is_ok()).await;
    let page = client.put(&url).header("authorization", "Basic eDp5").body("x").send().await.unwrap();
    assert_eq!(page.status(), 200);
    assert!(!page.headers().contains_key("x-ratelimit-limit"));
    assert_eq!(page.json::<Value>().await.unwrap()["headers"]["authorization"], "Basic eDp5", "the site's own login");

    let trust = TlsConnector::from(rustls_roots(platform.demo["ca_certificate"].as_str().unwrap()));
    let tcp = tokio::net::TcpStream::connect(("127.0.0.1", platform.https_port())).await.unwrap();
    let tls = trust.connect(host.try_into().unwrap(), tcp).await.unwrap();
    let request = format!("wss://{host}:{}/socket", platform.https_port()).into_client_request().unwrap();
    let (mut socket, response) = client_async(request, tls).await.unwrap();
    assert_eq!(response.status(), 101);
    for word in ["one", "two"] {
        socket.send(word.into()).await.unwrap();
        assert_eq!(socket.next().await.unwrap().unwrap().into_text().unwrap().as_str(), word);
    }
}

fn rustls_roots(file: &str) -> std::sync::Arc<rustls::ClientConfig> {
    use rustls::pki_types::pem::PemObject as _;
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let mut roots = rustls::RootCertStore::empty();
    roots.add(rustls::pki_types::CertificateDer::from_pem_file(file).unwrap()).unwrap();
    std::sync::Arc::new(rustls::ClientConfig::builder().with_root_certificates(roots).with_no_client_auth())
}
