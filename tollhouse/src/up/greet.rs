//! The greeting when the platform is ready: commands that work when pasted.

use serde_json::Value;

use crate::arguments::{Common, Up};
use crate::directory::{Address, Directory, RunFile};
use crate::output::tell;
use crate::test_world::{ROOT, TestWorld};

/// Prints the greeting; with `--json`, the run file.
pub(super) fn print(common: &Common, directory: &Directory, run: &RunFile, options: &Up, demo: Option<&Value>) {
    if common.json {
        tell!("{}", serde_json::to_string(run).unwrap_or_default());
        return;
    }
    let ca = directory.path("ca/ca.pem");
    let ca = ca.canonicalize().unwrap_or(ca);
    let ca = shell_quoted(&ca.display().to_string());
    tell!("Tollhouse is up.\n");
    tell!("  https      *.{}:{}", run.platform_domain, run.https.port());
    tell!("  http       port {} (redirects to https)", run.http.port());
    tell!("  dashboard  https://dashboard.{}:{} (sign in with a key)", run.platform_domain, run.https.port());
    let admin = run.admin().map(ToString::to_string).unwrap_or_default();
    tell!("  admin      http://{admin}/status   /metrics   /readyz");
    tell!("  data       {}", directory.path("").display());
    tell!("  CA         {ca}");
    tell!("  build      {}\n", build());
    let projects = demo.and_then(|demo| demo.get("projects")).and_then(Value::as_array);
    if let Some(projects) = projects {
        print_demo(directory, run, projects, &ca);
    }
    print_commands(directory, run, options);
}

/// Prints commands for the demo's projects.
fn print_demo(directory: &Directory, run: &RunFile, projects: &[Value], ca: &str) {
    tell!("Try it (these lines work when pasted; all keys are in {}):\n", directory.path("demo.json").display());
    for project in projects {
        let text = |pointer: &str| project.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (host, key, plan) = (text("/host"), text("/keys/0/key"), text("/plan"));
        tell!("  # {} ({plan} plan)", text("/id"));
        let base = format!("https://{host}:{}/v1/store/orders", run.https.port());
        tell!("  curl --cacert {ca} -i -H 'Authorization: Bearer {key}' {base}");
        if let Some(pending) = project.pointer("/orders/pending/0").and_then(Value::as_i64) {
            tell!("  curl --cacert {ca} -i -X DELETE -H 'Authorization: Bearer {key}' {base}/{pending}");
        }
        for domain in project.get("domains").and_then(Value::as_array).into_iter().flatten() {
            let name = domain.get("name").and_then(Value::as_str).unwrap_or_default();
            let what = match domain.get("redirect_status").and_then(Value::as_u64) {
                Some(status) => format!("redirects with {status}"),
                None => "the primary domain".to_owned(),
            };
            tell!("  # {name}: {what}");
            tell!(
                "  curl --cacert {ca} -i -H 'Authorization: Bearer {key}' https://{name}:{}/v1/store/orders",
                run.https.port()
            );
        }
        tell!("");
    }
}

/// Prints the next commands to try.
fn print_commands(directory: &Directory, run: &RunFile, options: &Up) {
    let program = std::env::current_exe().map_or_else(|_| "tollhouse".to_owned(), |path| path.display().to_string());
    let place = directory.path("");
    let place = place.canonicalize().unwrap_or(place);
    let tollhouse = |arguments: &str| {
        format!("  {} {arguments} --data-dir {}", shell_quoted(&program), shell_quoted(&place.display().to_string()))
    };
    tell!("Check its health:\n\n{}\n", tollhouse("status"));
    tell!("Publish your own service: stop the platform, start it again with the service as an upstream, and then, in");
    tell!("another terminal, publish a project on it and give it a domain:\n");
    tell!("{}", tollhouse(&format!("up{} --upstream echo=http://127.0.0.1:9000", again(run, options))));
    tell!("{}", tollhouse("project create my-site --plan pro --upstream echo --access public"));
    tell!("{}\n", tollhouse("domain add my-site www.my-site.localhost"));
    tell!("Ctrl-C stops.");
}

