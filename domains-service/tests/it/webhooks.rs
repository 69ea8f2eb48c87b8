//! Webhooks: events reach the owner's endpoints signed, in order, at least once, and no other address.

mod lifecycle;
mod orders;
pub(crate) mod receiver;

use std::sync::Arc;
use std::time::Duration;

use chassis::webhook::SigningSecret;
use contract::key::Scope;
use contract::time::{UnixMillis, UnixSeconds};
use domains_service::config::WebhookConfig;
use serde_json::{Value, json};

use crate::world::{Bend, Platform, START, eventually};
use receiver::{Received, Receiver};

const WEBHOOKS: &str = "/v1/projects/demo/webhooks";

/// A platform with the project `demo`.
async fn platform() -> Platform {
    let platform = Platform::start().await;
    platform.project("demo", "pro").await;
    platform
}

/// Makes an endpoint for the receiver; its id and secret.
pub(crate) async fn endpoint(platform: &Platform, receiver: &Receiver, events: Value) -> (String, SigningSecret) {
    let body = json!({ "url": receiver.url(), "events": events });
    let made = platform.owner("demo").send("POST", WEBHOOKS, body).await;
    assert_eq!((made.status, made.header("cache-control")), (201, "no-store"), "{made:?}");
    let secret = SigningSecret::parse(made.body["secret"].as_str().unwrap()).unwrap();
    (made.body["id"].as_str().unwrap().to_owned(), secret)
}

/// Something happens: a domain is added.
async fn happen(platform: &Platform, name: &str) {
    let added = platform.operator("POST", "/projects/demo/domains", json!({ "name": name })).await;
    assert_eq!(added.status, 201, "{added:?}");
}

/// The endpoint's deliveries, newest first, once they are as expected.
async fn deliveries(platform: &Platform, id: &str, are: impl Fn(&[Value]) -> bool) -> Vec<Value> {
    eventually(async || {
        let answer = platform.owner("demo").get(&format!("{WEBHOOKS}/{id}/deliveries")).await;
        let deliveries = answer.body["deliveries"].as_array().unwrap().clone();
        if are(&deliveries) { Ok(deliveries) } else { Err(format!("the deliveries are {deliveries:#?}")) }
    })
    .await
}

pub(crate) fn is_signed(message: &Received, secret: &SigningSecret, at: UnixMillis) -> bool {
    let expected = secret.sign(message.header("webhook-id"), at.to_seconds(), message.body.as_bytes());
    message.header("webhook-timestamp") == at.to_seconds().0.to_string()
        && message.header("webhook-signature").split(' ').any(|signature| signature == expected)
}

#[tokio::test]
async fn messages_are_signed_and_the_secret_is_shown_once() {
    let (platform, receiver) = (platform().await, Receiver::start().await);
    let (id, secret) = endpoint(&platform, &receiver, json!(["domain.created"])).await;
    happen(&platform, "shop.localhost").await;
    let message = receiver.message(0).await;
    assert!(is_signed(&message, &secret, START));
    assert!(!is_signed(&message, &SigningSecret::generate().unwrap(), START));
    assert_eq!(message.header("content-type"), "application/json");
    assert_eq!(
        (&message.json()["type"], &message.json()["data"]["domain"]),
        (&json!("domain.created"), &json!("shop.localhost"))
    );
    assert_eq!(message.json()["timestamp"], "2026-06-15T00:00:00Z");
    let delivered = deliveries(&platform, &id, |list| list.iter().all(|one| one["state"] == "delivered")).await;
    assert_eq!((delivered.len(), &delivered[0]["message_id"]), (1, &json!(message.header("webhook-id"))));
    // No response, log line or metric shows the secret again.
    let owner = platform.owner("demo");
    let secret = secret.to_text();
    for path in [WEBHOOKS.to_owned(), format!("{WEBHOOKS}/{id}"), "/v1/projects/demo/events".to_owned()] {
        let shown = owner.get(&path).await;
        assert!(shown.status == 200 && shown.body.to_string().contains(&id), "{path}: {shown:?}");
        assert!(!shown.body.to_string().contains(secret.trim_start_matches("whsec_")), "{path}");
    }
    let bytes = crate::stores::at_rest(platform.directory.path());
    let bare = SigningSecret::parse(&secret).unwrap();
    for hidden in [secret.trim_start_matches("whsec_").as_bytes(), bare.reveal()] {
        assert!(!bytes.windows(hidden.len()).any(|window| window == hidden), "the secret lies open at rest");
    }
}

