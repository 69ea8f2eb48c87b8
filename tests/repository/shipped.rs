//! The sample settings in `config/` are valid, and every kind of mistake has an exact explanation.

use std::collections::{BTreeMap, BTreeSet};

use chassis::config::{Problems, Source};
use contract::key::Scope;

use crate::tree;

/// Replaces the secret files, which the repository does not contain.
pub(crate) const SECRET: &str = "0123456789abcdef0123456789abcdef";

/// Reads a file's text as the process `name` does.
pub(crate) fn read(name: &str, file: &str, text: &str, environment: &[(&str, &str)]) -> Result<(), Problems> {
    let source = |prefix: &str| {
        let environment: BTreeMap<String, String> =
            environment.iter().map(|(name, value)| (format!("{prefix}_{name}"), (*value).to_owned())).collect();
        Source::from_text(file, text, prefix, environment)
    };
    match name {
        "gateway" => gateway::config::Config::read(&source(gateway::config::ENVIRONMENT_PREFIX)).map(drop),
        "orders-service" => orders_service::Config::read(&source(orders_service::ENVIRONMENT_PREFIX)).map(drop),
        "domains-service" => {
            domains_service::Config::read(&source(domains_service::config::ENVIRONMENT_PREFIX)).map(drop)
        }
        other => panic!("{file}: no process is called {other}"),
    }
}

#[test]
fn every_sample_file_is_valid() {
    let plans = tree::root().join("config/plans.toml");
    let mut processes = Vec::new();
    for path in tree::files(".toml").into_iter().filter(|path| path.starts_with("config/")) {
        let name = path.trim_start_matches("config/").trim_end_matches(".toml");
        if name == "plans" || name.starts_with("dev/") {
            // The domains-service reads the plans, below; the tests of the deployment read the files of containers.
            continue;
        }
        let mut environment = vec![(if name == "domains-service" { "SECRET" } else { "CREDENTIAL" }, SECRET)];
        if name != "orders-service" {
            environment.push(("SEALING_SECRET", SECRET));
        }
        if name == "domains-service" {
            environment.push(("PLANS", plans.to_str().unwrap()));
        }
        if let Err(problems) = read(name, &path, &tree::read(&path), &environment) {
            panic!("{problems}");
        }
        processes.push(name.to_owned());
    }
    assert_eq!(processes, ["domains-service", "gateway", "orders-service"]);
}

// rule: 1.4, 6.1
#[test]
fn the_shipped_routes_of_the_orders_are_the_operations_and_no_callbacks() {
    let text = tree::read("config/gateway.toml");
    let settings: toml_edit::DocumentMut = text.parse().unwrap();
    let routes = settings["upstreams"]["orders"]["routes"].as_array().unwrap();
    let routes: Vec<(&str, Vec<&str>)> = routes
        .iter()
        .map(|route| route.as_inline_table().unwrap())
        .map(|route| {
            let methods = route["methods"].as_array().unwrap().iter().map(|method| method.as_str().unwrap());
            (route["path"].as_str().unwrap(), methods.collect())
        })
        .collect();
    let version_one: Vec<_> =
        routes.iter().filter(|(path, _)| path.starts_with("/v1/") && !path.ends_with("openapi.json")).collect();
    assert_eq!(
        version_one,
        [
            &("/v1/store/orders", vec!["GET"]),
            &("/v1/store/orders/{orderId}", vec!["DELETE"]),
            &("/v1/pets/{petId}", vec!["GET"]),
        ]
    );
    let known = [
        "/v1/store/orders",
        "/v1/pets/",
        "/v2/store/orders",
        "/openapi.json",
        "/v1/openapi.json",
        "/v2/openapi.json",
        "/reference",
    ];
    for (path, _) in &routes {
        assert!(known.iter().any(|known| path.starts_with(known)), "{path} is not an operation on orders");
    }
}

/// An operation: method, path, scope.
type Served = (&'static str, &'static str, Option<Scope>);

