//! What the API takes and answers: each type once, for handlers, for the interface description and for the dashboard.

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

/// How long an old key or secret goes on working after a rotation, in seconds, unless said otherwise.
pub const OVERLAP_SECONDS: u32 = 86_400;

/// The longest overlap that can be asked for, in seconds.
pub const OVERLAP_SECONDS_MAX: u32 = 30 * 86_400;

contract::message! {
    #[derive(Clone, Debug)]
    pub answer Withdrawal = "What was withdrawn and may be served still by some gateways." {
        what: What = "What kind of thing.";
        since: Rfc3339 = "Since when.";
        lagging: Vec<String> = "The gateways that have not acknowledged it.";
    }
}

contract::message! {
    pub answer Removal = "A removal that not all gateways know of." {
        lagging: Vec<String> = "Their names.";
    }
}

contract::message! {
    #[derive(Clone, Debug)]
    pub answer Event = "Something that happened." {
        id: i64 = "Grows from event to event.", { "minimum": 0 };
        kind as "type": String = "What happened, for example `domain.active`.";
        domain: Option<String> = "To which domain.";
        actor: String = "Who did it: the id of a key, `operator`, or `system`.";
        client: Option<String> = "The address it was asked from.";
        detail: Value = "More, depending on the type.";
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
        id: ProjectId = "Its name, and the label of its host.";
        uid: ProjectUid = "Its identity, which no other project ever has, also not one of the same name.";
        plan: Plan = "What it pays for.";
        limits: Limits;
        limits_override: Option<Limits>;
        access: Access = "Whether its visitors need a key.";
        upstream: UpstreamName = "What stands behind it.";
        suspended: bool = "Whether nothing of it is served.";
        cors: Option<Cors> = "Who answers pages of other sites (CORS): upstream, open (any origin may read), off, or the origins that may read; null: the setting of its upstream.";
        hsts: Option<Hsts> = "Who says that its hosts are reached over TLS alone; null: the setting of its upstream.";
        deployed: bool = "Whether it was deployed successfully.";
        deployed_at: Option<Rfc3339> = "When it last was.";
        host: Option<Hostname> = "Its host on the platform.";
        cname_target: Hostname = "Where its domains' CNAME records point.";
        domain_limit: u32 = "Domains its plan has.";
        withdrawal: Option<Withdrawal>;
        domains_until: Option<Rfc3339> = "Until when its domains are served though its plan has none any more: seven days after the change.";
        created_at: Rfc3339 = "When it was created.";
        updated_at: Rfc3339 = "When it was last changed.";
    }
}

/// Days of usage that are shown, today included.
pub const USAGE_DAYS: i64 = 30;

