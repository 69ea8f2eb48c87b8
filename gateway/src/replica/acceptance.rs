//! An operator's word that the control plane's present state is right, and what taking it changed.
//!
//! A gateway refuses another history, because a database that went back has lost changes: revoked keys are good in it again
//! and removed names are served. Only a person knows whether that state is the one to follow. So the operator is shown what
//! it brings back and takes away.

use std::collections::BTreeMap;

use contract::feed::{Entity, Revision};
use contract::key::ApiKey;

use super::file::{File, Kind, place_of, value_of};

/// Names that a list shows; the rest is counted.
const NAMES_SHOWN: usize = 20;

/// What has become of an operator's acceptance.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub(crate) enum Acceptance {
    /// Nothing was accepted since the start.
    #[default]
    None,
    /// A snapshot is asked for, and taken whatever it holds.
    Waiting,
    /// It was taken, and this has changed.
    Taken(Box<Difference>),
}

/// What a snapshot changed.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub(crate) struct Difference {
    /// What the snapshot describes.
    pub(crate) revision: Revision,
    /// Keys by their public ids.
    pub(crate) keys: Changes,
    /// Hostnames that are served.
    pub(crate) hostnames: Changes,
    /// Projects by name.
    pub(crate) projects: Changes,
}

/// What became of the entities of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub(crate) struct Changes {
    /// Were not known.
    pub(crate) added: Names,
    /// Are no longer known.
    pub(crate) removed: Names,
    /// Are other than they were: a plan, a suspension, a redirect.
    pub(crate) changed: Names,
}

/// Some names, and how many there are.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub(crate) struct Names {
    /// How many.
    pub(crate) count: u64,
    /// The first 20 of them.
    pub(crate) names: Vec<String>,
}

impl Names {
    fn note(&mut self, name: String) {
        self.count += 1;
        if self.names.len() < NAMES_SHOWN {
            self.names.push(name);
        }
    }
}

impl Difference {
    /// What a snapshot will change in the file.
    pub(super) fn between(file: &File, entities: &[Entity], revision: Revision) -> anyhow::Result<Self> {
        let of = |kind| changes(file, entities, kind);
        Ok(Self { revision, keys: of(Kind::Key)?, hostnames: of(Kind::Site)?, projects: of(Kind::Project)? })
    }
}

fn changes(file: &File, entities: &[Entity], kind: Kind) -> anyhow::Result<Changes> {
    let named = entities.iter().map(|entity| (place_of(&entity.name()), entity));
    let mut coming: BTreeMap<String, &Entity> =
        named.filter(|((of, _), _)| *of == kind).map(|((_, key), entity)| (key, entity)).collect();
    let mut changes = Changes::default();
    file.each(kind, |key, stored| {
        match coming.remove(key) {
            None => changes.removed.note(shown(kind, key, stored)),
            Some(entity) if value_of(entity)? != stored => changes.changed.note(shown(kind, key, stored)),
            Some(_) => {}
        }
        Ok(())
    })?;
    for (key, entity) in coming {
        changes.added.note(shown(kind, &key, &value_of(entity)?));
    }
    Ok(changes)
}

/// How people call an entity: a key by its public id, not by the digest it is stored under.
fn shown(kind: Kind, key: &str, value: &[u8]) -> String {
    match kind {
        Kind::Key => serde_json::from_slice::<ApiKey>(value).map_or_else(|_| key.to_owned(), |key| key.id.to_string()),
        Kind::Site | Kind::Project | Kind::Certificate | Kind::Challenge => key.to_owned(),
    }
}
