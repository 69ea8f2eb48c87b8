//! A platform of several processes whose internal listeners speak TLS, with what `tollhouse init` makes; and none of them
//! has the platform's secret but the control plane.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Output;
use std::sync::Arc;

use chassis::clock::SystemClock;
use chassis::config::Source;
use chassis::logs::Logs;
use chassis::running::Running;
use chassis::shutdown::Shutdown;
use reqwest::Client;
use serde_json::Value;

use crate::world::{ThisMachine, order_file, tollhouse, until};

fn settings(text: &str) -> Source {
    Source::from_text("settings of a test", text, "INTERNAL_TLS", BTreeMap::new())
}

fn command(directory: &Path, arguments: &[&str]) -> Output {
    tollhouse().args(arguments).arg("--data-dir").arg(directory).output().unwrap()
}

/// A command that must succeed.
fn must(directory: &Path, arguments: &[&str]) -> Value {
    let output = command(directory, &[arguments, &["--json"]].concat());
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

const LISTENERS: &str = "listen = \"127.0.0.1:0\"\ninternal_listen = \"127.0.0.1:0\"\nadmin_listen = \"127.0.0.1:0\"\n";

/// The certificate of a service, for one of its listeners.
fn tls(directory: &Path, service: &str, section: &str) -> String {
    let path = |kind: &str| directory.join(format!("tls/{service}.{kind}")).display().to_string();
    format!("[{section}]\ncertificate_file = \"{}\"\nkey_file = \"{}\"\n", path("pem"), path("key"))
}

async fn control_plane(directory: &Path, end: &Shutdown) -> Running {
    let path = |name: &str| directory.join(name).display().to_string();
    let mut text = LISTENERS.to_owned();
    for (setting, file) in [
        ("secret_file", "secrets/platform.key"),
        ("sealing_secret_file", "secrets/sealing.key"),
        ("gateways_directory", "secrets/gateways"),
        ("services_directory", "secrets/services"),
        ("database", "domains.sqlite"),
    ] {
        writeln!(text, "{setting} = \"{}\"", path(file)).unwrap();
    }
    text += "platform_domain = \"tollhouse.localhost\"\nallow_local_names = true\n";
    for section in ["internal_tls", "tls"] {
        text += &tls(directory, "domains-service", section);
    }
    let config = domains_service::Config::read(&settings(&text)).unwrap();
    domains_service::start(config, Arc::new(SystemClock::new()), end.clone()).await.unwrap()
}

/// Where the control plane is, and whose certificate it shows.
fn control(directory: &Path, control: &Running) -> String {
    let (address, ca) = (control.address("internal").unwrap(), directory.join("ca/internal.pem"));
    format!("url = \"https://{address}\"\nca_certificate_file = \"{}\"\n", ca.display())
}

async fn orders(directory: &Path, plane: &Running, end: &Shutdown) -> Running {
    let path = |name: &str| directory.join(name).display().to_string();
    let text = format!(
        "{LISTENERS}credential_file = \"{}\"\ndatabase = \"{}\"\n[events]\n{}{}",
        path("secrets/services/orders-service.key"),
        path("orders.sqlite"),
        control(directory, plane),
        tls(directory, "orders-service", "internal_tls"),
    );
    let config = orders_service::Config::read(&settings(&text)).unwrap();
    orders_service::start(config, Arc::new(SystemClock::new()), end.clone()).await.unwrap()
}

async fn gateway(directory: &Path, name: &str, plane: &Running, orders: &Running, end: &Shutdown) -> Running {
    let shipped: toml_edit::DocumentMut = include_str!("../../../config/gateway.toml").parse().unwrap();
    let routes = |upstream: &str| shipped["upstreams"][upstream]["routes"].to_string().trim().to_owned();
    let path = |name: &str| directory.join(name).display().to_string();
    let text = format!(
        "credential_file = \"{}\"\nsealing_secret_file = \"{}\"\ndata_directory = \"{}\"\n\
         [listen]\nhttp = \"127.0.0.1:0\"\nhttps = \"127.0.0.1:0\"\nadmin = \"127.0.0.1:0\"\n\
         [tls]\nplatform_certificate_file = \"{}\"\nplatform_key_file = \"{}\"\n\
         [feed]\n{}[drain]\nlame_duck = \"0s\"\n\
         [upstreams.orders]\nidentity = \"jwt\"\nendpoints = [\"{}\"]\nroutes = {}\n\
         [upstreams.domains]\nendpoints = [\"https://{}\"]\nroutes = {}\n\
         [upstreams.domains.tls]\nca_certificate_file = \"{}\"\n",
        path(&format!("secrets/gateways/{name}.key")),
        path("secrets/sealing.key"),
        path(name),
        path("ca/platform.pem"),
        path("ca/platform.key"),
        control(directory, plane),
        orders.address("http").unwrap(),
        routes("orders"),
        plane.address("http").unwrap(),
        routes("domains"),
        path("ca/internal.pem"),
    );
    let config = gateway::config::Config::read(&settings(&text)).unwrap();
    let logs = Arc::new(Logs::writer_only(std::io::sink()).unwrap());
    gateway::server::start(config, logs, Arc::new(SystemClock::new()), end.clone()).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_speak_tls_to_each_other_and_each_has_its_own_secrets_alone() {
    let place = tempfile::tempdir().unwrap();
    let directory = place.path();
    must(directory, &["init"]);
    let (services_end, edge_end) = (Shutdown::new(), Shutdown::new());
    let plane = control_plane(directory, &services_end).await;
    let shop = orders(directory, &plane, &services_end).await;
    let edge = gateway(directory, "gateway-1", &plane, &shop, &edge_end).await;
    let [at, orders_at] = [&plane, &shop].map(|service| service.address("internal").unwrap().to_string());
    let admin = edge.address("admin").unwrap().to_string();
    must(directory, &["init", "--internal-tls", "--edge", &admin, "--control", &at, "--orders", &orders_at]);
    // The command line, a gateway and a service: each over TLS, to the control plane and to the orders.
    must(directory, &["project", "create", "acme", "--plan", "pro", "--upstream", "orders"]);
    order_file(&directory.join("orders.jsonl"), 1, 3);
    let file = directory.join("orders.jsonl").display().to_string();
    assert_eq!(must(directory, &["orders", "import", &file, "--project", "acme"])["imported"], 3);
    let key = must(directory, &["key", "create", "acme"])["key"].as_str().unwrap().to_owned();
    let root = reqwest::Certificate::from_pem(&std::fs::read(directory.join("ca/ca.pem")).unwrap()).unwrap();
    let client = Client::builder().tls_certs_only([root]).no_proxy().dns_resolver(ThisMachine).build().unwrap();
    let url = format!("https://acme.tollhouse.localhost:{}/v1/store/orders", edge.address("https").unwrap().port());
    until("a customer's request passes all of them", async || {
        let answer = client.get(&url).bearer_auth(&key).send().await;
        answer.is_ok_and(|answer| answer.status() == 200)
    })
    .await;
    a_stolen_gateway_is_looked_through(directory, &plane, &shop, &edge, &client).await;
    // Plain text is not answered, and the authority of customers' certificates is not believed here.
    for address in [&at, &orders_at] {
        let plain = Client::new().get(format!("http://{address}/internal/status")).send().await;
        assert!(plain.is_err(), "{plain:?}");
        assert!(client.get(format!("https://{address}/internal/status")).send().await.is_err());
    }
    for (end, processes) in [(edge_end, vec![edge]), (services_end, vec![shop, plane])] {
        end.begin();
        for process in processes {
            process.stopped().await.unwrap();
        }
    }
}

/// Keys pass to the control plane over TLS; what was changed through one gateway is shown when it is revoked, and another one
/// goes on working.
async fn a_stolen_gateway_is_looked_through(
    directory: &Path,
    plane: &Running,
    shop: &Running,
    edge: &Running,
    client: &Client,
) {
    let end = Shutdown::new();
    let other = gateway(directory, "gateway-2", plane, shop, &end).await;
    let made = must(directory, &["key", "create", "acme", "--scope", "keys:write", "--scope", "orders:read"]);
    let key = made["key"].as_str().unwrap();
    let make = async |edge: &Running| {
        let port = edge.address("https").unwrap().port();
        let url = format!("https://api.tollhouse.localhost:{port}/v1/projects/acme/keys");
        let request = client.post(url).bearer_auth(key).json(&serde_json::json!({ "scopes": ["orders:read"] }));
        request.send().await.map_or(0, |answer| answer.status().as_u16())
    };
    for edge in [edge, &other] {
        until("a key is made through the gateway", async || make(edge).await == 201).await;
    }
    let revoked = command(directory, &["node", "revoke", "gateway-1"]);
    let text = String::from_utf8(revoked.stdout).unwrap();
    let file = directory.join("secrets/gateways/gateway-1.key").display().to_string();
    for words in [file.as_str(), "Changed through gateway-1", "key.created", made["id"].as_str().unwrap()] {
        assert!(text.contains(words), "{words:?} is not in {text}");
    }
    assert_eq!(must(directory, &["node", "changes", "gateway-1", "--since", "1h"]).as_array().unwrap().len(), 1);
    assert_eq!(make(edge).await, 401, "what it signs is refused");
    assert_eq!(make(&other).await, 201, "the other one goes on");
    assert!(must(directory, &["node", "list"])[0]["file"].is_string());
    end.begin();
    other.stopped().await.unwrap();
}
