//! Access to the internal listener: a credential of each kind at every operation.

use std::path::Path;
use std::time::Duration;

use chassis::clock::Clock as _;
use chassis::guard::{operator_token, pass, pass_key};
use chassis::secret::Secret;
use contract::erasure::ERASURES_PATH;
use contract::event::ORDER_EVENTS_PATH;
use contract::trust::{PASSES_PATH, PassFor, TRUST_PATH};
use reqwest::Method;
use serde_json::{Value, json};

use crate::stores::{execute, over_postgres};
use crate::world::{Answer, Platform, eventually};

/// The operations of the internal listener beside those that [`in_one_project`] adds, and whose credentials open each.
const OPERATIONS: &[(&str, &str, &str)] = &[
    ("GET", "/edge/feed", "gateway"),
    ("POST", "/edge/nodes", "gateway"),
    ("POST", "/edge/usage", "gateway"),
    ("POST", "/edge/keys", "gateway"),
    ("POST", "/events/orders", "service"),
    ("GET", "/trust", "service"),
    ("GET", "/known-projects/{uid}", "service"),
    ("GET", "/erasures", "service"),
    ("POST", "/erasures", "service"),
    ("GET", "/projects", "operator"),
    ("POST", "/projects", "operator"),
    ("GET", "/removed-projects", "operator"),
    ("PATCH", "/projects/{project}", "operator"),
    ("DELETE", "/projects/{project}", "operator"),
    ("POST", "/projects/{project}/deploy", "operator"),
    ("POST", "/projects/{project}/restore", "operator"),
    ("GET", "/nodes", "operator"),
    ("GET", "/credentials", "operator"),
    ("POST", "/credentials", "operator"),
    ("DELETE", "/credentials/{kind}/{name}", "operator"),
    ("GET", "/credentials/gateway/{gateway}/changes", "operator"),
    ("POST", "/gateway-keys", "operator"),
    ("GET", "/status", "operator"),
    ("GET", "/overview", "operator"),
    ("GET", "/withdrawals", "operator"),
    ("POST", "/dashboard-links", "operator"),
    ("POST", "/passes", "operator"),
    ("GET", "/settings", "operator"),
    ("GET", "/nowhere", "operator"),
];

/// Operations that are declared in another way: the settings, and a path that nothing has.
const BESIDE: usize = 2;

/// The operations of the public API in one project, which operators have on the internal listener.
fn in_one_project() -> impl Iterator<Item = (&'static str, &'static str, &'static str)> {
    domains_service::operations().filter_map(|(method, path, _)| {
        let path = path.strip_prefix("/v1").filter(|path| path.starts_with("/projects/{project}"))?;
        Some((method, path, "operator"))
    })
}

/// Methods and paths of the internal listener in the source of the API: an operation that is not tried fails the test.
fn in_the_source() -> Vec<(String, String)> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/api");
    let files = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let sources = files.filter(|file| file.is_file()).map(|file| std::fs::read_to_string(file).unwrap());
    let sources: Vec<String> = sources.collect();
    let declared = sources.iter().flat_map(|source| source.split("Method::").skip(1)).filter_map(|text| {
        let mut arguments = text.split(',').map(str::trim);
        let (method, path) = (arguments.next()?.to_uppercase(), arguments.next()?);
        let path = match path {
            "ORDER_EVENTS_PATH" => ORDER_EVENTS_PATH,
            "TRUST_PATH" => TRUST_PATH,
            "ERASURES_PATH" => ERASURES_PATH,
            "PASSES_PATH" => PASSES_PATH,
            path => path.trim_matches('"'),
        };
        Some((method, path.strip_prefix("/internal")?.to_owned()))
    });
    declared.collect()
}

async fn ask(platform: &Platform, token: &str, method: &str, path: &str, body: Value) -> Answer {
    let url = format!("{}/internal{path}", platform.internal);
    let mut request = platform.client.request(method.parse::<Method>().unwrap(), url).bearer_auth(token);
    if !body.is_null() {
        request = request.json(&body);
    }
    Answer::of(request.send().await.unwrap()).await
}

