//! Credentials for the platform's internal listeners: `tollhouse node` and `tollhouse token`.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::time::{Duration, Instant};

use chassis::secret::Secret;
use reqwest::Client;
use serde_json::{Value, json};

use crate::world::{Platform, until};

/// Within a second a revoked gateway is refused and its stream ends; a heartbeat takes another second.
const REVOKED_WITHIN: Duration = Duration::from_secs(2);

/// The control plane's internal listener.
fn control(platform: &Platform) -> String {
    let run: Value = serde_json::from_slice(&std::fs::read(platform.path("run.json")).unwrap()).unwrap();
    format!("http://{}/internal", run["control"].as_str().unwrap())
}

/// The status of a request with a token.
pub(crate) async fn asked(platform: &Platform, token: &str, path: &str) -> u16 {
    let request = Client::new().get(format!("{}{path}", control(platform))).bearer_auth(token);
    request.send().await.unwrap().status().as_u16()
}

/// The entry of a name in a list.
pub(crate) fn listed(platform: &Platform, noun: &str, name: &str) -> Value {
    let all = platform.json(&[noun, "list"]);
    all.as_array().unwrap().iter().find(|one| one["name"] == name).cloned().unwrap_or_default()
}

#[tokio::test]
async fn a_gateway_is_added_listed_and_revoked_within_a_second() {
    let platform = Platform::start();
    assert_eq!(listed(&platform, "node", "gateway")["kind"], "gateway", "the one that `up` enrols");
    assert_eq!(listed(&platform, "node", "orders-service")["kind"], "service");
    let made = platform.json(&["node", "add", "edge-9"]);
    let credential = Secret::parse(made["credential"].as_str().unwrap()).unwrap().to_token();
    let again = platform.command(&["node", "add", "edge-9"]);
    assert!(!again.status.success() && String::from_utf8_lossy(&again.stderr).contains("credential_exists"));
    let feed = format!("{}/edge/feed?node=a&after=0&keyring=1", control(&platform));
    let mut stream = Client::new().get(&feed).bearer_auth(&*credential).send().await.unwrap();
    assert_eq!(stream.status(), 200);
    assert!(stream.chunk().await.unwrap().is_some());
    let is_noted = async || listed(&platform, "node", "edge-9")["last_used_at"].is_string();
    until("the gateway's use of its credential is noted", is_noted).await;
    platform.json(&["node", "revoke", "edge-9"]);
    let revoked = Instant::now();
    assert_eq!(asked(&platform, &credential, "/edge/feed?node=a&after=0").await, 401, "at once");
    let ended = async { while let Ok(Some(_)) = stream.chunk().await {} };
    tokio::time::timeout(REVOKED_WITHIN, ended).await.expect("its stream ends");
    assert!(revoked.elapsed() < REVOKED_WITHIN);
    let gone = listed(&platform, "node", "edge-9");
    assert!(gone["revoked_at"].is_string() && !gone.to_string().contains(&*credential), "{gone}");
    let text = String::from_utf8(platform.command(&["node", "list"]).stdout).unwrap();
    assert!(text.contains("KIND") && text.contains("REVOKED"), "{text}");
    // The platform's own gateway has new keys, and customers' requests succeed.
    let shop = platform.project("pro");
    assert_eq!(shop.list(&platform, &platform.client()).await.len(), 40);
    platform.json(&["node", "rotate"]);
}

#[tokio::test]
async fn a_token_is_created_used_listed_and_revoked_and_gives_access_to_orders_and_gateways() {
    let platform = Platform::start();
    let made = platform.json(&["token", "create", "ada", "--days", "2"]);
    let token = made["token"].as_str().unwrap().to_owned();
    assert_eq!(listed(&platform, "token", "ada")["last_used_at"], Value::Null);
    for path in ["/projects", "/credentials", "/settings", "/status"] {
        assert_eq!(asked(&platform, &token, path).await, 200, "{path}");
    }
    let is_noted = async || listed(&platform, "token", "ada")["last_used_at"].is_string();
    until("the use of the token is noted", is_noted).await;
    assert!(listed(&platform, "token", "ada")["expires_at"].is_string());
    // Only the control plane gets the token; the orders-service and the gateway get passes.
    let run: Value = serde_json::from_slice(&std::fs::read(platform.path("run.json")).unwrap()).unwrap();
    let orders = format!("http://{}/internal/status", run["orders"].as_str().unwrap());
    let gateway = format!("http://{}/top?by=project", run["gateways"][0]["admin"].as_str().unwrap());
    let opens = async |url: &str, token: &str| {
        Client::new().get(url).bearer_auth(token).send().await.unwrap().status().as_u16()
    };
    let given = async |to: Value| {
        let request = Client::new().post(format!("{}/passes", control(&platform))).bearer_auth(&token);
        request.json(&to).send().await.unwrap()
    };
    let pass = async |to: Value| given(to).await.json::<Value>().await.unwrap()["pass"].as_str().unwrap().to_owned();
    let for_orders = pass(json!({ "service": "orders-service" })).await;
    let for_gateway = pass(json!({ "gateway": "gateway" })).await;
    let for_another = pass(json!({ "gateway": "edge-9" })).await;
    assert_eq!((opens(&orders, &token).await, opens(&orders, &for_orders).await), (401, 200));
    assert_eq!((opens(&gateway, &token).await, opens(&gateway, &for_gateway).await), (401, 200));
    assert_eq!((opens(&orders, &for_gateway).await, opens(&gateway, &for_orders).await), (401, 401));
    assert_eq!(opens(&gateway, &for_another).await, 401, "what another gateway was shown is of no use here");
    for pass in [for_orders, for_gateway, for_another] {
        assert_eq!(asked(&platform, &pass, "/projects").await, 401, "and a pass opens nothing else");
    }
    platform.json(&["token", "revoke", "ada"]);
    assert_eq!(given(json!({ "gateway": "gateway" })).await.status(), 401);
    assert_eq!(asked(&platform, &token, "/projects").await, 401);
    assert!(listed(&platform, "token", "ada")["revoked_at"].is_string());
    assert_eq!(listed(&platform, "token", "ada")["made_by"], "command-line");
    assert_eq!(names(&platform.json(&["token", "revoke", "ada"]), "revoked"), ["ada"], "repeated");
    let gone = platform.command(&["token", "revoke", "bob"]);
    assert!(!gone.status.success() && String::from_utf8_lossy(&gone.stderr).contains("not_found"));
}

