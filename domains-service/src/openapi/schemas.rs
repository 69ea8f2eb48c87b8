//! What goes in and out, as JSON Schema. Words and bounds are those of the code.

mod domain;

use std::collections::BTreeSet;

use chassis::openapi::schema as reference;
use contract::browsers::ORIGINS_MAX;
use contract::key::{Environment, Scope};
use contract::plan::Plan;
use contract::project::Access;
use serde_json::{Map, Value, json};

use crate::api::keys::{LABEL_CHARACTERS_MAX, OVERLAP_SECONDS, OVERLAP_SECONDS_MAX};
use crate::api::webhooks as hooks;
use crate::store::webhooks::DeliveryState;
use crate::webhook::endpoint::WANTED_MAX;
use crate::webhook::{DisabledReason, EVENTS};

/// All schemas by name.
pub(super) fn all() -> Value {
    let mut schemas = Map::new();
    for part in [shared(), projects(), keys(), webhooks(), domain::schemas()] {
        if let Value::Object(part) = part {
            schemas.extend(part);
        }
    }
    schemas.into()
}

/// An answer: every field is always there.
fn answer(description: &str, properties: &Value) -> Value {
    let names: Vec<&String> = properties.as_object().map(|fields| fields.keys().collect()).unwrap_or_default();
    json!({
        "type": "object", "description": description, "required": names, "properties": properties,
        "additionalProperties": false,
    })
}

/// A request: what is not required may be left out, and nothing else may be there.
fn request(required: &[&str], properties: &Value) -> Value {
    json!({ "type": "object", "required": required, "properties": properties, "additionalProperties": false })
}

/// A page of something.
fn page(name: &str, of: &str) -> Value {
    let list = json!({ "type": "array", "items": reference(of) });
    answer(
        "A page.",
        &json!({ name: list, "next_cursor": text_or_null("`cursor` of the next page; null on the last.") }),
    )
}

fn text(description: &str) -> Value {
    json!({ "type": "string", "description": description })
}

fn text_or_null(description: &str) -> Value {
    json!({ "type": ["string", "null"], "description": description })
}

fn date(description: &str) -> Value {
    json!({ "type": "string", "format": "date-time", "description": description })
}

fn date_or_null(description: &str) -> Value {
    json!({ "type": ["string", "null"], "format": "date-time", "description": description })
}

fn flag(description: &str) -> Value {
    json!({ "type": "boolean", "description": description })
}

fn count(description: &str) -> Value {
    json!({ "type": "integer", "minimum": 0, "description": description })
}

fn word(words: &[&str], description: &str) -> Value {
    json!({ "type": "string", "enum": words, "description": description })
}

fn list_of(items: &Value, description: &str) -> Value {
    json!({ "type": "array", "items": items, "description": description })
}

fn or_null(schema: &Value) -> Value {
    json!({ "anyOf": [schema, { "type": "null" }] })
}

fn shared() -> Value {
    let event = json!({
        "id": count("Grows from event to event."),
        "type": text("What happened, for example `domain.active`."),
        "domain": text_or_null("To which domain."),
        "actor": text("Who did it: the id of a key, `operator`, or `system`."),
        "client": text_or_null("The address it was asked from."),
        "detail": { "type": "object", "description": "More, depending on the type." },
        "at": date("When."),
    });
    json!({
        "Error": {
            "type": "object",
            "required": ["code", "message", "status"],
            "properties": {
                "code": text("Machine-readable error code."),
                "message": text("Human-readable description."),
                "status": { "type": "integer", "minimum": 400, "maximum": 599, "description": "The HTTP status code." },
                "details": { "type": "object", "description": "More, for the codes whose documentation says so." },
            },
        },
        "Event": answer("Something that happened.", &event),
        "Events": page("events", "Event"),
    })
}

/// Who answers browsers that ask for another site's page.
fn cors() -> Value {
    json!({
        "description": "Who answers pages of other sites (CORS): upstream, open (any origin may read), off, or the origins that may read; null: the setting of its upstream.",
        "anyOf": [
            { "type": "string", "enum": ["upstream", "open", "off"] },
            { "type": "array", "items": { "type": "string" }, "minItems": 1, "maxItems": ORIGINS_MAX },
            { "type": "null" },
        ],
    })
}

