//! A platform of several processes with TLS between them, with certificates of `tollhouse init`. Only the control
//! plane has the platform's secret.
//!
//! The public APIs of the services have certificates of another authority than their internal listeners, so that a
//! listener with the other's certificate is noticed.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Output;
use std::sync::Arc;

use chassis::clock::SystemClock;
use chassis::config::Source;
use chassis::logs::Logs;
use chassis::peer::client_tls;
use chassis::running::Running;
use chassis::shutdown::Shutdown;
use reqwest::Client;
use reqwest::tls::TlsInfo;
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

/// The names of the processes.
const NAMES: [&str; 4] = ["domains-service", "orders-service", "gateway-1", "gateway-2"];

const LISTENERS: &str = "listen = \"127.0.0.1:0\"\ninternal_listen = \"127.0.0.1:0\"\nadmin_listen = \"127.0.0.1:0\"\n";

/// The directories of the test.
#[derive(Clone, Copy)]
struct Places<'a> {
    /// Of the platform, with the authority of the internal listeners.
    directory: &'a Path,
    /// Of another platform: its authority is that of the APIs.
    apis: &'a Path,
}

impl Places<'_> {
    /// Settings for both listeners of a service.
    fn tls(self, service: &str) -> String {
        let table = |name: &str, directory: &Path| {
            let path = |kind: &str| directory.join(format!("tls/{service}.{kind}")).display().to_string();
            format!("[{name}]\ncertificate_file = \"{}\"\nkey_file = \"{}\"\n", path("pem"), path("key"))
        };
        table("internal_tls", self.directory) + &table("tls", self.apis)
    }
}

async fn control_plane(places: Places<'_>, end: &Shutdown) -> Running {
    let directory = places.directory;
    let path = |name: &str| directory.join(name).display().to_string();
    let mut text = format!("{LISTENERS}create_database = true\n");
    for (setting, file) in [
        ("secret_file", "secrets/platform.key"),
        ("sealing_secret_file", "secrets/sealing.key"),
        ("gateways_directory", "secrets/gateways"),
        ("services_directory", "secrets/services"),
        ("revocations_file", "revoked.jsonl"),
        ("database", "domains.sqlite"),
    ] {
        writeln!(text, "{setting} = \"{}\"", path(file)).unwrap();
    }
    text += "platform_domain = \"tollhouse.localhost\"\nallow_local_names = true\n";
    let config = domains_service::Config::read(&settings(&(text + &places.tls("domains-service")))).unwrap();
    domains_service::start(config, Arc::new(SystemClock::new()), end.clone()).await.unwrap()
}

/// The settings for the control plane's address and its CA certificate.
fn control(directory: &Path, control: &Running) -> String {
    let (address, ca) = (control.address("internal").unwrap(), directory.join("ca/internal.pem"));
    let ca = ca.display();
    format!("url = \"https://{address}\"\nca_certificate_file = \"{ca}\"\nserver_name = \"domains-service\"\n")
}

async fn orders(places: Places<'_>, plane: &Running, end: &Shutdown) -> Running {
    let directory = places.directory;
    let path = |name: &str| directory.join(name).display().to_string();
    let text = format!(
        "{LISTENERS}create_database = true\ncredential_file = \"{}\"\ndatabase = \"{}\"\n[events]\n{}{}",
        path("secrets/services/orders-service.key"),
        path("orders.sqlite"),
        control(directory, plane),
        places.tls("orders-service"),
    );
    let config = orders_service::Config::read(&settings(&text)).unwrap();
    orders_service::start(config, Arc::new(SystemClock::new()), end.clone()).await.unwrap()
}

/// Settings for a service behind the gateway that is reached over TLS.
fn upstream(name: &str, process: &str, service: &Running, apis: &Path) -> String {
    let shipped: toml_edit::DocumentMut = include_str!("../../config/gateway.toml").parse().unwrap();
    let routes = shipped["upstreams"][name]["routes"].to_string();
    format!(
        "[upstreams.{name}]\nidentity = \"jwt\"\nendpoints = [\"https://{}\"]\nroutes = {}\n\
         [upstreams.{name}.tls]\nca_certificate_file = \"{}\"\nserver_name = \"{process}\"\n",
        service.address("http").unwrap(),
        routes.trim(),
        apis.join("ca/internal.pem").display(),
    )
}

