//! Sessions: sign-in, duration, and which forms are accepted.

use std::time::Duration;

use serde_json::{Value, json};

use super::browser::{Browser, listed_key, new_key, origin};
use crate::world::{Bend, Platform};

const HOME: &str = "/projects/demo/domains";

async fn demo() -> Platform {
    let platform = Platform::start().await;
    platform.project("demo", "pro").await;
    platform
}

#[tokio::test]
async fn a_key_signs_in_and_every_page_sends_strangers_to_the_sign_in_page() {
    let platform = demo().await;
    let mut browser = Browser::new(&platform);
    for path in ["/", HOME, "/projects/demo/keys", "/projects/demo/usage", "/operator", "/operator/projects"] {
        let page = browser.get(path).await;
        assert_eq!((page.status, page.location()), (303, "/sign-in"), "{path}");
    }
    assert_eq!(browser.get("/sign-in").await.status, 200);
    let key = new_key(&platform, "demo", &["domains:read"]).await;
    let page = browser.sign_in(&key).await;
    assert_eq!((page.status, page.location()), (303, HOME));
    let cookie = page.headers["set-cookie"].to_str().unwrap();
    assert!(cookie.starts_with("__Host-tollhouse="), "{cookie}");
    for attribute in ["; Path=/", "; Secure", "; HttpOnly", "; SameSite=Lax", "; Max-Age=43200"] {
        assert!(cookie.contains(attribute), "{attribute} not in {cookie}");
    }
    assert!(!cookie.contains(&key[8..]), "the key is not in the cookie");
    assert_eq!(browser.get(HOME).await.status, 200);
    assert_eq!(browser.get("/sign-in").await.location(), "/");
    let events = platform.operator("GET", "/projects/demo/events", Value::Null).await.body;
    assert_eq!(
        (&events["events"][0]["type"], &events["events"][0]["client"]),
        (&"dashboard.signed_in".into(), &"192.0.2.1".into())
    );
}

#[tokio::test]
async fn each_sign_in_starts_a_new_session() {
    let platform = demo().await;
    let key = new_key(&platform, "demo", &["domains:read"]).await;
    let mut browser = Browser::new(&platform);
    browser.sign_in(&key).await;
    let first = browser.cookie.clone();
    browser.sign_in(&key).await;
    assert!(first.is_some() && browser.cookie != first);
}

#[tokio::test]
async fn invalid_insufficient_and_revoked_keys_do_not_sign_in() {
    let platform = demo().await;
    let mut browser = Browser::new(&platform);
    for (key, status, words) in [
        ("", 400, "This is not a key"),
        ("th_live_<script>", 400, "This is not a key"),
        (&new_key(&platform, "demo", &["orders:read"]).await, 403, "can neither show domains nor create keys"),
    ] {
        let page = browser.sign_in(key).await;
        assert_eq!(page.status, status);
        page.says(words);
        assert!(!page.text.contains("<script>"), "what was typed is not shown");
    }
    let key = new_key(&platform, "demo", &["domains:read"]).await;
    let keys = platform.operator("GET", "/projects/demo/keys", Value::Null).await.body;
    let id =
        keys["keys"].as_array().unwrap().iter().find(|one| one["last4"] == key[key.len() - 4..]).unwrap()["id"].clone();
    platform.operator("DELETE", &format!("/projects/demo/keys/{}", id.as_str().unwrap()), Value::Null).await;
    let page = browser.sign_in(&key).await;
    assert_eq!(page.status, 401);
    page.says("This key is not valid here");
    assert!(browser.cookie.is_none());
}

#[tokio::test]
async fn sign_in_is_throttled_by_address() {
    let platform = demo().await;
    let key = new_key(&platform, "demo", &["domains:read"]).await;
    let mut browser = Browser::new(&platform);
    for _ in 0..10 {
        assert_eq!(browser.sign_in("nonsense").await.status, 400);
    }
    let page = browser.sign_in(&key).await;
    assert_eq!(page.status, 429);
    page.says("Too many attempts. Wait 5 minutes");
    browser.address = "192.0.2.2";
    assert_eq!(browser.sign_in(&key).await.status, 303, "others are not held up");
    browser.address = "192.0.2.1";
    platform.clock.advance(Duration::from_mins(5));
    assert_eq!(browser.sign_in(&key).await.status, 303);
}

