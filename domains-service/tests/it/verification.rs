//! Verification, end to end over a scripted DNS.

mod watching;

use std::net::IpAddr;
use std::time::Duration;

use serde_json::{Value, json};
use verification::{CaaRecord, RecordData};

use crate::world::{Answer, Behaviour, Platform};

const SHOP: &str = "shop.customer.test";
const ONE: &str = "192.31.196.1";
const TWO: &str = "192.31.196.2";

async fn with_zone() -> Platform {
    let platform = Platform::start().await;
    platform.project("demo", "pro").await;
    platform.dns.zone("customer.test", &[ONE, TWO]);
    platform
}

async fn target(platform: &Platform, project: &str) -> String {
    let body = platform.operator("GET", &format!("/projects/{project}"), Value::Null).await.body;
    body["cname_target"].as_str().unwrap().to_owned()
}

async fn add(platform: &Platform, project: &str, name: &str) {
    let path = format!("/projects/{project}/domains");
    assert_eq!(platform.operator("POST", &path, json!({ "name": name })).await.status, 201);
    platform.domain_when(project, name, |domain| !domain["checks"].is_null()).await;
}

async fn verify(platform: &Platform, project: &str, name: &str) -> Answer {
    platform.clock.advance(Duration::from_secs(11));
    let path = format!("/v1/projects/{project}/domains/{name}/verify");
    // A scheduled check may be in progress; the next answer has its result.
    for _ in 0..100 {
        let answer = platform.owner(project).send("POST", &path, Value::Null).await;
        if answer.status != 202 {
            return answer;
        }
        platform.clock.advance(Duration::from_secs(11));
    }
    panic!("another worker always has the lease");
}

fn first_problem(answer: &Answer) -> &str {
    answer.body["problems"][0]["code"].as_str().unwrap_or_default()
}

// rule: 1.8, 1.11, 1.13
// promise: domains.7
#[tokio::test]
async fn a_certificate_is_issued_when_every_nameserver_has_the_record() {
    let platform = with_zone().await;
    add(&platform, "demo", SHOP).await;
    let waiting = platform.domain_in("demo", SHOP, "pending_dns").await;
    assert_eq!(waiting["problems"][0]["code"], "DNS_NO_RECORD");
    assert!(waiting["next_check_at"].is_string());
    platform.dns.set(SHOP, RecordData::Cname(target(&platform, "demo").await));
    platform.clock.advance(Duration::from_secs(30));
    let active = platform.domain_in("demo", SHOP, "active").await;
    assert_eq!((&active["primary"], &active["records"][0]["state"]), (&json!(true), &json!("ok")));
    assert_eq!(active["checks"]["nameservers"].as_array().unwrap().len(), 2);
    assert_eq!(active["problems"], json!([]));
}

// rule: 1.16
// promise: domains.12
#[tokio::test]
async fn an_address_record_blocks_the_cname_and_is_named() {
    let platform = with_zone().await;
    platform.dns.set(SHOP, RecordData::A("198.51.100.7".parse().unwrap()));
    add(&platform, "demo", SHOP).await;
    let domain = platform.domain_in("demo", SHOP, "action_required").await;
    let problem = &domain["problems"][0];
    assert_eq!((&problem["code"], &problem["who"]), (&json!("DNS_CONFLICTING_A"), &json!("you")));
    assert_eq!(problem["observed"], json!(["198.51.100.7"]));
    assert!(problem["fix"].as_str().unwrap().contains("Delete the A record"));
}

// rule: 1.17
#[tokio::test]
async fn the_value_must_match_exactly() {
    let platform = with_zone().await;
    platform.project("other", "pro").await;
    platform.dns.set(SHOP, RecordData::Cname(target(&platform, "other").await));
    add(&platform, "demo", SHOP).await;
    let domain = platform.domain_in("demo", SHOP, "action_required").await;
    assert_eq!(domain["problems"][0]["code"], "DNS_CNAME_MISMATCH");
    assert_eq!(domain["problems"][0]["expected"], json!([target(&platform, "demo").await]));
}