async fn gateway(places: Places<'_>, name: &str, plane: &Running, orders: &Running, end: &Shutdown) -> Running {
    let directory = places.directory;
    let path = |name: &str| directory.join(name).display().to_string();
    let text = format!(
        "credential_file = \"{}\"\nsealing_secret_file = \"{}\"\ndata_directory = \"{}\"\n\
         [listen]\nhttp = \"127.0.0.1:0\"\nhttps = \"127.0.0.1:0\"\nadmin = \"127.0.0.1:0\"\n\
         [tls]\nplatform_certificate_file = \"{}\"\nplatform_key_file = \"{}\"\n\
         [admin_tls]\ncertificate_file = \"{}\"\nkey_file = \"{}\"\n\
         [feed]\n{}[drain]\nlame_duck = \"0s\"\n{}{}",
        path(&format!("secrets/gateways/{name}.key")),
        path("secrets/sealing.key"),
        path(name),
        path("ca/platform.pem"),
        path("ca/platform.key"),
        path(&format!("tls/{name}.pem")),
        path(&format!("tls/{name}.key")),
        control(directory, plane),
        upstream("orders", "orders-service", orders, places.apis),
        upstream("domains", "domains-service", plane, places.apis),
    );
    let config = gateway::config::Config::read(&settings(&text)).unwrap();
    let logs = Arc::new(Logs::writer_only(std::io::sink()).unwrap());
    gateway::server::start(config, logs, Arc::new(SystemClock::new()), end.clone()).await.unwrap()
}

/// A client that trusts only the authority in this file.
fn trusting(file: &Path) -> Client {
    let root = reqwest::Certificate::from_pem(&std::fs::read(file).unwrap()).unwrap();
    Client::builder().tls_certs_only([root]).no_proxy().dns_resolver(ThisMachine).build().unwrap()
}

/// A client of the process with this name that trusts only the authority in this file.
fn of_process(name: &str, authority: &Path) -> Client {
    let tls = client_tls(&std::fs::read(authority).unwrap(), &name.parse().unwrap()).unwrap();
    Client::builder().tls_backend_preconfigured(tls).no_proxy().build().unwrap()
}