/// Puts a credential on record, with the token of an operator; its token.
async fn made_by(platform: &Platform, maker: &str, kind: &str, name: &str) -> String {
    let made = ask(platform, maker, "POST", "/credentials", json!({ "kind": kind, "name": name })).await;
    assert_eq!((made.status, &made.body["kind"]), (201, &json!(kind)), "{made:?}");
    let token = made.body["token"].as_str().unwrap();
    let credential = Secret::parse(made.body["credential"].as_str().unwrap()).unwrap();
    assert_eq!(&**credential.to_token(), token, "the same, as a file has it");
    token.to_owned()
}

async fn made(platform: &Platform, kind: &str, name: &str) -> String {
    made_by(platform, &operator_token(&platform.secret).to_token(), kind, name).await
}

/// A request that each kind may send, and that reads no row of credentials.
async fn opens(platform: &Platform, kind: &str, token: &str) -> u16 {
    let report = json!({ "node": "a", "applied": 0, "version": "1" });
    let (method, path, body) = match kind {
        "gateway" => ("POST", "/edge/nodes", report),
        "service" => ("GET", "/erasures", Value::Null),
        _ => ("GET", "/settings", Value::Null),
    };
    ask(platform, token, method, path, body).await.status
}

#[tokio::test]
async fn a_credential_opens_only_the_operations_of_its_kind() {
    let platform = Platform::start().await;
    platform.project("demo", "pro").await;
    let operations: Vec<_> = OPERATIONS.iter().copied().chain(in_one_project()).collect();
    let declared = in_the_source();
    assert_eq!(declared.len(), OPERATIONS.len() - BESIDE, "{declared:?}");
    for (method, path) in declared {
        assert!(operations.iter().any(|one| (one.0, one.1) == (&method, &path)), "{method} {path} is not tried");
    }
    let mut tokens = vec![
        ("operator", operator_token(&platform.secret).to_token().to_string()),
        ("nothing", platform.secret.to_token().to_string()),
        ("nothing", "a stranger's".to_owned()),
    ];
    for kind in ["gateway", "service", "operator"] {
        tokens.push((kind, made(&platform, kind, &format!("{kind}-1")).await));
        let revoked = made(&platform, kind, "revoked").await;
        let gone = platform.operator("DELETE", &format!("/credentials/{kind}/revoked"), Value::Null).await;
        assert_eq!(gone.status, 200, "{gone:?}");
        tokens.push(("nothing", revoked));
    }
    let now = platform.clock.now_seconds();
    for to in [PassFor::service("service-1"), PassFor::gateway("gateway-1")] {
        tokens.push(("nothing", pass(&pass_key(&platform.secret).unwrap(), &to, now)));
    }
    for label in ["edge feed", "events", "sign identities", "sign identity tokens", "sign passes of operators"] {
        tokens.push(("nothing", platform.secret.derive(label).to_token().to_string()));
    }
    for (kind, token) in &tokens {
        for (method, path, lets_in) in &operations {
            let path = path.replace(['{', '}'], "");
            let asked = ask(&platform, token, method, &path, json!({})).await;
            let is_open = asked.status != 401;
            assert_eq!(is_open, kind == lets_in, "{kind} at {method} {path}: {asked:?}");
            assert!(is_open || asked.code().1 == "token_required", "{asked:?}");
        }
    }
}

/// With a full disk the use of a credential is not recorded. Without the database no credential is read.
#[tokio::test]
async fn known_credentials_work_while_the_database_is_full_and_while_it_is_away() {
    let platform = Platform::start().await;
    let mut tokens = vec![("command line", operator_token(&platform.secret).to_token().to_string())];
    for kind in ["gateway", "service", "operator"] {
        tokens.push((kind, made(&platform, kind, kind).await));
    }
    let directory = platform.directory.path();
    let full = if over_postgres() {
        "CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'no space left'; END $$;
         CREATE TRIGGER full_disk BEFORE UPDATE ON credentials EXECUTE FUNCTION full_disk()"
    } else {
        "CREATE TRIGGER full_disk BEFORE UPDATE ON credentials BEGIN SELECT RAISE(FAIL, 'no space left'); END"
    };
    execute(directory, full).await;
    for (kind, token) in &tokens {
        assert!(matches!(opens(&platform, kind, token).await, 200 | 204), "{kind}");
    }
    execute(directory, "ALTER TABLE credentials RENAME TO away").await;
    for (kind, token) in &tokens {
        assert!(matches!(opens(&platform, kind, token).await, 200 | 204), "{kind}");
    }
    let unknown = ask(&platform, "a stranger's", "GET", "/settings", Value::Null).await;
    assert_eq!(unknown.code(), (503, "storage_unavailable"), "the credential cannot be checked");
    execute(directory, "ALTER TABLE away RENAME TO credentials").await;
    eventually(async || {
        let unknown = ask(&platform, "a stranger's", "GET", "/settings", Value::Null).await;
        if unknown.status == 401 { Ok(()) } else { Err(format!("{unknown:?}")) }
    })
    .await;
}

