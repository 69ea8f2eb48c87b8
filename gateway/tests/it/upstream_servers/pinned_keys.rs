//! nginx with certificates of openssl, trusted by their public keys.

use super::*;

/// The digits of a certificate's key for `public_key_sha256`, from the command in docs/tenant/http.md.
async fn digits_of(place: &str, name: &str) -> String {
    let page = include_str!("../../../../docs/tenant/http.md");
    let command = page.lines().find(|line| line.trim_start().starts_with("openssl x509")).unwrap();
    let command = command.replace("shop.pem", &format!("{place}/{name}.pem"));
    let made = Command::new("sh").args(["-c", &command]).output().await.expect("openssl is installed");
    let printed = String::from_utf8(made.stdout).unwrap();
    printed.split_whitespace().last().unwrap().to_owned()
}

#[tokio::test]
async fn a_pinned_key_is_trusted_in_every_certificate_with_the_right_name() {
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path().to_str().unwrap().to_owned();
    file(directory.path(), "index.html", "hello");
    let san = ["-addext", "subjectAltName=DNS:localhost"];
    let key = format!("{place}/shop.key");
    let same_key = ["-key", &key];
    made_by_openssl(&place, "shop", &san).await;
    made_by_openssl(&place, "renewed", &[san, same_key].concat()).await;
    made_by_openssl(&place, "other", &san).await;
    made_by_openssl(&place, "elsewhere", &[["-addext", "subjectAltName=DNS:elsewhere.example"], same_key].concat())
        .await;
    let (shop, other) = (digits_of(&place, "shop").await, digits_of(&place, "other").await);
    for (server, pins, reason) in [
        ("shop", vec![&shop], None),
        ("renewed", vec![&shop], None),
        ("other", vec![&shop, &other], None),
        ("other", vec![&shop], Some("none of the public keys in tls.public_key_sha256")),
        ("elsewhere", vec![&shop], Some("for another name: set tls.server_name")),
    ] {
        for version in ["TLSv1.2", "TLSv1.3"] {
            let (_server, port) = nginx_with(&place, server, &format!("ssl_protocols {version};")).await;
            assert_trusted_unless(reason, port, &format!("public_key_sha256 = {pins:?}")).await;
        }
    }
}

#[tokio::test]
async fn a_pin_that_is_taken_away_ends_the_use_of_open_connections() {
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path().to_str().unwrap().to_owned();
    file(directory.path(), "index.html", "hello");
    let san = ["-addext", "subjectAltName=DNS:localhost"];
    made_by_openssl(&place, "shop", &san).await;
    made_by_openssl(&place, "other", &san).await;
    let (shop, other) = (digits_of(&place, "shop").await, digits_of(&place, "other").await);
    let (_server, port) = nginx_with(&place, "shop", "").await;
    for http2 in [false, true] {
        let world = World::with(|setup| {
            setup.blog_urls = vec![format!("https://localhost:{port}")];
            setup.blog = "connect_timeout = \"10s\"";
            setup.blog_tables = format!("[upstreams.blog.tls]\nhttp2 = {http2}\npublic_key_sha256 = [\"{shop}\"]");
        })
        .await;
        assert_eq!(world.ask(Ask::get(BLOG, "/index.html")).await.status, 200);
        world.reconfigure(|text| text.replace(&shop, &other));
        eventually("the connection is left", async || {
            let reply = world.ask(Ask::get(BLOG, "/index.html")).await;
            (reply.status != 200).then(|| reply.refused(502, "upstream_tls").clone())
        })
        .await;
        world.end().await;
    }
}