// rule: 1.14
// promise: domains.11
#[tokio::test]
async fn nameservers_that_disagree_are_shown_as_propagation() {
    let platform = with_zone().await;
    platform.dns.set_at(ONE, SHOP, RecordData::Cname(target(&platform, "demo").await));
    add(&platform, "demo", SHOP).await;
    let domain = platform.domain_in("demo", SHOP, "propagating").await;
    assert_eq!(domain["problems"][0]["message"], "1 of 2 of your nameservers already answer correctly.");
    let verdicts: Vec<&Value> =
        domain["checks"]["nameservers"].as_array().unwrap().iter().map(|server| &server["verdict"]).collect();
    assert_eq!(verdicts, [&json!("ok"), &json!("missing")]);
    assert_eq!(domain["certificate"]["status"], "none", "nothing is ordered");
    platform.dns.set_at(TWO, SHOP, RecordData::Cname(target(&platform, "demo").await));
    let done = verify(&platform, "demo", SHOP).await;
    assert_eq!((done.status, &done.body["status"]), (200, &json!("active")));
}

#[tokio::test]
async fn verify_is_throttled() {
    let platform = with_zone().await;
    add(&platform, "demo", SHOP).await;
    verify(&platform, "demo", SHOP).await;
    let path = format!("/v1/projects/demo/domains/{SHOP}/verify");
    let soon = platform.owner("demo").send("POST", &path, Value::Null).await;
    assert_eq!((soon.code(), soon.header("retry-after")), ((429, "verify_throttled"), "10"));
}

// promise: domains.31
#[tokio::test]
async fn an_active_domain_survives_an_outage_of_dns_and_is_degraded_by_two_failed_checks() {
    let platform = with_zone().await;
    platform.dns.set(SHOP, RecordData::Cname(target(&platform, "demo").await));
    add(&platform, "demo", SHOP).await;
    platform.domain_in("demo", SHOP, "active").await;
    platform.dns.resolver_down(true);
    for _ in 0..3 {
        platform.clock.advance(Duration::from_hours(1));
        assert_eq!(verify(&platform, "demo", SHOP).await.body["status"], "active");
    }
    platform.dns.resolver_down(false);
    for server in [ONE, TWO] {
        platform.dns.behave(server, Behaviour::Silent);
    }
    let silent = verify(&platform, "demo", SHOP).await;
    assert_eq!((&silent.body["status"], first_problem(&silent)), (&json!("active"), "DNS_TIMEOUT"));
    for server in [ONE, TWO] {
        platform.dns.behave(server, Behaviour::Answers);
    }
    platform.dns.clear(SHOP);
    assert_eq!(verify(&platform, "demo", SHOP).await.body["status"], "active", "once is no proof");
    platform.clock.advance(Duration::from_mins(10));
    let degraded = platform.domain_in("demo", SHOP, "degraded").await;
    assert_eq!(degraded["problems"][0]["code"], "DNS_NO_RECORD");
    platform.dns.set(SHOP, RecordData::Cname(target(&platform, "demo").await));
    assert_eq!(verify(&platform, "demo", SHOP).await.body["status"], "active");
}

// promise: domains.12
#[tokio::test]
async fn failing_nameservers_are_named_and_change_no_state() {
    for (behaviour, code) in
        [(Behaviour::Silent, "DNS_TIMEOUT"), (Behaviour::ServFail, "DNS_SERVFAIL"), (Behaviour::Lame, "DNS_LAME_NS")]
    {
        let platform = with_zone().await;
        platform.dns.set(SHOP, RecordData::Cname(target(&platform, "demo").await));
        for server in [ONE, TWO] {
            platform.dns.behave(server, behaviour.clone());
        }
        add(&platform, "demo", SHOP).await;
        let looked = verify(&platform, "demo", SHOP).await;
        assert_eq!((&looked.body["status"], first_problem(&looked)), (&json!("pending_dns"), code));
    }
}

