//! Upstreams over TLS: accepted certificates, the gateway's own certificate, and the errors of failed handshakes.

use std::net::SocketAddr;
use std::path::Path;

use serde_json::json;
use tempfile::TempDir;
use tokio::io::AsyncBufReadExt as _;

use crate::world::client::Ask;
use crate::world::h2_upstream::{H2Request, H2Upstream};
use crate::world::secure::{file, front, server, usual};
use crate::world::upstream::{Act, Upstream, response};
use crate::world::{BLOG, World, certificates, eventually, within};

/// A world with the blog at this address behind TLS, the tests' authority as its CA, and these settings.
async fn world(at: SocketAddr, lines: &str, directory: &Path) -> World {
    let root = file(directory, "root.pem", &certificates::root());
    World::with(|setup| {
        setup.blog_urls = vec![format!("https://{at}")];
        setup.blog_tables = format!("[upstreams.blog.tls]\nca_certificate_file = \"{}\"\n{lines}", root.display());
    })
    .await
}

fn directory() -> TempDir {
    tempfile::tempdir().unwrap()
}

#[tokio::test]
async fn an_upstream_over_tls_is_served_over_connections_that_are_kept() {
    for version in rustls::ALL_VERSIONS {
        let (upstream, files) = (Upstream::start().await, directory());
        let leaf = certificates::leaf(&["127.0.0.1"]);
        let at = front(upstream.address, server(&leaf, &[version], false)).await;
        let world = world(at, "", files.path()).await;
        let mut client = world.tls(BLOG).await;
        let kinds = ["fresh h1 tls", "reused h1 tls", "reused h1 tls"];
        for kind in kinds {
            let reply = client.ask(&Ask::get(BLOG, "/")).await;
            assert_eq!((reply.status, reply.text()), (200, "[]"));
            let line = world.log.line_of(reply.request_id()).await;
            assert_eq!(line["upstream_connection"], kind, "{version:?}");
        }
        assert_eq!(upstream.connections(), 1, "{version:?}");
        // Bytes behind a response belong to no request, also when they wait in the TLS buffer.
        let more = format!("{}HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison", response("200 OK", "", "good"));
        upstream.next(Act::Answer(more.into_bytes()));
        assert_eq!(client.ask(&Ask::get(BLOG, "/")).await.text(), "good");
        assert_eq!(client.ask(&Ask::get(BLOG, "/")).await.text(), "[]");
        world.end().await;
    }
}

#[tokio::test]
async fn bodies_of_both_directions_arrive_over_tls_as_they_were_sent() {
    let (upstream, files) = (Upstream::start().await, directory());
    let at = front(upstream.address, usual(&["127.0.0.1"])).await;
    let world = world(at, "", files.path()).await;
    let large = "0123456789".repeat(200_000);
    for _ in 0..2 {
        upstream.next(Act::Answer(response("200 OK", "", &large).into_bytes()));
        let reply = world.ask(Ask::new("POST", BLOG, "/").body(&large)).await;
        assert_eq!((reply.status, reply.text() == large), (200, true));
    }
    let whole = |request: &crate::world::upstream::Received| request.complete && request.body == large.as_bytes();
    assert!(upstream.requests().iter().all(whole) && upstream.requests().len() == 2);
    world.end().await;
}