contract::message! {
    pub answer Usage = "Requests with the project's keys, and what plans grant." {
        in_minute: i64 = "Admitted in this minute.", { "minimum": 0 };
        days: Vec<UsageOfDay> = "The last 30 days that had requests, the oldest first.";
        plans: Vec<PlanGrant> = "What each plan grants.";
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
    pub answer PlanGrant = "What a plan grants." {
        plan: Plan = "The plan.";
        limits: Limits;
        domains: u32 = "Custom domains.";
    }
}

contract::message! {
    pub answer AcmeAccount = "An account at a certificate authority." {
        ca: String = "The authority's name in CAA records.";
        account_uri: Option<String> = "Our account there.";
        caa: String = "A CAA record that lets it issue.";
        caa_pinned: Option<String> = "One that lets it issue to us alone.";
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
        id: KeyId = "Names the key; it is no secret.";
        project_id: ProjectId = "Whose key it is.";
        label: String = "What its owner calls it.";
        scopes: Scopes = "What the key may do.";
        environment: Environment = "The deployment it belongs to.";
        prefix: String = "How it begins.";
        last4: String = "How it ends.";
        created_at: Rfc3339 = "When it was created.";
        expires_at: Option<Rfc3339> = "When it stops working.";
        revoked_at: Option<Rfc3339> = "When it was revoked.";
        revoked: bool = "Whether it was.";
        withdrawal: Option<Withdrawal>;
        ban: Option<KeyBan>;
        last_used_at: Option<Rfc3339> = "The beginning of the minute in which it was used last, to the minute and known within seconds; null: not yet.";
    }
}

contract::message! {
    #[derive(Clone, Debug)]
    pub answer KeyBan = "Gateways refuse the key for a while, as they reported in the last half minute." {
        until: Rfc3339 = "Until when.";
        reason: BanReason = "Why.";
    }
}

contract::message! {
    pub answer CreatedKey = "A new key." {
        #[serde(flatten)]
        made: Key, "flatten";
        key: String = "The key. It is shown this once.";
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
    pub request NewKey = "A key to make." {
        #[serde(default)]
        label: String, { "maxLength": LABEL_CHARACTERS_MAX, "default": "" };
        scopes: Vec<Scope> = "What the key may do.", { "minItems": 1 };
        expires_at: Option<String> = "When it stops working; absent: never.", { "format": "date-time" };
    }
}

contract::message! {
    pub request KeyRotation = "How to rotate a key." {
        #[serde(default, deserialize_with = "chassis::json::maybe_whole")]
        overlap_seconds: Option<i64> = "For how long the old key goes on working.",
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
            "description": "Begins with https:// and leads to a public address.",
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
        id: String = "Names the webhook.";
        project_id: ProjectId = "Whose it is.";
        url: WebhookUrl;
        description: String = "What its owner calls it.";
        events: WantedEvents;
        enabled: bool = "Whether anything is sent to it.";
        disabled_at: Option<Rfc3339> = "When it was switched off.";
        disabled_reason: Option<DisabledReason> = "Why it was.";
        failing_since: Option<Rfc3339> = "The first failed attempt since the last delivery.";
        last_delivered_at: Option<Rfc3339> = "The last delivery.";
        previous_secret_until: Option<Rfc3339> = "Until when messages are signed with the old secret as well.";
        created_at: Rfc3339 = "When it was created.";
        updated_at: Rfc3339 = "When it was last changed.";
    }
}

contract::message! {
    pub answer CreatedWebhook = "A webhook with its secret." {
        #[serde(flatten)]
        webhook: Webhook, "flatten";
        secret: String = "What messages are signed with. It is shown this once.";
    }
}

contract::message! {
    pub answer Webhooks = "A page." {
        webhooks: Vec<Webhook>;
        next_cursor: Option<String> = "`cursor` of the next page; null on the last.";
    }
}

contract::message! {
    pub request NewWebhook = "A webhook to make." {
        url: WebhookUrl;
        events: Option<WantedEvents>;
        #[serde(default)]
        description: String, { "maxLength": DESCRIPTION_CHARACTERS_MAX, "default": "" };
    }
}

contract::message! {
    pub request WebhookChange = "What to change of a webhook." {
        #[serde(default)]
        url: Given<WebhookUrl>;
        #[serde(default)]
        events: Given<WantedEvents>;
        #[serde(default)]
        description: Given<String>, { "maxLength": DESCRIPTION_CHARACTERS_MAX };
        #[serde(default)]
        enabled: Given<bool> = "Whether anything is sent to it.";
    }
}

contract::message! {
    pub request SecretRotation = "How to rotate a webhook's secret." {
        #[serde(default, deserialize_with = "chassis::json::maybe_whole")]
        overlap_seconds: Option<i64> = "For how long messages are signed with both.",
            { "minimum": 0, "maximum": OVERLAP_SECONDS_MAX, "default": OVERLAP_SECONDS };
    }
}

/// How an attempt may have ended; null: there was none.
fn results() -> Vec<Option<&'static str>> {
    chassis::webhook::AttemptResult::WORDS.iter().copied().map(Some).chain([None]).collect()
}

contract::message! {
    #[derive(Clone, Debug)]
    pub answer Delivery = "One event on its way to one webhook." {
        id: i64 = "Names the delivery.", { "minimum": 0 };
        message_id: String = "`webhook-id` of the message, the same in every attempt.";
        kind as "type": String = "The event.";
        state: String = "What became of it.", { "enum": DeliveryState::WORDS };
        attempts: i64 = "How often it was tried.", { "minimum": 0 };
        next_attempt_at: Option<Rfc3339> = "When it is tried next.";
        last_attempt_at: Option<Rfc3339> = "When the last attempt ended.";
        last_result: Option<String> = "How it ended.", { "enum": results() };
        last_status: Option<i64> = "The status that the receiver answered.";
        last_error: Option<String> = "What was wrong: one phrase for each class of failure. Nothing that the receiver said is in it.";
        created_at: Rfc3339 = "When the event happened.";
        payload: Value = "What was sent: the body of the message.";
    }
}

contract::message! {
    pub answer Deliveries = "A page." {
        deliveries: Vec<Delivery>;
        next_cursor: Option<String> = "`cursor` of the next page; null on the last.";
    }
}

/// A field of a change: absent leaves things as they are, `null` takes them away.
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