/// Adds an apex, and its TXT record that proves ownership.
async fn prove(platform: &Platform, project: &str, name: &str) {
    let path = format!("/projects/{project}/domains");
    let added = platform.operator("POST", &path, json!({ "name": name })).await;
    assert_eq!(added.status, 201, "{added:?}");
    let text = added.body["records"][1].clone();
    assert_eq!((&text["type"], &text["purpose"]), (&json!("TXT"), &json!("ownership")), "both records at once");
    platform.dns.set(text["fqdn"].as_str().unwrap(), RecordData::Txt(text["value"].as_str().unwrap().to_owned()));
    verify(platform, project, name).await;
}

// rule: 1.12
// promise: domains.14
#[tokio::test]
async fn an_apex_that_points_at_us_gets_no_certificate_without_its_txt_record() {
    const APEX: &str = "customer.test";
    let platform = with_zone().await;
    platform.project("thief", "pro").await;
    // The owner's records point at us, as during preparation of a move, or after the owner left.
    platform.dns.set(APEX, RecordData::A("203.0.113.10".parse().unwrap()));
    add(&platform, "thief", APEX).await;
    let refused = verify(&platform, "thief", APEX).await;
    assert_eq!(
        (&refused.body["status"], first_problem(&refused)),
        (&json!("pending_ownership"), "OWNERSHIP_TXT_MISSING")
    );
    assert_eq!(refused.body["certificate"]["status"], "none", "nothing is ordered");
    let is_published = |entity: &contract::feed::Entity| matches!(entity, contract::feed::Entity::Certificate(_));
    assert!(!platform.snapshot().await.iter().any(is_published));
    prove(&platform, "demo", APEX).await;
    platform.domain_in("demo", APEX, "active").await;
    // The proof stays valid while the records point here, so a certificate is renewed without the text.
    platform.dns.clear(&format!("_edge-verify.{APEX}"));
    assert_eq!(verify(&platform, "demo", APEX).await.body["status"], "active");
    // After its removal it is contested: its addresses still point here.
    let path = format!("/v1/projects/demo/domains/{APEX}");
    assert_eq!(platform.owner("demo").send("DELETE", &path, Value::Null).await.status, 204);
    let later = verify(&platform, "thief", APEX).await;
    assert_eq!((later.status, &later.body["status"]), (200, &json!("pending_ownership")), "{later:?}");
    let message = later.body["problems"][0]["message"].as_str().unwrap();
    assert!(message.contains("is or was attached to another project"), "{message}");
}

// rule: 1.12
// promise: domains.13
#[tokio::test]
async fn an_apex_with_an_alias_is_active_and_foreign_addresses_are_named() {
    let platform = with_zone().await;
    platform.dns.set("customer.test", RecordData::A("203.0.113.10".parse().unwrap()));
    prove(&platform, "demo", "customer.test").await;
    platform.domain_in("demo", "customer.test", "active").await;
    platform.dns.set("customer.test", RecordData::Aaaa("2001:db8::7".parse().unwrap()));
    let looked = verify(&platform, "demo", "customer.test").await;
    assert_eq!(looked.body["problems"][0]["code"], "DNS_APEX_ADDRESS_MISMATCH");
    assert_eq!(looked.body["problems"][0]["observed"], json!(["2001:db8::7"]));
}

