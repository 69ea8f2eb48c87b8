//! API keys: create, list, rotate, revoke. A key is shown once, in the response that creates it.

use std::sync::Arc;

use axum::response::{IntoResponse, Response};
use axum::routing::on;
use chassis::openapi::{Method, Presence, Success};
use contract::feed::Entity;
use contract::key::{Environment, KeyId, PresentedKey, Scope, Scopes};
use contract::schema;
use contract::time::{UnixMillis, UnixSeconds};
use http::StatusCode;
use serde_json::json;

use super::extract::{self, Authorised, Json, Params, moment_cursor, name_text, overlap};
use super::types::{
    CreatedKey, Key, KeyBan, KeyRotation, Keys, LABEL_CHARACTERS_MAX, NewKey, OVERLAP_SECONDS, OVERLAP_SECONDS_MAX,
    Removal, Rfc3339, Withdrawal,
};
use super::view::{page, removed};
use super::{Handler, Operation, projects};
use crate::error::{ApiResult, Code};
use crate::gateways::Gateways;
use crate::project::ProjectRef;
use crate::store::keys::{self, KeyRecord};
use crate::store::withdrawals::Kind;
use crate::store::{self, Write};
use crate::withdrawals::{self, PendingWithdrawals};

/// Keys of one project that may be used at the same time.
const KEYS_PER_PROJECT_MAX: u64 = 100;

/// Revoked or expired keys of one project that are still listed; beyond that the oldest are deleted.
const KEYS_GONE_MAX: i64 = 400;

/// Operations on keys.
pub(super) const OPERATIONS: &[Operation] = &[LIST, CREATE, ROTATE, REVOKE];

const LIST: Operation = Operation {
    summary: "List keys",
    description: "Keys, the oldest first, those revoked lately included. The keys themselves are never shown again.",
    parameters: &[extract::MOMENT_CURSOR, extract::LIMIT],
    answers: &[Success::new(200, "A page of keys.", schema::of::<Keys>)],
    errors: &[Code::InvalidQuery],
    ..of_keys("listKeys", Method::Get, "/v1/projects/{project}/keys", |get| on(get, list))
};

const CREATE: Operation = Operation {
    summary: "Create a key",
    description: "The key is shown only in this answer.",
    body: Some((schema::of::<NewKey>, Presence::Required)),
    answers: &[Success::new(201, "The key.", schema::of::<CreatedKey>)],
    errors: &[Code::InvalidBody, Code::KeyLimitReached, Code::ScopeNotGrantable],
    ..of_keys("createKey", Method::Post, LIST.path, |post| on(post, create))
};

const ROTATE: Operation = Operation {
    summary: "Rotate a key",
    description: "A new key like the old one, which stays valid for a while.",
    body: Some((schema::of::<KeyRotation>, Presence::Optional)),
    answers: &[Success::new(201, "The new key; `rotated` is the old one.", schema::of::<CreatedKey>)],
    errors: &[Code::InvalidBody, Code::KeyNotFound, Code::KeyNotUsable, Code::KeyLimitReached, Code::ScopeNotGrantable],
    ..of_keys("rotateKey", Method::Post, "/v1/projects/{project}/keys/{key}/rotate", |post| on(post, rotate))
};

const REVOKE: Operation = Operation {
    summary: "Revoke a key",
    description: "Gateways refuse it from now on. Revoking it again changes nothing and answers the same way. A key revokes those \
                  alone that may do nothing more than itself.",
    answers: &[
        Success::empty(204, "It is revoked, and no gateway accepts it any more.").with(&["X-Edge-Ack"]),
        Success::new(202, "It is revoked; the gateways listed may accept it still.", schema::of::<Removal>)
            .with(&["X-Edge-Ack"]),
    ],
    errors: &[Code::KeyNotFound, Code::ScopeNotGrantable],
    ..of_keys("revokeKey", Method::Delete, "/v1/projects/{project}/keys/{key}", |delete| on(delete, revoke))
};

/// An operation on keys.
const fn of_keys(id: &'static str, method: Method, path: &'static str, handler: Handler) -> Operation {
    Operation { tag: "keys", scope: Some(Scope::KeysWrite), ..Operation::internal(id, method, path, handler) }
}

