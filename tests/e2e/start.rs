//! Start and stop of `up`: terminals, options and files.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::world::{Platform, tollhouse, until};

/// `up` on free ports with these options, its output in pipes.
fn up(data: &Path, options: &[&str]) -> Child {
    let mut command = tollhouse();
    command.args(["up", "--http-port", "0", "--https-port", "0", "--admin-port", "0", "--data-dir"]).arg(data);
    command.args(options).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn signal(process: &Child, name: &str) {
    let sent = Command::new("kill").args([name, &process.id().to_string()]).status().unwrap();
    assert!(sent.success());
}

fn command(data: &Path, arguments: &[&str]) -> std::process::Output {
    tollhouse().args(arguments).arg("--data-dir").arg(data).output().unwrap()
}

/// The output of a start until its last line, and the running process.
fn greeted(data: &Path, options: &[&str]) -> (Child, String) {
    let mut process = up(data, options);
    let mut said = String::new();
    let mut lines = BufReader::new(process.stdout.take().unwrap());
    while !said.ends_with("Ctrl-C stops.\n") {
        let read = lines.read_line(&mut said).unwrap();
        assert!(read > 0, "it ended: {said}");
    }
    (process, said)
}

fn stop(mut process: Child) {
    signal(&process, "-INT");
    let status = process.wait().unwrap();
    assert!(status.success(), "{status}");
}

#[tokio::test]
async fn a_closed_terminal_does_not_stop_the_platform() {
    let data = tempfile::tempdir().unwrap();
    let mut process = up(data.path(), &["--no-demo"]);
    let mut first = String::new();
    // Like `up | head -1`: the greeting is written to a closed pipe.
    BufReader::new(process.stdout.take().unwrap()).read_line(&mut first).unwrap();
    assert_eq!(first, "Tollhouse is up.\n");
    drop(process.stderr.take());
    let running = || command(data.path(), &["status"]).status.success();
    until("it is up", async || running()).await;
    signal(&process, "-HUP");
    let log = data.path().join("logs");
    let noted = || {
        let files = std::fs::read_dir(&log).into_iter().flatten().flatten();
        files.map(|file| std::fs::read_to_string(file.path()).unwrap_or_default()).any(|text| text.contains("SIGHUP"))
    };
    until("the closed terminal is in the log", async || noted()).await;
    assert!(running());
    stop(process);
}

#[test]
fn the_platform_domain_is_saved_and_another_one_is_refused() {
    let data = tempfile::tempdir().unwrap();
    let (process, said) = greeted(data.path(), &["--no-demo", "--platform-domain", "apps.localhost"]);
    let again = said.lines().find(|line| line.contains("--upstream echo=")).unwrap();
    let run: serde_json::Value = serde_json::from_slice(&std::fs::read(data.path().join("run.json")).unwrap()).unwrap();
    let port = run["https"].as_str().unwrap().rsplit(':').next().unwrap().to_owned();
    for part in [" --platform-domain apps.localhost", &format!(" --https-port {port}"), " --no-demo"] {
        assert!(again.contains(part), "{again} lacks {part}");
    }
    stop(process);
    let (process, said) = greeted(data.path(), &["--no-demo"]);
    assert!(said.contains("*.apps.localhost:"), "{said}");
    stop(process);
    let mut refused = up(data.path(), &["--no-demo", "--platform-domain", "other.localhost"]);
    let mut words = String::new();
    refused.stderr.take().unwrap().read_to_string(&mut words).unwrap();
    assert!(!refused.wait().unwrap().success());
    assert!(words.contains("has the domain apps.localhost") && words.contains("--data-dir"), "{words}");
}

#[tokio::test]
async fn a_start_without_demo_json_succeeds_and_keeps_the_demo() {
    let mut platform = Platform::start();
    let shop = platform.project("free");
    let orders = shop.list(&platform, &platform.client()).await.len();
    for contents in [None, Some("{ not JSON")] {
        platform.stop();
        let file = platform.path("demo.json");
        std::fs::remove_file(&file).unwrap();
        if let Some(contents) = contents {
            std::fs::write(&file, contents).unwrap();
        }
        let (process, _) = greeted(&platform.path(""), &[]);
        let path = platform.path("kept.jsonl");
        let export = command(&platform.path(""), &["orders", "export", path.to_str().unwrap(), "--project", &shop.id]);
        assert!(export.status.success(), "{}", String::from_utf8_lossy(&export.stderr));
        assert_eq!(std::fs::read_to_string(path).unwrap().lines().count(), orders, "existing orders are kept");
        stop(process);
        std::fs::write(&file, serde_json::to_vec(&platform.demo).unwrap()).unwrap();
        platform.up();
    }
}

#[test]
fn a_start_after_the_first_makes_no_new_database_in_place_of_a_lost_one() {
    let data = tempfile::tempdir().unwrap();
    let (process, _) = greeted(data.path(), &["--no-demo"]);
    stop(process);
    for database in ["orders/orders.sqlite", "domains/domains.sqlite"] {
        let (file, aside) = (data.path().join(database), data.path().join("aside"));
        std::fs::rename(&file, &aside).unwrap();
        let mut refused = up(data.path(), &["--no-demo"]);
        let mut words = String::new();
        refused.stderr.take().unwrap().read_to_string(&mut words).unwrap();
        assert!(!refused.wait().unwrap().success() && !file.exists());
        assert!(words.contains(database) && words.contains("create_database is false"), "{words}");
        std::fs::rename(&aside, &file).unwrap();
    }
    let (process, _) = greeted(data.path(), &["--no-demo"]);
    stop(process);
}

#[test]
fn staging_and_production_have_separate_keys() {
    let (production, staging) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (live, _) = greeted(production.path(), &["--no-demo"]);
    let (test, said) =
        greeted(staging.path(), &["--no-demo", "--environment", "test", "--platform-domain", "staging.localhost"]);
    assert!(said.contains(" --environment test"), "{said}");
    for (data, prefix) in [(&production, "th_live_"), (&staging, "th_test_")] {
        let made = command(data.path(), &["project", "create", "shop"]);
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let key = command(data.path(), &["key", "create", "shop"]);
        assert!(String::from_utf8_lossy(&key.stdout).starts_with(prefix), "{key:?}");
    }
    stop(live);
    stop(test);
}

/// The commands of the section in the guide, without the folder of the program.
fn commands_of_the_guide() -> Vec<Vec<String>> {
    let guide = include_str!("../../docs/operator/running.md");
    let section = guide.split("**Three processes.**").nth(1).unwrap().split("**Changing settings.**").next().unwrap();
    let lines = section.lines().filter_map(|line| line.strip_prefix("    target/dist/"));
    lines.map(|line| line.split(' ').map(str::to_owned).collect()).collect()
}

#[test]
fn the_commands_of_the_guide_work_in_a_fresh_copy() {
    let copy = tempfile::tempdir().unwrap();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    std::fs::create_dir(copy.path().join("config")).unwrap();
    for file in ["gateway.toml", "orders-service.toml", "domains-service.toml", "plans.toml"] {
        std::fs::copy(root.join("config").join(file), copy.path().join("config").join(file)).unwrap();
    }
    let commands = commands_of_the_guide();
    let (once, processes): (Vec<_>, Vec<_>) = commands.iter().partition(|command| command[0] == "tollhouse");
    let programs: Vec<&str> = processes.iter().map(|command| command[0].as_str()).collect();
    assert_eq!(programs, ["domains-service", "orders-service", "gateway"]);
    for command in once.iter().filter(|command| ["init", "check-config"].contains(&command[1].as_str())) {
        let output = tollhouse().args(&command[1..]).current_dir(copy.path()).output().unwrap();
        assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    // The processes listen at the addresses of the commands.
    let run: serde_json::Value =
        serde_json::from_slice(&std::fs::read(copy.path().join("data/run.json")).unwrap()).unwrap();
    let settings = |file: &str| -> toml_edit::DocumentMut {
        std::fs::read_to_string(root.join("config").join(file)).unwrap().parse().unwrap()
    };
    assert_eq!(run["gateways"][0]["admin"], settings("gateway.toml")["listen"]["admin"].as_str().unwrap());
    assert_eq!(run["control"], settings("domains-service.toml")["internal_listen"].as_str().unwrap());
    assert_eq!(run["orders"], settings("orders-service.toml")["internal_listen"].as_str().unwrap());
}