#[tokio::test]
async fn messages_arrive_in_the_order_of_their_events_and_as_they_were_wanted() {
    let platform = platform().await;
    let (all, some) = (Receiver::start().await, Receiver::start().await);
    endpoint(&platform, &all, Value::Null).await;
    endpoint(&platform, &some, json!(["domain.certificate.*", "domain.removed"])).await;
    for name in ["a.localhost", "b.localhost", "c.localhost"] {
        platform.local_domain("demo", json!({ "name": name })).await;
    }
    assert!(platform.operator("DELETE", "/projects/demo/domains/c.localhost", Value::Null).await.status < 300);
    let listed = platform.owner("demo").get("/v1/projects/demo/events").await.body;
    let recorded: Vec<i64> = listed["events"]
        .as_array()
        .unwrap()
        .iter()
        .rev()
        .filter(|event| event["type"].as_str().unwrap().starts_with("domain."))
        .map(|event| event["id"].as_i64().unwrap())
        .collect();
    assert!(recorded.len() >= 10, "{listed:#}");
    let last = all.message(recorded.len() - 1).await;
    assert_eq!(last.json()["type"], "domain.removed");
    assert_eq!(all.numbers(), recorded);
    some.message(3).await;
    let kinds: Vec<String> =
        some.all().iter().map(|message| message.json()["type"].as_str().unwrap().to_owned()).collect();
    assert_eq!(kinds.iter().filter(|kind| *kind == "domain.certificate.issued").count(), 3);
    assert_eq!((kinds.len(), kinds[3].as_str()), (4, "domain.removed"));
}

#[tokio::test]
async fn a_failed_delivery_is_repeated_with_the_same_id() {
    let (platform, receiver) = (platform().await, Receiver::start().await);
    receiver.answer_with(&[500, 302]);
    let (id, secret) = endpoint(&platform, &receiver, json!(["domain.created"])).await;
    happen(&platform, "shop.localhost").await;
    receiver.message(0).await;
    let waiting = deliveries(&platform, &id, |list| list[0]["last_status"] == 500).await;
    assert_eq!(
        (&waiting[0]["state"], &waiting[0]["attempts"], &waiting[0]["last_result"]),
        (&json!("waiting"), &json!(1), &json!("refused"))
    );
    assert_eq!(receiver.all().len(), 1, "not before its time");
    platform.clock.advance(Duration::from_secs(6));
    receiver.message(1).await;
    let waiting = deliveries(&platform, &id, |list| list[0]["attempts"] == 2 && list[0]["last_status"] == 302).await;
    assert_eq!(waiting[0]["last_error"], "the receiver redirects; redirects are not followed");
    platform.clock.advance(Duration::from_secs(331));
    let last = receiver.message(2).await;
    assert!(is_signed(&last, &secret, START.plus(337_000)), "every attempt is signed for its own moment");
    deliveries(&platform, &id, |list| list[0]["state"] == "delivered" && list[0]["attempts"] == 3).await;
    let sent = receiver.all();
    assert!(sent.iter().all(|message| message.header("webhook-id") == last.header("webhook-id")));
    assert!(sent.iter().all(|message| message.body == last.body));
    let metrics = platform.metrics().await;
    assert!(metrics.contains("domains_webhook_attempts_total{result=\"delivered\"} 1"), "{metrics}");
    assert!(metrics.contains("domains_webhook_attempts_total{result=\"refused\"} 2"));
    assert!(metrics.contains("domains_webhook_deliveries{state=\"waiting\"} 0"));
}

#[tokio::test]
async fn a_waiting_delivery_does_not_delay_later_ones() {
    let (platform, receiver) = (platform().await, Receiver::start().await);
    receiver.answer_with(&[503]);
    endpoint(&platform, &receiver, json!(["domain.created"])).await;
    happen(&platform, "a.localhost").await;
    receiver.message(0).await;
    happen(&platform, "b.localhost").await;
    assert_eq!(receiver.message(1).await.json()["data"]["domain"], "b.localhost");
    platform.clock.advance(Duration::from_secs(6));
    assert_eq!(receiver.message(2).await.json()["data"]["domain"], "a.localhost");
}

#[tokio::test]
async fn a_project_with_slow_receivers_delays_only_itself() {
    let (platform, slow, quick) = (platform().await, Receiver::start().await, Receiver::start().await);
    slow.hang(true);
    for _ in 0..20 {
        endpoint(&platform, &slow, json!(["domain.created"])).await;
    }
    happen(&platform, "a.localhost").await;
    slow.message(3).await;
    platform.project("other", "pro").await;
    let made = json!({ "url": quick.url(), "events": ["domain.created"] });
    assert_eq!(platform.owner("other").send("POST", "/v1/projects/other/webhooks", made).await.status, 201);
    for index in 0..3 {
        let name = json!({ "name": format!("{index}.localhost") });
        assert_eq!(platform.operator("POST", "/projects/other/domains", name).await.status, 201);
        quick.message(index).await;
    }
    assert_eq!(slow.all().len(), 4, "no more at the same time for one project");
    slow.hang(false);
    slow.message(19).await;
}