fn projects() -> Value {
    let project = json!({
        "id": text("Its name, and the label of its host."),
        "uid": text("Its identity, which no other project ever has, also not one of the same name."),
        "plan": word(Plan::WORDS, "What it pays for."),
        "limits": reference("Limits"),
        "limits_override": or_null(&reference("Limits")),
        "access": word(Access::WORDS, "Whether its visitors need a key."),
        "upstream": text("What stands behind it."),
        "suspended": flag("Whether nothing of it is served."),
        "cors": cors(),
        "hsts": or_null(&word(&["upstream", "on"], "Who says that its hosts are reached over TLS alone; null: the setting of its upstream.")),
        "deployed": flag("Whether it was deployed successfully."),
        "deployed_at": date_or_null("When it last was."),
        "host": text_or_null("Its host on the platform."),
        "cname_target": text("Where its domains' CNAME records point."),
        "domain_limit": count("Domains its plan has."),
        "withdrawal": or_null(&reference("Withdrawal")),
        "domains_until": date_or_null("Until when its domains are served though its plan has none any more: seven days after the change."),
        "created_at": date("When it was created."),
        "updated_at": date("When it was last changed."),
    });
    let account = json!({
        "ca": text("The authority's name in CAA records."),
        "account_uri": text_or_null("Our account there."),
        "caa": text("A CAA record that lets it issue."),
        "caa_pinned": text_or_null("One that lets it issue to us alone."),
    });
    json!({
        "Limits": answer("Requests.", &json!({
            "per_minute": count("Per UTC minute."),
            "per_day": count("Per UTC day."),
        })),
        "Project": answer("A project.", &project),
        "AcmeAccount": answer("An account at a certificate authority.", &account),
        "AcmeAccounts": answer("All accounts.", &json!({ "accounts": list_of(&reference("AcmeAccount"), "One each.") })),
    })
}

fn keys() -> Value {
    let scopes = list_of(&json!({ "type": "string", "enum": Scope::WORDS }), "What the key may do.");
    let mut scopes_of_new = scopes.clone();
    if let Some(list) = scopes_of_new.as_object_mut() {
        list.insert("minItems".to_owned(), json!(1));
    }
    let key = json!({
        "id": text("Names the key; it is no secret."),
        "project_id": text("Whose key it is."),
        "label": text("What its owner calls it."),
        "scopes": scopes,
        "environment": word(Environment::WORDS, "The deployment it belongs to."),
        "prefix": text("How it begins."),
        "last4": text("How it ends."),
        "created_at": date("When it was created."),
        "expires_at": date_or_null("When it stops working."),
        "revoked_at": date_or_null("When it was revoked."),
        "revoked": flag("Whether it was."),
        "withdrawal": or_null(&reference("Withdrawal")),
        "last_used_at": date_or_null("The beginning of the minute in which it was used last, to the minute and known within seconds; null: not yet."),
    });
    let mut created = key.clone();
    if let Some(created) = created.as_object_mut() {
        created.insert("key".to_owned(), text("The key. It is shown this once."));
    }
    let mut created = answer("A new key.", &created);
    if let Some(properties) = created.pointer_mut("/properties").and_then(Value::as_object_mut) {
        properties.insert("rotated".to_owned(), reference("Key"));
    }
    json!({
        "Key": answer("A key.", &key),
        "Keys": page("keys", "Key"),
        "CreatedKey": created,
        "NewKey": request(&["scopes"], &json!({
            "label": { "type": "string", "maxLength": LABEL_CHARACTERS_MAX, "default": "" },
            "scopes": scopes_of_new,
            "expires_at": date_or_null("When it stops working; absent: never."),
        })),
        "KeyRotation": overlap("the old key goes on working", OVERLAP_SECONDS, OVERLAP_SECONDS_MAX),
    })
}

