//! Changes per minute are limited, for every kind of caller.

use contract::key::Scope;
use serde_json::{Value, json};

use crate::dashboard::{Browser, origin};
use crate::world::Platform;

#[tokio::test]
async fn too_many_changes_are_refused_for_one_caller_only() {
    let platform = Platform::start().await;
    platform.project("demo", "pro").await;
    platform.project("other", "pro").await;
    let key = platform.caller("demo", &[Scope::KeysWrite, Scope::DomainsRead]);
    let nothing = "/v1/projects/demo/keys/key_aaaaaaaaaaaaaaaa";
    for _ in 0..300 {
        assert_eq!(key.send("DELETE", nothing, Value::Null).await.status, 404);
    }
    let refused = key.send("DELETE", nothing, Value::Null).await;
    assert_eq!((refused.code(), refused.header("retry-after")), ((429, "too_many_changes"), "1"));
    assert_eq!(key.get("/v1/projects/demo/keys").await.status, 200, "reading is not counted");
    // The dashboard's pages use the rest of the project's limit.
    let mut browser = Browser::signed_in(&platform, "demo", &["keys:write"]).await;
    let csrf = browser.get("/projects/demo/keys").await.csrf().to_owned();
    let ours = origin();
    let mut statuses = Vec::new();
    for _ in 0..301 {
        let (fields, headers) = ([("csrf", csrf.as_str())], [("origin", ours.as_str())]);
        let path = "/projects/demo/keys/key_aaaaaaaaaaaaaaaa/revoke";
        statuses.push(browser.send("POST", path, &fields, &headers).await.status);
    }
    assert!(statuses.iter().take(300).all(|status| *status == 404), "{statuses:?}");
    assert_eq!(statuses.last(), Some(&429));
    let fresh = platform.operator("POST", "/projects/demo/keys", json!({ "scopes": ["orders:read"] })).await;
    assert_eq!(fresh.status, 201, "operators have no limit on changes");
    // The same key elsewhere would be another one; a key of another project is not held up.
    platform.clock.advance(std::time::Duration::from_millis(200));
    assert_eq!(key.send("DELETE", nothing, Value::Null).await.status, 404);
}