#[tokio::test]
async fn sign_in_is_throttled_by_key_and_links_by_address() {
    let platform = demo().await;
    let key = new_key(&platform, "demo", &["domains:read"]).await;
    let mut browser = Browser::new(&platform);
    for address in ["192.0.2.1", "192.0.2.2", "192.0.2.3"] {
        browser.address = address;
        for _ in 0..10 {
            assert_eq!(browser.sign_in(&key).await.status, 303);
        }
    }
    browser.address = "192.0.2.4";
    assert_eq!(browser.sign_in(&key).await.status, 429);
    let another = new_key(&platform, "demo", &["domains:write"]).await;
    assert_eq!(browser.sign_in(&another).await.status, 303, "another key is not held up");
    browser.address = "192.0.2.5";
    let ours = origin();
    for status in [[403; 10].as_slice(), &[429]].concat() {
        let followed = browser.send("POST", "/enter", &[("link", "guessed")], &[("origin", ours.as_str())]).await;
        assert_eq!(followed.status, status);
    }
}

#[tokio::test]
async fn a_session_ends_when_it_is_idle_when_it_is_old_and_with_its_key() {
    let platform = demo().await;
    let mut browser = Browser::signed_in(&platform, "demo", &["domains:read"]).await;
    for _ in 0..12 {
        platform.clock.advance(Duration::from_mins(59));
        assert_eq!(browser.get(HOME).await.status, 200, "it is being used");
    }
    platform.clock.advance(Duration::from_mins(13));
    assert_eq!(browser.get(HOME).await.location(), "/sign-in", "twelve hours are over");

    let mut idle = Browser::signed_in(&platform, "demo", &["domains:read"]).await;
    platform.clock.advance(Duration::from_mins(61));
    assert_eq!(idle.get(HOME).await.location(), "/sign-in");

    // An open page sends requests by itself, also when its user has left.
    let mut open = Browser::signed_in(&platform, "demo", &["domains:read"]).await;
    for _ in 0..3 {
        platform.clock.advance(Duration::from_mins(19));
        assert_eq!(open.send("GET", HOME, &[], &[("x-by-itself", "yes")]).await.status, 200);
    }
    platform.clock.advance(Duration::from_mins(4));
    assert_eq!(open.get(HOME).await.location(), "/sign-in");

    let body = json!({ "scopes": ["domains:read"], "expires_at": "2026-06-17T00:00:00Z" });
    let ends = platform.operator("POST", "/projects/demo/keys", body).await.body;
    let (ends, mut expired) = (ends["key"].as_str().unwrap().to_owned(), Browser::new(&platform));
    let until = platform.seconds_until(&json!("2026-06-17T00:00:00Z"));
    platform.clock.advance(Duration::from_secs(until.unsigned_abs() - 60));
    assert_eq!(expired.sign_in(&ends).await.status, 303);
    platform.clock.advance(Duration::from_mins(1));
    assert_eq!(expired.get(HOME).await.location(), "/sign-in", "its key has ended");
    assert_eq!(expired.sign_in(&ends).await.status, 401);

    platform.project("other", "pro").await;
    let mut revoked = Browser::signed_in(&platform, "other", &["domains:read"]).await;
    let id = listed_key(&platform, "other").await["id"].as_str().unwrap().to_owned();
    platform.operator("DELETE", &format!("/projects/other/keys/{id}"), Value::Null).await;
    assert_eq!(revoked.get("/projects/other/domains").await.location(), "/sign-in");
}

#[tokio::test]
async fn signing_out_ends_this_session_or_all_in_the_database() {
    let platform = demo().await;
    let key = new_key(&platform, "demo", &["domains:read"]).await;
    let (mut one, mut two, mut three) = (Browser::new(&platform), Browser::new(&platform), Browser::new(&platform));
    for browser in [&mut one, &mut two, &mut three] {
        browser.sign_in(&key).await;
    }
    let stolen = one.cookie.clone();
    let page = one.post(HOME, "/sign-out", &[]).await;
    assert_eq!(page.location(), "/sign-in?signed-out");
    assert!(page.headers["set-cookie"].to_str().unwrap().contains("Max-Age=0"));
    one.get("/sign-in?signed-out").await.says("You are signed out.");
    one.cookie = stolen;
    assert_eq!(one.get(HOME).await.location(), "/sign-in", "the cookie is worth nothing");
    assert_eq!(two.get(HOME).await.status, 200);
    two.post(HOME, "/sign-out", &[("everywhere", "yes")]).await;
    assert_eq!(three.get(HOME).await.location(), "/sign-in");
}