/// The names and the makers of the credentials in a list.
fn names(list: &Value) -> Vec<(&str, &str)> {
    list.as_array()
        .unwrap()
        .iter()
        .map(|one| (one["name"].as_str().unwrap(), one["made_by"].as_str().unwrap()))
        .collect()
}

#[tokio::test]
async fn credentials_made_with_a_token_are_listed_and_end_with_it_on_request() {
    let platform = Platform::start().await;
    let ada = made(&platform, "operator", "ada").await;
    let eve = made_by(&platform, &ada, "operator", "eve").await;
    let gateway = made_by(&platform, &eve, "gateway", "edge-1").await;
    let service = made_by(&platform, &ada, "service", "files").await;
    let bobs = made(&platform, "gateway", "edge-2").await;
    let mut stream = platform.follow_with(&gateway, "node=a&after=0").await;
    let listed = platform.operator("GET", "/credentials", Value::Null).await.body;
    let all = [
        ("edge-1", "eve"),
        ("edge-2", "command-line"),
        ("files", "ada"),
        ("ada", "command-line"),
        ("command-line", "the platform's secret"),
        ("eve", "ada"),
    ];
    assert_eq!(names(&listed["credentials"]), all);

    let revoked = platform.operator("DELETE", "/credentials/operator/ada", Value::Null).await;
    let made = [("edge-1", "eve"), ("eve", "ada"), ("files", "ada")];
    assert_eq!(names(&revoked.body["revoked"]), [("ada", "command-line")]);
    assert_eq!(names(&revoked.body["made"]), made, "they are listed, and good still");
    assert_eq!(opens(&platform, "operator", &ada).await, 401);
    assert_eq!((opens(&platform, "operator", &eve).await, opens(&platform, "gateway", &gateway).await), (200, 204));

    let revoked = platform.operator("DELETE", "/credentials/operator/ada?made=true", Value::Null).await;
    let all = [[("ada", "command-line")].as_slice(), &made].concat();
    assert_eq!((names(&revoked.body["revoked"]), names(&revoked.body["made"])), (all.clone(), Vec::new()));
    for (kind, token) in [("operator", &eve), ("gateway", &gateway), ("service", &service)] {
        assert_eq!(opens(&platform, kind, token).await, 401, "{kind}");
    }
    let ended = async { while stream.next().await.is_some() {} };
    tokio::time::timeout(Duration::from_secs(20), ended).await.expect("the gateway's stream ends");
    assert_eq!(opens(&platform, "gateway", &bobs).await, 204, "what others made goes on");
    let again = platform.operator("DELETE", "/credentials/operator/ada?made=true", Value::Null).await;
    assert_eq!((again.status, names(&again.body["revoked"])), (200, all), "an answer that was lost can be had again");
    let unknown = platform.operator("DELETE", "/credentials/operator/grace", Value::Null).await;
    assert_eq!(unknown.code(), (404, "not_found"));
}

#[tokio::test]
async fn the_command_lines_credential_is_listed_and_ends_only_with_the_platforms_secret() {
    let platform = Platform::start().await;
    let refused = platform.operator("DELETE", "/credentials/operator/command-line", Value::Null).await;
    assert_eq!(refused.code(), (409, "command_line_credential"));
    assert!(refused.body["message"].as_str().unwrap().contains("platform's secret"), "{refused:?}");
    let taken = platform.operator("POST", "/credentials", json!({ "kind": "operator", "name": "command-line" })).await;
    assert_eq!(taken.code(), (409, "credential_exists"));
    eventually(async || {
        let listed = platform.operator("GET", "/credentials?kind=operator", Value::Null).await.body;
        let known = &listed["credentials"][0];
        if known["last_used_at"].is_string() { Ok(()) } else { Err(format!("{known}")) }
    })
    .await;
    platform.project("demo", "pro").await;
    let events = platform.operator("GET", "/projects/demo/events", Value::Null).await.body;
    assert_eq!(events["events"][0]["actor"], "operator:command-line");
}

