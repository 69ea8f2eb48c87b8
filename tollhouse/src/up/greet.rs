//! What the terminal says when the platform is up: lines that work when pasted.

use serde_json::Value;

use crate::arguments::Common;
use crate::directory::{Directory, RunFile};
use crate::test_world::{ROOT, TestWorld};

/// Prints the greeting; with `--json`, the run file.
pub(super) fn print(common: &Common, directory: &Directory, run: &RunFile, demo: Option<&Value>) {
    if common.json {
        println!("{}", serde_json::to_string(run).unwrap_or_default());
        return;
    }
    let ca = directory.path("ca/ca.pem");
    let ca = ca.canonicalize().unwrap_or(ca);
    let ca = shell_quoted(&ca.display().to_string());
    println!("Tollhouse is up.\n");
    println!("  https   *.{}:{}", run.platform_domain, run.https.port());
    println!("  http    port {} (leads to https)", run.http.port());
    println!("  pages   https://dashboard.{}:{} (sign in with a key)", run.platform_domain, run.https.port());
    println!("  admin   http://{}/status   /metrics   /readyz", run.admin);
    println!("  data    {}", directory.path("").display());
    println!("  trust   {ca}");
    println!("  build   {}\n", build());
    let Some(projects) = demo.and_then(|demo| demo.get("projects")).and_then(Value::as_array) else { return };
    println!("Try it (these lines work when pasted; all keys are in {}):\n", directory.path("demo.json").display());
    for project in projects {
        let text = |pointer: &str| project.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (host, key, plan) = (text("/host"), text("/keys/0/key"), text("/plan"));
        println!("  # {} ({plan} plan)", text("/id"));
        let base = format!("https://{host}:{}/v1/store/orders", run.https.port());
        println!("  curl --cacert {ca} -i -H 'Authorization: Bearer {key}' {base}");
        if let Some(pending) = project.pointer("/orders/pending/0").and_then(Value::as_i64) {
            println!("  curl --cacert {ca} -i -X DELETE -H 'Authorization: Bearer {key}' {base}/{pending}");
        }
        for domain in project.get("domains").and_then(Value::as_array).into_iter().flatten() {
            let name = domain.get("name").and_then(Value::as_str).unwrap_or_default();
            let what = match domain.get("redirect_status").and_then(Value::as_u64) {
                Some(status) => format!("redirects with {status}"),
                None => "the primary domain".to_owned(),
            };
            println!("  # {name}: {what}");
            println!(
                "  curl --cacert {ca} -i -H 'Authorization: Bearer {key}' https://{name}:{}/v1/store/orders",
                run.https.port()
            );
        }
        println!();
    }
    let program = std::env::current_exe().map_or_else(|_| "tollhouse".to_owned(), |path| path.display().to_string());
    let place = directory.path("");
    let place = place.canonicalize().unwrap_or(place);
    let tollhouse = |arguments: &str| {
        format!("  {} {arguments} --data-dir {}", shell_quoted(&program), shell_quoted(&place.display().to_string()))
    };
    println!("How it is doing:\n\n{}\n", tollhouse("status"));
    println!("Publish a service of your own: stop this, start it again with the service as an upstream, and then, in");
    println!("another terminal, publish a project on it and give it a domain:\n");
    println!("{}", tollhouse("up --upstream echo=http://127.0.0.1:9000"));
    println!("{}", tollhouse("project create my-site --plan pro --upstream echo --access public"));
    println!("{}\n", tollhouse("domain add my-site www.my-site.localhost"));
    println!("Ctrl-C stops.");
}

/// Prints how a domain is attached in the test world.
pub(super) fn print_test_world(directory: &Directory, run: &RunFile, world: &TestWorld) {
    let program = std::env::current_exe().map_or_else(|_| "tollhouse".to_owned(), |path| path.display().to_string());
    let place = directory.path("");
    let place = place.canonicalize().unwrap_or(place);
    let place = shell_quoted(&place.display().to_string());
    let tollhouse = |arguments: &str| println!("  {} {arguments} --data-dir {place}", shell_quoted(&program));
    let root = directory.path(ROOT);
    let root = root.canonicalize().unwrap_or(root);
    println!(
        "\nThe test world is open: DNS answers as {} says, and pebble issues certificates.",
        world.zones().display()
    );
    println!("Attach a domain; the first command says which record to create, the second creates it:\n");
    tollhouse("domain add demo-pro shop.customer.test");
    tollhouse("dns set shop.customer.test CNAME TARGET");
    tollhouse("domain verify demo-pro shop.customer.test");
    println!(
        "  curl --cacert {} --resolve shop.customer.test:{port}:127.0.0.1 -i https://shop.customer.test:{port}/v1/store/orders",
        shell_quoted(&root.display().to_string()),
        port = run.https.port()
    );
}

/// Which build of the program is running: what was said when it was built (`./up`, `Dockerfile`), or what is known.
fn build() -> &'static str {
    option_env!("TOLLHOUSE_BUILD").unwrap_or(if cfg!(debug_assertions) { "development" } else { "optimised" })
}

fn shell_quoted(text: &str) -> String {
    let plain = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/._-".contains(&byte));
    if plain { text.to_owned() } else { format!("'{}'", text.replace('\'', r"'\''")) }
}
