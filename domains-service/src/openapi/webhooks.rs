//! Webhooks.

use chassis::openapi::query;
use contract::key::Scope;
use serde_json::json;

use super::projects::plain;
use super::{Operation, answer, empty, parts};
use crate::error::Code;
use crate::store::webhooks::DeliveryState;

const ALL: &str = "/projects/{project}/webhooks";
const ONE: &str = "/projects/{project}/webhooks/{webhook}";
const DELIVERIES: &str = "/projects/{project}/webhooks/{webhook}/deliveries";

fn reading(id: &'static str, path: &'static str, summary: &'static str, description: &'static str) -> Operation {
    Operation {
        tag: "webhooks",
        scope: Some(Scope::DomainsRead),
        errors: &[Code::WebhookNotFound],
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

pub(super) fn operations() -> [Operation; 9] {
    [
        Operation {
            parameters: vec![parts::moment_cursor(), parts::limit()],
            answers: vec![answer(200, "A page of webhooks, the oldest first.", "Webhooks")],
            errors: &[Code::InvalidQuery],
            ..reading("listWebhooks", ALL, "List webhooks", "Who is told what happens to the project's domains.")
        },
        Operation {
            body: Some("NewWebhook"),
            answers: vec![answer(201, "The webhook and its secret.", "CreatedWebhook")],
            errors: &[Code::InvalidBody, Code::InvalidWebhookUrl, Code::WebhookLimitReached],
            ..writing(
                "createWebhook",
                "post",
                ALL,
                "Create a webhook",
                "Messages follow Standard Webhooks. The secret is in this answer and in no other.",
            )
        },
        Operation {
            answers: vec![answer(200, "The webhook.", "Webhook")],
            ..reading("showWebhook", ONE, "Show a webhook", "Whether it is served, and since when it fails.")
        },
        Operation {
            body: Some("WebhookChange"),
            answers: vec![answer(200, "The webhook as it is now.", "Webhook")],
            errors: &[Code::InvalidBody, Code::InvalidWebhookUrl, Code::WebhookNotFound],
            ..writing(
                "changeWebhook",
                "patch",
                ONE,
                "Change a webhook",
                "Switching it off fails what waits for it. Switched on, it is told what happens from then on.",
            )
        },
        Operation {
            answers: vec![empty(204, "It is gone, with everything that waited for it.")],
            ..writing("removeWebhook", "delete", ONE, "Remove a webhook", "Nothing is sent to it any more.")
        },
        Operation {
            body: Some("SecretRotation"),
            answers: vec![answer(200, "The webhook and its new secret.", "CreatedWebhook")],
            errors: &[Code::InvalidBody, Code::WebhookNotFound],
            ..writing(
                "rotateWebhookSecret",
                "post",
                "/projects/{project}/webhooks/{webhook}/rotate",
                "Rotate a webhook's secret",
                "For a while messages are signed with the new secret and the old one.",
            )
        },
        Operation {
            answers: vec![answer(202, "The message is on its way.", "Delivery")],
            errors: &[Code::WebhookNotFound, Code::WebhookDisabled],
            ..writing(
                "testWebhook",
                "post",
                "/projects/{project}/webhooks/{webhook}/test",
                "Send a test message",
                "A message of the type `webhook.test`, signed and sent like every other, whatever the webhook is told.",
            )
        },
        Operation {
            parameters: vec![
                query("state", "Deliveries in this state.", &json!({ "type": "string", "enum": DeliveryState::WORDS })),
                parts::number_cursor(),
                parts::limit(),
            ],
            answers: vec![answer(200, "A page of deliveries, newest first.", "Deliveries")],
            errors: &[Code::InvalidQuery, Code::WebhookNotFound],
            ..reading("listWebhookDeliveries", DELIVERIES, "List deliveries", "What was sent, and what became of it.")
        },
        Operation {
            answers: vec![answer(202, "It is tried as if for the first time.", "Delivery")],
            errors: &[Code::WebhookNotFound, Code::DeliveryNotFound, Code::WebhookDisabled],
            ..writing(
                "repeatWebhookDelivery",
                "post",
                "/projects/{project}/webhooks/{webhook}/deliveries/{delivery}/repeat",
                "Repeat a delivery",
                "Sends the message again, under the same id.",
            )
        },
    ]
}