/// Certificates that must be refused, and servers without TLS, each with the reason that an operator reads.
#[tokio::test]
async fn an_untrusted_upstream_is_502_with_a_reason_for_operators_only() {
    let stranger = {
        let key = rcgen::KeyPair::generate().unwrap();
        let params = rcgen::CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        (params.self_signed(&key).unwrap().pem(), key.serialize_pem())
    };
    let expired = certificates::leaf_with(&["127.0.0.1"], |params| params.not_after = rcgen::date_time_ymd(2020, 1, 1));
    let early = certificates::leaf_with(&["127.0.0.1"], |params| params.not_before = rcgen::date_time_ymd(2999, 1, 1));
    let elsewhere = certificates::leaf(&["secret-name.example"]);
    let good = certificates::leaf(&["127.0.0.1"]);
    let all = rustls::ALL_VERSIONS;
    for (config, words) in [
        (Some(server(&stranger, all, false)), "authority that is not trusted"),
        (Some(server(&expired, all, false)), "has expired"),
        (Some(server(&early, all, false)), "not valid yet"),
        (Some(server(&elsewhere, all, false)), "for another name"),
        (Some(server(&good, &[&rustls::version::TLS13], true)), "requires a client certificate"),
        (Some(server(&good, &[&rustls::version::TLS12], true)), "certificate"),
        (None, "does the upstream speak TLS"),
    ] {
        let (upstream, files) = (Upstream::start().await, directory());
        let late = config.is_none();
        let at = match config {
            Some(config) => front(upstream.address, config).await,
            None => upstream.address,
        };
        let world = world(at, "", files.path()).await;
        let reply = world.ask(Ask::get(BLOG, "/")).await;
        if late {
            reply.refused(504, "upstream_timeout");
        } else {
            reply.refused(502, "upstream_tls");
        }
        assert!(!reply.text().contains("name.example") && !reply.text().contains("certificate"), "{}", reply.text());
        let line = world.log.line_of(reply.request_id()).await;
        let reason = line["reason"].as_str().unwrap_or_default().to_owned();
        assert!(reason.contains(words), "{words}: {line}");
        assert!(upstream.requests().is_empty(), "{words}");
        let outcome = if late { "timeout" } else { "tls_error" };
        world.admin.counts(&format!("edge_upstream_requests_total{{outcome=\"{outcome}\"}}"), 1).await;
        world.end().await;
    }
}

#[tokio::test]
async fn an_endpoint_gets_its_own_or_the_configured_server_name() {
    let (upstream, files) = (Upstream::start().await, directory());
    let at = front(upstream.address, usual(&["shop.internal", "localhost"])).await;
    let by_address = world(at, "", files.path()).await;
    by_address.ask(Ask::get(BLOG, "/")).await.refused(502, "upstream_tls");
    by_address.end().await;
    let named = world(at, "server_name = \"shop.internal\"", files.path()).await;
    assert_eq!(named.ask(Ask::get(BLOG, "/")).await.status, 200);
    named.end().await;
    let root = files.path().join("root.pem");
    let found = World::with(|setup| {
        setup.blog_urls = vec![format!("https://localhost:{}", at.port())];
        setup.blog = "host = \"shop.internal:8443\"";
        setup.blog_tables = format!("[upstreams.blog.tls]\nca_certificate_file = \"{}\"", root.display());
    })
    .await;
    assert_eq!(found.ask(Ask::get(BLOG, "/")).await.status, 200);
    let requests = upstream.requests();
    let [named, renamed] = requests.as_slice() else { panic!("{requests:?}") };
    assert_eq!((named.head.get("host"), renamed.head.get("host")), (Some(BLOG), Some("shop.internal:8443")));
    assert_eq!(renamed.head.get("x-forwarded-host"), Some(BLOG), "the visitor's own host is still sent");
    found.end().await;
}

#[tokio::test]
async fn a_client_certificate_is_sent_and_reloaded_when_its_file_changes() {
    let (upstream, files) = (Upstream::start().await, directory());
    let at = front(upstream.address, server(&certificates::leaf(&["127.0.0.1"]), rustls::ALL_VERSIONS, true)).await;
    let usage = |params: &mut rcgen::CertificateParams, expired: bool| {
        params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ClientAuth];
        if expired {
            params.not_after = rcgen::date_time_ymd(2020, 1, 1);
        }
    };
    // Both certificates have one key, so the two files match at any time.
    let key = rcgen::KeyPair::generate().unwrap();
    let expired = certificates::leaf_of(&key, &["edge"], |params| usage(params, true));
    let good = certificates::leaf_of(&key, &["edge"], |params| usage(params, false));
    let chain = file(files.path(), "edge.pem", &expired);
    let key = file(files.path(), "edge.key", &key.serialize_pem());
    let lines = format!("client_certificate_file = \"{}\"\nclient_key_file = \"{}\"", chain.display(), key.display());
    let world = world(at, &lines, files.path()).await;
    let reply = world.ask(Ask::get(BLOG, "/")).await;
    reply.refused(502, "upstream_tls");
    assert_eq!(world.log.line_of(reply.request_id()).await["reason"], "it does not accept our client certificate");
    file(files.path(), "edge.pem", &good);
    eventually("the new certificate is shown", async || {
        (world.ask(Ask::get(BLOG, "/")).await.status == 200).then_some(())
    })
    .await;
    world.end().await;
}

