//! Runs the commands of README.md and docs/tenant/domains.md unchanged, on a platform with free ports.

use std::process::{Command, Output};

use axum::Router;

use crate::world::{Platform, until};

const PAGES: [&str; 2] = [include_str!("../../README.md"), include_str!("../../docs/tenant/domains.md")];

/// Beginnings of commands that other tests run.
const ELSEWHERE: &[(&str, &str)] = &[
    ("./up", "tests/repository/fresh_machine.rs and tests/fresh-machine.sh; here it is the platform"),
    ("./check", ".ci/run"),
    ("bench/run", "./check full"),
    ("docker-compose ", "tests/compose/run.sh"),
    ("curl -i --cacert ca.pem ", "tests/compose/run.sh"),
    ("python3 -m http.server ", "here it is an upstream of the platform"),
    ("sudo apt-get install ", "./check"),
];

/// A command, and the status in the comment above it.
type Promise = (String, Option<String>);

/// The lines of code of a page; continued lines are joined.
fn commands(page: &str) -> Vec<Promise> {
    let (mut found, mut begun, mut status) = (Vec::new(), String::new(), None);
    let outside_of_fences = page.split("\n```").step_by(2);
    for line in outside_of_fences.flat_map(str::lines).filter_map(|line| line.strip_prefix("    ")) {
        if let Some(comment) = line.strip_prefix("# ") {
            let number = comment.split(": ").nth(1).and_then(|rest| rest.get(..3));
            status = number.filter(|number| number.bytes().all(|byte| byte.is_ascii_digit())).map(str::to_owned);
        } else if let Some(part) = line.strip_suffix('\\') {
            begun.push_str(part);
        } else {
            found.push((std::mem::take(&mut begun) + line.trim(), status.take()));
        }
    }
    found
}

fn run(platform: &Platform, script: &str) -> Output {
    let data = platform.path("").to_str().unwrap().to_owned();
    let script = script
        .replace("target/release/tollhouse", env!("CARGO_BIN_EXE_tollhouse"))
        .replace("backups/", "data/backups/")
        .replace("data/", &data)
        .replace(":8443", &format!(":{}", platform.https_port()));
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
    let mut bash = Command::new("bash");
    bash.args(["-c", &script]).current_dir(root).env("TOLLHOUSE_DATA_DIR", data).env("no_proxy", ".localhost,.test");
    bash.output().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_commands_of_the_readme_and_of_the_guide_to_domains_work() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let files = format!("files=http://{}", listener.local_addr().unwrap());
    let server = Router::new().fallback(|| async { "a listing" });
    tokio::spawn(async move { axum::serve(listener, server).await });
    let platform = Platform::start_with(&["--upstream", &files, "--test-world"]);
    let (mut variables, mut count) = (String::new(), 0);
    for (command, status) in PAGES.into_iter().flat_map(commands).filter(|(command, _)| !command.is_empty()) {
        if ELSEWHERE.iter().any(|(beginning, _)| command.starts_with(beginning)) {
            continue;
        }
        if command.contains("=$(") {
            variables.push_str(&command);
            variables.push('\n');
            continue;
        }
        count += 1;
        let script = format!("{variables}{command}");
        // A certificate that was just asked for takes a moment.
        until(&command, async || {
            let output = run(&platform, &script);
            let out = String::from_utf8_lossy(&output.stdout);
            let is_as_promised =
                status.as_ref().is_none_or(|status| out.lines().next().is_some_and(|line| line.contains(status)));
            // 3: the command succeeded and reports a problem.
            matches!(output.status.code(), Some(0 | 3)) && is_as_promised
        })
        .await;
    }
    assert!(count >= 20, "{count} commands were found");
}
