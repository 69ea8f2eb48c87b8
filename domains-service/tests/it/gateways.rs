//! Gateways with their own credentials: what a credential opens, and how it ends.

use chassis::clock::Clock as _;
use chassis::guard::pass_key;
use chassis::seal::SealingKey;
use chassis::secret::Secret;
use contract::feed::Frame;
use contract::keyring::{KEYRING_PLACE, Keyring};
use contract::token::{Claims, IDENTITY_TOKEN_HEADER, KeySet, SigningKey};
use contract::trust::Trust;
use reqwest::Method;
use serde_json::{Value, json};

use crate::stores::{execute, value};
use crate::world::{Answer, Platform, Stream};

/// Puts a gateway on record; its token.
pub(crate) async fn enrolled(platform: &Platform, name: &str) -> String {
    let made = platform.operator("POST", "/credentials", json!({ "kind": "gateway", "name": name })).await;
    assert_eq!(made.status, 201, "{made:?}");
    let credential = Secret::parse(made.body["credential"].as_str().unwrap()).unwrap();
    credential.to_token().to_string()
}

async fn status(platform: &Platform, token: &str, method: &str, path: &str, body: Value) -> u16 {
    let url = format!("{}{path}", platform.internal);
    let mut request = platform.client.request(method.parse::<Method>().unwrap(), url).bearer_auth(token);
    if !body.is_null() {
        request = request.json(&body);
    }
    request.send().await.unwrap().status().as_u16()
}

/// The next keys on a stream, opened.
async fn keyring(stream: &mut Stream) -> Keyring {
    let sealing = SealingKey::new(&Secret::new(vec![8; 32])).unwrap();
    loop {
        if let Frame::Keyring { sealed } = stream.next().await.expect("the stream goes on") {
            return serde_json::from_slice(&sealing.open(&sealed, KEYRING_PLACE).unwrap()).unwrap();
        }
    }
}

/// The keys of the gateway that has this token.
async fn ring(platform: &Platform, token: &str) -> Keyring {
    keyring(&mut platform.follow_with(token, "node=a&after=0&keyring=1").await).await
}

#[tokio::test]
async fn a_gateway_reports_only_its_own_processes() {
    let platform = Platform::start().await;
    platform.project("demo", "pro").await;
    let token = enrolled(&platform, "edge-1").await;
    let report = json!({ "node": "gw-1", "applied": 1, "version": "1" });
    assert_eq!(status(&platform, &token, "POST", "/internal/edge/nodes", report).await, 204);
    let nodes = platform.operator("GET", "/nodes", Value::Null).await;
    assert_eq!(nodes.body["nodes"][0]["node"], "edge-1/gw-1", "a gateway reports only for itself");
    let public = platform.client.get(format!("{}/v1/projects/demo", platform.http)).bearer_auth(&token);
    assert_eq!(public.send().await.unwrap().status(), 401);
}

#[tokio::test]
async fn a_revoked_gateway_is_refused_at_once_its_stream_ends_and_the_others_have_new_keys() {
    let platform = Platform::start().await;
    let (thief, honest) = (enrolled(&platform, "edge-1").await, enrolled(&platform, "edge-2").await);
    let mut stolen = platform.follow_with(&thief, "node=a&after=0&keyring=1").await;
    let mut kept = platform.follow_with(&honest, "node=b&after=0&keyring=1").await;
    let (before, same) = (keyring(&mut stolen).await, keyring(&mut kept).await);
    assert_ne!(before.generations[0].identity, same.generations[0].identity, "each signs with a key of its own");
    assert_eq!(before.generations[0].tickets, same.generations[0].tickets, "sessions are resumed at any of them");
    assert_eq!(before.identities, same.identities);
    assert_eq!(platform.operator("DELETE", "/credentials/gateway/edge-1", Value::Null).await.status, 200);
    assert_eq!(status(&platform, &thief, "GET", "/internal/edge/feed?node=a&after=0", Value::Null).await, 401);
    // The client's patience bounds this loop; the promise is one second.
    while let Some(frame) = stolen.next().await {
        assert!(!matches!(frame, Frame::Keyring { .. }), "the thief is sent no new keys");
    }
    // A stream may learn of the revocation shortly before it has the new tickets.
    let after = loop {
        let ring = keyring(&mut kept).await;
        if ring.generations[0].tickets != before.generations[0].tickets {
            break ring;
        }
    };
    assert_eq!(after.generations[0].identity, same.generations[0].identity, "the honest gateway signs as before");
    let public = |ring: &Keyring| SigningKey::from_seed(&ring.generations[0].identity).unwrap().public().clone();
    assert_eq!(after.identities.keys(), [public(&same)], "what the thief signs is worth nothing");
    let listed = platform.operator("GET", "/credentials", Value::Null).await;
    let revoked = |index: usize| listed.body["credentials"][index]["revoked_at"].is_string();
    assert_eq!((revoked(0), revoked(1)), (true, false), "{listed:?}");
    assert!(!listed.body.to_string().contains(&thief));
    assert_eq!(platform.operator("DELETE", "/credentials/gateway/edge-1", Value::Null).await.status, 200, "repeated");
    let again = enrolled(&platform, "edge-1").await;
    assert_ne!(again, thief);
    let exists = platform.operator("POST", "/credentials", json!({ "kind": "gateway", "name": "edge-1" })).await;
    assert_eq!(exists.code(), (409, "credential_exists"));
}

