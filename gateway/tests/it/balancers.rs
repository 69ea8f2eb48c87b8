//! A load balancer names its clients by PROXY protocol or in a field. The gateway accepts that from trusted balancers
//! only.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use rustls::pki_types::ServerName;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::world::client::{Ask, Client};
use crate::world::wire::Wire;
use crate::world::{BLOG, DEMO, ORDERS, World, certificates, within};

const TRUSTED: &str = "trusted_proxies = [\"127.0.0.0/8\"]";

/// The header for a client at this address.
fn header(client: Ipv4Addr) -> Vec<u8> {
    let addresses = [&client.octets()[..], &[127, 0, 0, 1], &12_345_u16.to_be_bytes(), &443_u16.to_be_bytes()].concat();
    let length = u16::try_from(addresses.len()).unwrap().to_be_bytes();
    [&b"\r\n\r\n\0\r\nQUIT\n"[..], &[0x21, 0x11], &length, &addresses].concat()
}

/// The header for the same client from a balancer that listens for both versions of IP.
fn mapped_header(client: Ipv4Addr) -> Vec<u8> {
    let local = Ipv4Addr::LOCALHOST.to_ipv6_mapped().octets();
    let addresses = [&client.to_ipv6_mapped().octets()[..], &local, &12_345_u16.to_be_bytes(), &443_u16.to_be_bytes()];
    [&b"\r\n\r\n\0\r\nQUIT\n"[..], &[0x21, 0x21], &36_u16.to_be_bytes(), &addresses.concat()].concat()
}

/// A TLS connection that begins with these bytes.
async fn tls_behind(world: &World, first: &[u8], sni: &str) -> std::io::Result<Client> {
    within(async {
        let mut stream = TcpStream::connect(world.https).await?;
        stream.write_all(first).await?;
        let name = ServerName::try_from(sni.to_owned()).unwrap();
        let connector = TlsConnector::from(Arc::new(certificates::client(&[b"http/1.1"])));
        Ok(Client { wire: Wire::new(connector.connect(name, stream).await?) })
    })
    .await
}

// promise: edge.10
#[tokio::test]
async fn the_clients_address_comes_from_the_balancer() {
    let world = World::with(|setup| setup.listen = TRUSTED).await;
    let mut client = tls_behind(&world, &header(Ipv4Addr::new(192, 0, 2, 7)), BLOG).await.expect("a handshake");
    let reply = client.ask(&Ask::get(BLOG, "/").field("X-Forwarded-For", "6.6.6.6")).await;
    assert_eq!(reply.status, 200);
    assert_eq!(world.blog.only_request().head.get("x-forwarded-for"), Some("192.0.2.7"));
    assert_eq!(world.log.line_of(reply.request_id()).await["client_ip"], "192.0.2.7");
    // Limits count by the client's own address: a client that guesses keys does not lock others out.
    for number in 0..60 {
        let mut guesser = tls_behind(&world, &header(Ipv4Addr::new(192, 0, 2, 8)), DEMO).await.expect("a handshake");
        let status = guesser.ask(&Ask::get(DEMO, ORDERS)).await.status;
        assert!(status == 401 || (status == 429 && number > 50), "guess {number}: {status}");
    }
    let mut other = tls_behind(&world, &header(Ipv4Addr::new(192, 0, 2, 9)), DEMO).await.expect("a handshake");
    assert_eq!(other.ask(&Ask::get(DEMO, ORDERS)).await.status, 401);
}

// promise: edge.10
#[tokio::test]
async fn version_1_of_the_header_works_too() {
    let world = World::with(|setup| setup.listen = TRUSTED).await;
    for (first, expected) in [
        (&b"PROXY TCP4 192.0.2.7 127.0.0.1 12345 443\r\n"[..], "192.0.2.7"),
        (b"PROXY TCP6 2001:db8::7 ::1 12345 443\r\n", "2001:db8::7"),
        (b"PROXY UNKNOWN\r\n", "127.0.0.1"),
    ] {
        let mut client = tls_behind(&world, first, BLOG).await.expect("a handshake");
        let reply = client.ask(&Ask::get(BLOG, "/").field("X-Forwarded-For", "6.6.6.6")).await;
        assert_eq!(world.log.line_of(reply.request_id()).await["client_ip"], expected);
        let last = world.blog.requests().pop().unwrap();
        assert_eq!(last.head.get("x-forwarded-for"), Some(expected));
    }
}

