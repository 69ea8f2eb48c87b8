//! Checks that a gateway can use an entity of the log. Unusable entities are not sent.

use chassis::seal::{SealingKey, name_in};
use chassis::sql::{BadColumn, Connection, Found, RowKey};
use contract::certificate::CertificateBundle;
use contract::feed::{Change, Effect, Entity, Revision};
use contract::time::UnixMillis;

use super::super::rows::{self, Table};
use super::super::write::kind_and_name;
use super::super::{Result, sealed};
use super::{Row, StoredEntity, as_mark};

impl StoredEntity {
    /// The entity, if it is valid and matches the name of its row.
    pub(super) fn entity(&self) -> Result<Entity, String> {
        let entity: Entity = serde_json::from_str(&self.body).map_err(|error| error.to_string())?;
        let (kind, name) = kind_and_name(&entity.name());
        if (kind, &name) != (&self.kind, &self.name) {
            return Err(format!("it describes the {kind} {name}"));
        }
        entity.check().map_err(|unsound| unsound.to_string())?;
        Ok(entity)
    }
}

/// Checks the entities of one snapshot, or of some changes.
pub(crate) struct Check<'a> {
    sealing: &'a SealingKey,
    /// A sealing secret that only other processes have.
    missing: Option<String>,
}

/// Usability of an entity's private key by a gateway.
enum Key {
    /// The entity has no key, the key opens, or a gateway may have the secret that this service lacks.
    Usable,
    /// Unusable.
    Damaged(String),
    /// Unusable: its sealing secret is no longer in use, or the name of the secret is damaged.
    Gone(String),
}

impl<'a> Check<'a> {
    pub(crate) fn new(sealing: &'a SealingKey) -> Self {
        Self { sealing, missing: None }
    }

    /// The key of an unusable entity, after recording it; `None` for a valid one.
    pub(crate) async fn unreadable(
        &mut self,
        reading: &mut Connection,
        found: &Found<StoredEntity>,
    ) -> Result<Option<RowKey>> {
        let bad = match (&found.bad, found.row.entity()) {
            (Some(bad), _) => Some(bad.clone()),
            (None, Err(reason)) => Some(BadColumn { column: "body", reason }),
            (None, Ok(entity)) => match self.key_of(reading, &entity).await? {
                Key::Usable => None,
                Key::Damaged(reason) | Key::Gone(reason) => Some(BadColumn { column: "body", reason }),
            },
        };
        let key = rows::key(Table::Entities, &found.row.name, &found.row.kind);
        match &bad {
            None => reading.unreadable().forget(&key),
            Some(bad) => rows::record(reading.unreadable(), &key, bad.column, &bad.reason),
        }
        Ok(bad.map(|_| key))
    }

    /// A change for sending; `None` for an unusable one. It is recorded, unless its sealing secret is gone: older
    /// changes still name a replaced secret.
    pub(super) async fn change(&mut self, reading: &mut Connection, found: Found<Row>) -> Result<Option<Change>> {
        let Found { row: Row { revision, mark, effect, at_ms }, bad } = found;
        let bad = match (bad, read_effect(&effect)) {
            (Some(bad), _) => bad,
            (None, Err(reason)) => BadColumn { column: "effect", reason },
            (None, Ok(effect)) => match self.key_in(reading, &effect).await? {
                Key::Damaged(reason) => BadColumn { column: "effect", reason },
                Key::Gone(_) => return Ok(None),
                Key::Usable => {
                    let (revision, at) = (Revision(revision.unsigned_abs()), UnixMillis(at_ms));
                    return Ok(Some(Change { revision, mark: as_mark(mark), at, effect }));
                }
            },
        };
        let key = rows::key(Table::Changes, revision.to_string(), "");
        rows::record(reading.unreadable(), &key, bad.column, &bad.reason);
        Ok(None)
    }

    async fn key_in(&mut self, reading: &mut Connection, effect: &Effect) -> Result<Key> {
        match effect {
            Effect::Put(entity) => self.key_of(reading, entity).await,
            Effect::Remove(_) => Ok(Key::Usable),
        }
    }

    async fn key_of(&mut self, reading: &mut Connection, entity: &Entity) -> Result<Key> {
        let Entity::Certificate(CertificateBundle { hostname, key, .. }) = entity else { return Ok(Key::Usable) };
        let seal = name_in(&key.0);
        if self.sealing.has(seal) {
            let opened = self.sealing.open(&key.0, hostname.as_str());
            return Ok(opened.map_or_else(|error| Key::Damaged(error.to_string()), |_| Key::Usable));
        }
        if self.missing.as_deref() != Some(seal) {
            if !sealed::is_in_use(reading, seal).await? {
                let reason = format!("its private key names the sealing secret {seal:?}, which is not in use");
                return Ok(Key::Gone(reason));
            }
            self.missing = Some(seal.to_owned());
        }
        Ok(Key::Usable)
    }
}

fn read_effect(text: &str) -> Result<Effect, String> {
    let effect: Effect = serde_json::from_str(text).map_err(|error| error.to_string())?;
    if let Effect::Put(entity) = &effect {
        entity.check().map_err(|unsound| unsound.to_string())?;
    }
    Ok(effect)
}
