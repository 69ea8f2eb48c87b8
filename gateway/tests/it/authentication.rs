//! Who may ask: keys, what is wrong with them, and addresses that guess.

use crate::world::World;

// rule: 5.1
#[tokio::test]
async fn a_valid_key_is_let_through() {
    let world = World::start().await;
    let reply = world.ask(world.list()).await;
    assert_eq!((reply.status, reply.text()), (200, "[]"));
    assert_eq!(world.orders.only_request().head.first_line, "GET /v1/store/orders HTTP/1.1");
}
