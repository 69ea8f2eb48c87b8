//! Acknowledged changes are durable: kills at random times, restarts, a hundred thousand orders.

use chassis::clock::{Clock as _, SystemClock};
use reqwest::Method;
use serde_json::Value;
use tokio::task::JoinSet;

use crate::world::{Platform, order_file, until};

/// Number of kills of the platform. The tests of the service kill it more often; `./check full`
/// (`TOLLHOUSE_FULL`) and `bench/run orders-kill` (`KILLS`) set larger numbers here.
#[expect(clippy::disallowed_methods, reason = "the length of a test run is not a setting of the product")]
fn kills() -> usize {
    let usual = if std::env::var_os("TOLLHOUSE_FULL").is_some_and(|full| full == "1") { 50 } else { 5 };
    std::env::var("KILLS").map_or(usual, |text| text.parse().expect("a whole number"))
}

// rule: 4.2.204
// promise: orders.11, faults.13
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_acknowledged_cancel_survives_kills_at_random_moments() {
    let mut platform = Platform::start();
    platform.json(&[
        "project",
        "create",
        "mill",
        "--plan",
        "enterprise",
        "--per-minute",
        "1000000",
        "--per-day",
        "100000000",
    ]);
    let key = platform.json(&["key", "create", "mill"])["key"].as_str().unwrap().to_owned();
    order_file(&platform.path("mill.jsonl"), 1, 100_000);
    platform.json(&["orders", "import", platform.path("mill.jsonl").to_str().unwrap(), "--project", "mill"]);
    let mut next = 1_i64;
    let mut acknowledged = 0_usize;
    for round in 0..kills() {
        let client = platform.client();
        let url = format!("https://mill.tollhouse.localhost:{}/v1/store/orders", platform.https_port());
        until("the platform serves", async || {
            client.get(format!("{url}?warm")).bearer_auth(&key).send().await.is_ok_and(|answer| answer.status() != 503)
        })
        .await;
        // A different number of cancellations each round, so that the kill comes in different states.
        let crowd = 5 + (round * 7) % 40;
        let mut cancels = JoinSet::new();
        for id in next..next + i64::try_from(crowd).unwrap() * 2 {
            let request = client.delete(format!("{url}/{id}")).bearer_auth(&key);
            cancels.spawn(async move { (id, request.send().await.map(|response| response.status().as_u16())) });
        }
        next += i64::try_from(crowd).unwrap() * 2;
        let mut done = Vec::new();
        while let Some(outcome) = cancels.join_next().await {
            if let (id, Ok(204)) = outcome.unwrap() {
                done.push(id);
            }
            if done.len() == crowd {
                break;
            }
        }
        platform.kill();
        while let Some(outcome) = cancels.join_next().await {
            if let (id, Ok(204)) = outcome.unwrap() {
                done.push(id);
            }
        }
        platform.up();
        acknowledged += done.len();
        let statuses = exported(&platform);
        for id in done {
            assert_eq!(statuses[usize::try_from(id).unwrap() - 1], "cancelled", "round {round}, order {id}");
        }
    }
    assert!(acknowledged > kills(), "{acknowledged} cancels were acknowledged");
    println!("{} kills, {acknowledged} acknowledged cancels, each of them found again", kills());
}

/// The status of every order of the mill, by position.
fn exported(platform: &Platform) -> Vec<String> {
    let file = platform.path("export.jsonl");
    platform.json(&["orders", "export", file.to_str().unwrap(), "--project", "mill"]);
    let text = std::fs::read_to_string(file).unwrap();
    text.lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["status"].as_str().unwrap().to_owned())
        .collect()
}

// rule: 8.5, 4.1.2
#[tokio::test]
async fn a_hundred_thousand_orders_are_imported_listed_cancelled_and_found_again() {
    let mut platform = Platform::start();
    let (client, shop) = (platform.client(), platform.project("business"));
    order_file(&platform.path("many.jsonl"), 1_000, 100_000);
    let file = platform.path("many.jsonl");
    let imported = platform.json(&["orders", "import", file.to_str().unwrap(), "--project", &shop.id]);
    assert_eq!(imported["imported"], 100_000);
    assert_eq!(shop.list(&platform, &client).await.len(), 100_040);
    for id in [1_000, 50_000, 100_999] {
        assert_eq!(shop.cancel(&platform, &client, id).await.unwrap().status(), 204);
    }
    platform.stop();
    platform.up();
    let client = platform.client();
    for id in [1_000, 50_000, 100_999] {
        let again = shop.cancel(&platform, &client, id).await.unwrap();
        assert_eq!(again.status(), 409, "the acknowledged cancel of {id} is still there");
    }
    assert_eq!(shop.list(&platform, &client).await.len(), 100_040);
}

#[tokio::test]
async fn a_second_start_has_the_keys_counts_and_domains_of_the_first() {
    let mut platform = Platform::start();
    let shop = platform.project("pro");
    let ask = async |platform: &Platform, client: &reqwest::Client| {
        shop.request(platform, client, Method::GET, "/v1/store/orders").send().await.unwrap()
    };
    let day_left = |response: &reqwest::Response| -> i64 {
        let field = response.headers()["ratelimit"].to_str().unwrap();
        let day = field.split(", ").find(|item| item.starts_with("\"day\"")).unwrap();
        day.trim_start_matches("\"day\";r=").split(';').next().unwrap().parse().unwrap()
    };
    let today = || SystemClock::new().now_seconds().0 / 86_400;
    let mut client = platform.client();
    // Midnight can fall into one attempt, but not into two in a row.
    for attempt in 1.. {
        let day = today();
        let before = day_left(&ask(&platform, &client).await);
        platform.stop();
        platform.up();
        client = platform.client();
        let after = ask(&platform, &client).await;
        assert_eq!(after.status(), 200);
        if today() == day {
            assert_eq!(day_left(&after), before - 1, "the day keeps its count");
            break;
        }
        assert!(attempt < 2, "two starts, and each straddled a day");
    }
    let url = format!("https://petshop.localhost:{}/", platform.https_port());
    assert_eq!(client.get(url).send().await.unwrap().status(), 301);
}