/// `POST …/keys`.
async fn create(
    Authorised { part: gateways, actor, project, .. }: Authorised<0, Arc<Gateways>>,
    Json(wanted): Json<NewKey>,
) -> ApiResult {
    let now = gateways.core.clock.now();
    let scopes: Scopes = wanted.scopes.into_iter().collect();
    if scopes.is_empty() {
        return Code::InvalidBody.fail("A key needs at least one scope.");
    }
    name_text("label", &wanted.label, LABEL_CHARACTERS_MAX)?;
    let malformed = "expires_at is a moment in RFC 3339, for example 2027-01-31T00:00:00Z.";
    let expires_at = wanted.expires_at.map(|text| text.parse::<jiff::Timestamp>()).transpose();
    let expires_at = expires_at.map_err(|_| Code::InvalidBody.refuse(malformed))?.map(|at| UnixSeconds(at.as_second()));
    if expires_at.is_some_and(|at| at <= now.to_seconds()) {
        return Code::InvalidBody.fail("expires_at lies in the past.");
    }
    if !actor.may_grant(&scopes) {
        return Code::ScopeNotGrantable.fail("A key cannot grant scopes that it does not have.");
    }
    let mut write = gateways.core.store.write().await?;
    project_exists(&mut write, &project).await?;
    room_for_one(&mut write, &project, 0).await?;
    let (key, secret) = generate(&project, gateways.core.settings.environment, wanted.label, scopes, expires_at, now)?;
    publish(&mut write, &key).await?;
    write.record(&project, None, "key.created", &actor, json!({ "key": key.id, "scopes": key.scopes })).await?;
    gateways.commit_everywhere(write).await?;
    Ok(created(&key, &secret, None))
}

/// `GET …/keys`.
async fn list(Authorised { part: gateways, project, .. }: Authorised<0, Arc<Gateways>>, params: Params) -> ApiResult {
    let (after, limit) = (params.moment_cursor()?, params.limit()?);
    projects::load(&gateways.core, &project).await?;
    let found = gateways.core.store.keys(&project, &after, limit).await?;
    let pending = PendingWithdrawals::of(&gateways, &project.uid).await?;
    let (bans, _) = gateways.core.store.bans_in_force(gateways.core.clock.now()).await?;
    let cursor = |key: &KeyRecord| moment_cursor(key.created_at, key.id.as_str());
    let (keys, next) = page(&found, limit, cursor, |key| {
        // A ban that is only tried out refuses nothing.
        let ban = bans.get(&key.id).filter(|ban| !ban.shadow);
        let ban = ban.map(|ban| KeyBan { until: ban.until.into(), reason: ban.reason });
        Key { ban, ..view(key, pending.find(&[Kind::Key], key.id.as_str())) }
    });
    Ok(axum::Json(Keys { keys, next_cursor: next }).into_response())
}

/// `POST …/keys/{id}/rotate`: a new key like the old one, which stays valid for a while. `rotated.withdrawal` names the
/// gateways that may accept the old one for longer.
async fn rotate(
    Authorised { part: gateways, actor, project, rest: [key], .. }: Authorised<1, Arc<Gateways>>,
    Json(rotation): Json<KeyRotation>,
) -> ApiResult {
    let overlap = overlap(rotation.overlap_seconds, OVERLAP_SECONDS, OVERLAP_SECONDS_MAX)?;
    let mut write = gateways.core.store.write().await?;
    let now = write.now();
    let mut old = find(&mut write, &project, &key).await?;
    let expired = old.expires_at.is_some_and(|at| at <= now.to_seconds());
    if old.revoked_at.is_some() || expired {
        return Code::KeyNotUsable.fail("The key is revoked or expired; create a new one.");
    }
    if old.unreadable.is_some() {
        let message = "Our record of this key cannot be read. Create a new key, and revoke this one.";
        return Code::RecordUnreadable.fail(message);
    }
    if !actor.may_grant(&old.scopes) {
        return Code::ScopeNotGrantable.fail("A key cannot rotate a key with more scopes than its own.");
    }
    room_for_one(&mut write, &project, u64::from(overlap == 0)).await?;
    let environment = gateways.core.settings.environment;
    let (new, secret) = generate(&project, environment, old.label.clone(), old.scopes.clone(), old.expires_at, now)?;
    publish(&mut write, &new).await?;
    let ends = now.to_seconds().plus(overlap.into());
    let ends_sooner = old.expires_at.is_none_or(|at| at > ends);
    if overlap == 0 {
        withdraw(&mut write, &mut old).await?;
    } else if ends_sooner {
        old.expires_at = Some(ends);
        publish(&mut write, &old).await?;
        // A gateway that does not hear of the new end accepts the key for longer.
        write.record_withdrawal(Kind::Key, old.id.as_str(), &project).await?;
    }
    let detail = json!({ "key": old.id, "new_key": new.id, "overlap_seconds": overlap });
    write.record(&project, None, "key.rotated", &actor, detail).await?;
    if overlap == 0 || ends_sooner {
        withdrawals::confirm(&gateways, write, (&[Kind::Key], old.id.as_str()), &project).await?;
    } else {
        gateways.commit_everywhere(write).await?;
    }
    let pending = PendingWithdrawals::of(&gateways, &project.uid).await?;
    Ok(created(&new, &secret, Some(view(&old, pending.find(&[Kind::Key], old.id.as_str())))))
}

