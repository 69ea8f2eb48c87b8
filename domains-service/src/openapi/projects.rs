//! Projects, keys, and what happened.

use contract::key::Scope;

use super::{Operation, answer, empty, parts};
use crate::error::Code;

const ONE: &str = "/projects/{project}";

pub(super) fn operations() -> [Operation; 7] {
    let key = || Operation { tag: "keys", scope: Some(Scope::KeysWrite), ..plain("", "", "", "") };
    [
        Operation {
            answers: vec![answer(200, "The project.", "Project")],
            ..plain("showProject", ONE, "Show a project", "Any key of the project may ask.")
        },
        Operation {
            scope: Some(Scope::DomainsRead),
            parameters: vec![parts::number_cursor()],
            answers: vec![answer(200, "A page of events, newest first.", "Events")],
            errors: &[Code::InvalidQuery],
            ..plain("listEvents", "/projects/{project}/events", "List events", "The audit log of a project.")
        },
        Operation {
            answers: vec![answer(200, "The accounts.", "AcmeAccounts")],
            ..plain(
                "showAcmeAccount",
                "/acme-account",
                "Show the authorities' accounts",
                "What CAA records may say so that certificates can be issued for your domains.",
            )
        },
        Operation {
            id: "listKeys",
            path: "/projects/{project}/keys",
            summary: "List keys",
            description: "Keys, the oldest first, those revoked lately included. The keys themselves are never shown again.",
            parameters: vec![parts::moment_cursor(), parts::limit()],
            answers: vec![answer(200, "A page of keys.", "Keys")],
            errors: &[Code::InvalidQuery],
            ..key()
        },
        Operation {
            id: "createKey",
            method: "post",
            path: "/projects/{project}/keys",
            summary: "Create a key",
            description: "The key is in this answer and in no other.",
            body: Some("NewKey"),
            answers: vec![answer(201, "The key.", "CreatedKey")],
            errors: &[Code::InvalidBody, Code::KeyLimitReached, Code::ScopeNotGrantable],
            ..key()
        },
        Operation {
            id: "rotateKey",
            method: "post",
            path: "/projects/{project}/keys/{key}/rotate",
            summary: "Rotate a key",
            description: "A new key like the old one, which goes on working for a while.",
            body: Some("KeyRotation"),
            answers: vec![answer(201, "The new key; `rotated` is the old one.", "CreatedKey")],
            errors: &[
                Code::InvalidBody,
                Code::KeyNotFound,
                Code::KeyNotUsable,
                Code::KeyLimitReached,
                Code::ScopeNotGrantable,
            ],
            ..key()
        },
        Operation {
            id: "revokeKey",
            method: "delete",
            path: "/projects/{project}/keys/{key}",
            summary: "Revoke a key",
            description: "It is refused from now on. Revoking it again changes nothing and answers the same way. A key revokes those alone that may do nothing more than itself.",
            answers: vec![
                empty(204, "It is revoked, and no gateway accepts it any more.").with(&["X-Edge-Ack"]),
                answer(202, "It is revoked; the gateways listed may accept it still.", "Removal").with(&["X-Edge-Ack"]),
            ],
            errors: &[Code::KeyNotFound, Code::ScopeNotGrantable],
            ..key()
        },
    ]
}

/// An operation that reads, without parameters.
pub(super) fn plain(
    id: &'static str,
    path: &'static str,
    summary: &'static str,
    description: &'static str,
) -> Operation {
    Operation {
        id,
        method: "get",
        path,
        tag: "projects",
        summary,
        description,
        scope: None,
        parameters: Vec::new(),
        body: None,
        answers: Vec::new(),
        errors: &[],
    }
}
