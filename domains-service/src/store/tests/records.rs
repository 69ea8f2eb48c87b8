//! Every field of a record is read as it was saved last. The records below name all fields, each with another value
//! than a new record has: a field that its statement forgets fails here.

use std::fmt::Debug;

use contract::browsers::{Browsers, Cors, Hsts};
use contract::plan::{Limits, Plan};
use contract::project::Access;
use contract::site::RedirectStatus;
use contract::time::UnixSeconds;
use domains_api::types::DisabledReason;
use verification::problem::{Problem, ProblemCode};
use verification::verdict::{CaaView, Checks, Records};

use super::*;
use crate::domain::proof::ProofKey;
use crate::domain::{CertificateState, CertificateStatus, Domain, RedirectRule, RedirectTarget, Status};
use crate::store::projects::{ProjectRecord, Removed, find_named, find_removed, save_project};
use crate::webhook::{EndpointRecord, Wanted};

fn at(millis: i64) -> UnixMillis {
    UnixMillis(millis)
}

fn same(read: Option<impl Debug>, saved: &impl Debug) {
    assert_eq!(format!("{:#?}", read.unwrap()), format!("{saved:#?}"));
}

fn project() -> ProjectRecord {
    ProjectRecord {
        id: "shop".parse().unwrap(),
        salt: "salt".to_owned(),
        proof_key: ProofKey::new(vec![7; 32]),
        plan: Plan::Business,
        limits: Limits::new(7, 70),
        access: Access::Key,
        upstream: "shop-2".parse().unwrap(),
        suspended: true,
        browsers: Browsers { cors: Some(Cors::Open), hsts: Some(Hsts::On) },
        created_at: at(1),
        updated_at: at(2),
        deployed_at: Some(at(3)),
        unpaid_since: Some(at(4)),
        removed: None,
        unreadable: None,
    }
}

fn new_project() -> ProjectRecord {
    ProjectRecord {
        plan: Plan::Free,
        limits: None,
        access: Access::Public,
        upstream: "orders".parse().unwrap(),
        suspended: false,
        browsers: Browsers::default(),
        updated_at: at(1),
        deployed_at: None,
        unpaid_since: None,
        ..project()
    }
}

fn certificate() -> CertificateState {
    CertificateState {
        status: CertificateStatus::Failed,
        ca: Some("one".to_owned()),
        serial: Some("2".to_owned()),
        not_before: Some(UnixSeconds(3)),
        not_after: Some(UnixSeconds(4)),
        key_type: Some("ecdsa_p256".to_owned()),
        renew_at: Some(UnixSeconds(5)),
        advice_at: Some(UnixSeconds(6)),
        advised_until: Some(UnixSeconds(7)),
        last_error: Some("eight".to_owned()),
        attempts: 9,
        next_attempt_at: Some(UnixSeconds(10)),
        rate_limited_until: Some(UnixSeconds(11)),
        waiting: [("two".to_owned(), UnixSeconds(12))].into(),
        queued: true,
    }
}

fn domain(project: &ProjectRef) -> Domain {
    let checks = Checks {
        at_ms: 1,
        duration_ms: 2,
        queries: 3,
        resolver: "authoritative".to_owned(),
        nameservers: Vec::new(),
        caa: CaaView { allowed_cas: vec!["one".to_owned()], records: vec!["0 issue \"one\"".to_owned()] },
        record: Records::Partial,
        txt: Some(Records::Missing),
        zone: Some("customer.com".to_owned()),
    };
    Domain {
        name: "shop.customer.com".parse().unwrap(),
        project: project.clone(),
        status: Status::Degraded,
        status_since: at(2),
        primary: true,
        primary_wanted: true,
        redirect: Some(RedirectRule {
            to: RedirectTarget::Name("www.customer.com".parse().unwrap()),
            status: Some(RedirectStatus::Found),
        }),
        is_apex: Some(false),
        checks: Some(checks),
        problems: vec![Problem::new(ProblemCode::CertDelayed, "shop.customer.com", "late", "wait")],
        certificate: certificate(),
        watched_since: at(3),
        checked_at: Some(at(4)),
        failing_since: Some(at(5)),
        waits_since: Some(at(10)),
        due_at: Some(at(6)),
        // Leases write it, not records.
        lease_fence: 0,
        removal: Some(7),
        rev: 8,
        created_at: at(1),
        updated_at: at(9),
        unreadable: None,
    }
}

