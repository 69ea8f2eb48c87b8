//! What the terminal says when the platform is up: lines that work when pasted.

use serde_json::Value;

use crate::arguments::Common;
use crate::directory::{Directory, RunFile};
use crate::output::line;
use crate::test_world::{ROOT, TestWorld};

/// Prints the greeting; with `--json`, the run file.
pub(super) fn print(common: &Common, directory: &Directory, run: &RunFile, demo: Option<&Value>) {
    if common.json {
        line!("{}", serde_json::to_string(run).unwrap_or_default());
        return;
    }
    let ca = directory.path("ca/ca.pem");
    let ca = ca.canonicalize().unwrap_or(ca);
    let ca = shell_quoted(&ca.display().to_string());
    line!("Tollhouse is up.\n");
    line!("  https   *.{}:{}", run.platform_domain, run.https.port());
    line!("  http    port {} (leads to https)", run.http.port());
    line!("  pages   https://dashboard.{}:{} (sign in with a key)", run.platform_domain, run.https.port());
    line!("  admin   http://{}/status   /metrics   /readyz", run.admin);
    line!("  data    {}", directory.path("").display());
    line!("  trust   {ca}");
    line!("  build   {}\n", build());
    let Some(projects) = demo.and_then(|demo| demo.get("projects")).and_then(Value::as_array) else { return };
    line!("Try it (these lines work when pasted; all keys are in {}):\n", directory.path("demo.json").display());
    for project in projects {
        let text = |pointer: &str| project.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (host, key, plan) = (text("/host"), text("/keys/0/key"), text("/plan"));
        line!("  # {} ({plan} plan)", text("/id"));
        let base = format!("https://{host}:{}/v1/store/orders", run.https.port());
        line!("  curl --cacert {ca} -i -H 'Authorization: Bearer {key}' {base}");
        if let Some(pending) = project.pointer("/orders/pending/0").and_then(Value::as_i64) {
            line!("  curl --cacert {ca} -i -X DELETE -H 'Authorization: Bearer {key}' {base}/{pending}");
        }
        for domain in project.get("domains").and_then(Value::as_array).into_iter().flatten() {
            let name = domain.get("name").and_then(Value::as_str).unwrap_or_default();
            let what = match domain.get("redirect_status").and_then(Value::as_u64) {
                Some(status) => format!("redirects with {status}"),
                None => "the primary domain".to_owned(),
            };
            line!("  # {name}: {what}");
            line!(
                "  curl --cacert {ca} -i -H 'Authorization: Bearer {key}' https://{name}:{}/v1/store/orders",
                run.https.port()
            );
        }
        line!("");
    }
    let program = std::env::current_exe().map_or_else(|_| "tollhouse".to_owned(), |path| path.display().to_string());
    let place = directory.path("");
    let place = place.canonicalize().unwrap_or(place);
    let tollhouse = |arguments: &str| {
        format!("  {} {arguments} --data-dir {}", shell_quoted(&program), shell_quoted(&place.display().to_string()))
    };
    line!("How it is doing:\n\n{}\n", tollhouse("status"));
    line!("Publish a service of your own: stop this, start it again with the service as an upstream, and then, in");
    line!("another terminal, publish a project on it and give it a domain:\n");
    line!("{}", tollhouse("up --upstream echo=http://127.0.0.1:9000"));
    line!("{}", tollhouse("project create my-site --plan pro --upstream echo --access public"));
    line!("{}\n", tollhouse("domain add my-site www.my-site.localhost"));
    line!("Ctrl-C stops.");
}

/// Prints how a domain is attached in the test world.
pub(super) fn print_test_world(directory: &Directory, run: &RunFile, world: &TestWorld) {
    let program = std::env::current_exe().map_or_else(|_| "tollhouse".to_owned(), |path| path.display().to_string());
    let place = directory.path("");
    let place = place.canonicalize().unwrap_or(place);
    let place = shell_quoted(&place.display().to_string());
    let tollhouse = |arguments: &str| line!("  {} {arguments} --data-dir {place}", shell_quoted(&program));
    let root = directory.path(ROOT);
    let root = root.canonicalize().unwrap_or(root);
    line!("\nThe test world is open: DNS answers as {} says, and pebble issues certificates.", world.zones().display());
    line!("Attach a domain; the first command says which record to create, the second creates it:\n");
    tollhouse("domain add demo-pro shop.customer.test");
    tollhouse("dns set shop.customer.test CNAME TARGET");
    tollhouse("domain verify demo-pro shop.customer.test");
    line!(
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