/// `DELETE …/keys/{id}`: 204 once no gateway accepts the key any more; 202 with the names of those that may, also when the
/// request is repeated.
async fn revoke(
    Authorised { part: gateways, actor, project, rest: [key], .. }: Authorised<1, Arc<Gateways>>,
) -> ApiResult {
    let started = gateways.core.clock.monotonic();
    let mut write = gateways.core.store.write().await?;
    let mut key = find(&mut write, &project, &key).await?;
    if !actor.may_grant(&key.scopes) {
        return Code::ScopeNotGrantable.fail("A key cannot revoke a key with more scopes than its own.");
    }
    let id = key.id.clone();
    let withdrawal = (&[Kind::Key][..], id.as_str());
    let acknowledged = if key.revoked_at.is_none() {
        withdraw(&mut write, &mut key).await?;
        write.record(&project, None, "key.revoked", &actor, json!({ "key": key.id })).await?;
        Some(withdrawals::confirm(&gateways, write, withdrawal, &project).await?)
    } else {
        drop(write);
        withdrawals::repeat(&gateways, withdrawal, &project).await?
    };
    let took = gateways.core.clock.monotonic().saturating_sub(started);
    Ok(acknowledged.map_or_else(|| StatusCode::NO_CONTENT.into_response(), |acknowledged| removed(&acknowledged, took)))
}

fn generate(
    project: &ProjectRef,
    environment: Environment,
    label: String,
    scopes: Scopes,
    expires_at: Option<UnixSeconds>,
    now: UnixMillis,
) -> ApiResult<(KeyRecord, PresentedKey)> {
    let secret = PresentedKey::generate(environment, &chassis::random::bytes()?);
    let record = KeyRecord {
        id: KeyId::from_random(chassis::random::bytes()?),
        project: project.clone(),
        digest: secret.digest(),
        label,
        scopes,
        last4: secret.last4().to_owned(),
        environment,
        created_at: now,
        expires_at,
        revoked_at: None,
        last_used_at: None,
        unreadable: None,
    };
    Ok((record, secret))
}

async fn publish(write: &mut Write, key: &KeyRecord) -> ApiResult<()> {
    keys::save_key(write.connection(), key).await?;
    Ok(write.put(Entity::Key(key.published())).await?)
}

async fn withdraw(write: &mut Write, key: &mut KeyRecord) -> ApiResult<()> {
    key.revoked_at = Some(write.now());
    keys::save_key(write.connection(), key).await?;
    keys::withdraw(write, key).await?;
    Ok(write.record_withdrawal(Kind::Key, key.id.as_str(), &key.project).await?)
}

async fn find(write: &mut Write, project: &ProjectRef, id: &str) -> ApiResult<KeyRecord> {
    project_exists(write, project).await?;
    let unknown = || Code::KeyNotFound.refuse("The project has no key of this id.");
    let id: KeyId = id.parse().map_err(|_| unknown())?;
    Ok(keys::find_key(write.connection(), project, &id).await?.ok_or_else(unknown)?)
}

/// A project may be unreadable: its keys can be revoked.
async fn project_exists(write: &mut Write, project: &ProjectRef) -> ApiResult<()> {
    store::projects::find_ref(write.connection(), &project.uid).await?.map(drop).ok_or_else(projects::none)
}

/// Whether the project may have one more key when `leaving` of its keys end. Deletes the oldest ended keys beyond the maximum.
async fn room_for_one(write: &mut Write, project: &ProjectRef, leaving: u64) -> ApiResult<()> {
    let now = write.now().to_seconds();
    for gone in keys::keys_beyond(write.connection(), project, KEYS_GONE_MAX, now).await? {
        keys::withdraw(write, &gone).await?;
        keys::delete_key(write.connection(), &gone).await?;
    }
    if keys::count_usable(write.connection(), project, now).await? < KEYS_PER_PROJECT_MAX + leaving {
        return Ok(());
    }
    Code::KeyLimitReached.fail(format!("The project has {KEYS_PER_PROJECT_MAX} keys; revoke one first."))
}

fn created(made: &KeyRecord, secret: &PresentedKey, rotated: Option<Key>) -> Response {
    let body = CreatedKey { made: view(made, None), key: secret.reveal().to_string(), rotated };
    (StatusCode::CREATED, [(http::header::CACHE_CONTROL, "no-store")], axum::Json(body)).into_response()
}

/// A key; with its withdrawal until every gateway has confirmed its revocation or its earlier end.
fn view(key: &KeyRecord, withdrawal: Option<Withdrawal>) -> Key {
    Key {
        id: key.id.clone(),
        project_id: key.project.name.clone(),
        label: key.label.clone(),
        scopes: key.scopes.clone(),
        environment: key.environment,
        prefix: format!("th_{}_", key.environment),
        last4: key.last4.clone(),
        created_at: key.created_at.into(),
        expires_at: key.expires_at.map(Rfc3339::from),
        revoked_at: key.revoked_at.map(Rfc3339::from),
        revoked: key.revoked_at.is_some(),
        withdrawal,
        ban: None,
        last_used_at: key.last_used_at.map(Rfc3339::from),
    }
}
