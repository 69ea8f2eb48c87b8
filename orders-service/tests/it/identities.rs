//! Trusted gateway keys from a file.

use contract::token::{Claims, KeySet, SigningKey};
use reqwest::Method;

use crate::world::{NOW, World, caller, until};

#[tokio::test]
async fn keys_of_a_file_are_trusted_and_a_changed_file_is_reloaded() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("jwks.json");
    let (first, second) = (SigningKey::from_seed(&[1; 32]).unwrap(), SigningKey::from_seed(&[2; 32]).unwrap());
    let publish = |key: &SigningKey| {
        let set: KeySet = [key.public().clone()].into_iter().collect();
        std::fs::write(&file, set.to_json()).unwrap();
    };
    publish(&first);
    let world = World::with(&format!("[identity]\nkey_set_file = \"{}\"\n", file.display())).await;
    let claims = Claims {
        audience: "orders".to_owned(),
        caller: Some(caller()),
        site_project: None,
        issued_at: NOW.to_seconds(),
    };
    let ask = async |key: &SigningKey| {
        let request = world.unsigned(Method::GET, "/v1/store/orders").header("x-forwarded-for", "192.0.2.1");
        let request = request.header("x-request-id", "r1").header("tollhouse-identity-token", key.sign(&claims));
        request.send().await.unwrap().status().as_u16()
    };
    assert_eq!((ask(&first).await, ask(&second).await), (200, 401));
    publish(&second);
    until("the new key is trusted", async || ask(&second).await == 200).await;
    assert_eq!(ask(&first).await, 401, "a valid token of a removed key");
}
