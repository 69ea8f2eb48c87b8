//! Attaching domains: preconditions, names, limits, and the shape of what comes back.

use std::time::Duration;

use contract::feed::Entity;
use contract::key::Scope;
use serde_json::{Value, json};

use crate::stores::{execute, over_postgres, value};
use crate::world::{Platform, eventually};

const DOMAINS: &str = "/v1/projects/demo/domains";

// rule: 1.7, 1.9
#[tokio::test]
async fn a_custom_domain_needs_a_paid_plan_and_a_successful_deploy() {
    let platform = Platform::start().await;
    platform.project("demo", "free").await;
    let owner = platform.owner("demo");
    let add = || owner.send("POST", DOMAINS, json!({ "name": "shop.customer.test" }));
    assert_eq!(add().await.code(), (403, "plan_required"));
    for plan in ["pro", "business", "enterprise"] {
        let id = format!("on-{plan}");
        platform.operator("POST", "/projects", json!({ "id": id, "plan": plan })).await;
        let path = format!("/v1/projects/{id}/domains");
        let early = platform.owner(&id).send("POST", &path, json!({ "name": "shop.customer.test" })).await;
        assert_eq!(early.code(), (409, "project_not_deployed"));
        platform.operator("POST", &format!("/projects/{id}/deploy"), Value::Null).await;
        let added = platform.owner(&id).send("POST", &path, json!({ "name": "shop.customer.test" })).await;
        assert_eq!(added.status, 201, "{added:?}");
    }
}

// rule: 1.10, 1.11
#[tokio::test]
async fn adding_a_domain_returns_the_record_to_create() {
    let platform = Platform::start().await;
    platform.project("demo", "pro").await;
    let owner = platform.owner("demo");
    let added = owner.send("POST", DOMAINS, json!({ "name": "Shop.Customer.Test." })).await;
    assert_eq!(added.status, 201);
    assert!(added.header("etag").starts_with('"'), "{added:?}");
    let domain = &added.body;
    assert_eq!((&domain["name"], &domain["status"]), (&json!("shop.customer.test"), &json!("pending_dns")));
    let record = &domain["records"][0];
    let target = platform.operator("GET", "/projects/demo", Value::Null).await.body["cname_target"].clone();
    assert_eq!(
        (&record["type"], &record["name"], &record["value"], &record["ttl"]),
        (&json!("CNAME"), &json!("shop"), &target, &json!(3600))
    );
    assert!(target.as_str().unwrap().ends_with(".edge.apps.tollhouse.dev"));
    // An apex needs an ALIAS or ANAME instead.
    let apex = owner.send("POST", DOMAINS, json!({ "name": "customer.test" })).await.body;
    assert_eq!((&apex["records"][0]["type"], &apex["records"][0]["name"]), (&json!("ALIAS"), &json!("@")));
    assert_eq!(apex["is_apex"], true);
}

#[tokio::test]
async fn adding_twice_is_added_once() {
    let platform = Platform::start().await;
    platform.project("demo", "pro").await;
    let owner = platform.owner("demo");
    let first = owner.send("POST", DOMAINS, json!({ "name": "bücher.customer.test" })).await;
    let second = owner.send("POST", DOMAINS, json!({ "name": "XN--BCHER-KVA.customer.test" })).await;
    assert_eq!((first.status, second.status), (201, 200));
    assert_eq!(second.body["unicode_name"], "bücher.customer.test");
    let list = owner.get(DOMAINS).await.body;
    assert_eq!(list["domains"].as_array().unwrap().len(), 1);
    assert_eq!(list["quota"], json!({ "allocated": 10, "used": 1, "hard_cap": true }));
}

// promise: domains.30
#[tokio::test]
async fn each_kind_of_wrong_name_has_its_own_code() {
    let platform = Platform::start().await;
    platform.project("demo", "pro").await;
    let owner = platform.owner("demo");
    for (name, code, reason) in [
        ("", "invalid_domain", "empty"),
        ("com", "invalid_domain", "not_fqdn"),
        ("10.0.0.1", "invalid_domain", "ip_address"),
        ("a..customer.com", "invalid_domain", "label"),
        ("a_b.customer.com", "invalid_domain", "character"),
        ("*.customer.com", "invalid_domain", "wildcard"),
        ("x.onion", "reserved_domain", ""),
        ("shop.example.com", "reserved_domain", ""),
        ("co.uk", "public_suffix", ""),
        ("github.io", "public_suffix", ""),
        ("demo.apps.tollhouse.dev", "platform_domain", ""),
    ] {
        let answer = owner.send("POST", DOMAINS, json!({ "name": name })).await;
        assert_eq!(answer.code(), (400, code), "{name}");
        assert_eq!(answer.body["details"]["reason"].as_str().unwrap_or_default(), reason, "{name}");
        assert_eq!(answer.body["status"], 400);
    }
    for body in [json!({}), json!({ "name": 5 }), json!({ "name": "a.customer.com", "wild": true })] {
        assert_eq!(owner.send("POST", DOMAINS, body).await.code(), (400, "invalid_body"));
    }
}

