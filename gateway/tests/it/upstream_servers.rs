//! Third-party upstreams: nginx and nghttpd, over every protocol to an upstream.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;

use tempfile::TempDir;
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};

use crate::world::client::{Ask, Reply};
use crate::world::secure::file;
use crate::world::{BLOG, Setup, World, certificates, eventually};

mod one_of_two;
mod pinned_keys;

/// A port that is free at the moment.
async fn free() -> u16 {
    TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port()
}

/// Starts a server at a free port and waits until it answers. Tries another port where a process took it first.
async fn started(mut server: impl AsyncFnMut(u16) -> Child) -> (Child, u16) {
    loop {
        let port = free().await;
        let mut child = server(port).await;
        let up = eventually("the server", async || {
            let ended = child.try_wait().unwrap().is_some();
            let answers = TcpStream::connect(SocketAddr::from(([127, 0, 0, 1], port))).await.is_ok();
            (ended || answers).then_some(!ended)
        })
        .await;
        if up {
            return (child, port);
        }
    }
}

fn spawn(program: &str, arguments: &[&str]) -> Child {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
    command.spawn().unwrap_or_else(|error| panic!("{program} is missing ({error}): ./check installs it"))
}

/// Debian installs servers outside of users' paths.
fn program(name: &str) -> String {
    let places = ["/usr/sbin", "/usr/bin", "/usr/local/sbin", "/usr/local/bin"];
    let found = places.iter().map(|place| format!("{place}/{name}")).find(|path| Path::new(path).exists());
    found.unwrap_or_else(|| panic!("{name} is missing: ./check installs it"))
}

/// Certificates of an upstream and of the edge, and a site of three files.
struct Files {
    directory: TempDir,
    /// The gateway's TLS settings.
    tls: String,
}

fn files() -> Files {
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path();
    let (chain, key) = certificates::leaf(&["shop.internal"]);
    let edge = certificates::leaf_with(&["edge"], |params| {
        params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ClientAuth];
    });
    for (name, text) in [
        ("server.pem", chain),
        ("server.key", key),
        ("edge.pem", edge.0),
        ("edge.key", edge.1),
        ("root.pem", certificates::root()),
        ("index.html", "hello".to_owned()),
        ("large", "0123456789".repeat(100_000)),
    ] {
        file(place, name, &text);
    }
    let lines = [
        "ca_certificate_file = \"D/root.pem\"",
        "client_certificate_file = \"D/edge.pem\"",
        "client_key_file = \"D/edge.key\"",
    ];
    let tls = format!("[upstreams.blog.tls]\nserver_name = \"shop.internal\"\n{}\n", lines.join("\n"));
    Files { tls: tls.replace('D', place.to_str().unwrap()), directory }
}

/// Checks an upload: the server echoed it, or stored it in a file, which is removed before the next upload.
async fn kept(world: &World, url: &str, path: &str, what: &str, reply: &Reply, body: &str) {
    if !reply.body.is_empty() {
        assert!(reply.body == body.as_bytes(), "{url}{path} {what}: {} bytes came back", reply.body.len());
        return;
    }
    let found = world.ask(Ask::get(BLOG, path)).await;
    assert!(found.status == 200 && found.body == body.as_bytes(), "{url}{path} {what}: {} bytes", found.body.len());
    assert_eq!(world.ask(Ask::new("DELETE", BLOG, path)).await.status, 204, "{url}{path} {what}");
}

/// Sends requests over both versions, with bodies in both directions; `/upload/` stores them.
async fn assert_served(url: String, tls: &str, kind: &str) {
    assert_served_with(url, kind, |setup| setup.blog_tables = tls.to_owned()).await;
}