#[tokio::test]
async fn a_stream_of_a_revoked_credential_ends_though_the_name_has_another_at_once() {
    let platform = Platform::start().await;
    let thief = enrolled(&platform, "edge-1").await;
    let mut stolen = platform.follow_with(&thief, "node=a&after=0&keyring=1").await;
    keyring(&mut stolen).await;
    // As when an operator replaces a credential: the stream is checked once a second.
    assert_eq!(platform.operator("DELETE", "/credentials/gateway/edge-1", Value::Null).await.status, 200);
    let honest = enrolled(&platform, "edge-1").await;
    let mut kept = platform.follow_with(&honest, "node=b&after=0&keyring=1").await;
    keyring(&mut kept).await;
    let ended = async { while stolen.next().await.is_some() {} };
    tokio::time::timeout(std::time::Duration::from_secs(20), ended).await.expect("the thief's stream ends");
    assert!(kept.next().await.is_some());
}

/// A key derived from the platform's secret signs for no gateway. As a token it opens the operators' part: see
/// `internal_access`.
#[tokio::test]
async fn the_platforms_secret_signs_for_no_gateway() {
    let platform = Platform::start().await;
    platform.project("demo", "pro").await;
    let claims = Claims {
        audience: "domains".to_owned(),
        caller: None,
        site_project: None,
        issued_at: chassis::clock::Clock::now(platform.clock.as_ref()).to_seconds(),
    };
    for label in ["sign identity tokens", "sign passes of operators"] {
        let key = SigningKey::from_seed(platform.secret.derive(label).reveal()).unwrap();
        let request = platform.client.get(format!("{}/v1/acme-account", platform.http));
        let request = request.header("x-request-id", "r1").header("x-forwarded-for", "192.0.2.1");
        let answer = request.header(IDENTITY_TOKEN_HEADER, key.sign(&claims)).send().await.unwrap();
        assert_eq!(Answer::of(answer).await.code(), (401, "identity_required"), "{label}");
    }
}

#[tokio::test]
async fn services_get_the_public_keys() {
    let platform = Platform::start().await;
    let url = format!("{}/internal/trust", platform.internal);
    let service = platform.orders_service().await;
    let told = async || -> KeySet {
        let trust = platform.client.get(&url).bearer_auth(&service).send().await.unwrap();
        trust.json::<Trust>().await.unwrap().gateways
    };
    let (one, two) = (enrolled(&platform, "edge-1").await, enrolled(&platform, "edge-2").await);
    let (one, two) = (ring(&platform, &one).await, ring(&platform, &two).await);
    let public = |ring: &Keyring| SigningKey::from_seed(&ring.generations[0].identity).unwrap().public().clone();
    assert_eq!(told().await.keys(), [public(&one), public(&two)]);
    assert_eq!(two.identities, told().await, "gateways publish the same");
    let passes = pass_key(&platform.secret).unwrap();
    assert_eq!((one.gateway.as_str(), two.gateway.as_str()), ("edge-1", "edge-2"), "each is told its own name");
    assert_eq!(one.passes.keys(), [passes.public().clone()], "gateways know passes, and cannot make them");
    assert_ne!(&public(&one), passes.public());
    let gateway = enrolled(&platform, "edge-3").await;
    assert_eq!(platform.client.get(&url).bearer_auth(&gateway).send().await.unwrap().status(), 401);
    assert_eq!(platform.operator("DELETE", "/credentials/gateway/edge-1", Value::Null).await.status, 200);
    assert!(!told().await.keys().contains(&public(&one)), "a revoked gateway's key is withdrawn at once");
    assert!(told().await.keys().contains(&public(&two)));
}