#[tokio::test]
async fn forms_are_accepted_only_from_our_own_pages_and_their_own_session() {
    let platform = demo().await;
    let mut browser = Browser::signed_in(&platform, "demo", &["domains:read", "domains:write"]).await;
    let csrf = browser.get(HOME).await.csrf().to_owned();
    let fields = [("name", "shop.localhost"), ("csrf", csrf.as_str())];
    let path = "/projects/demo/domains/new";
    let ours = origin();
    for headers in [
        vec![],
        vec![("origin", "https://evil.example")],
        vec![("origin", "null")],
        vec![("origin", ours.as_str()), ("sec-fetch-site", "cross-site")],
    ] {
        let page = browser.send("POST", path, &fields, &headers).await;
        assert_eq!(page.status, 403, "{headers:?}");
        page.says("not sent from a page of this dashboard");
    }
    let mut other = Browser::signed_in(&platform, "demo", &["domains:read", "domains:write"]).await;
    let foreign = other.get(HOME).await.csrf().to_owned();
    for csrf in ["", "wrong", foreign.as_str()] {
        let fields = [("name", "shop.localhost"), ("csrf", csrf)];
        let page = browser.send("POST", path, &fields, &[("origin", &ours)]).await;
        assert_eq!(page.status, 403);
        page.says("belongs to an earlier session");
    }
    let listed = platform.operator("GET", "/projects/demo/domains", Value::Null).await.body;
    assert_eq!(listed["quota"]["used"], 0, "nothing was added");
    assert_eq!(browser.send("POST", path, &fields, &[("origin", &ours)]).await.status, 303);
}

#[tokio::test]
async fn sessions_at_rest_are_digests() {
    let mut platform = demo().await;
    let browser = Browser::signed_in(&platform, "demo", &["domains:read"]).await;
    let secret = browser.cookie.clone().unwrap().split_once('=').unwrap().1.to_owned();
    drop(browser);
    platform.stop().await;
    let bytes = crate::stores::at_rest(platform.directory.path());
    assert_eq!(secret.len(), 43);
    let holds = |text: &str| bytes.windows(text.len()).any(|window| window == text.as_bytes());
    assert!(holds("192.0.2.1") && !holds(&secret), "the session is there, what the cookie says is not");
}

#[tokio::test]
async fn an_operator_signs_in_once_with_a_link() {
    let platform = demo().await;
    let link = platform.operator("POST", "/dashboard-links", Value::Null).await;
    assert_eq!((link.status, link.header("cache-control")), (201, "no-store"));
    let path = link.body["path"].as_str().unwrap();
    let secret = path.strip_prefix("/enter?link=").unwrap();
    let mut browser = Browser::new(&platform);
    let page = browser.get(path).await;
    page.says("signs you in as an operator");
    assert!(browser.cookie.is_none(), "looking at the link does not spend it");
    let ours = [("origin", origin())];
    let ours: Vec<(&str, &str)> = ours.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let entered = browser.send("POST", "/enter", &[("link", secret)], &ours).await;
    assert_eq!((entered.status, entered.location()), (303, "/operator"));
    browser.get("/operator").await.says("Gateways");
    browser.get("/operator/projects").await.says("demo.apps.tollhouse.dev");
    assert_eq!(browser.get("/projects/demo/keys").await.status, 200, "every project is open");
    let mut second = Browser::new(&platform);
    let page = second.send("POST", "/enter", &[("link", secret)], &ours).await;
    assert_eq!(page.status, 403);
    page.says("used up or older than five minutes");

    let late = platform.operator("POST", "/dashboard-links", Value::Null).await.body;
    platform.clock.advance(Duration::from_secs(301));
    let secret = late["path"].as_str().unwrap().strip_prefix("/enter?link=").unwrap().to_owned();
    assert_eq!(second.send("POST", "/enter", &[("link", &secret)], &ours).await.status, 403);
}

#[tokio::test]
async fn sessions_and_links_of_an_operators_token_end_with_the_token() {
    let platform = demo().await;
    let ours = origin();
    let ours = [("origin", ours.as_str())];
    let token = async |name: &str| {
        let made =
            platform.operator("POST", "/credentials", json!({ "kind": "operator", "name": name, "days": 1 })).await;
        made.body["token"].as_str().unwrap().to_owned()
    };
    let link = async |token: &str| {
        let request = platform.client.post(format!("{}/internal/dashboard-links", platform.internal));
        let made = request.bearer_auth(token).send().await.unwrap().json::<Value>().await.unwrap();
        made["path"].as_str().unwrap().strip_prefix("/enter?link=").unwrap().to_owned()
    };
    let (ada, bob) = (token("ada").await, token("bob").await);
    let (mut of_ada, mut of_bob) = (Browser::new(&platform), Browser::new(&platform));
    for (browser, token) in [(&mut of_ada, &ada), (&mut of_bob, &bob)] {
        assert_eq!(browser.send("POST", "/enter", &[("link", &link(token).await)], &ours).await.status, 303);
        assert_eq!(browser.get("/operator").await.status, 200);
    }
    let unspent = link(&ada).await;
    assert_eq!(platform.operator("DELETE", "/credentials/operator/ada", Value::Null).await.status, 200);
    assert_eq!(of_ada.get("/operator").await.status, 303, "signed out with the token");
    assert_eq!(of_bob.get("/operator").await.status, 200);
    token("ada").await;
    assert_eq!(of_ada.get("/operator").await.status, 303, "and a new one of the name does not bring it back");
    assert_eq!(Browser::new(&platform).send("POST", "/enter", &[("link", &unspent)], &ours).await.status, 403);
    // And a token that expires while its session is in use.
    platform.clock.advance(Duration::from_hours(20));
    let mut late = Browser::new(&platform);
    assert_eq!(late.send("POST", "/enter", &[("link", &link(&bob).await)], &ours).await.status, 303);
    let mut still = 0;
    while late.get("/operator").await.status == 200 {
        platform.clock.advance(Duration::from_mins(50));
        still += 1;
    }
    assert_eq!(still, 5, "four hours were left");
}