/// A connection that is used all the time ends too when its upstream is no longer trusted.
#[tokio::test]
async fn removed_trust_ends_connections_in_use() {
    for http2 in [false, true] {
        let (old, new, files) = (Upstream::start().await, H2Upstream::start(100, H2Request::empty).await, directory());
        let mut config = usual(&["127.0.0.1"]);
        config.alpn_protocols = vec![if http2 { b"h2".to_vec() } else { b"http/1.1".to_vec() }];
        let at = front(if http2 { new.address } else { old.address }, config).await;
        let world = world(at, &format!("http2 = {http2}"), files.path()).await;
        for _ in 0..3 {
            assert_eq!(world.ask(Ask::get(BLOG, "/")).await.status, 200);
        }
        assert_eq!(new.connections() + old.connections(), 1);
        file(files.path(), "root.pem", &certificates::leaf(&["another.example"]).0);
        eventually("the connection is left", async || {
            let reply = world.ask(Ask::get(BLOG, "/")).await;
            (reply.status != 200).then(|| reply.refused(502, "upstream_tls").clone())
        })
        .await;
        world.end().await;
    }
}

/// The first log line with this word of a gateway that starts with these settings.
async fn line_of_a_start(settings: &Path, word: &str) -> serde_json::Value {
    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_gateway"));
    command.arg("--config").arg(settings).stdout(std::process::Stdio::piped()).kill_on_drop(true);
    let mut process = command.spawn().unwrap();
    let mut lines = tokio::io::BufReader::new(process.stdout.take().unwrap()).lines();
    within(async {
        loop {
            let line = lines.next_line().await.unwrap().unwrap_or_else(|| panic!("it ended without saying {word}"));
            if line.contains(word) {
                return serde_json::from_str(&line).unwrap();
            }
        }
    })
    .await
}

#[tokio::test]
async fn an_insecure_upstream_is_served_and_status_and_log_say_so() {
    let files = directory();
    let upstream = Upstream::start().await;
    let at = front(upstream.address, usual(&["another.example"])).await;
    let world = World::with(|setup| {
        setup.blog_urls = vec![format!("https://{at}")];
        setup.blog_tables = "[upstreams.blog.tls]\ninsecure = true".to_owned();
    })
    .await;
    assert_eq!(world.ask(Ask::get(BLOG, "/")).await.status, 200);
    let status: serde_json::Value = serde_json::from_str(&world.admin.get("/status").await.1).unwrap();
    let insecure: Vec<_> =
        status["upstreams"].as_array().unwrap().iter().filter(|one| one["insecure"] == json!(true)).collect();
    assert_eq!(insecure.len(), 1);
    assert_eq!((&insecure[0]["name"], &insecure[0]["speaks"]), (&json!("blog"), &json!("https")));
    // The same settings with a data directory of their own: another gateway has the first.
    let text = std::fs::read_to_string(world.settings_file()).unwrap().replace("/data\"", "/data-of-another\"");
    let line = line_of_a_start(&file(files.path(), "gateway.toml", &text), "INSECURE").await;
    assert!(line["level"] == "WARN" && line.to_string().contains("\"upstream\":\"blog\""), "{line}");
    world.end().await;
}

#[tokio::test]
async fn health_checks_use_tls() {
    let (upstream, files) = (Upstream::start().await, directory());
    let at = front(upstream.address, usual(&["another.example"])).await;
    let root = file(files.path(), "root.pem", &certificates::root());
    let world = World::with(|setup| {
        setup.blog_urls = vec![format!("https://{at}")];
        setup.blog = "health = { path = \"/readyz\", every = \"20ms\", falls = 1, rises = 1 }";
        setup.blog_tables = format!(
            "[upstreams.blog.tls]\nserver_name = \"another.example\"\nca_certificate_file = \"{}\"",
            root.display()
        );
    })
    .await;
    upstream.asked(2).await;
    assert!(upstream.requests().iter().all(|request| request.head.first_line == "GET /readyz HTTP/1.1"));
    world.end().await;
}