async fn assert_served_with(url: String, kind: &str, change: impl FnOnce(&mut Setup)) {
    let world = World::with(|setup| {
        setup.blog_urls = vec![url.clone()];
        // A server under load may accept slowly.
        setup.blog = "connect_timeout = \"10s\"";
        change(setup);
    })
    .await;
    let (mut old, new) = (world.tls(BLOG).await, world.h2(BLOG).await);
    for (path, bytes) in [("/index.html", 5), ("/large", 1_000_000), ("/index.html", 5)] {
        let ask = Ask::get(BLOG, path);
        for reply in [old.ask(&ask).await, new.ask(&ask).await] {
            assert_eq!((reply.status, reply.body.len()), (200, bytes), "{url}{path}");
            let line = world.log.line_of(reply.request_id()).await;
            assert!(line["upstream_connection"].as_str().unwrap().ends_with(kind), "{url}: {line}");
        }
    }
    // A body with a length, and over HTTP/2 one without, which the gateway sends on in chunks or frames.
    for (number, size) in [1, 300_000].into_iter().enumerate() {
        let body = "0123456789".repeat(size);
        let path = format!("/upload/{number}");
        let mut unmeasured = Ask::new("PUT", BLOG, &path).body(&body);
        unmeasured.fields.clear();
        for (what, ask, is_old) in [
            ("h1", Ask::new("PUT", BLOG, &path).body(&body), true),
            ("h2", Ask::new("PUT", BLOG, &path).body(&body), false),
            ("h2 without a length", unmeasured, false),
        ] {
            let reply = if is_old { old.ask(&ask).await } else { new.ask(&ask).await };
            assert!((200..300).contains(&reply.status), "{url}{path} {what}: {reply:?}");
            kept(&world, &url, &path, what, &reply, &body).await;
        }
    }
    assert_eq!(new.ask(&Ask::get(BLOG, "/nowhere")).await.status, 404, "{url}");
    assert_eq!(new.ask(&Ask::new("HEAD", BLOG, "/large")).await.header("content-length"), Some("1000000"), "{url}");
    drop(new);
    world.end().await;
}

#[tokio::test]
async fn nginx_over_tls_with_a_client_certificate_and_both_versions() {
    let files = files();
    let place = files.directory.path().to_str().unwrap().to_owned();
    for (options, kind, lines) in
        [("ssl http2", "h2 tls", ""), ("ssl", "h1 tls", ""), ("ssl http2", "h1 tls", "http2 = false\n")]
    {
        for version in ["TLSv1.2", "TLSv1.3"] {
            let (_server, port) = started(async |port| {
                let text = format!(
                    "daemon off; master_process off; error_log stderr; pid {place}/nginx.pid; worker_processes 1; events {{}}\n\
                     http {{ access_log off; client_body_temp_path {place}/b; proxy_temp_path {place}/p;\n\
                     fastcgi_temp_path {place}/f; uwsgi_temp_path {place}/u; scgi_temp_path {place}/s;\n\
                     server {{ listen 127.0.0.1:{port} {options}; server_name shop.internal; root {place};\n\
                     client_max_body_size 10m; location /upload/ {{ dav_methods PUT DELETE; create_full_put_path on; }}\n\
                     ssl_certificate {place}/server.pem; ssl_certificate_key {place}/server.key;\n\
                     ssl_protocols {version}; ssl_client_certificate {place}/root.pem; ssl_verify_client on; }} }}\n"
                );
                let settings = file(files.directory.path(), "nginx.conf", &text);
                spawn(&program("nginx"), &["-c", settings.to_str().unwrap(), "-p", &place, "-e", "stderr"])
            })
            .await;
            assert_served(format!("https://127.0.0.1:{port}"), &format!("{}{lines}", files.tls), kind).await;
        }
    }
}

#[tokio::test]
async fn nginx_behind_a_unix_socket_over_both_versions() {
    let files = files();
    let place = files.directory.path().to_str().unwrap().to_owned();
    for (scheme, options, kind) in [("unix", "", "h1"), ("unix+h2c", "http2", "h2")] {
        let (_server, _) = started(async |port| {
            // A server that ended has left it there.
            let _ = std::fs::remove_file(files.directory.path().join("shop.sock"));
            let text = format!(
                "daemon off; master_process off; error_log stderr; pid {place}/nginx.pid; worker_processes 1; events {{}}\n\
                 http {{ access_log off; client_body_temp_path {place}/b; proxy_temp_path {place}/p;\n\
                 fastcgi_temp_path {place}/f; uwsgi_temp_path {place}/u; scgi_temp_path {place}/s;\n\
                 server {{ listen unix:{place}/shop.sock {options}; listen 127.0.0.1:{port}; root {place};\n\
                 client_max_body_size 10m;\n\
                 location /upload/ {{ dav_methods PUT DELETE; create_full_put_path on; }} }} }}\n"
            );
            let settings = file(files.directory.path(), "nginx.conf", &text);
            spawn(&program("nginx"), &["-c", settings.to_str().unwrap(), "-p", &place, "-e", "stderr"])
        })
        .await;
        let root = format!("sockets_directory = \"{place}\"");
        assert_served_with(format!("{scheme}:shop.sock"), kind, |setup| setup.root = root).await;
    }
}

