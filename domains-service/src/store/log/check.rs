//! Whether what rests in the log can be used by a gateway. What cannot is not sent.

use chassis::seal::SealingKey;
use chassis::sql::{BadColumn, Connection, Found, RowPlace};
use contract::feed::{Change, Effect, Entity, Revision};
use contract::time::UnixMillis;

use super::super::rows::{self, Table};
use super::super::write::kind_and_name;
use super::{Row, StoredEntity, as_mark};

impl StoredEntity {
    /// The entity, if it is right in itself and the one that the row is named after.
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

/// The place of an entity that a gateway could not use, which is noted; `None` for one that is right.
pub(crate) fn unreadable(reading: &Connection, sealing: &SealingKey, found: &Found<StoredEntity>) -> Option<RowPlace> {
    let StoredEntity { kind, name, .. } = &found.row;
    let place = rows::place(Table::Entities, name, kind);
    let bad = found.bad.clone().or_else(|| {
        let reason = found.row.entity().and_then(|entity| opens(&entity, sealing)).err()?;
        Some(BadColumn { column: "body", reason })
    });
    match &bad {
        None => rows::forget(reading, &place),
        Some(bad) => rows::note(reading, &place, bad.column, &bad.reason),
    }
    bad.map(|_| place)
}

/// Whether the private key of a certificate can be opened.
fn opens(entity: &Entity, sealing: &SealingKey) -> Result<(), String> {
    let Entity::Certificate(bundle) = entity else { return Ok(()) };
    sealing.open(&bundle.key.0, bundle.hostname.as_str()).map(drop).map_err(|error| error.to_string())
}

/// A change as it is sent; `None` for one that a gateway could not use. It is noted, unless only its sealing secret is
/// missing: after a secret was replaced, older changes still name it.
pub(super) fn read_change(reading: &Connection, sealing: &SealingKey, found: Found<Row>) -> Option<Change> {
    let Found { row: Row { revision, mark, effect, at_ms }, bad } = found;
    let bad = match bad {
        None => match read_effect(&effect, sealing) {
            Ok(None) => return None,
            Ok(Some(effect)) => {
                let (revision, at) = (Revision(revision.unsigned_abs()), UnixMillis(at_ms));
                return Some(Change { revision, mark: as_mark(mark), at, effect });
            }
            Err(reason) => BadColumn { column: "effect", reason },
        },
        Some(bad) => bad,
    };
    rows::note(reading, &rows::place(Table::Changes, revision.to_string(), ""), bad.column, &bad.reason);
    None
}

/// An effect that a gateway can use; `None` when its key was sealed with a secret that was taken away since.
fn read_effect(text: &str, sealing: &SealingKey) -> Result<Option<Effect>, String> {
    let effect: Effect = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let Effect::Put(entity) = &effect else { return Ok(Some(effect)) };
    entity.check().map_err(|unsound| unsound.to_string())?;
    if let Entity::Certificate(bundle) = entity
        && !sealing.has_secret_of(&bundle.key.0)
    {
        return Ok(None);
    }
    opens(entity, sealing)?;
    Ok(Some(effect))
}