/// Puts rows under invented names of processes of the credential `thief` into a table.
async fn invent(platform: &Platform, table: &str, columns: &str, values: &str, count: i64) {
    let fill = format!(
        "WITH RECURSIVE numbers(number) AS (SELECT 1 UNION ALL SELECT number + 1 FROM numbers WHERE number < {count})
         INSERT INTO {table} (node, {columns}) SELECT 'thief/' || number, {values} FROM numbers"
    );
    execute(platform.directory.path(), &fill).await;
}

async fn says(platform: &Platform, token: &str, what: &str, body: Value) -> Answer {
    let request = platform.client.post(format!("{}/internal/edge/{what}", platform.internal));
    Answer::of(request.bearer_auth(token).json(&body).send().await.unwrap()).await
}

#[tokio::test]
async fn bans_that_one_credential_reports_under_many_names_leave_room_for_those_of_others() {
    let platform = Platform::start().await;
    let (thief, honest) = (enrolled(&platform, "thief").await, enrolled(&platform, "honest").await);
    let report = |node: &str| json!({ "node": node, "used": [], "bans": [], "bans_total": 7 });
    let now = platform.clock.now().0;
    invent(&platform, "edge_bans", "bans, total, reported_at", &format!("'[]', 1, {now}"), 255).await;
    assert_eq!(says(&platform, &thief, "keys", report("last")).await.status, 204);
    let refused = says(&platform, &thief, "keys", report("more")).await;
    assert_eq!(refused.code(), (429, "too_many_processes"), "{refused:?}");
    assert_eq!(says(&platform, &thief, "keys", report("last")).await.status, 204, "one that is known goes on");
    assert_eq!(says(&platform, &honest, "keys", report("one")).await.status, 204);
    let of_honest = value(platform.directory.path(), "edge_bans", "CAST(total AS TEXT)", "node = 'honest/one'").await;
    assert_eq!(of_honest.as_deref(), Some("7"));
    // A report from half a minute ago counts no more, and occupies no room.
    platform.clock.advance(std::time::Duration::from_secs(31));
    assert_eq!(says(&platform, &thief, "keys", report("more")).await.status, 204);
}

#[tokio::test]
async fn usage_that_one_credential_reports_under_many_names_leaves_room_for_that_of_others() {
    let platform = Platform::start().await;
    for project in ["demo", "other"] {
        platform.project(project, "pro").await;
    }
    let (thief, honest) = (enrolled(&platform, "thief").await, enrolled(&platform, "honest").await);
    let uids = [platform.identity(&"demo".parse().unwrap()).await, platform.identity(&"other".parse().unwrap()).await];
    let day = platform.clock.now_seconds().0.div_euclid(86_400);
    let report = |node: &str| {
        let projects = uids.iter().map(|uid| {
            json!({ "project": uid, "day": day, "admitted": 5, "refused": 0, "banned": 0, "minute": 0, "in_minute": 0 })
        });
        json!({ "node": node, "projects": projects.collect::<Vec<_>>() })
    };
    let values = format!("'{}', {day}, 1, 0, 0, 0, 0", uids[0]);
    invent(&platform, "usage_days", "project, day, admitted, refused, banned, minute, in_minute", &values, 511).await;
    assert_eq!(says(&platform, &thief, "usage", report("last")).await.status, 204);
    let refused = says(&platform, &thief, "usage", report("more")).await;
    assert_eq!(refused.code(), (429, "too_many_processes"), "{refused:?}");
    assert_eq!(says(&platform, &thief, "usage", report("last")).await.status, 204, "one that is known goes on");
    assert_eq!(says(&platform, &honest, "usage", report("one")).await.status, 204);
    let rows = async |node: &str| {
        let (of, row) = ("CAST(COUNT(*) AS TEXT)", format!("node = '{node}'"));
        value(platform.directory.path(), "usage_days", of, &row).await
    };
    assert_eq!(rows("honest/one").await.as_deref(), Some("2"));
    assert_eq!(rows("thief/more").await.as_deref(), Some("1"), "of the project that has room");
}