#[tokio::test]
async fn a_replaced_secret_of_the_platform_ends_the_command_line_of_before_for_good() {
    let mut platform = Platform::start().await;
    let directory = platform.directory.clone();
    let before = operator_token(&platform.secret).to_token().to_string();
    for (secret, opened) in [(9, [401, 200]), (7, [401, 401])] {
        platform.stop().await;
        let secret = Secret::new(vec![secret; 32]);
        let now = operator_token(&secret).to_token().to_string();
        let bend = crate::world::Bend { directory: Some(directory.clone()), secret, ..Default::default() };
        platform = Platform::bent(bend).await;
        let asked = [opens(&platform, "operator", &before).await, opens(&platform, "operator", &now).await];
        assert_eq!(asked, opened, "what was replaced is never taken again");
    }
}

#[tokio::test]
async fn gateways_and_services_share_one_namespace_and_their_credentials_do_not_expire() {
    let platform = Platform::start().await;
    made(&platform, "gateway", "one").await;
    for (kind, status) in [("gateway", 409), ("service", 409), ("operator", 201)] {
        let again = platform.operator("POST", "/credentials", json!({ "kind": kind, "name": "one" })).await;
        assert_eq!(again.status, status, "{kind}: {again:?}");
    }
    assert_eq!(platform.operator("DELETE", "/credentials/gateway/one", Value::Null).await.status, 200);
    made(&platform, "service", "one").await;
    for wrong in [
        json!({ "kind": "gateway", "name": "two", "days": 1 }),
        json!({ "kind": "operator", "name": "two", "days": 367 }),
        json!({ "kind": "operator", "name": "Two" }),
        json!({ "kind": "pass", "name": "two" }),
    ] {
        assert_eq!(platform.operator("POST", "/credentials", wrong).await.code(), (400, "invalid_body"));
    }
    for (method, path) in [("GET", "/credentials?kind=pass"), ("DELETE", "/credentials/pass/two")] {
        assert_eq!(platform.operator(method, path, Value::Null).await.code(), (400, "invalid_query"));
    }
}

/// A column of a server holds numbers alone.
#[tokio::test]
async fn a_credential_with_an_unreadable_expiry_is_refused() {
    if over_postgres() {
        return;
    }
    let platform = Platform::start().await;
    let token = made(&platform, "operator", "ada").await;
    assert_eq!(opens(&platform, "operator", &token).await, 200);
    execute(platform.directory.path(), "UPDATE credentials SET expires_at = 'never' WHERE name = 'ada'").await;
    eventually(async || match opens(&platform, "operator", &token).await {
        401 => Ok(()),
        status => Err(format!("{status}")),
    })
    .await;
}

/// A replica reads once in a second which credentials are good: what another one has revoked meanwhile makes no change.
#[tokio::test]
async fn a_credential_revoked_at_another_replica_can_neither_create_nor_revoke_credentials() {
    let platform = Platform::start().await;
    let edge = made(&platform, "gateway", "edge-1").await;
    let new = json!({ "kind": "operator", "name": "eve" });
    for (name, method, path, body) in
        [("ada", "POST", "/credentials", new), ("bob", "DELETE", "/credentials/gateway/edge-1", Value::Null)]
    {
        let token = made(&platform, "operator", name).await;
        assert_eq!(opens(&platform, "operator", &token).await, 200);
        let revoked = format!("UPDATE credentials SET revoked_at = 1 WHERE name = '{name}'");
        execute(platform.directory.path(), &revoked).await;
        let refused = ask(&platform, &token, method, path, body).await;
        assert_eq!(refused.status, 401, "{method} {path}: {refused:?}");
    }
    let listed = platform.operator("GET", "/credentials?kind=operator", Value::Null).await.body;
    assert!(!listed.to_string().contains("eve"), "{listed}");
    assert_eq!(opens(&platform, "gateway", &edge).await, 204);
}
