//! Whose word about a caller is believed.

use chassis::guard::identity_key;
use chassis::secret::Secret;
use contract::identity::Identity;
use contract::token::{Claims, KeySet, SigningKey};
use reqwest::Method;

use crate::trust::PLATFORM_SECRET;
use crate::world::{NOW, World, caller, refusal, until};

#[tokio::test]
async fn a_gateway_of_before_tokens_is_believed_for_exactly_the_request_it_signed() {
    let world = World::with(&format!("secret = \"{PLATFORM_SECRET}\"\n")).await;
    let identity = Identity {
        request_id: "r1".to_owned(),
        client: "192.0.2.1".parse().unwrap(),
        site_project: None,
        caller: Some(caller()),
        issued_at: NOW.to_seconds(),
    };
    let signed = identity_key(&Secret::parse(PLATFORM_SECRET).unwrap()).sign(&identity, "GET", "/v1/store/orders");
    let ask = |target: &str| world.unsigned(Method::GET, target).header("tollhouse-identity", &signed);
    assert_eq!(ask("/v1/store/orders").send().await.unwrap().status(), 200);
    let elsewhere = ask("/v1/store/orders?status=shipped").send().await.unwrap();
    assert!(
        elsewhere.headers().contains_key("tollhouse-identity-refused"),
        "a gateway must not blame its caller for that"
    );
    assert_eq!(refusal(elsewhere).await, (401, "identity_required".to_owned()));
}

#[tokio::test]
async fn keys_of_a_file_are_believed_and_a_changed_file_is_read() {
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
    until("the new key is believed", async || ask(&second).await == 200).await;
    assert_eq!(ask(&first).await, 401, "a token that was good, of a key that is gone");
}
