use super::*;
use crate::key::{Environment, Scopes};
use crate::plan::Plan;

fn claims() -> Claims {
    Claims {
        audience: "orders".to_owned(),
        caller: Some(Caller {
            key: "key_aaaaaaaaaaaaaaaa".parse().unwrap(),
            project: "demo".parse().unwrap(),
            project_uid: "prj_aaaaaaaaaaaaaaaaaaaaaaaaaa".parse().unwrap(),
            plan: Plan::Pro,
            scopes: Scopes::all(),
            environment: Environment::Live,
        }),
        site_project: Some("demo".parse().unwrap()),
        issued_at: UnixSeconds(1_000),
    }
}

fn set_of(key: &SigningKey) -> KeySet {
    [key.public().clone()].into_iter().collect()
}

#[test]
fn a_token_carries_its_claims_for_one_audience_and_one_minute() {
    let key = SigningKey::from_seed(&[1; 32]).unwrap();
    let (set, token) = (set_of(&key), key.sign(&claims()));
    for now in [970, 1_000, 1_059] {
        assert_eq!(set.verify(&token, &["domains", "orders"], UnixSeconds(now)), Ok(claims()));
    }
    for now in [969, 1_060] {
        assert_eq!(set.verify(&token, &["orders"], UnixSeconds(now)), Err(InvalidToken::Age), "{now}");
    }
    assert_eq!(set.verify(&token, &["shop"], UnixSeconds(1_000)), Err(InvalidToken::Audience));
    let visitor = Claims { caller: None, ..claims() };
    assert_eq!(set.verify(&key.sign(&visitor), &["orders"], UnixSeconds(1_000)), Ok(visitor));
}

#[test]
fn the_claims_have_the_documented_names() {
    let token = SigningKey::from_seed(&[1; 32]).unwrap().sign(&claims());
    let body = URL_SAFE_NO_PAD.decode(token.split('.').nth(1).unwrap()).unwrap();
    let body: Value = serde_json::from_slice(&body).unwrap();
    let stated = serde_json::json!({
        "iss": "tollhouse", "aud": "orders", "sub": "key_aaaaaaaaaaaaaaaa", "iat": 1_000, "exp": 1_060,
        "project": "demo", "project_uid": "prj_aaaaaaaaaaaaaaaaaaaaaaaaaa", "plan": "pro", "environment": "live", "site_project": "demo",
        "scopes": ["orders:read", "orders:write", "domains:read", "domains:write", "keys:write"],
    });
    for (name, value) in stated.as_object().unwrap() {
        assert_eq!(&body[name], value, "{name}");
    }
    assert!(body.get("key").is_none());
}

#[test]
fn another_key_another_claim_and_another_algorithm_are_refused() {
    let key = SigningKey::from_seed(&[1; 32]).unwrap();
    let (set, token, now) = (set_of(&key), key.sign(&claims()), UnixSeconds(1_000));
    let verify = |token: &str| set.verify(token, &["orders"], now);
    let stranger = SigningKey::from_seed(&[2; 32]).unwrap();
    assert_eq!(verify(&stranger.sign(&claims())), Err(InvalidToken::UnknownKey));
    let parts: Vec<&str> = token.split('.').collect();
    let with = |head: &str, claims: &str| format!("{head}.{claims}.{}", parts[2]);
    let other_claims = encode(&Claims { audience: "orders".to_owned(), caller: None, ..claims() }.to_json());
    assert_eq!(verify(&with(parts[0], &other_claims)), Err(InvalidToken::Signature));
    let kid = &key.public().kid;
    for head in [
        format!(r#"{{"alg":"none","typ":"JWT","kid":"{kid}"}}"#),
        format!(r#"{{"alg":"HS256","typ":"JWT","kid":"{kid}"}}"#),
        format!(r#"{{"alg":"EdDSA","typ":"JWT","kid":"{kid}","crit":["b64"]}}"#),
        format!(r#"{{"alg":"EdDSA","typ":"JWT","kid":"{kid}","crit":null}}"#),
        r#"{"alg":"EdDSA"}"#.to_owned(),
    ] {
        assert_eq!(verify(&with(&URL_SAFE_NO_PAD.encode(&head), parts[1])), Err(InvalidToken::Malformed), "{head}");
    }
    for garbage in ["", ".", "..", "a.b", "a.b.c", &"a.".repeat(5_000), &token.replace('.', "")] {
        assert_eq!(verify(garbage), Err(InvalidToken::Malformed), "{garbage:.20}");
    }
}

#[test]
fn claims_that_no_gateway_signs_are_refused_despite_a_valid_signature() {
    let key = SigningKey::from_seed(&[1; 32]).unwrap();
    let set = set_of(&key);
    let signed = |name: &str, value: Value| {
        let mut all = claims().to_json();
        all.insert(name.to_owned(), value);
        let mut token = format!("{}{}", key.head, encode(&all));
        let signature = key.pair.sign(token.as_bytes());
        token.push('.');
        URL_SAFE_NO_PAD.encode_string(signature, &mut token);
        token
    };
    let verify = |token: &str, now| set.verify(token, &["orders"], UnixSeconds(now)).err();
    for (name, value, error) in [
        ("iss", "another".into(), InvalidToken::Issuer),
        ("iss", Value::Null, InvalidToken::Issuer),
        ("aud", serde_json::json!(["orders"]), InvalidToken::Audience),
        ("iat", "1000".into(), InvalidToken::Malformed),
        ("exp", Value::Null, InvalidToken::Malformed),
        ("exp", 1_000.into(), InvalidToken::Age),
        ("exp", 1_061.into(), InvalidToken::Age),
    ] {
        assert_eq!(verify(&signed(name, value.clone()), 1_000), Some(error), "{name}: {value}");
    }
    let short = signed("exp", 1_030.into());
    assert_eq!((verify(&short, 1_029), verify(&short, 1_030)), (None, Some(InvalidToken::Age)));
}

#[test]
fn a_set_round_trips_and_skips_keys_of_other_kinds() {
    let key = SigningKey::from_seed(&[1; 32]).unwrap();
    let set = set_of(&key);
    assert_eq!(serde_json::from_str::<KeySet>(&set.to_json()).unwrap(), set);
    let mut text: Value = serde_json::from_str(&set.to_json()).unwrap();
    // A wrong key id is ignored.
    text["keys"][0]["kid"] = "mine".into();
    for (kty, crv) in [("OKP", "X25519"), ("EC", "Ed25519")] {
        let x = SigningKey::from_seed(&[2; 32]).unwrap().public().x.clone();
        text["keys"].as_array_mut().unwrap().push(serde_json::json!({ "kty": kty, "crv": crv, "x": x }));
    }
    text["keys"].as_array_mut().unwrap().push(serde_json::json!({ "kty": "RSA", "n": "AQAB", "e": "AQAB" }));
    text["keys"].as_array_mut().unwrap().push(serde_json::json!({ "kty": "OKP", "crv": "Ed25519", "x": "AA" }));
    assert_eq!(serde_json::from_value::<KeySet>(text).unwrap(), set);
}

#[test]
fn the_key_of_rfc_8037_has_its_thumbprint() {
    let seed = URL_SAFE_NO_PAD.decode("nWGxne_9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A").unwrap();
    let key = SigningKey::from_seed(&seed).unwrap();
    assert_eq!(key.public().x, "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo");
    assert_eq!(key.public().kid, "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k");
}
