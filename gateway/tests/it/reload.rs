//! Settings that change while the gateway runs.

use std::collections::BTreeMap;

use chassis::config::Source;
use gateway::config::{Config, ENVIRONMENT_PREFIX};

use crate::fleet::extent;
use crate::world::visitor::Visitor;
use crate::world::{World, eventually};

const GOOD: &str = "edge_config_last_reload_successful";

// promise: edge.24
#[tokio::test]
async fn a_changed_upstream_is_reloaded_and_the_others_stay() {
    let world = World::start().await;
    assert_eq!(world.ask(world.list()).await.status, 200);
    let (orders, blog) = (world.orders.address.to_string(), world.blog.address.to_string());
    let (on_orders, on_blog) = (world.orders.requests().len(), world.blog.requests().len());
    world.reconfigure(|text| text.replace(&orders, &blog));
    let taken = "edge_config_last_reload_timestamp_seconds";
    eventually("the settings are taken", async || (world.admin.metric(taken).await > 0).then_some(())).await;
    assert_eq!(world.ask(world.list()).await.status, 200);
    assert_eq!((world.orders.requests().len(), world.blog.requests().len()), (on_orders, on_blog + 1));
    assert_eq!(world.admin.metric(GOOD).await, 1);
}

// promise: edge.24
#[tokio::test]
async fn half_of_a_file_that_lacks_upstreams_of_sites_changes_nothing() {
    let world = World::start().await;
    world.reconfigure(|good| {
        let cut = good.find("[upstreams.orders").expect("the upstream of the demo's sites");
        good.get(..cut).expect("the bytes before it").to_owned()
    });
    eventually("the file is refused", async || (world.admin.metric(GOOD).await == 0).then_some(())).await;
    let refused = async || -> serde_json::Value {
        let (_, status) = world.admin.get("/status").await;
        serde_json::from_str::<serde_json::Value>(&status).unwrap()["settings_refused"].take()
    };
    assert_eq!(refused().await, "it lacks upstreams that sites use: blog, orders");
    assert_eq!(world.ask(world.list()).await.status, 200);
    world.reconfigure(str::to_owned);
    eventually("the whole file is taken", async || (world.admin.metric(GOOD).await == 1).then_some(())).await;
    assert_eq!(refused().await, serde_json::Value::Null);
    assert_eq!(world.ask(world.list()).await.status, 200);
}

/// Typing mistakes, at any place of a file.
const MISTAKES: [&str; 5] = ["[upstreams.orders", "nonsense = 1", "= 5", "threads = \"many", "}}"];

/// The log's message about a file.
fn refusal(text: &str) -> String {
    let source = Source::from_text("gateway.toml", text, ENVIRONMENT_PREFIX, BTreeMap::new());
    let Err(problems) = Config::read(&source) else { panic!("nothing is wrong with it: {text}") };
    problems.to_string()
}

// promise: edge.24
#[tokio::test]
async fn a_file_with_a_mistake_changes_nothing_until_it_is_fixed() {
    let reloads = usize::try_from(extent("BAD_RELOADS", 5)).unwrap();
    let world = World::start().await;
    let visitor = Visitor::of(&world);
    for (number, mistake) in (0..reloads).zip(MISTAKES.iter().cycle()) {
        world.reconfigure(|good| {
            let mut lines: Vec<&str> = good.lines().collect();
            let place = 1 + number % (lines.len() - 1);
            lines.insert(place, mistake);
            let bad = lines.join("\n");
            let said = refusal(&bad);
            assert!(said.starts_with("gateway.toml has") && said.contains("line "), "{mistake} at {place}: {said}");
            bad
        });
        eventually("the mistake is seen", async || (world.admin.metric(GOOD).await == 0).then_some(())).await;
        world.reconfigure(str::to_owned);
        eventually("the file is fixed", async || (world.admin.metric(GOOD).await == 1).then_some(())).await;
    }
    let asked = visitor.leave().await;
    assert_eq!(world.ask(world.list()).await.status, 200);
    println!("{reloads} bad files, {asked} requests meanwhile, 0 failed");
}