/// A balancer that terminates TLS: many clients share one connection.
// promise: edge.10
#[tokio::test]
async fn the_clients_address_comes_from_a_trusted_balancers_field() {
    let world = World::with(|setup| setup.listen = "forwarded_from = [\"127.0.0.0/8\"]").await;
    let mut balancer = world.tls(BLOG).await;
    for (said, expected) in
        [("6.6.6.6, 192.0.2.7", "192.0.2.7"), ("2001:db8::7", "2001:db8::7"), ("6.6.6.6, a-name", "127.0.0.1")]
    {
        // The client itself wrote the other field.
        let ask = Ask::get(BLOG, "/").field("X-Forwarded-For", said).field("Forwarded", "for=7.7.7.7");
        let reply = balancer.ask(&ask).await;
        assert_eq!(world.log.line_of(reply.request_id()).await["client_ip"], expected);
        let last = world.blog.requests().pop().unwrap();
        assert_eq!((last.head.get("x-forwarded-for"), last.head.get("x-real-ip")), (Some(expected), Some(expected)));
        assert_eq!(last.head.get("forwarded"), None);
    }
    // Limits of an address are the client's own.
    let mut balancer = world.tls(DEMO).await;
    let guess = |client: &str| Ask::get(DEMO, ORDERS).field("X-Forwarded-For", client);
    for _ in 0..60 {
        balancer.ask(&guess("192.0.2.8")).await;
    }
    assert_eq!(balancer.ask(&guess("192.0.2.8")).await.status, 429);
    assert_eq!(balancer.ask(&guess("192.0.2.9")).await.status, 401);
    world.end().await;

    let settings = "forwarded_from = [\"127.0.0.0/8\"]\nforwarded_field = \"forwarded\"";
    let world = World::with(|setup| setup.listen = settings).await;
    let ask = Ask::get(BLOG, "/").field("X-Forwarded-For", "6.6.6.6").field("Forwarded", "for=7.7.7.7, for=192.0.2.7");
    let reply = world.h2(BLOG).await.ask(&ask).await;
    assert_eq!(world.log.line_of(reply.request_id()).await["client_ip"], "192.0.2.7");
    world.end().await;

    let world = World::start().await;
    let reply = world.ask(Ask::get(BLOG, "/").field("X-Forwarded-For", "6.6.6.6")).await;
    assert_eq!(world.log.line_of(reply.request_id()).await["client_ip"], "127.0.0.1", "no peer is trusted");
}

#[tokio::test]
async fn every_spelling_of_a_clients_address_is_one_address() {
    // A list of networks that are written as a socket for both versions sees them.
    let world = World::with(|setup| setup.listen = "trusted_proxies = [\"::ffff:127.0.0.0/104\"]").await;
    let mut client = tls_behind(&world, &mapped_header(Ipv4Addr::new(192, 0, 2, 7)), BLOG).await.expect("a handshake");
    let reply = client.ask(&Ask::get(BLOG, "/")).await;
    assert_eq!(world.blog.only_request().head.get("x-forwarded-for"), Some("192.0.2.7"));
    assert_eq!(world.log.line_of(reply.request_id()).await["client_ip"], "192.0.2.7");
    world.end().await;

    let world = World::with(|setup| setup.https = "[::]:0").await;
    let to = SocketAddr::from((Ipv4Addr::LOCALHOST, world.https.port()));
    let reply = Client::tls(to, BLOG).await.ask(&Ask::get(BLOG, "/")).await;
    assert_eq!(world.log.line_of(reply.request_id()).await["client_ip"], "127.0.0.1");
    assert_eq!(world.blog.only_request().head.get("x-forwarded-for"), Some("127.0.0.1"));
}

// promise: edge.10
#[tokio::test]
async fn a_balancer_without_a_valid_header_gets_no_answer() {
    let world = World::with(|setup| setup.listen = TRUSTED).await;
    let mut truncated = header(Ipv4Addr::LOCALHOST);
    truncated[15] = 200;
    let unfinished = b"PROXY TCP4 192.0.2.7 127.0.0.1 12345 443\n".to_vec();
    for first in [Vec::new(), unfinished, truncated] {
        assert!(tls_behind(&world, &first, DEMO).await.is_err());
    }
    let mut plain = world.plain().await;
    plain.send(Ask::get(BLOG, "/").to_bytes()).await;
    assert_eq!(plain.rest().await, b"");
    world.admin.counts("edge_connection_events_total{event=\"bad_proxy_header\"}", 4).await;
    world.assert_upstreams_untouched();
}

// promise: edge.10
#[tokio::test]
async fn headers_of_untrusted_peers_are_ignored() {
    // Where no balancer is trusted, and where others are.
    for listen in ["", "trusted_proxies = [\"192.0.2.0/24\", \"fd00::/8\"]"] {
        let world = World::with(|setup| setup.listen = listen).await;
        assert!(tls_behind(&world, &header(Ipv4Addr::new(192, 0, 2, 7)), DEMO).await.is_err());
        let mut plain = world.plain().await;
        plain.send([header(Ipv4Addr::new(192, 0, 2, 7)), Ask::get(BLOG, "/").to_bytes()].concat()).await;
        plain.reply("GET").await.expect("an answer").refused(400, "bad_request");
        world.assert_upstreams_untouched();
        world.end().await;
    }
}
