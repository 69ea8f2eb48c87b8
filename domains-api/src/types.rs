//! Requests and answers of the API: each type once, for handlers, the interface description and the dashboard.

mod domain;
mod overview;
mod words;

use contract::ban::BanReason;
use contract::browsers::{Cors, Hsts};
use contract::hostname::Hostname;
use contract::key::{Environment, KeyId, Scope, Scopes};
use contract::plan::{Limits, Plan};
use contract::project::{Access, ProjectId, ProjectUid, UpstreamName};
use contract::schema::{self, Given, Schema, SharedSchemas, Value, json};
use serde::{Deserialize, Serialize};

pub use self::domain::*;
pub use self::overview::*;
pub use self::words::*;
pub use crate::moment::Rfc3339;

/// The longest label of a key, in characters.
pub const LABEL_CHARACTERS_MAX: usize = 100;

/// The longest description of a webhook, in characters.
pub const DESCRIPTION_CHARACTERS_MAX: usize = 100;

/// How long an old key or secret stays valid after a rotation, in seconds, by default.
pub const OVERLAP_SECONDS: u32 = 86_400;

/// The longest overlap that can be asked for, in seconds.
pub const OVERLAP_SECONDS_MAX: u32 = 30 * 86_400;

contract::message! {
    #[derive(Clone, Debug)]
    pub answer Withdrawal = "A withdrawal that some gateways have not confirmed: they may still serve it." {
        what: WithdrawalKind = "The kind of the withdrawn thing.";
        since: Rfc3339 = "Since when.";
        lagging: Vec<String> = "The gateways that have not confirmed it.";
    }
}

contract::message! {
    pub answer Removal = "A removal that some gateways have not confirmed." {
        lagging: Vec<String> = "Their names.";
    }
}

contract::message! {
    #[derive(Clone, Debug)]
    pub answer Event = "An event." {
        id: i64 = "The number of the event; later events have larger numbers.", { "minimum": 0 };
        kind as "type": String = "The kind of event, for example `domain.active`.";
        domain: Option<String> = "The domain of the event.";
        actor: String = "The actor: the id of a key, `operator`, or `system`.";
        client: Option<String> = "The client's address.";
        detail: Value = "Further values, depending on the type.";
        at: Rfc3339 = "When.";
    }
}

contract::message! {
    pub answer Events = "A page." {
        events: Vec<Event>;
        next_cursor: Option<String> = "`cursor` of the next page; null on the last.";
    }
}

contract::message! {
    #[derive(Clone, Debug)]
    pub answer Project = "A project." {
        id: ProjectId = "The project's name, and the first label of its host.";
        uid: ProjectUid = "The project's identity. No other project ever has it, even with the same name.";
        plan: Plan = "The project's plan.";
        limits: Limits;
        limits_override: Option<Limits>;
        access: Access = "Whether visitors need an API key.";
        upstream: UpstreamName = "The upstream that serves the project.";
        suspended: bool = "Whether all its hosts are refused.";
        cors: Option<Cors> = "CORS: `upstream` (the upstream answers), `open` (any origin may read), `off`, or the origins that may read; null: the setting of its upstream.";
        hsts: Option<Hsts> = "Whether the gateway or the upstream sends Strict-Transport-Security; null: the setting of its upstream.";
        deployed: bool = "Whether it was deployed successfully.";
        deployed_at: Option<Rfc3339> = "When it was last deployed.";
        host: Option<Hostname> = "Its host on the platform.";
        cname_target: Hostname = "Where its domains' CNAME records point.";
        domain_limit: u32 = "The largest number of domains on its plan.";
        withdrawal: Option<Withdrawal>;
        domains_until: Option<Rfc3339> = "After a change to a plan without custom domains: until when its domains are still served, seven days.";
        created_at: Rfc3339 = "When it was created.";
        updated_at: Rfc3339 = "When it was last changed.";
    }
}

/// Days of usage that are shown, today included.
pub const USAGE_DAYS: i64 = 30;

contract::message! {
    pub answer Usage = "Requests with the project's keys, and the limits of each plan." {
        in_minute: i64 = "Admitted in this minute.", { "minimum": 0 };
        days: Vec<UsageOfDay> = "The last 30 days that had requests, the oldest first.";
        plans: Vec<PlanGrant> = "The limits of each plan.";
    }
}