#[tokio::test]
async fn the_documented_python_receiver_verifies_messages() {
    let (platform, receiver) = (platform().await, Receiver::start().await);
    let (_, secret) = endpoint(&platform, &receiver, json!(["domain.created"])).await;
    happen(&platform, "b\u{fc}cher.localhost").await;
    let message = receiver.message(0).await;
    let page = include_str!("../../../docs/tenant/webhooks.md");
    let published = page.split("```python\n").nth(1).unwrap().split("```").next().unwrap();
    let headers: Value = ["webhook-id", "webhook-timestamp", "webhook-signature"]
        .iter()
        .map(|name| ((*name).to_owned(), json!(message.header(name))))
        .collect::<serde_json::Map<_, _>>()
        .into();
    let now = START.to_seconds().0;
    let asking = format!(
        "{published}\nimport json, sys\nsecret, headers, body, now = json.load(sys.stdin)\n\
         time.time = lambda: now\nother = 'whsec_' + base64.b64encode(bytes(32)).decode()\n\
         genuine = lambda secret, body: is_genuine(secret, headers, body.encode())\n\
         print(genuine(secret, body), genuine(secret, body + ' '), genuine(other, body))\n\
         time.time = lambda: now + 301\nprint(genuine(secret, body))\n"
    );
    let input = json!([*secret.to_text(), headers, message.body, now]).to_string();
    assert_eq!(python(&asking, &input), "True False False\nFalse\n");
}

/// The output of a Python program.
fn python(program: &str, input: &str) -> String {
    use std::io::Write as _;
    use std::process::{Command, Stdio};
    let mut process = Command::new("python3")
        .args(["-c", program])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("python3 is missing; install it with: apt-get install python3");
    process.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    String::from_utf8(process.wait_with_output().unwrap().stdout).unwrap()
}

#[tokio::test]
async fn a_crash_between_event_and_delivery_loses_nothing() {
    let (platform, receiver) = (platform().await, Receiver::start().await);
    receiver.hang(true);
    let (id, secret) = endpoint(&platform, &receiver, json!(["domain.created"])).await;
    for name in ["a.localhost", "b.localhost", "c.localhost"] {
        happen(&platform, name).await;
    }
    // The first message is being sent; the others have not started.
    receiver.message(0).await;
    let taken = deliveries(&platform, &id, |list| list[2]["attempts"] == 1).await;
    assert_eq!((&taken[0]["attempts"], &taken[1]["attempts"]), (&json!(0), &json!(0)));
    // The data after a crash now.
    let copy = Arc::new(crate::stores::copied(platform.directory.path()));
    receiver.hang(false);
    let before = receiver.all().len();
    let start = START.plus(10_000); // when the claim has run out
    let again = Platform::bent(Bend { directory: Some(copy), start, ..Bend::default() }).await;
    let done = deliveries(&again, &id, |list| list.iter().all(|one| one["state"] == "delivered")).await;
    assert_eq!(done.len(), 3);
    let sent = receiver.all();
    let repeated: Vec<&Received> =
        sent.iter().skip(before).filter(|message| is_signed(message, &secret, start)).collect();
    let names: Vec<Value> = repeated.iter().map(|message| message.json()["data"]["domain"].clone()).collect();
    assert_eq!(names, ["a.localhost", "b.localhost", "c.localhost"]);
    assert_eq!(repeated[0].header("webhook-id"), sent[0].header("webhook-id"), "known by its id");
}

#[tokio::test]
async fn an_attempt_that_takes_longer_than_its_claim_is_made_once() {
    let (platform, receiver) = (platform().await, Receiver::start().await);
    receiver.hang(true);
    let (id, _) = endpoint(&platform, &receiver, json!(["domain.created"])).await;
    happen(&platform, "shop.localhost").await;
    receiver.message(0).await;
    for claimed_until in ["2026-06-15T00:00:19Z", "2026-06-15T00:00:28Z"] {
        platform.clock.advance(Duration::from_secs(9));
        deliveries(&platform, &id, |list| list[0]["next_attempt_at"] == claimed_until).await;
    }
    receiver.hang(false);
    let delivered = deliveries(&platform, &id, |list| list[0]["state"] == "delivered").await;
    assert_eq!((&delivered[0]["attempts"], receiver.all().len()), (&json!(1), 1));
}