#[tokio::test]
async fn a_contested_name_goes_to_the_project_that_proves_it_and_the_loser_is_notified() {
    let platform = with_zone().await;
    platform.project("thief", "pro").await;
    platform.dns.set(SHOP, RecordData::Cname(target(&platform, "demo").await));
    add(&platform, "demo", SHOP).await;
    platform.domain_in("demo", SHOP, "active").await;
    // Another project cannot take the name, not even with a record that points at its own target.
    platform.dns.clear(SHOP);
    platform.dns.set(SHOP, RecordData::Cname(target(&platform, "thief").await));
    add(&platform, "thief", SHOP).await;
    let pending = platform.domain_in("thief", SHOP, "pending_ownership").await;
    assert_eq!(pending["problems"][0]["code"], "OWNERSHIP_TXT_MISSING");
    let text = pending["records"][1].clone();
    assert_eq!((&text["type"], &text["name"]), (&json!("TXT"), &json!("_edge-verify.shop")));
    assert_eq!(
        platform.operator("GET", &format!("/projects/demo/domains/{SHOP}"), Value::Null).await.body["status"],
        "active"
    );
    // A proof for another project is not accepted.
    platform.dns.set(text["fqdn"].as_str().unwrap(), RecordData::Txt("edge-verify=somebodyelse".to_owned()));
    let wrong = verify(&platform, "thief", SHOP).await;
    assert_eq!(first_problem(&wrong), "OWNERSHIP_TXT_MISMATCH");
    platform.dns.set(text["fqdn"].as_str().unwrap(), RecordData::Txt(text["value"].as_str().unwrap().to_owned()));
    platform.report("cut-off", platform.newest_revision().await).await;
    let taken = verify(&platform, "thief", SHOP).await;
    assert_eq!(taken.body["status"], "active", "{:#}", taken.body);
    let events = platform.owner("demo").get(&format!("/v1/projects/demo/domains/{SHOP}/events")).await.body;
    assert!(events["events"].as_array().unwrap().iter().any(|event| event["type"] == "domain.transferred"));
    let lost = platform.domain_when("demo", SHOP, |domain| domain["status"] != "active").await;
    assert_eq!(
        lost["withdrawal"]["lagging"],
        json!(["tests/cut-off"]),
        "a gateway that serves the loser still is named"
    );
    let sites = platform.snapshot().await.into_iter().filter_map(|entity| match entity {
        contract::feed::Entity::Site(site) if site.hostname.as_str() == SHOP => site.project().cloned(),
        _ => None,
    });
    assert_eq!(sites.map(|project| project.to_string()).collect::<Vec<_>>(), ["thief"]);
}

#[tokio::test]
async fn redirects_of_the_loser_of_a_name_never_lead_to_the_winner() {
    taken_over(None).await;
}

#[tokio::test]
async fn redirects_to_a_lost_primary_domain_are_withdrawn_and_lead_to_its_successor() {
    taken_over(Some("o.localhost")).await;
}

/// The project loses its primary domain, and this other one follows.
async fn taken_over(successor: Option<&str>) {
    let platform = with_zone().await;
    platform.project("thief", "pro").await;
    platform.dns.set(SHOP, RecordData::Cname(target(&platform, "demo").await));
    add(&platform, "demo", SHOP).await;
    assert_eq!(platform.domain_in("demo", SHOP, "active").await["primary"], true);
    let by_role = json!({ "name": "m.localhost", "redirect": { "to": "primary" } });
    let by_name = json!({ "name": "n.localhost", "redirect": { "to": SHOP } });
    let others = successor.map(|name| json!({ "name": name }));
    for domain in [by_role, by_name].into_iter().chain(others) {
        platform.local_domain("demo", domain).await;
    }
    let redirect_of = async |name: &str| {
        let sites = platform.snapshot().await.into_iter().filter_map(|entity| match entity {
            contract::feed::Entity::Site(site) if site.hostname.as_str() == name => Some(site.redirect),
            _ => None,
        });
        sites.last().expect("it is served").map(|redirect| redirect.to.to_string())
    };
    assert_eq!(redirect_of("m.localhost").await.as_deref(), Some(SHOP));
    // The name changes hands.
    platform.dns.clear(SHOP);
    platform.dns.set(SHOP, RecordData::Cname(target(&platform, "thief").await));
    add(&platform, "thief", SHOP).await;
    let text = platform.domain_in("thief", SHOP, "pending_ownership").await["records"][1].clone();
    platform.dns.set(text["fqdn"].as_str().unwrap(), RecordData::Txt(text["value"].as_str().unwrap().to_owned()));
    platform.report("cut-off", platform.newest_revision().await).await;
    assert_eq!(verify(&platform, "thief", SHOP).await.body["status"], "active");
    for (name, leads_to) in [("m.localhost", successor), ("n.localhost", None)] {
        assert_eq!(redirect_of(name).await.as_deref(), leads_to, "{name} serves its own project");
        let domain = platform.operator("GET", &format!("/projects/demo/domains/{name}"), Value::Null).await.body;
        assert_eq!(domain["withdrawal"]["lagging"], json!(["tests/cut-off"]), "{name}");
        let events = platform.operator("GET", &format!("/projects/demo/domains/{name}/events"), Value::Null).await.body;
        assert_eq!(events["events"][0]["detail"], json!({ "redirect_target_lost": SHOP }), "the loser is told");
    }
}