#[tokio::test]
async fn a_unix_socket_that_does_not_exist_is_502_with_the_reason() {
    let directory = tempfile::tempdir().unwrap();
    let world = World::with(|setup| {
        setup.root = format!("sockets_directory = \"{}\"", directory.path().display());
        setup.blog_urls = vec!["unix:shop.sock".to_owned()];
    })
    .await;
    let reply = world.ask(Ask::get(BLOG, "/")).await;
    reply.refused(502, "upstream_unreachable");
    let line = world.log.line_of(reply.request_id()).await;
    assert_eq!(line["endpoint"], format!("unix:{}/shop.sock", directory.path().display()));
    assert_eq!(line["reason"], "the socket does not exist: does the service run?");
    world.end().await;
}

#[tokio::test]
async fn nghttpd_with_tls_and_without() {
    let files = files();
    let place = files.directory.path().to_str().unwrap().to_owned();
    let (key, chain) = (format!("{place}/server.key"), format!("{place}/server.pem"));
    let (_server, port) = started(async |port| {
        spawn(&program("nghttpd"), &["-d", &place, "--echo-upload", "--no-tls", "-a", "127.0.0.1", &port.to_string()])
    })
    .await;
    assert_served(format!("h2c://127.0.0.1:{port}"), "", "h2").await;
    let (_server, port) = started(async |port| {
        spawn(&program("nghttpd"), &["-d", &place, "--echo-upload", "-a", "127.0.0.1", &port.to_string(), &key, &chain])
    })
    .await;
    assert_served(format!("https://127.0.0.1:{port}"), &files.tls, "h2 tls").await;
}

/// A certificate as people make them, in `place`, with these further options.
async fn made_by_openssl(place: &str, name: &str, options: &[&str]) {
    let (key, chain) = (format!("{place}/{name}.key"), format!("{place}/{name}.pem"));
    let mut command = Command::new("openssl");
    command.args([
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-keyout",
        &key,
        "-out",
        &chain,
        "-subj",
        "/CN=localhost",
    ]);
    let made = command.args(options).output().await.expect("openssl is installed");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}

/// nginx with a certificate of its own, at a free port, for HTTP/1.1 and HTTP/2.
async fn nginx_with(place: &str, name: &str, lines: &str) -> (Child, u16) {
    started(async |port| {
        let text = format!(
            "daemon off; master_process off; error_log stderr; pid {place}/{name}.pid; worker_processes 1; events {{}}\n\
             http {{ access_log off; client_body_temp_path {place}/b; proxy_temp_path {place}/p;\n\
             fastcgi_temp_path {place}/f; uwsgi_temp_path {place}/u; scgi_temp_path {place}/s; {lines}\n\
             server {{ listen 127.0.0.1:{port} ssl http2; root {place}; location /upload/ {{ dav_methods PUT; }}\n\
             ssl_certificate {place}/{name}.pem; ssl_certificate_key {place}/{name}.key; }} }}\n"
        );
        let settings = format!("{place}/{name}.conf");
        std::fs::write(&settings, text).unwrap();
        spawn(&program("nginx"), &["-c", &settings, "-p", place, "-e", "stderr"])
    })
    .await
}

/// The certificate that `openssl req -x509` makes is an authority's. In `ca_certificate_file` it is trusted as it is;
/// if it cannot be, the reason names the cure.
#[tokio::test]
async fn certificates_as_people_make_them_are_trusted_or_refused_with_the_cure() {
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path().to_str().unwrap().to_owned();
    std::fs::write(directory.path().join("index.html"), "hello").unwrap();
    let san = ["-addext", "subjectAltName=DNS:localhost"];
    let leaf = ["-addext", "basicConstraints=critical,CA:FALSE"];
    made_by_openssl(&place, "usual", &san).await;
    made_by_openssl(&place, "other", &san).await;
    made_by_openssl(&place, "leaf", &[san, leaf].concat()).await;
    made_by_openssl(&place, "nameless", &[]).await;
    made_by_openssl(&place, "nameless-leaf", &leaf).await;
    made_by_openssl(&place, "elsewhere", &["-addext", "subjectAltName=DNS:elsewhere.example"]).await;
    let (chain, key) = certificates::leaf_with(&["localhost"], |params| {
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        params.not_after = rcgen::date_time_ymd(2020, 1, 1);
    });
    std::fs::write(directory.path().join("expired.pem"), chain).unwrap();
    std::fs::write(directory.path().join("expired.key"), key).unwrap();
    for (server, trusted, reason) in [
        ("usual", "usual", None),
        ("leaf", "leaf", None),
        ("usual", "other", Some("is a CA certificate (CA:TRUE): put this certificate into tls.ca_certificate_file")),
        ("leaf", "other", Some("from an authority that is not trusted")),
        ("nameless", "nameless", Some("no subjectAltName: make it with -addext subjectAltName=DNS:")),
        ("nameless-leaf", "nameless-leaf", Some("no subjectAltName")),
        ("elsewhere", "elsewhere", Some("for another name: set tls.server_name")),
        ("expired", "expired", Some("has expired")),
    ] {
        let (_server, port) = nginx_with(&place, server, "").await;
        for http2 in [true, false] {
            let tls = format!("http2 = {http2}\nca_certificate_file = \"{place}/{trusted}.pem\"");
            assert_trusted_unless(reason, port, &tls).await;
        }
    }
}