// rule: 1.15
#[tokio::test]
async fn a_project_has_several_domains_up_to_its_plans_limit() {
    let platform = Platform::start().await;
    platform.project("demo", "pro").await;
    let owner = platform.owner("demo");
    for index in 0..10 {
        let added = owner.send("POST", DOMAINS, json!({ "name": format!("d{index}.localhost") })).await;
        assert_eq!(added.status, 201);
    }
    let one_more = owner.send("POST", DOMAINS, json!({ "name": "more.localhost" })).await;
    assert_eq!(one_more.code(), (403, "domain_limit_reached"));
    assert_eq!(one_more.body["details"], json!({ "limit": 10, "used": 10 }));
    let page = owner.get(&format!("{DOMAINS}?limit=4&cursor=d3.localhost")).await.body;
    let names: Vec<&str> =
        page["domains"].as_array().unwrap().iter().map(|domain| domain["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["d4.localhost", "d5.localhost", "d6.localhost", "d7.localhost"]);
    assert_eq!(page["next_cursor"], "d7.localhost");
}

#[tokio::test]
async fn a_local_name_becomes_active_by_itself_with_a_certificate_and_a_site() {
    let platform = Platform::start().await;
    platform.project("demo", "pro").await;
    let domain = platform.local_domain("demo", json!({ "name": "shop.localhost" })).await;
    assert_eq!((&domain["primary"], &domain["records"]), (&json!(true), &json!([])));
    let certificate = &domain["certificate"];
    assert_eq!((&certificate["status"], &certificate["ca"]), (&json!("deployed"), &json!("local")));
    assert_eq!(certificate["key_type"], "ecdsa-p256");
    assert_eq!(certificate["not_after"], "2026-09-13T00:00:00Z");
    assert_eq!(platform.dns.asked("shop.localhost"), 0, "it always means this machine");
    let entities = platform.snapshot().await;
    let bundle = entities.iter().find_map(|entity| match entity {
        Entity::Certificate(bundle) => Some(bundle),
        _ => None,
    });
    let sealing = chassis::seal::SealingKey::new(&chassis::secret::Secret::new(vec![8; 32])).unwrap();
    let key = sealing.open(&bundle.unwrap().key.0, "shop.localhost").unwrap();
    assert!(String::from_utf8(key.to_vec()).unwrap().starts_with("-----BEGIN PRIVATE KEY-----"));
    assert!(
        entities
            .iter()
            .any(|entity| matches!(entity, Entity::Site(site) if site.hostname.as_str() == "shop.localhost"))
    );
}

#[tokio::test]
async fn a_name_added_while_the_database_is_full_need_not_wait_for_the_end_of_a_lease() {
    let platform = Platform::start().await;
    platform.project("demo", "pro").await;
    let directory = platform.directory.path();
    let [full, free] = if over_postgres() {
        [
            "CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'no space left'; END $$;
             CREATE TRIGGER full_disk BEFORE UPDATE OF due_at ON domains FOR EACH ROW EXECUTE FUNCTION full_disk()",
            "DROP TRIGGER full_disk ON domains",
        ]
    } else {
        [
            "CREATE TRIGGER full_disk BEFORE UPDATE OF due_at ON domains BEGIN SELECT RAISE(FAIL, 'no space left'); END",
            "DROP TRIGGER full_disk",
        ]
    };
    execute(directory, full).await;
    let added = platform.operator("POST", "/projects/demo/domains", json!({ "name": "shop.localhost" })).await;
    assert_eq!(added.status, 201, "{added:?}");
    let is_leased = async |expected: bool| {
        let until = value(directory, "domains", "CAST(lease_until AS TEXT)", "name = 'shop.localhost'").await;
        let is_leased = until.as_deref() != Some("0");
        if is_leased == expected { Ok(()) } else { Err(format!("leased until {until:?}")) }
    };
    eventually(async || is_leased(true).await).await;
    execute(directory, free).await;
    eventually(async || is_leased(false).await).await;
    platform.clock.advance(Duration::from_secs(5));
    platform.domain_in("demo", "shop.localhost", "active").await;
}

#[tokio::test]
async fn every_operation_requires_its_scope() {
    let platform = Platform::start().await;
    platform.project("demo", "pro").await;
    platform.local_domain("demo", json!({ "name": "shop.localhost" })).await;
    let one = format!("{DOMAINS}/shop.localhost");
    let reader = platform.caller("demo", &[Scope::DomainsRead]);
    assert_eq!(reader.get(DOMAINS).await.status, 200);
    assert_eq!(reader.get(&one).await.status, 200);
    for (method, path, body) in [
        ("POST", DOMAINS.to_owned(), json!({ "name": "a.localhost" })),
        ("PATCH", one.clone(), json!({ "primary": true })),
        ("POST", format!("{one}/verify"), Value::Null),
        ("DELETE", one.clone(), Value::Null),
    ] {
        assert_eq!(reader.send(method, &path, body).await.code(), (403, "insufficient_scope"), "{method} {path}");
    }
    let orders = platform.caller("demo", &[Scope::OrdersRead]);
    assert_eq!(orders.get(DOMAINS).await.code(), (403, "insufficient_scope"));
    platform.project("other", "pro").await;
    let stranger = platform.owner("other");
    assert_eq!(stranger.get(&one).await.code(), (404, "project_not_found"));
    assert_eq!(reader.get(&format!("{DOMAINS}/none.localhost")).await.code(), (404, "domain_not_found"));
}

#[tokio::test]
async fn a_dry_run_shows_records_and_conflicts_and_changes_nothing() {
    let platform = Platform::start().await;
    platform.project("demo", "pro").await;
    platform.dns.zone("customer.test", &["192.31.196.1"]);
    platform.dns.set("shop.customer.test", verification::RecordData::A("198.51.100.7".parse().unwrap()));
    let owner = platform.owner("demo");
    let check = "/v1/projects/demo/domain-check?name=shop.customer.test";
    let answer = owner.get(check).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(answer.body["problems"][0]["code"], "DNS_CONFLICTING_A");
    assert_eq!((&answer.body["is_apex"], &answer.body["contested"]), (&json!(false), &json!(false)));
    assert_eq!(answer.body["records"][0]["state"], "wrong");
    assert_eq!(owner.get(DOMAINS).await.body["domains"], json!([]));
    assert_eq!(owner.get(check).await.code(), (429, "verify_throttled"));
    let wrong = owner.get("/v1/projects/demo/domain-check?name=co.uk").await;
    assert_eq!(wrong.code(), (400, "public_suffix"));
}

#[tokio::test]
async fn a_silent_zone_is_a_problem_of_its_owner_not_of_the_platform() {
    let platform = Platform::start().await;
    platform.project("demo", "pro").await;
    platform.dns.zone("customer.test", &["192.31.196.1"]);
    platform.dns.zone_is_silent("customer.test", true);
    let owner = platform.owner("demo");
    let silent = owner.get("/v1/projects/demo/domain-check?name=shop.customer.test").await;
    let problem = &silent.body["problems"][0];
    assert_eq!((silent.status, &problem["code"], &problem["who"]), (200, &json!("DNS_TIMEOUT"), &json!("you")));
    assert_eq!(problem["message"], "The nameservers of shop.customer.test do not answer.");
    let trouble = async || platform.operator("GET", "/status", Value::Null).await.body["trouble"].clone();
    assert_eq!(trouble().await, Value::Null);
    platform.dns.resolver_down(true);
    let down = owner.get("/v1/projects/demo/domain-check?name=other.customer.test").await;
    assert_eq!(down.code(), (503, "resolver_unavailable"));
    assert_eq!(trouble().await["code"], "resolver_unavailable");
    let metrics = platform.metrics().await;
    for line in
        ["domains_dns_checks_total{result=\"unanswered\"} 1", "domains_dns_checks_total{result=\"resolver_down\"} 1"]
    {
        assert!(metrics.contains(line), "{line}");
    }
}

#[tokio::test]
async fn a_plan_without_domains_suspends_them_after_a_week_and_paying_again_resumes() {
    let platform = Platform::start().await;
    platform.project("demo", "pro").await;
    platform.local_domain("demo", json!({ "name": "shop.localhost" })).await;
    platform.operator("PATCH", "/projects/demo", json!({ "plan": "free" })).await;
    // The domain itself says what will happen, and when.
    let announced = |domain: &Value| domain["problems"][0]["code"] == "PLAN_REQUIRED";
    let told = platform.domain_when("demo", "shop.localhost", announced).await;
    assert_eq!((&told["status"], &told["problems"][0]["severity"]), (&json!("active"), &json!("warning")));
    assert!(told["problems"][0]["message"].as_str().unwrap().contains("2026-06-22T00:00:00Z"), "{told:#}");
    let events = platform.operator("GET", "/projects/demo/domains/shop.localhost/events", Value::Null).await.body;
    let ended: Vec<&Value> =
        events["events"].as_array().unwrap().iter().filter(|event| event["type"] == "domain.plan_ended").collect();
    assert_eq!((ended.len(), &ended[0]["detail"]["served_until"]), (1, &json!("2026-06-22T00:00:00Z")));
    platform.clock.advance(Duration::from_hours(6 * 24));
    let served = platform.operator("POST", "/projects/demo/domains/shop.localhost/verify", Value::Null).await;
    assert_eq!((served.status, &served.body["status"]), (200, &json!("active")), "{served:?}");
    platform.clock.advance(Duration::from_hours(24));
    let suspended = platform.domain_in("demo", "shop.localhost", "suspended").await;
    assert_eq!(suspended["problems"][0]["code"], "PLAN_REQUIRED");
    let has_site = |entities: Vec<Entity>| {
        entities.iter().any(|entity| matches!(entity, Entity::Site(site) if site.hostname.as_str() == "shop.localhost"))
    };
    assert!(!has_site(platform.snapshot().await));
    platform.operator("PATCH", "/projects/demo", json!({ "plan": "business" })).await;
    platform.domain_in("demo", "shop.localhost", "active").await;
    assert!(has_site(platform.snapshot().await));
}