#[tokio::test]
async fn operators_sessions_and_links_end_when_their_secret_changes_and_those_of_keys_do_not() {
    let mut platform = demo().await;
    let link = async |platform: &Platform| {
        let link = platform.operator("POST", "/dashboard-links", Value::Null).await.body;
        link["path"].as_str().unwrap().strip_prefix("/enter?link=").unwrap().to_owned()
    };
    let (spent, unspent) = (link(&platform).await, link(&platform).await);
    let (ours, key) = (origin(), new_key(&platform, "demo", &["domains:read"]).await);
    let ours = [("origin", ours.as_str())];
    let (mut operator, mut holder) = (Browser::new(&platform), Browser::new(&platform));
    assert_eq!(operator.send("POST", "/enter", &[("link", &spent)], &ours).await.status, 303);
    assert_eq!(operator.get("/operator").await.status, 200);
    holder.sign_in(&key).await;
    let (operators, holders) = (operator.cookie.clone(), holder.cookie.clone());
    for (byte, status) in [(7, 200), (9, 303)] {
        platform.stop().await;
        let directory = Some(platform.directory.clone());
        let bend = Bend { directory, secret: chassis::secret::Secret::new(vec![byte; 32]), ..Default::default() };
        platform = Platform::bent(bend).await;
        let (mut operator, mut holder) = (Browser::new(&platform), Browser::new(&platform));
        (operator.cookie, holder.cookie) = (operators.clone(), holders.clone());
        assert_eq!(operator.get("/operator").await.status, status, "with the secret {byte}");
        assert_eq!(holder.get(HOME).await.status, 200, "with the secret {byte}");
    }
    let entered = Browser::new(&platform).send("POST", "/enter", &[("link", &unspent)], &ours).await.status;
    assert_eq!(entered, 403, "a link of before");
}

/// The digest of an operator's cookie depends on the operators' secret, and that of a key's cookie does not: the row of
/// one opens no session to the other.
#[tokio::test]
async fn a_cookie_of_the_form_of_a_keys_opens_no_session_of_an_operator() {
    let platform = demo().await;
    let (secret, digest) = ("not_of_an_operator", "kxN2BaqXPo92iLBkn6z-w-TIkJmhGOXvxQ_YqnQG7Pw");
    let now = chassis::clock::Clock::now(platform.clock.as_ref()).0;
    let row = format!(
        "INSERT INTO dashboard_sessions (digest, operator, client, created_at, seen_at)
         VALUES ('{digest}', 'command-line', '192.0.2.1', {now}, {now})"
    );
    crate::stores::execute(platform.directory.path(), &row).await;
    let mut browser = Browser::new(&platform);
    browser.cookie = Some(format!("__Host-tollhouse={secret}"));
    assert_eq!(browser.get("/operator").await.location(), "/sign-in");
}

#[tokio::test]
async fn a_key_opens_only_its_own_project_and_no_operators_page() {
    let platform = demo().await;
    platform.project("other", "pro").await;
    let mut browser = Browser::signed_in(&platform, "demo", &["domains:read", "domains:write", "keys:write"]).await;
    for path in [
        "/projects/other/domains",
        "/projects/other/keys",
        "/projects/other/usage",
        "/projects/other/activity",
        "/projects/other/webhooks",
        "/projects/other/live",
        "/projects/no.label/domains",
        "/operator",
        "/operator/projects",
        "/nothing",
    ] {
        let page = browser.get(path).await;
        assert_eq!(page.status, 404, "{path}");
        page.says("Not found");
    }
    let mut reader = Browser::signed_in(&platform, "demo", &["domains:read"]).await;
    let page = reader.get("/projects/demo/keys").await;
    assert_eq!(page.status, 403);
    page.says("Sign in with one that has it");
    for path in ["/projects/demo/domains/new", "/projects/demo/domains/shop.localhost/remove"] {
        assert_eq!(reader.get(path).await.status, 403, "{path}");
    }
}