// promise: domains.5
#[tokio::test]
async fn a_removed_name_is_free_for_its_project_and_contested_for_others() {
    let platform = with_zone().await;
    platform.project("thief", "pro").await;
    platform.dns.set(SHOP, RecordData::Cname(target(&platform, "demo").await));
    add(&platform, "demo", SHOP).await;
    platform.domain_in("demo", SHOP, "active").await;
    let path = format!("/v1/projects/demo/domains/{SHOP}");
    assert_eq!(platform.owner("demo").send("DELETE", &path, Value::Null).await.status, 204);
    platform.dns.clear(SHOP);
    platform.dns.set(SHOP, RecordData::Cname(target(&platform, "thief").await));
    add(&platform, "thief", SHOP).await;
    platform.domain_in("thief", SHOP, "pending_ownership").await;
    platform.dns.clear(SHOP);
    platform.dns.set(SHOP, RecordData::Cname(target(&platform, "demo").await));
    add(&platform, "demo", SHOP).await;
    platform.domain_in("demo", SHOP, "active").await;
}

// promise: domains.32
#[tokio::test]
async fn no_packet_goes_to_nameservers_at_private_addresses() {
    let platform = Platform::start().await;
    platform.project("demo", "pro").await;
    let private = ["127.0.0.1", "10.0.0.1", "169.254.169.254", "192.168.1.1", "100.64.0.1"];
    platform.dns.zone("customer.test", &private);
    add(&platform, "demo", SHOP).await;
    let looked = verify(&platform, "demo", SHOP).await;
    assert_eq!(first_problem(&looked), "DNS_LAME_NS");
    assert_eq!(platform.dns.servers_asked(), Vec::<IpAddr>::new());
}

// promise: domains.32
#[tokio::test]
async fn a_verification_asks_a_bounded_number_of_questions() {
    let platform = Platform::start().await;
    platform.project("demo", "pro").await;
    let servers: Vec<String> = (1..=50).map(|index| format!("192.31.196.{index}")).collect();
    platform.dns.zone("customer.test", &servers.iter().map(String::as_str).collect::<Vec<_>>());
    add(&platform, "demo", SHOP).await;
    let domain = platform.domain_in("demo", SHOP, "pending_dns").await;
    assert_eq!(domain["checks"]["nameservers"].as_array().unwrap().len(), 6);
    assert!(domain["checks"]["queries"].as_u64().unwrap() <= 48, "{}", domain["checks"]);
}

#[tokio::test]
async fn a_missing_zone_is_named() {
    let platform = Platform::start().await;
    platform.project("demo", "pro").await;
    platform.dns.zone("test", &[ONE]);
    add(&platform, "demo", SHOP).await;
    let domain = platform.domain_in("demo", SHOP, "pending_dns").await;
    assert_eq!(domain["problems"][0]["code"], "DNS_ZONE_MISSING");
}

#[tokio::test]
async fn caa_does_not_matter_to_our_own_authority() {
    let platform = with_zone().await;
    platform.dns.set(SHOP, RecordData::Cname(target(&platform, "demo").await));
    let forbid = CaaRecord { flags: 0, tag: "issue".to_owned(), value: b";".to_vec() };
    platform.dns.set("customer.test", RecordData::Caa(forbid));
    add(&platform, "demo", SHOP).await;
    platform.domain_in("demo", SHOP, "active").await;
}