/// Checks that a listener uses TLS with a certificate of `good` for this process name, that clients
/// that trust `others` refuse it, and that it does not answer plain text.
async fn assert_speaks_tls((name, address): (&str, &str), good: &Path, others: [&Path; 2]) {
    let url = format!("https://{address}/internal/status");
    of_process(name, good).get(&url).send().await.unwrap();
    for other in NAMES.into_iter().filter(|other| *other != name) {
        assert!(of_process(other, good).get(&url).send().await.is_err(), "{name} pretends to be {other}");
    }
    for other in others {
        let answer = of_process(name, other).get(&url).send().await;
        assert!(answer.is_err(), "{address} has a certificate of {}", other.display());
    }
    let plain = Client::new().get(format!("http://{address}/internal/status")).send().await;
    assert!(plain.is_err(), "{address} answers in plain text: {plain:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_speak_tls_to_each_other_on_internal_listeners_and_apis() {
    let (place, apis) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let places = Places { directory: place.path(), apis: apis.path() };
    let directory = places.directory;
    must(directory, &["init"]);
    must(places.apis, &["init"]);
    let (services_end, edge_end) = (Shutdown::new(), Shutdown::new());
    let plane = control_plane(places, &services_end).await;
    let shop = orders(places, &plane, &services_end).await;
    let edge = gateway(places, "gateway-1", &plane, &shop, &edge_end).await;
    let [at, orders_at] = [&plane, &shop].map(|service| service.address("internal").unwrap().to_string());
    let admin = edge.address("admin").unwrap().to_string();
    let gateway_1 = format!("gateway-1={admin}");
    let places_of_all = ["--edge", &gateway_1, "--control", &at, "--orders", &orders_at];
    must(directory, &[&["init", "--internal-tls", "everywhere"][..], &places_of_all].concat());
    // The command line, a gateway and a service: each over TLS, to the control plane and to the orders.
    must(directory, &["project", "create", "acme", "--plan", "pro", "--upstream", "orders"]);
    order_file(&directory.join("orders.jsonl"), 1, 3);
    let file = directory.join("orders.jsonl").display().to_string();
    assert_eq!(must(directory, &["orders", "import", &file, "--project", "acme"])["imported"], 3);
    // Made first, so that a gateway that knows the second key knows it too.
    let maker = must(directory, &["key", "create", "acme", "--scope", "keys:write", "--scope", "orders:read"]);
    let key = must(directory, &["key", "create", "acme"])["key"].as_str().unwrap().to_owned();
    let customers = directory.join("ca/ca.pem");
    let client = trusting(&customers);
    let port = edge.address("https").unwrap().port();
    for (host, path) in [("acme", "/v1/store/orders"), ("api", "/v1/projects/acme")] {
        let url = format!("https://{host}.tollhouse.localhost:{port}{path}");
        until(&format!("{url} is answered by the service"), async || {
            let answer = client.get(&url).bearer_auth(&key).send().await;
            answer.is_ok_and(|answer| answer.status() == 200)
        })
        .await;
    }
    let (internal, of_apis) = (directory.join("ca/internal.pem"), places.apis.join("ca/internal.pem"));
    for (name, service) in [("domains-service", &plane), ("orders-service", &shop)] {
        let [inside, api] = ["internal", "http"].map(|listener| service.address(listener).unwrap().to_string());
        assert_speaks_tls((name, &inside), &internal, [&of_apis, &customers]).await;
        assert_speaks_tls((name, &api), &of_apis, [&internal, &customers]).await;
    }
    assert_speaks_tls(("gateway-1", &admin), &internal, [&of_apis, &customers]).await;
    // A command that asks the gateways, and a health check.
    assert!(must(directory, &["changes"])["changes"].as_array().is_some_and(|changes| !changes.is_empty()));
    let check = |name: &str| command(directory, &["healthcheck", &admin, "--server-name", name]).status.success();
    assert!(check("gateway-1") && !check("gateway-2"));
    certificates_are_replaced_while_processes_run(places, [("gateway-1", &admin), ("orders-service", &orders_at)])
        .await;
    what_a_revoked_gateway_changed_is_listed(places, [&plane, &shop, &edge], &client, &maker).await;
    for (end, processes) in [(edge_end, vec![edge]), (services_end, vec![shop, plane])] {
        end.begin();
        for process in processes {
            process.stopped().await.unwrap();
        }
    }
}

/// A certificate is valid for one process only; a command lists and replaces them, and each process uses
/// its new one without a restart.
async fn certificates_are_replaced_while_processes_run(places: Places<'_>, listeners: [(&str, &str); 2]) {
    let directory = places.directory;
    let (internal, rows) = (directory.join("ca/internal.pem"), must(directory, &["node", "certificates"]));
    let shown = async |name: &str, address: &str| {
        let tls = client_tls(&std::fs::read(&internal).unwrap(), &name.parse().unwrap()).unwrap();
        let client = Client::builder().tls_backend_preconfigured(tls).tls_info(true).no_proxy().build().unwrap();
        let answer = client.get(format!("https://{address}/")).send().await.unwrap();
        answer.extensions().get::<TlsInfo>().unwrap().peer_certificate().unwrap().to_vec()
    };
    let mut before = Vec::new();
    for (name, address) in listeners {
        let row = rows.as_array().unwrap().iter().find(|row| row["name"] == name).unwrap();
        assert_eq!((&row["names"], &row["fault"]), (&serde_json::json!([name]), &Value::Null));
        let port = address.rsplit_once(':').unwrap().1;
        for host in ["localhost", "127.0.0.1"] {
            let answer = trusting(&internal).get(format!("https://{host}:{port}/")).send().await;
            assert!(answer.is_err(), "{name} passes for {host}");
        }
        before.push(shown(name, address).await);
    }
    let refused = command(directory, &["node", "certificates", "--replace", "gateway-9"]);
    assert!(
        String::from_utf8_lossy(&refused.stderr).contains("processes with a certificate: domains-service, gateway-1")
    );
    must(directory, &["node", "certificates", "--replace", "gateway-1"]);
    let [(gateway, admin), (service, at)] = listeners;
    until("the gateway shows its new certificate", async || shown(gateway, admin).await != before[0]).await;
    assert_eq!(shown(service, at).await, before[1]);
    before[0] = shown(gateway, admin).await;
    must(directory, &["node", "certificates", "--replace"]);
    until("both show their new ones", async || {
        shown(gateway, admin).await != before[0] && shown(service, at).await != before[1]
    })
    .await;
    // Operators could not verify the wrong pair. It is refused, and the status reports it.
    for of_another_platform in [true, false] {
        for (name, address) in listeners {
            let good = shown(name, address).await;
            let (wrong, words) = if of_another_platform {
                (places.apis.join("tls").join(name), "system does not trust".to_owned())
            } else {
                (directory.join("tls/gateway-2"), format!("does not cover {name}"))
            };
            for kind in ["key", "pem"] {
                std::fs::copy(wrong.with_extension(kind), directory.join(format!("tls/{name}.{kind}"))).unwrap();
            }
            until(&format!("the status shows the fault of {name}'s pair"), async || {
                let status: Value = serde_json::from_slice(&command(directory, &["status", "--json"]).stdout).unwrap();
                let trouble = status["trouble"].as_array().unwrap();
                let file = format!("{name}.pem");
                let problems = trouble.iter().filter_map(|one| one["problem"].as_str());
                problems.into_iter().any(|one| one.contains(&file) && one.contains(&words))
            })
            .await;
            assert_eq!(shown(name, address).await, good, "{name}");
        }
        let before = [shown(gateway, admin).await, shown(service, at).await];
        must(directory, &["node", "certificates", "--replace"]);
        until("a good pair is taken", async || {
            shown(gateway, admin).await != before[0] && shown(service, at).await != before[1]
        })
        .await;
    }
}

/// A key makes keys at the control plane through a gateway, over TLS. Revoking the gateway lists the changes made
/// through it and ends its access; another gateway keeps working.
async fn what_a_revoked_gateway_changed_is_listed(
    places: Places<'_>,
    [plane, shop, edge]: [&Running; 3],
    client: &Client,
    maker: &Value,
) {
    let (directory, end) = (places.directory, Shutdown::new());
    let other = gateway(places, "gateway-2", plane, shop, &end).await;
    let make = async |edge: &Running| {
        let port = edge.address("https").unwrap().port();
        let url = format!("https://api.tollhouse.localhost:{port}/v1/projects/acme/keys");
        let request = client.post(url).bearer_auth(maker["key"].as_str().unwrap());
        let answer = request.json(&serde_json::json!({ "scopes": ["orders:read"] })).send().await;
        answer.map_or(0, |answer| answer.status().as_u16())
    };
    assert_eq!(make(edge).await, 201);
    until("the other gateway has its first snapshot", async || make(&other).await == 201).await;
    let revoked = command(directory, &["node", "revoke", "gateway-1"]);
    let text = String::from_utf8(revoked.stdout).unwrap();
    let file = directory.join("secrets/gateways/gateway-1.key").display().to_string();
    for words in [file.as_str(), "Changes made through gateway-1", "key.created", maker["id"].as_str().unwrap()] {
        assert!(text.contains(words), "{words:?} is not in {text}");
    }
    assert_eq!(must(directory, &["node", "changes", "gateway-1", "--since", "1h"]).as_array().unwrap().len(), 1);
    assert_eq!(make(edge).await, 503, "its signatures are refused, and the platform is to blame, not the client");
    assert_eq!(make(&other).await, 201);
    end.begin();
    other.stopped().await.unwrap();
}
