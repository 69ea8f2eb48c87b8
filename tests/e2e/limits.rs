//! Plans, quotas and bans as a client sees them.

use futures_util::future::join_all;
use reqwest::Method;

use crate::world::{PATIENCE, Platform, error, rate_limit_headers, until};

/// One platform for all steps. The last step uses up a minute and its key.
#[tokio::test]
async fn plans_limits_and_bans_follow_the_specification() {
    let platform = Platform::start();
    every_plan_grants_what_it_states(&platform).await;
    an_enterprise_project_has_limits_of_its_own(&platform).await;
    a_key_that_hammers_on_is_banned_and_other_keys_are_not(&platform).await;
}

// rule: 8.6.1, 8.6.2, 8.6.3, 8.10
async fn every_plan_grants_what_it_states(platform: &Platform) {
    let client = platform.client();
    for (plan, minute, day) in [("free", 60, 1_000), ("pro", 300, 10_000), ("business", 1_000, 100_000)] {
        let project = platform.project(plan);
        let response = project.request(platform, &client, Method::HEAD, "/v1/store/orders").send().await.unwrap();
        let policy = response.headers()["ratelimit-policy"].to_str().unwrap();
        assert_eq!(policy, format!(r#""minute";q={minute};w=60, "day";q={day};w=86400"#));
        assert_eq!(rate_limit_headers(&response).0, minute);
    }
}

/// Steps that must fit into one minute of the quota. Each uses a different project.
#[tokio::test]
async fn within_a_minute_every_unit_is_counted_once() {
    let platform = Platform::start_in_a_new_minute();
    a_higher_plan_helps_at_once_and_what_was_used_stays_used(&platform).await;
    of_a_thousand_requests_for_the_last_unit_exactly_one_passes(&platform).await;
}

// rule: 8.1, 8.2, 8.12, 7.429
async fn of_a_thousand_requests_for_the_last_unit_exactly_one_passes(platform: &Platform) {
    let (client, project) = (platform.client(), platform.project("free"));
    let ask = || project.request(platform, &client, Method::GET, "/v1/pets/101").send();
    let (limit, remaining, minute) = rate_limit_headers(&ask().await.unwrap());
    assert_eq!((limit, remaining), (60, 59));
    for left in (1..59).rev() {
        let response = ask().await.unwrap();
        assert_eq!(rate_limit_headers(&response), (60, left, minute), "Remaining falls by exactly one");
    }
    let crowd = join_all((0..1_000).map(|_| ask())).await;
    let mut passed = 0;
    for response in crowd {
        let response = response.unwrap();
        if response.status() == 429 {
            let (limit, remaining, reset) = rate_limit_headers(&response);
            let wait: i64 = response.headers()["retry-after"].to_str().unwrap().parse().unwrap();
            assert_eq!((limit, remaining), (60, 0));
            assert!((1..=60).contains(&wait));
            // Requests later than a second after the first refusal count towards a ban, which ends later.
            match error(response).await.1.as_str() {
                "rate_limit_exceeded" => assert_eq!(reset, minute),
                "api_key_banned" => assert!(reset > minute - 60),
                other => panic!("{other}"),
            }
        } else {
            assert_eq!(rate_limit_headers(&response).1, 0);
            passed += 1;
        }
    }
    assert_eq!(passed, 1);
    let usage = platform.json(&["quota", "show", &project.id]);
    assert_eq!(usage["day"]["remaining"], 1_000 - 60, "requests refused by the minute do not count in the day");
    assert_eq!(usage["nodes"][0]["gateway"], "gateway", "by its name in `tollhouse node list`: {usage}");
}

// rule: 8.4
async fn a_higher_plan_helps_at_once_and_what_was_used_stays_used(platform: &Platform) {
    let client = platform.client();
    platform.json(&["project", "create", "modest", "--plan", "free"]);
    let key = platform.json(&["key", "create", "modest"])["key"].as_str().unwrap().to_owned();
    let url = format!("https://modest.tollhouse.localhost:{}/v1/pets/101", platform.https_port());
    let ask = async || client.get(&url).bearer_auth(&key).send().await.unwrap();
    until("the project is published", async || {
        client.get(&url).bearer_auth(&key).send().await.is_ok_and(|response| response.status() != 401)
    })
    .await;
    let used = 60 - rate_limit_headers(&ask().await).1;
    platform.json(&["project", "set", "modest", "--plan", "pro"]);
    let mut asked = 0;
    until("the new plan is seen", async || {
        asked += 1;
        rate_limit_headers(&ask().await).0 == 300
    })
    .await;
    let (limit, remaining, _) = rate_limit_headers(&ask().await);
    assert_eq!((limit, remaining), (300, 300 - used - asked - 1));
}

// rule: 8.3, 8.11
async fn a_key_that_hammers_on_is_banned_and_other_keys_are_not(platform: &Platform) {
    let (client, project) = (platform.client(), platform.project("free"));
    let ask = async |key: &str| {
        project.bare(platform, &client, Method::GET, "/v1/pets/101").bearer_auth(key).send().await.unwrap()
    };
    let hammering = async {
        loop {
            let response = ask(&project.key).await;
            let wait = response.headers().get("retry-after").map(|wait| wait.to_str().unwrap().parse::<i64>().unwrap());
            if response.status() == 429 && error(response).await.1 == "api_key_banned" {
                return wait.unwrap();
            }
        }
    };
    let ban = tokio::time::timeout(PATIENCE, hammering).await.expect("the key is banned");
    assert!((1..=60).contains(&ban), "the first ban lasts a minute");
    let other = ask(&project.read_only_key).await;
    let refused = other.status() == 429;
    assert!(
        !refused || error(other).await.1 == "rate_limit_exceeded",
        "the other key is only out of its minute, if at all"
    );
    let bans = platform.json(&["ban", "list"]);
    let key = bans[0]["key"].as_str().unwrap().to_owned();
    platform.json(&["ban", "lift", &key]);
    let after = ask(&project.key).await;
    let refused = after.status() == 429;
    assert!(!refused || error(after).await.1 == "rate_limit_exceeded", "a lifted ban is over");
}

// rule: 8.6.4
async fn an_enterprise_project_has_limits_of_its_own(platform: &Platform) {
    let client = platform.client();
    platform.json(&[
        "project",
        "create",
        "big",
        "--plan",
        "enterprise",
        "--per-minute",
        "5000",
        "--per-day",
        "7000000",
    ]);
    let key = platform.json(&["key", "create", "big"]);
    let url = format!("https://big.tollhouse.localhost:{}/v1/store/orders", platform.https_port());
    let mut limit = 0;
    until("the project is published", async || {
        let Ok(response) = client.get(&url).bearer_auth(key["key"].as_str().unwrap()).send().await else {
            return false;
        };
        if response.status() == 200 {
            limit = rate_limit_headers(&response).0;
        }
        limit > 0
    })
    .await;
    assert_eq!(limit, 5_000);
}
