//! Trailers between both versions of HTTP, on either side.

use http::{HeaderMap, HeaderValue};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::world::client::Ask;
use crate::world::h2_upstream::H2Upstream;
use crate::world::upstream::Act;
use crate::world::{BLOG, World, within};

const RESPONSE: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n3\r\nabc\r\n0\r\nX-Sum: 6\r\nETag: \"1\"\r\n\r\n";

/// The whole response, as an HTTP/1.1 client reads it.
async fn raw(world: &World, fields: &[(&str, &str)]) -> String {
    let mut ask = Ask::get(BLOG, "/").field("Connection", "close, te");
    if fields.is_empty() {
        ask = Ask::get(BLOG, "/").field("Connection", "close");
    }
    for (name, value) in fields {
        ask = ask.field(name, value);
    }
    let mut client = world.tls(BLOG).await;
    client.send(ask.to_bytes()).await;
    String::from_utf8(within(client.rest()).await).unwrap()
}

#[tokio::test]
async fn trailers_of_an_http1_upstream_reach_clients_that_take_them() {
    let world = World::start().await;
    let next = || world.blog.next(Act::Answer(RESPONSE.as_bytes().to_vec()));
    next();
    let text = raw(&world, &[("TE", "trailers")]).await;
    assert!(text.ends_with("3\r\nabc\r\n0\r\nx-sum: 6\r\netag: \"1\"\r\n\r\n"), "{text}");
    next();
    let text = raw(&world, &[]).await;
    assert!(text.ends_with("3\r\nabc\r\n0\r\n\r\n"), "{text}");
    next();
    let client = world.h2(BLOG).await;
    let mut reply = within(client.hold(&Ask::get(BLOG, "/").field("TE", "trailers")).await).await.unwrap();
    // Many servers send trailers only to clients that say so.
    let requests = world.blog.requests();
    let fields = requests.iter().map(|request| (request.head.get("te"), request.head.get("connection")));
    let fields: Vec<_> = fields.collect();
    assert_eq!(fields, [(Some("trailers"), Some("te")), (None, None), (Some("trailers"), Some("te"))]);
    assert_eq!(within(reply.body_mut().data()).await.unwrap().unwrap(), "abc");
    assert!(within(reply.body_mut().data()).await.is_none());
    let trailers = within(reply.body_mut().trailers()).await.unwrap().unwrap();
    assert_eq!((trailers.len(), &trailers["x-sum"]), (2, &HeaderValue::from_static("6")));
    assert_eq!(world.blog.connections(), 1, "a connection whose response had trailers is used again");
    drop(client);
    world.end().await;
}

#[tokio::test]
async fn trailers_of_an_http2_upstream_reach_clients_of_http1_that_take_them() {
    let upstream = H2Upstream::start(100, |mut asked| async move {
        let mut body = asked.begin(200, &[], false);
        body.send_data("abc".into(), false).unwrap();
        body.send_trailers(HeaderMap::from_iter([("x-sum".parse().unwrap(), HeaderValue::from_static("6"))])).unwrap();
    })
    .await;
    let world = World::with(|setup| setup.blog_urls = vec![format!("h2c://{}", upstream.address)]).await;
    let text = raw(&world, &[("TE", "trailers")]).await;
    assert!(text.ends_with("3\r\nabc\r\n0\r\nx-sum: 6\r\n\r\n"), "{text}");
    let text = raw(&world, &[]).await;
    assert!(text.ends_with("3\r\nabc\r\n0\r\n\r\n"), "{text}");
    world.end().await;
}

/// Trailers of an HTTP/2 client, except those that no client may send.
#[tokio::test]
async fn trailers_of_a_request_reach_an_http1_upstream() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let world = World::with(|setup| {
        setup.blog_endpoints = vec![address];
        setup.blog = "drop_headers = [\"X-Internal\"]";
    })
    .await;
    let client = world.h2(BLOG).await;
    let (response, mut body) = client.begin(&Ask::new("POST", BLOG, "/")).await;
    body.send_data("abc".into(), false).unwrap();
    let fields = [
        ("x-sum", "6"),
        ("x-internal", "1"),
        ("x-forwarded-for", "1"),
        ("tollhouse-identity-token", "1"),
        ("host", "a"),
    ];
    body.send_trailers(fields.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect())
        .unwrap();
    let (mut stream, _) = within(listener.accept()).await.unwrap();
    let mut text = Vec::new();
    while !text.ends_with(b"x-sum: 6\r\n\r\n") {
        assert_ne!(within(stream.read_buf(&mut text)).await.unwrap(), 0, "{}", String::from_utf8_lossy(&text));
    }
    assert!(text.ends_with(b"3\r\nabc\r\n0\r\nx-sum: 6\r\n\r\n"), "{}", String::from_utf8_lossy(&text));
    stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await.unwrap();
    assert_eq!(within(response).await.unwrap().status(), 200);
    drop(client);
    world.end().await;
}