/// The options that start this platform again in the same way.
fn again(run: &RunFile, options: &Up) -> String {
    let usual = Up::usual();
    let mut words = String::new();
    for (option, now, usual) in [
        ("--http-port", run.http.port(), usual.http_port),
        ("--https-port", run.https.port(), usual.https_port),
        ("--admin-port", run.admin().map_or(0, Address::port), usual.admin_port),
    ] {
        if now != usual {
            words.push_str(&format!(" {option} {now}"));
        }
    }
    if options.listen != usual.listen {
        words.push_str(&format!(" --listen {}", options.listen));
    }
    if options.platform_domain.is_some() {
        words.push_str(&format!(" --platform-domain {}", run.platform_domain));
    }
    if let Some(environment) = options.environment {
        words.push_str(&format!(" --environment {environment}"));
    }
    if options.no_demo {
        words.push_str(" --no-demo");
    }
    if let Some(collector) = &options.trace_to {
        words.push_str(&format!(" --trace-to {}", shell_quoted(collector)));
    }
    if let Some(mode) = &options.test_world {
        words.push_str(&format!(" --test-world={mode}"));
    }
    words
}

/// Prints the commands that attach a domain in the test world.
pub(super) fn print_test_world(directory: &Directory, run: &RunFile, world: &TestWorld) {
    let program = std::env::current_exe().map_or_else(|_| "tollhouse".to_owned(), |path| path.display().to_string());
    let place = directory.path("");
    let place = place.canonicalize().unwrap_or(place);
    let place = shell_quoted(&place.display().to_string());
    let tollhouse = |arguments: &str| tell!("  {} {arguments} --data-dir {place}", shell_quoted(&program));
    let root = directory.path(ROOT);
    let root = root.canonicalize().unwrap_or(root);
    tell!("\nThe test world is running: DNS answers from {}, and pebble issues certificates.", world.zones().display());
    tell!("Attach a domain; the first command prints the record to create, the second creates it:\n");
    tollhouse("domain add demo-pro shop.customer.test");
    tollhouse("dns set shop.customer.test CNAME TARGET");
    tollhouse("domain verify demo-pro shop.customer.test");
    tell!(
        "  curl --cacert {} --resolve shop.customer.test:{port}:127.0.0.1 -i https://shop.customer.test:{port}/v1/store/orders",
        shell_quoted(&root.display().to_string()),
        port = run.https.port()
    );
}

/// The build of the running program: set at build time (`./up`, `Dockerfile`), or derived.
fn build() -> &'static str {
    option_env!("TOLLHOUSE_BUILD").unwrap_or(if cfg!(debug_assertions) { "development" } else { "optimised" })
}

fn shell_quoted(text: &str) -> String {
    let plain = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/._-:".contains(&byte));
    if plain { text.to_owned() } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::directory::{GatewayAdmin, InternalTls};

    fn run_file(http: u16, https: u16, domain: &str) -> RunFile {
        let at = |port: u16| std::net::SocketAddr::from(([127, 0, 0, 1], port)).into();
        RunFile {
            pid: None,
            platform_domain: domain.to_owned(),
            http: at(http),
            https: at(https),
            gateways: vec![GatewayAdmin { gateway: "gateway".to_owned(), admin: at(9901) }],
            control: at(1),
            orders: at(2),
            orders_admin: None,
            domains_admin: None,
            tls: InternalTls::OffLoopback,
        }
    }

    #[test]
    fn the_restart_command_repeats_all_chosen_options() {
        let line = ["--platform-domain", "apps.localhost", "--http-port", "0", "--listen", "0.0.0.0"];
        let options = Up::read(&line);
        assert_eq!(
            again(&run_file(40_123, 8_443, "apps.localhost"), &options),
            " --http-port 40123 --listen 0.0.0.0 --platform-domain apps.localhost"
        );
        let options = Up::read(&["--no-demo"]);
        assert_eq!(again(&run_file(8_080, 8_443, "tollhouse.localhost"), &options), " --no-demo");
    }
}
