//! The metrics of a platform under load: valid, bounded, and complete for documents, dashboards and alerts.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::world::{Platform, until};

/// Most series of a process; requests of clients never create new ones.
const SERIES_MAX: usize = 3_000;

/// The metrics of each process, by its address in `run.json`. Requests with another host name are refused.
async fn scrapes(platform: &Platform) -> Vec<(&'static str, String)> {
    let run: Value = serde_json::from_slice(&std::fs::read(platform.path("run.json")).unwrap()).unwrap();
    let client = reqwest::Client::new();
    let mut all = Vec::new();
    for place in ["/gateways/0/admin", "/orders_admin", "/domains_admin"] {
        let url = format!("http://{}/metrics", run.pointer(place).unwrap().as_str().unwrap());
        all.push((place, client.get(&url).send().await.unwrap().text().await.unwrap()));
        let rebound = client.get(&url).header("host", "evil.example").send().await.unwrap();
        assert_eq!(rebound.status(), 421, "{place}");
        assert!(rebound.text().await.unwrap().contains("misdirected_request"), "{place}");
    }
    all
}

fn samples(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter(|line| !line.starts_with('#'))
}

/// Documented names, from the first column of the tables.
fn documented() -> BTreeSet<String> {
    let page = include_str!("../../docs/reference/metrics.md");
    page.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).map(str::to_owned).collect()
}

#[tokio::test]
async fn every_scrape_is_valid_bounded_and_has_the_documented_metrics() {
    let platform = Platform::start();
    let (client, shop) = (platform.client(), platform.project("pro"));
    assert_eq!(shop.list(&platform, &client).await.len(), 40);
    until("the domains' gauges are drawn", async || {
        scrapes(&platform).await.iter().any(|(_, text)| text.contains("domains_state{state=\"active\"} 2"))
    })
    .await;
    let mut names = BTreeSet::new();
    for (place, text) in scrapes(&platform).await {
        let count = samples(&text).count();
        assert!((50..SERIES_MAX).contains(&count), "{place} has {count} series");
        let mut promtool = Command::new("promtool")
            .args(["check", "metrics"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("promtool is missing: install the package prometheus");
        promtool.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        let output = promtool.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.is_empty(), "promtool says of {place}: {said}");
        let typed = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next());
        names.extend(typed.map(str::to_owned));
    }
    // Another test checks that dashboards and alerts use only documented metrics.
    // One series for each process that is waited for and each row that cannot be read, so none while all is well.
    let only_in_trouble = ["domains_withdrawal_awaited_timestamp_seconds", "domains_unreadable_row"];
    // A platform in one process has no listeners with TLS between processes.
    let of_several = ["listener_certificate_expiry_timestamp_seconds", "listener_certificate_fault"];
    let is_elsewhere = |name: &String| only_in_trouble.iter().chain(&of_several).any(|one| one == name);
    let is_missing = |name: &String| !names.contains(name) && !is_elsewhere(name);
    let missing: Vec<_> = documented().into_iter().filter(is_missing).collect();
    assert!(missing.is_empty(), "no process exports {missing:?}");
    let ours = |name: &&String| ["edge_", "orders_", "domains_"].iter().any(|prefix| name.starts_with(prefix));
    let unknown: Vec<_> = names.iter().filter(ours).filter(|name| !documented().contains(*name)).collect();
    assert!(unknown.is_empty(), "docs/reference/metrics.md lacks {unknown:?}");
}