#[tokio::test]
async fn no_message_goes_to_a_private_address() {
    let webhooks = WebhookConfig { allow_http: true, ..WebhookConfig::default() };
    let platform = Platform::bent(Bend { webhooks, ..Bend::default() }).await;
    platform.project("demo", "pro").await;
    let (owner, receiver) = (platform.owner("demo"), Receiver::start().await);
    for host in ["127.0.0.1", "127.1", "2130706433", "[::1]", "[::ffff:127.0.0.1]", "10.0.0.1", "169.254.169.254"] {
        let url = format!("http://{host}:{}/", receiver.address.port());
        let refused = owner.send("POST", WEBHOOKS, json!({ "url": url })).await;
        assert_eq!(refused.code(), (400, "invalid_webhook_url"), "{host}");
    }
    // A name that resolves to such an address is refused when it is used.
    let url = format!("http://localhost:{}/", receiver.address.port());
    let made = owner.send("POST", WEBHOOKS, json!({ "url": url, "events": ["domain.created"] })).await;
    let id = made.body["id"].as_str().unwrap().to_owned();
    happen(&platform, "shop.localhost").await;
    let blocked = deliveries(&platform, &id, |list| list[0]["last_result"] == "blocked").await;
    assert_eq!(blocked[0]["last_error"], "the name does not resolve to a public address");
    assert!(receiver.all().is_empty());
    // Nor does one go out in the clear, unless a setting allows it.
    let strict = Platform::bent(Bend { webhooks: WebhookConfig::default(), ..Bend::default() }).await;
    strict.project("demo", "pro").await;
    let clear = strict.owner("demo").send("POST", WEBHOOKS, json!({ "url": "http://hooks.example.com/" })).await;
    assert_eq!(clear.code(), (400, "invalid_webhook_url"));
    assert_eq!(clear.body["message"], "The webhook's url cannot be used: it must begin with https://.");
}

#[tokio::test]
async fn a_rotated_secret_signs_beside_the_old_one_for_a_while() {
    let (platform, receiver) = (platform().await, Receiver::start().await);
    let (id, old) = endpoint(&platform, &receiver, json!(["domain.created"])).await;
    let owner = platform.owner("demo");
    let rotated = owner.send("POST", &format!("{WEBHOOKS}/{id}/rotate"), json!({ "overlap_seconds": 60 })).await;
    assert_eq!((rotated.status, rotated.header("cache-control")), (200, "no-store"));
    let new = SigningSecret::parse(rotated.body["secret"].as_str().unwrap()).unwrap();
    happen(&platform, "a.localhost").await;
    let both = receiver.message(0).await;
    assert!(is_signed(&both, &new, START) && is_signed(&both, &old, START));
    platform.clock.advance(Duration::from_mins(1));
    happen(&platform, "b.localhost").await;
    let one = receiver.message(1).await;
    let now = UnixSeconds(START.to_seconds().0 + 60).to_millis();
    assert!(is_signed(&one, &new, now) && !is_signed(&one, &old, now));
    let long = owner.send("POST", &format!("{WEBHOOKS}/{id}/rotate"), json!({ "overlap_seconds": 2_592_001 })).await;
    assert_eq!(long.code(), (400, "invalid_body"));
}

#[tokio::test]
async fn keys_need_the_scopes_of_domains() {
    let (platform, receiver) = (platform().await, Receiver::start().await);
    let (id, _) = endpoint(&platform, &receiver, json!(["domain.*"])).await;
    let (reader, writer) =
        (platform.caller("demo", &[Scope::DomainsRead]), platform.caller("demo", &[Scope::DomainsWrite]));
    let one = format!("{WEBHOOKS}/{id}");
    for (method, path, body) in [
        ("POST", WEBHOOKS.to_owned(), json!({ "url": receiver.url() })),
        ("PATCH", one.clone(), json!({ "enabled": false })),
        ("DELETE", one.clone(), Value::Null),
        ("POST", format!("{one}/rotate"), Value::Null),
        ("POST", format!("{one}/deliveries/1/repeat"), Value::Null),
    ] {
        assert_eq!(reader.send(method, &path, body).await.code(), (403, "insufficient_scope"), "{method} {path}");
    }
    for path in [WEBHOOKS.to_owned(), one.clone(), format!("{one}/deliveries")] {
        assert_eq!(reader.get(&path).await.status, 200, "{path}");
        assert_eq!(writer.get(&path).await.code(), (403, "insufficient_scope"), "{path}");
    }
    platform.project("other", "pro").await;
    let stranger = platform.owner("other");
    assert_eq!(stranger.get(&one).await.code(), (404, "project_not_found"));
    assert_eq!(stranger.get(&format!("/v1/projects/other/webhooks/{id}")).await.code(), (404, "webhook_not_found"));
}