fn overlap(what: &str, default: u32, most: u32) -> Value {
    let description = format!("For how long {what}.");
    request(
        &[],
        &json!({
            "overlap_seconds": {
                "type": ["integer", "null"], "minimum": 0, "maximum": most, "default": default, "description": description,
            },
        }),
    )
}

/// Everything an endpoint may ask for: events by name, and all prefixes of their names.
fn wanted() -> BTreeSet<String> {
    let prefixes = EVENTS.iter().flat_map(|event| {
        event.match_indices('.').filter_map(|(at, _)| event.get(..=at)).map(|prefix| format!("{prefix}*"))
    });
    prefixes.chain(EVENTS.iter().map(|event| (*event).to_owned())).collect()
}

fn webhooks() -> Value {
    let words_or_null = |words: &[&str]| words.iter().map(|word| json!(word)).chain([Value::Null]).collect::<Vec<_>>();
    let reasons = words_or_null(DisabledReason::WORDS);
    let results = words_or_null(chassis::webhook::AttemptResult::WORDS);
    let url = json!({
        "type": "string", "format": "uri", "maxLength": chassis::webhook::URL_BYTES_MAX,
        "description": "Begins with https:// and leads to a public address.",
    });
    let events = json!({
        "type": "array", "items": { "type": "string", "enum": wanted() }, "minItems": 1, "maxItems": WANTED_MAX,
        "description": "Events, or prefixes such as `domain.certificate.*`. Absent: all.",
    });
    let description = json!({ "type": "string", "maxLength": hooks::DESCRIPTION_CHARACTERS_MAX });
    let webhook = json!({
        "id": text("Names the webhook."),
        "project_id": text("Whose it is."),
        "url": url,
        "description": text("What its owner calls it."),
        "events": events,
        "enabled": flag("Whether anything is sent to it."),
        "disabled_at": date_or_null("When it was switched off."),
        "disabled_reason": { "type": ["string", "null"], "enum": reasons, "description": "Why it was." },
        "failing_since": date_or_null("The first failed attempt since the last delivery."),
        "last_delivered_at": date_or_null("The last delivery."),
        "previous_secret_until": date_or_null("Until when messages are signed with the old secret as well."),
        "created_at": date("When it was created."),
        "updated_at": date("When it was last changed."),
    });
    let mut created = webhook.clone();
    if let Some(created) = created.as_object_mut() {
        created.insert("secret".to_owned(), text("What messages are signed with. It is shown this once."));
    }
    let delivery = json!({
        "id": count("Names the delivery."),
        "message_id": text("`webhook-id` of the message, the same in every attempt."),
        "type": text("The event."),
        "state": word(DeliveryState::WORDS, "What became of it."),
        "attempts": count("How often it was tried."),
        "next_attempt_at": date_or_null("When it is tried next."),
        "last_attempt_at": date_or_null("When the last attempt ended."),
        "last_result": { "type": ["string", "null"], "enum": results, "description": "How it ended." },
        "last_status": { "type": ["integer", "null"], "description": "The status that the receiver answered." },
        "last_error": text_or_null("What was wrong: one phrase for each class of failure. Nothing that the receiver said is in it."),
        "created_at": date("When the event happened."),
        "payload": { "type": "object", "description": "What was sent: the body of the message." },
    });
    json!({
        "Webhook": answer("A webhook.", &webhook),
        "CreatedWebhook": answer("A webhook with its secret.", &created),
        "Webhooks": page("webhooks", "Webhook"),
        "NewWebhook": request(&["url"], &json!({
            "url": url, "events": or_null(&events), "description": description,
        })),
        "WebhookChange": request(&[], &json!({
            "url": url, "events": events, "description": description,
            "enabled": flag("Whether anything is sent to it."),
        })),
        "SecretRotation": overlap("messages are signed with both", hooks::OVERLAP_SECONDS, hooks::OVERLAP_SECONDS_MAX),
        "Delivery": answer("One event on its way to one webhook.", &delivery),
        "Deliveries": page("deliveries", "Delivery"),
    })
}