/// Only the descriptions of an API can be read without a key.
fn is_open(path: &str) -> bool {
    path.ends_with("/openapi.json") || path == "/reference"
}

/// The sample of the gateway with these operations as the routes of an upstream.
fn with_routes(text: &str, upstream: &str, operations: impl Iterator<Item = Served>) -> String {
    let mut routes: Vec<(&str, Vec<&str>)> = Vec::new();
    for (method, path, _) in operations {
        match routes.iter_mut().find(|(known, _)| *known == path) {
            Some((_, methods)) => methods.push(method),
            None => routes.push((path, vec![method])),
        }
    }
    let line = |(path, methods): (&str, Vec<&str>)| {
        let open = if is_open(path) { ", open = true" } else { "" };
        format!("  {{ path = {path:?}, methods = {methods:?}{open} }},\n")
    };
    let lines: String = routes.into_iter().map(line).collect();
    let table = text.find(&format!("\n[upstreams.{upstream}]\n")).unwrap();
    let start = table + text[table..].find("\nroutes = [\n").unwrap() + "\nroutes = [\n".len();
    let end = start + text[start..].find("\n]").unwrap() + 1;
    format!("{}{lines}{}", &text[..start], &text[end..])
}

/// With `TOLLHOUSE_WRITE=1` it writes them into the sample first.
#[test]
#[expect(clippy::disallowed_methods, reason = "a developer asks for it on the command line")]
fn the_shipped_routes_are_the_operations_of_the_services() {
    type Routes = BTreeSet<(String, String, bool)>;
    let mut text = tree::read("config/gateway.toml");
    if std::env::var_os("TOLLHOUSE_WRITE").is_some() {
        text = with_routes(&text, "orders", orders_service::operations());
        text = with_routes(&text, "domains", domains_service::operations());
        std::fs::write(tree::root().join("config/gateway.toml"), &text).unwrap();
    }
    let settings: toml_edit::DocumentMut = text.parse().unwrap();
    let routed = |upstream: &str| -> Routes {
        let routes = settings["upstreams"][upstream]["routes"].as_array().unwrap().iter();
        let routes = routes.map(|route| route.as_inline_table().unwrap()).flat_map(|route| {
            let open = route.get("open").is_some_and(|open| open.as_bool().unwrap());
            let methods = route["methods"].as_array().unwrap().iter().map(|method| method.as_str().unwrap());
            methods.map(move |method| (route["path"].as_str().unwrap().to_owned(), method.to_owned(), open))
        });
        routes.collect()
    };
    let served = |operations: &mut dyn Iterator<Item = Served>| -> Routes {
        operations.map(|(method, path, _)| (path.to_owned(), method.to_owned(), is_open(path))).collect()
    };
    let hint = "run this test with TOLLHOUSE_WRITE=1";
    assert_eq!(routed("orders"), served(&mut orders_service::operations()), "{hint}");
    assert_eq!(routed("domains"), served(&mut domains_service::operations()), "{hint}");
}

/// `tests/repository/broken/PROCESS.MISTAKE.toml` with the expected report in `PROCESS.MISTAKE.expected`.
// promise: edge.24
#[test]
fn every_kind_of_mistake_is_explained() {
    let mut seen = 0;
    let mut wrong = Vec::new();
    for path in tree::files(".toml").into_iter().filter(|path| path.starts_with("tests/repository/broken/")) {
        let file = path.rsplit('/').next().unwrap();
        let process = file.split('.').next().unwrap();
        let expected = tree::read(&path.replace(".toml", ".expected"));
        let said = match read(process, &format!("{process}.toml"), &tree::read(&path), &[]) {
            Ok(()) => "the file is valid".to_owned(),
            Err(problems) => problems.to_string(),
        };
        if said.trim_end() != expected.trim_end() {
            wrong.push(format!("=== {file}\nexpected:\n{expected}\nsaid:\n{said}"));
        }
        seen += 1;
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    assert!(seen >= 20, "only {seen} examples are left");
}