fn endpoint(project: &ProjectRef) -> EndpointRecord {
    EndpointRecord {
        id: "wh_1".to_owned(),
        project: project.clone(),
        url: "https://customer.com/".to_owned(),
        description: "ours".to_owned(),
        events: Wanted::parse(vec!["domain.active".to_owned()]).unwrap(),
        sealed_secret: "sealed".to_owned(),
        previous: Some(("before".to_owned(), at(2))),
        failing_since: Some(at(3)),
        delivered_at: Some(at(4)),
        disabled: Some((at(5), DisabledReason::Gone)),
        created_at: at(1),
        updated_at: at(6),
        unreadable: None,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_field_of_a_record_is_read_as_it_was_saved_last() {
    for (store, _directory) in both().await {
        let (project, key) = (project(), key());
        let (domain, endpoint) = (domain(&project.id), endpoint(&project.id));
        let mut write = store.write().await.unwrap();
        let connection = write.connection();
        save_project(connection, &new_project()).await.unwrap();
        domains::save_domain(connection, &Domain::added(domain.name.clone(), project.id.clone(), at(1))).await.unwrap();
        keys::save_key(connection, &KeyRecord { expires_at: None, revoked_at: None, ..key.clone() }).await.unwrap();
        let new = EndpointRecord {
            url: "https://customer.com/before".to_owned(),
            description: String::new(),
            events: Wanted::everything(false),
            sealed_secret: String::new(),
            previous: None,
            failing_since: None,
            delivered_at: None,
            disabled: None,
            updated_at: at(1),
            ..endpoint.clone()
        };
        webhooks::save_webhook(connection, &new).await.unwrap();
        save_project(connection, &project).await.unwrap();
        domains::save_domain(connection, &domain).await.unwrap();
        keys::save_key(connection, &key).await.unwrap();
        webhooks::save_webhook(connection, &endpoint).await.unwrap();
        let read = find_named(&mut *connection, &project.id.name).await.unwrap();
        assert_eq!(read.as_ref().map(|read| read.proof_key.to_text()), Some(project.proof_key.to_text()));
        same(read, &project);
        same(domains::find_domain(connection, &project.id, &domain.name).await.unwrap(), &domain);
        same(keys::find_key(&mut *connection, &project.id, &key.id).await.unwrap(), &key);
        same(webhooks::find_webhook(&mut *connection, &project.id, &endpoint.id).await.unwrap(), &endpoint);
        let domains = vec![crate::domain::kept::KeptDomain::of(&domain)];
        let removed = Some(Removed { at: at(10), erase_at: at(11), domains });
        let removed = ProjectRecord { removed, ..project };
        save_project(connection, &removed).await.unwrap();
        same(find_removed(connection, &removed.id.name).await.unwrap().into_iter().next(), &removed);
        write.commit().await.unwrap();
    }
}

fn key() -> KeyRecord {
    let secret = PresentedKey::generate(Environment::Test, &chassis::random::bytes().unwrap());
    KeyRecord {
        id: KeyId::from_random([7; 10]),
        project: project().id,
        digest: secret.digest(),
        label: "ours".to_owned(),
        scopes: Scopes::all(),
        last4: secret.last4().to_owned(),
        environment: Environment::Test,
        created_at: at(1),
        expires_at: Some(UnixSeconds(2)),
        revoked_at: Some(at(3)),
        // Uses write it, not records.
        last_used_at: None,
        unreadable: None,
    }
}
