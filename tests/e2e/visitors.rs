//! The gateway's behaviour for browsers and curl: names, redirects, encryption.

use reqwest::Method;

use crate::world::{Platform, error, rate_limit_headers};

/// One platform for all steps; only the last step changes it.
#[tokio::test]
async fn visitors_are_redirected_served_and_refused() {
    let platform = Platform::start();
    a_secondary_domain_redirects_to_the_primary_with_the_same_path_and_query(&platform).await;
    the_primary_domain_and_the_platform_host_serve_the_same_store(&platform).await;
    a_key_over_plain_http_is_refused_and_never_redirected(&platform).await;
    a_connection_opened_for_one_name_does_not_answer_for_another(&platform).await;
    unpublished_names_get_no_certificate_and_no_page(&platform).await;
    both_protocols_of_http_are_spoken(&platform).await;
    removing_a_domain_stops_traffic_at_once(&platform).await;
}

// rule: 1.15
async fn a_secondary_domain_redirects_to_the_primary_with_the_same_path_and_query(platform: &Platform) {
    let (client, port) = (platform.client(), platform.https_port());
    for target in ["/v1/store/orders?a=b%20c", "/%2F//x?", "/a|b", "/?x=%0a"] {
        for scheme in ["https", "http"] {
            let from = if scheme == "https" { port } else { platform.http_port() };
            let response = client.get(format!("{scheme}://petshop.localhost:{from}{target}")).send().await.unwrap();
            assert_eq!(response.status(), 301);
            let location = response.headers()["location"].to_str().unwrap();
            assert_eq!(location, format!("https://www.petshop.localhost:{port}{target}"), "from {scheme}");
            assert!(!response.headers().contains_key("x-ratelimit-limit"), "moving house costs no quota");
        }
    }
}

// rule: 1.6, 1.13
async fn the_primary_domain_and_the_platform_host_serve_the_same_store(platform: &Platform) {
    let (client, shop) = (platform.client(), platform.project("pro"));
    for host in [shop.host.as_str(), "www.petshop.localhost"] {
        let url = format!("https://{host}:{}/v1/store/orders", platform.https_port());
        let response = client.get(url).bearer_auth(&shop.key).send().await.unwrap();
        assert_eq!(response.status(), 200, "{host}");
    }
}

// rule: 1.19
async fn removing_a_domain_stops_traffic_at_once(platform: &Platform) {
    let (client, shop) = (platform.client(), platform.project("pro"));
    let url = format!("https://petshop.localhost:{}/", platform.https_port());
    assert_eq!(client.get(&url).send().await.unwrap().status(), 301);
    platform.json(&["domain", "remove", &shop.id, "petshop.localhost"]);
    // The client still holds its open connection: neither on it nor on a new one does the name answer.
    let kept = client.get(&url).send().await;
    let fresh = platform.client().get(&url).send().await;
    assert!(kept.is_err() && fresh.is_err(), "{kept:?} {fresh:?}");
}

// rule: 5.2
async fn a_key_over_plain_http_is_refused_and_never_redirected(platform: &Platform) {
    let (client, shop) = (platform.client(), platform.project("pro"));
    let url = format!("http://{}:{}/v1/store/orders", shop.host, platform.http_port());
    let exposed = client.get(&url).bearer_auth(&shop.key).send().await.unwrap();
    assert!(!exposed.headers().contains_key("location"));
    assert_eq!(rate_limit_headers(&exposed).0, 60);
    assert_eq!(error(exposed).await, (403, "https_required".to_owned()));
    let visitor = client.get(&url).send().await.unwrap();
    assert_eq!(visitor.status(), 301);
    let location = format!("https://{}:{}/v1/store/orders", shop.host, platform.https_port());
    assert_eq!(visitor.headers()["location"].to_str().unwrap(), location);
    let posted = client.post(&url).body("x").send().await.unwrap();
    assert_eq!(posted.status(), 308, "a method with a body keeps it");
}

async fn a_connection_opened_for_one_name_does_not_answer_for_another(platform: &Platform) {
    let (client, pro, free) = (platform.old_client(), platform.project("pro"), platform.project("free"));
    for host in [free.host.as_str(), "www.petshop.localhost", "missing.example"] {
        let response =
            pro.request(platform, &client, Method::GET, "/v1/store/orders").header("host", host).send().await.unwrap();
        assert_eq!(error(response).await, (421, "misdirected_request".to_owned()), "{host}");
    }
}

async fn unpublished_names_get_no_certificate_and_no_page(platform: &Platform) {
    let client = platform.client();
    let handshake = client.get(format!("https://missing.tollhouse.localhost:{}/", platform.https_port())).send().await;
    assert!(handshake.unwrap_err().is_connect());
    let plain =
        client.get(format!("http://missing.tollhouse.localhost:{}/", platform.http_port())).send().await.unwrap();
    assert_eq!(error(plain).await, (404, "unknown_host".to_owned()));
}

async fn both_protocols_of_http_are_spoken(platform: &Platform) {
    let shop = platform.project("pro");
    let response = shop.request(platform, &platform.client(), Method::GET, "/v1/store/orders").send().await.unwrap();
    assert_eq!(response.version(), reqwest::Version::HTTP_2);
    let response =
        shop.request(platform, &platform.old_client(), Method::GET, "/v1/store/orders").send().await.unwrap();
    assert_eq!((response.version(), response.status().as_u16()), (reqwest::Version::HTTP_11, 200));
}