contract::message! {
    #[derive(Clone, Debug, Default)]
    pub answer UsageOfDay = "Requests of a day." {
        date: String = "The day, UTC.", { "format": "date" };
        admitted: i64 = "Admitted.", { "minimum": 0 };
        refused: i64 = "Refused because a limit was reached.", { "minimum": 0 };
        banned: i64 = "Refused because the key was banned.", { "minimum": 0 };
    }
}

contract::message! {
    pub answer PlanGrant = "The limits of a plan." {
        plan: Plan = "The plan.";
        limits: Limits;
        domains: u32 = "Custom domains.";
    }
}

contract::message! {
    pub answer AcmeAccount = "An account at a certificate authority." {
        ca: String = "The authority's name in CAA records.";
        account_uri: Option<String> = "Our account there.";
        caa: String = "A CAA record that allows the authority.";
        caa_pinned: Option<String> = "A CAA record that allows the authority for our account only.";
    }
}

contract::message! {
    pub answer AcmeAccounts = "All accounts." {
        accounts: Vec<AcmeAccount> = "One each.";
    }
}

contract::message! {
    #[derive(Clone, Debug)]
    pub answer Key = "A key." {
        id: KeyId = "The key's id; not secret.";
        project_id: ProjectId = "The project of the key.";
        label: String = "A label chosen by the owner.";
        scopes: Scopes = "The key's permissions.";
        environment: Environment = "The deployment it belongs to.";
        prefix: String = "The first characters of the key.";
        last4: String = "The last four characters of the key.";
        created_at: Rfc3339 = "When it was created.";
        expires_at: Option<Rfc3339> = "When it expires; null: never.";
        revoked_at: Option<Rfc3339> = "When it was revoked.";
        revoked: bool = "Whether it was.";
        withdrawal: Option<Withdrawal>;
        ban: Option<KeyBan>;
        last_used_at: Option<Rfc3339> = "The minute of its last use, updated within seconds; null: never used.";
    }
}

contract::message! {
    #[derive(Clone, Debug)]
    pub answer KeyBan = "A ban of the key, as gateways reported in the last 30 seconds." {
        until: Rfc3339 = "Until when.";
        reason: BanReason = "Why.";
    }
}

contract::message! {
    pub answer CreatedKey = "A new key." {
        #[serde(flatten)]
        made: Key, "flatten";
        key: String = "The key itself, shown only here.";
        #[serde(skip_serializing_if = "Option::is_none")]
        rotated: Option<Key>, "optional";
    }
}

contract::message! {
    pub answer Keys = "A page." {
        keys: Vec<Key>;
        next_cursor: Option<String> = "`cursor` of the next page; null on the last.";
    }
}

contract::message! {
    pub request NewKey = "A new key." {
        #[serde(default)]
        label: String, { "maxLength": LABEL_CHARACTERS_MAX, "default": "" };
        scopes: Vec<Scope> = "The key's permissions.", { "minItems": 1 };
        expires_at: Option<String> = "When it expires; absent: never.", { "format": "date-time" };
    }
}

contract::message! {
    pub request KeyRotation = "How to rotate a key." {
        #[serde(default, deserialize_with = "chassis::json::maybe_whole")]
        overlap_seconds: Option<i64> = "Seconds for which the old key stays valid.",
            { "minimum": 0, "maximum": OVERLAP_SECONDS_MAX, "default": OVERLAP_SECONDS };
    }
}

/// The address of a webhook.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct WebhookUrl(
    /// As text.
    pub String,
);

impl Schema for WebhookUrl {
    fn schema(_: &mut SharedSchemas) -> Value {
        json!({
            "type": "string", "format": "uri", "maxLength": chassis::webhook::URL_BYTES_MAX,
            "description": "An https:// URL that resolves to a public address.",
        })
    }
}

/// The events that a webhook receives.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct WantedEvents(
    /// As they were typed.
    pub Vec<String>,
);

impl Schema for WantedEvents {
    fn schema(_: &mut SharedSchemas) -> Value {
        let prefixes = EVENTS.iter().flat_map(|event| {
            event.match_indices('.').filter_map(|(at, _)| event.get(..=at)).map(|prefix| format!("{prefix}*"))
        });
        let all: std::collections::BTreeSet<String> =
            prefixes.chain(EVENTS.iter().map(|event| (*event).to_owned())).collect();
        json!({
            "type": "array", "items": { "type": "string", "enum": all }, "minItems": 1, "maxItems": WANTED_MAX,
            "description": "Events, or prefixes such as `domain.certificate.*`. Absent: all.",
        })
    }
}

