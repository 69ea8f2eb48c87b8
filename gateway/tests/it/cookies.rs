//! Cookies of upstreams: on platform hosts they are limited to the host.

use crate::world::client::Ask;
use crate::world::h2_upstream::{H2Request, H2Upstream};
use crate::world::upstream::{Act, response};
use crate::world::{BLOG, ORDERS, SHOP, World};

/// Cookies of an upstream, and their form for a client of a platform host.
const COOKIES: [(&str, &str); 9] = [
    ("a=1; Domain=tollhouse.localhost; Path=/", "a=1; Path=/"),
    ("b=1;domain=.tollhouse.localhost", "b=1"),
    ("c=1; Path=/; DOMAIN = localhost ; Secure", "c=1; Path=/; Secure"),
    ("d=1; Domain=blog.tollhouse.localhost; Domain=TOLLHOUSE.localhost.; HttpOnly", "d=1; HttpOnly"),
    ("e=1; Domain=tollhouse%2Elocalhost", "e=1"),
    ("f=1; Domain; Max-Age=5", "f=1; Max-Age=5"),
    ("g=Domain=tollhouse.localhost; Path=/domain", "g=Domain=tollhouse.localhost; Path=/domain"),
    ("Domain=tollhouse.localhost; Secure", "Domain=tollhouse.localhost; Secure"),
    ("h=1; X-Domain=tollhouse.localhost", "h=1; X-Domain=tollhouse.localhost"),
];

fn fields() -> String {
    COOKIES.iter().map(|(sent, _)| format!("Set-Cookie: {sent}\r\n")).collect()
}

fn sent() -> Vec<&'static str> {
    COOKIES.map(|(sent, _)| sent).to_vec()
}

fn kept() -> Vec<&'static str> {
    COOKIES.map(|(_, kept)| kept).to_vec()
}

#[tokio::test]
async fn a_project_sets_no_cookie_for_the_platforms_domain() {
    let world = World::start().await;
    let answer = || Act::Answer(response("200 OK", &fields(), "").into_bytes());
    let page = Ask::get(BLOG, "/");
    world.blog.next(answer());
    assert_eq!(world.ask(page.clone()).await.head.all("set-cookie"), kept(), "a public site");
    world.blog.next(answer());
    assert_eq!(world.h2(BLOG).await.ask(&page).await.head.all("set-cookie"), kept(), "over HTTP/2");
    world.orders.next(answer());
    assert_eq!(world.ask(world.list()).await.head.all("set-cookie"), kept(), "an API");
    let folded = "Set-Cookie: a=1;\r\n Domain=tollhouse.localhost\r\n";
    world.blog.next(Act::Answer(response("200 OK", folded, "").into_bytes()));
    assert_eq!(world.ask(page).await.head.all("set-cookie"), ["a=1"], "a folded line");
}

#[tokio::test]
async fn an_upstream_over_http_2_sets_no_cookie_for_the_platforms_domain() {
    let upstream = H2Upstream::start(100, async |request: H2Request| {
        request.answer(&COOKIES.map(|(sent, _)| ("set-cookie", sent)), "").await;
    });
    let at = upstream.await.address;
    let world = World::with(|setup| setup.blog_urls = vec![format!("h2c://{at}")]).await;
    assert_eq!(world.h2(BLOG).await.ask(&Ask::get(BLOG, "/")).await.head.all("set-cookie"), kept());
}

#[tokio::test]
async fn a_customers_own_domain_keeps_its_cookies() {
    let world = World::start().await;
    world.orders.next(Act::Answer(response("200 OK", &fields(), "[]").into_bytes()));
    let reply = world.ask(Ask::get(SHOP, ORDERS).key(&world.key.text)).await;
    assert_eq!((reply.status, reply.head.all("set-cookie")), (200, sent()));
}