/// Asks nginx at this port with these TLS settings: it answers, or the log and `status` have the reason why not.
async fn assert_trusted_unless(reason: Option<&str>, port: u16, tls: &str) {
    let world = World::with(|setup| {
        setup.blog_urls = vec![format!("https://localhost:{port}")];
        setup.blog = "connect_timeout = \"10s\"";
        setup.blog_tables = format!("[upstreams.blog.tls]\n{tls}");
    })
    .await;
    let reply = world.ask(Ask::get(BLOG, "/index.html")).await;
    if let Some(reason) = reason {
        reply.refused(502, "upstream_tls");
        let line = world.log.line_of(reply.request_id()).await;
        let logged = line["reason"].as_str().unwrap_or_default();
        assert!(logged.contains(reason), "{tls}: {logged}");
        let status: serde_json::Value = serde_json::from_str(&world.admin.get("/status").await.1).unwrap();
        assert!(status["upstreams"].to_string().contains(reason), "{tls}: {status}");
    } else {
        assert_eq!((reply.status, reply.text()), (200, "hello"), "{tls}");
    }
    world.end().await;
}

/// Requests at once, also those that may not be repeated, to servers that allow few streams per connection.
#[tokio::test]
async fn servers_that_allow_few_streams_get_every_request() {
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path().to_str().unwrap().to_owned();
    std::fs::write(directory.path().join("index.html"), "hello").unwrap();
    made_by_openssl(&place, "usual", &["-addext", "subjectAltName=DNS:localhost"]).await;
    let tls = format!("[upstreams.blog.tls]\nca_certificate_file = \"{place}/usual.pem\"");
    let nghttpd = async |limit: &str| {
        started(async |port| {
            let options = ["-d", &place, "--no-tls", "-a", "127.0.0.1", "-m", limit, &port.to_string()];
            spawn(&program("nghttpd"), &options)
        })
        .await
    };
    let ((_one, one), (_two, two)) = (nghttpd("1").await, nghttpd("2").await);
    let (_nginx, limited) = nginx_with(&place, "usual", "http2_max_concurrent_streams 1;").await;
    // It ends each connection with GOAWAY after four requests.
    for name in ["usual.pem", "usual.key"] {
        let copy = name.replace("usual", "going");
        std::fs::copy(directory.path().join(name), directory.path().join(copy)).unwrap();
    }
    let (_going, going) = nginx_with(&place, "going", "http2_max_concurrent_streams 4; keepalive_requests 4;").await;
    for (url, tls) in [
        (format!("h2c://127.0.0.1:{one}"), ""),
        (format!("h2c://127.0.0.1:{two}"), ""),
        (format!("https://localhost:{limited}"), tls.as_str()),
        (format!("https://localhost:{going}"), tls.as_str()),
    ] {
        // Each time cold.
        for _ in 0..3 {
            let world = World::with(|setup| {
                setup.blog_urls = vec![url.clone()];
                setup.blog = "connect_timeout = \"10s\"";
                setup.blog_tables = tls.to_owned();
            })
            .await;
            let client = world.h2(BLOG).await;
            let ask = Ask::get(BLOG, "/index.html");
            for _ in 0..4 {
                let replies = futures_util::future::join_all((0..32).map(|_| client.ask(&ask))).await;
                for reply in replies {
                    assert_eq!((reply.status, reply.text()), (200, "hello"), "{url}");
                }
            }
            drop(client);
            world.end().await;
        }
    }
}
