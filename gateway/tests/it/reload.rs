//! Settings that change while the gateway runs.

use crate::world::{World, eventually};

const GOOD: &str = "edge_config_last_reload_successful";

#[tokio::test]
async fn a_changed_upstream_is_taken_and_the_others_stay() {
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

#[tokio::test]
async fn a_file_with_a_mistake_changes_nothing_until_it_is_mended() {
    let world = World::start().await;
    for mistake in ["[upstreams.orders\n", "nonsense = 1\n", "[drain]\nrequests = \"0s\"\n"] {
        world.reconfigure(|_| mistake.to_owned());
        eventually("the mistake is seen", async || (world.admin.metric(GOOD).await == 0).then_some(())).await;
        assert_eq!(world.ask(world.list()).await.status, 200);
        world.reconfigure(str::to_owned);
        eventually("the file is mended", async || (world.admin.metric(GOOD).await == 1).then_some(())).await;
    }
    assert_eq!(world.ask(world.list()).await.status, 200);
}
