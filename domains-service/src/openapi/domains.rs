//! Custom domains.

use chassis::openapi::query;
use contract::key::Scope;
use serde_json::json;

use super::projects::plain;
use super::{Operation, answer, empty, parts};
use crate::error::Code;

const ALL: &str = "/projects/{project}/domains";
const ONE: &str = "/projects/{project}/domains/{domain}";

const NAME_ERRORS: &[Code] = &[
    Code::InvalidDomain,
    Code::ReservedDomain,
    Code::PublicSuffix,
    Code::PlatformDomain,
    Code::VerifyThrottled,
    Code::ResolverUnavailable,
];

fn reading(id: &'static str, path: &'static str, summary: &'static str, description: &'static str) -> Operation {
    Operation {
        tag: "domains",
        scope: Some(Scope::DomainsRead),
        errors: &[Code::DomainNotFound],
        ..plain(id, path, summary, description)
    }
}

fn writing(
    id: &'static str,
    method: &'static str,
    path: &'static str,
    summary: &'static str,
    description: &'static str,
) -> Operation {
    Operation { method, scope: Some(Scope::DomainsWrite), ..reading(id, path, summary, description) }
}

pub(super) fn operations() -> impl Iterator<Item = Operation> {
    managing().into_iter().chain(looking())
}

fn if_match() -> serde_json::Value {
    json!({
        "name": "If-Match", "in": "header", "required": false, "schema": { "type": "string" },
        "description": "`ETag` of what you have seen; a domain that has changed since is left alone.",
    })
}

fn managing() -> [Operation; 5] {
    [
        Operation {
            parameters: vec![parts::name_part(), parts::status(), parts::cursor(), parts::limit()],
            answers: vec![answer(200, "A page of domains, by name.", "Domains")],
            errors: &[Code::InvalidQuery],
            ..reading("listDomains", ALL, "List domains", "The project's domains, and how many its plan has.")
        },
        Operation {
            body: Some("NewDomain"),
            answers: vec![
                answer(201, "The domain was added. Create the `records`.", "Domain").with(&["ETag"]),
                answer(200, "The project has the domain already.", "Domain").with(&["ETag"]),
            ],
            errors: &[
                Code::InvalidBody,
                Code::InvalidDomain,
                Code::ReservedDomain,
                Code::PublicSuffix,
                Code::PlatformDomain,
                Code::InvalidRedirectStatus,
                Code::PlanRequired,
                Code::DomainLimitReached,
                Code::DomainExists,
                Code::ProjectNotDeployed,
                Code::RedirectLoop,
                Code::RedirectTargetInactive,
                Code::PrimaryInUse,
                Code::RemovalInProgress,
            ],
            ..writing(
                "addDomain",
                "post",
                ALL,
                "Add a domain",
                "Verification and the certificate follow by themselves once the `records` exist.",
            )
        },
        Operation {
            answers: vec![answer(200, "The domain.", "Domain").with(&["ETag"])],
            ..reading("showDomain", ONE, "Show a domain", "Where it stands, and what its owner has to do.")
        },
        Operation {
            parameters: vec![if_match()],
            body: Some("DomainChange"),
            answers: vec![
                answer(200, "The domain as it is now, on every gateway.", "Domain").with(&["ETag"]),
                answer(
                    202,
                    "The domain as it is now; the gateways that `withdrawal` lists may send visitors as before.",
                    "Domain",
                )
                .with(&["ETag"]),
            ],
            errors: &[
                Code::InvalidBody,
                Code::InvalidRedirectStatus,
                Code::DomainNotFound,
                Code::PrimaryInUse,
                Code::RedirectLoop,
                Code::RedirectTargetInactive,
                Code::RemovalInProgress,
                Code::StaleRevision,
            ],
            ..writing("changeDomain", "patch", ONE, "Change a domain", "Makes it the primary one, or redirects it.")
        },
        Operation {
            parameters: vec![
                if_match(),
                query(
                    "with_redirects",
                    "Whether domains that redirect to it are removed too; otherwise they are in the way.",
                    &json!({ "type": "boolean", "default": false }),
                ),
            ],
            answers: vec![
                empty(204, "No gateway serves it any more.").with(&["X-Edge-Ack"]),
                answer(202, "It is removed; the gateways listed have not said yet that they know.", "Removal")
                    .with(&["X-Edge-Ack"]),
            ],
            errors: &[Code::InvalidQuery, Code::DomainNotFound, Code::PrimaryInUse, Code::StaleRevision],
            ..writing(
                "removeDomain",
                "delete",
                ONE,
                "Remove a domain",
                "Traffic stops at once, on every gateway that is connected. Asked again while others are waited for, it answers the same way.",
            )
        },
    ]
}

fn looking() -> [Operation; 3] {
    [
        Operation {
            answers: vec![
                answer(200, "The domain after a fresh look.", "Domain").with(&["ETag"]),
                answer(202, "The look goes on; ask for the domain again.", "Domain").with(&["ETag"]),
            ],
            errors: &[Code::DomainNotFound, Code::RemovalInProgress, Code::VerifyThrottled],
            ..writing(
                "verifyDomain",
                "post",
                "/projects/{project}/domains/{domain}/verify",
                "Verify a domain",
                "Looks at DNS now, and begins the schedule of looks again.",
            )
        },
        Operation {
            parameters: vec![parts::number_cursor()],
            answers: vec![answer(200, "A page of events, newest first.", "Events")],
            errors: &[Code::InvalidQuery, Code::DomainNotFound],
            ..reading(
                "listDomainEvents",
                "/projects/{project}/domains/{domain}/events",
                "List a domain's events",
                "What happened to it; a removed domain keeps its events.",
            )
        },
        Operation {
            parameters: vec![json!({
                "name": "name", "in": "query", "required": true, "schema": { "type": "string", "minLength": 1 },
                "description": "The name that might be added.",
            })],
            answers: vec![answer(200, "What was seen.", "DomainCheck")],
            errors: NAME_ERRORS,
            ..reading(
                "checkDomain",
                "/projects/{project}/domain-check",
                "Check a name",
                "What adding it would mean, without adding it.",
            )
        },
    ]
}