/// The names in a list of an answer.
fn names(answer: &Value, list: &str) -> Vec<String> {
    let all = answer[list].as_array().unwrap().iter();
    all.map(|one| one["name"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn revoking_a_token_lists_what_it_created_and_revokes_it_with_a_flag() {
    let platform = Platform::start();
    let ada = platform.json(&["token", "create", "ada"])["token"].as_str().unwrap().to_owned();
    let kept = platform.json(&["token", "create", "grace"])["token"].as_str().unwrap().to_owned();
    let make = async |token: &str, kind: &str, name: &str| {
        let request = Client::new().post(format!("{}/credentials", control(&platform))).bearer_auth(token);
        let made = request.json(&json!({ "kind": kind, "name": name })).send().await.unwrap();
        assert_eq!(made.status(), 201, "{kind} {name}");
        made.json::<Value>().await.unwrap()["token"].as_str().unwrap().to_owned()
    };
    let second = make(&ada, "operator", "eve").await;
    let third = make(&second, "operator", "mallory").await;
    let gateway = make(&ada, "gateway", "edge-9").await;
    let service = make(&third, "service", "shop").await;
    let feed = "/edge/feed?node=a&after=0&keyring=1";
    let opened = [(&second, "/projects"), (&third, "/projects"), (&gateway, feed), (&service, "/trust")];
    let all_open = async |status: u16, when: &str| {
        for (credential, path) in opened {
            assert_eq!(asked(&platform, credential, path).await, status, "{when}: {path}");
        }
    };
    all_open(200, "before").await;
    // Without the flag, the output lists the valid credentials and the commands to revoke them.
    let text = String::from_utf8(platform.command(&["token", "revoke", "ada"]).stdout).unwrap();
    for words in ["eve", "mallory", "edge-9", "shop", "`tollhouse token revoke ada --made` revokes them"] {
        assert!(text.contains(words), "{words:?} is not in {text}");
    }
    assert_eq!(asked(&platform, &ada, "/projects").await, 401);
    all_open(200, "ada alone is revoked").await;
    let ended = platform.json(&["token", "revoke", "ada", "--made"]);
    let mut gone = names(&ended, "revoked");
    gone.sort();
    assert_eq!(
        (gone, names(&ended, "made")),
        (["ada", "edge-9", "eve", "mallory", "shop"].map(str::to_owned).to_vec(), vec![])
    );
    all_open(401, "all that ada made, and what that made").await;
    for (noun, name) in [("token", "eve"), ("token", "mallory"), ("node", "edge-9"), ("node", "shop")] {
        assert!(listed(&platform, noun, name)["revoked_at"].is_string(), "{name}");
    }
    assert_eq!(asked(&platform, &kept, "/projects").await, 200, "another's token stays");
    // With the flag, all are revoked with the token.
    let grandchild = make(&kept, "operator", "heidi").await;
    let ended = platform.json(&["token", "revoke", "grace", "--made"]);
    let mut gone = names(&ended, "revoked");
    gone.sort();
    assert_eq!(gone, ["grace", "heidi"]);
    for token in [&kept, &grandchild] {
        assert_eq!(asked(&platform, token, "/projects").await, 401);
    }
}

/// A stolen gateway that records the pass of a request.
fn thief(listener: &TcpListener, answer: &str) -> String {
    let (mut stream, _) = listener.accept().unwrap();
    let asked: Vec<String> =
        BufReader::new(&stream).lines().map(Result::unwrap).take_while(|line| !line.is_empty()).collect();
    write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{answer}", answer.len()).unwrap();
    let shown = asked.iter().find_map(|line| line.strip_prefix("authorization: Bearer "));
    shown.expect("a pass").to_owned()
}

#[tokio::test]
async fn a_pass_for_one_gateway_is_refused_by_another() {
    let platform = Platform::start();
    let file = platform.path("run.json");
    let mut run: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    let gateway = format!("http://{}", run["gateways"][0]["admin"].as_str().unwrap());
    let answer = Client::new().get(format!("{gateway}/status")).send().await.unwrap().text().await.unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    run["gateways"].as_array_mut().unwrap().push(json!({ "gateway": "edge-9", "admin": address }));
    std::fs::write(&file, run.to_string()).unwrap();
    let shown = std::thread::spawn(move || thief(&listener, &answer));
    let status = platform.json(&["status"]);
    let mut names: Vec<_> = status["edges"].as_array().unwrap().iter().map(|edge| edge["gateway"].clone()).collect();
    names.sort_by_key(Value::to_string);
    assert_eq!(names, ["edge-9", "gateway"], "the configured names: the thief calls itself gateway");
    let opened =
        Client::new().get(format!("{gateway}/changes")).bearer_auth(shown.join().unwrap()).send().await.unwrap();
    assert_eq!(opened.status(), 401);
    run["gateways"].as_array_mut().unwrap().pop();
    std::fs::write(&file, run.to_string()).unwrap();
    assert!(platform.json(&["changes"])["changes"].as_array().is_some_and(|changes| !changes.is_empty()));
}