contract::message! {
    #[derive(Clone, Debug)]
    pub answer Webhook = "A webhook." {
        id: String = "The webhook's id.";
        project_id: ProjectId = "The project that it belongs to.";
        url: WebhookUrl;
        description: String = "A label chosen by the owner.";
        events: WantedEvents;
        enabled: bool = "Whether events are sent to it.";
        disabled_at: Option<Rfc3339> = "When it was disabled.";
        disabled_reason: Option<DisabledReason> = "Why it was disabled.";
        failing_since: Option<Rfc3339> = "The first failed attempt since the last delivery.";
        last_delivered_at: Option<Rfc3339> = "The last delivery.";
        previous_secret_until: Option<Rfc3339> = "Until when messages are also signed with the old secret.";
        created_at: Rfc3339 = "When it was created.";
        updated_at: Rfc3339 = "When it was last changed.";
    }
}

contract::message! {
    pub answer CreatedWebhook = "A webhook with its secret." {
        #[serde(flatten)]
        webhook: Webhook, "flatten";
        secret: String = "The secret that signs messages, shown only here.";
    }
}

contract::message! {
    pub answer Webhooks = "A page." {
        webhooks: Vec<Webhook>;
        next_cursor: Option<String> = "`cursor` of the next page; null on the last.";
    }
}

contract::message! {
    pub request NewWebhook = "A new webhook." {
        url: WebhookUrl;
        events: Option<WantedEvents>;
        #[serde(default)]
        description: String, { "maxLength": DESCRIPTION_CHARACTERS_MAX, "default": "" };
    }
}

contract::message! {
    pub request WebhookChange = "Changes of a webhook; absent fields stay." {
        #[serde(default)]
        url: Given<WebhookUrl>;
        #[serde(default)]
        events: Given<WantedEvents>;
        #[serde(default)]
        description: Given<String>, { "maxLength": DESCRIPTION_CHARACTERS_MAX };
        #[serde(default)]
        enabled: Given<bool> = "Whether events are sent to it.";
    }
}

contract::message! {
    pub request SecretRotation = "How to rotate a webhook's secret." {
        #[serde(default, deserialize_with = "chassis::json::maybe_whole")]
        overlap_seconds: Option<i64> = "Seconds for which messages are signed with both secrets.",
            { "minimum": 0, "maximum": OVERLAP_SECONDS_MAX, "default": OVERLAP_SECONDS };
    }
}

/// How an attempt may have ended; null: there was none.
fn results() -> Vec<Option<&'static str>> {
    chassis::webhook::AttemptResult::WORDS.iter().copied().map(Some).chain([None]).collect()
}

contract::message! {
    #[derive(Clone, Debug)]
    pub answer Delivery = "One event for one webhook." {
        id: i64 = "The delivery's id.", { "minimum": 0 };
        message_id: String = "`webhook-id` of the message, the same in every attempt.";
        kind as "type": String = "The event.";
        state: String = "The state of the delivery.", { "enum": DeliveryState::WORDS };
        attempts: i64 = "The number of attempts.", { "minimum": 0 };
        next_attempt_at: Option<Rfc3339> = "When the next attempt is made.";
        last_attempt_at: Option<Rfc3339> = "When the last attempt ended.";
        last_result: Option<String> = "How it ended.", { "enum": results() };
        last_status: Option<i64> = "The status that the receiver answered.";
        last_error: Option<String> = "The class of the failure, as a fixed phrase without any text of the receiver.";
        created_at: Rfc3339 = "When the event happened.";
        payload: Value = "The body of the message.";
    }
}

contract::message! {
    pub answer Deliveries = "A page." {
        deliveries: Vec<Delivery>;
        next_cursor: Option<String> = "`cursor` of the next page; null on the last.";
    }
}

/// A field of a change: absent keeps the value, `null` removes it.
#[derive(Default)]
pub enum Field<T> {
    #[default]
    Absent,
    Null,
    Value(T),
}

impl<T> Field<T> {
    /// Changes what there was.
    pub fn apply(self, to: &mut Option<T>) {
        match self {
            Self::Absent => {}
            Self::Null => *to = None,
            Self::Value(value) => *to = Some(value),
        }
    }
}

impl<T: Schema> Schema for Field<T> {
    const MAY_BE_ABSENT: bool = true;

    fn schema(shared: &mut SharedSchemas) -> Value {
        schema::of::<Option<T>>(shared)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Field<T> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = <Option<T> as Deserialize>::deserialize(deserializer)?;
        Ok(value.map_or(Self::Null, Self::Value))
    }
}
