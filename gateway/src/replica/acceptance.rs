//! An operator's word that the control plane's present state is right, and what taking it changed.
//!
//! A gateway refuses another history, because a database that went back has lost changes: revoked keys are good in it again
//! and removed names are served. Only a person knows whether that state is the one to follow. So the operator is shown what
//! it brings back and takes away. The word is about the database that was refused, and holds for [`ACCEPTED_FOR`].

use std::collections::BTreeMap;
use std::time::Duration;

use contract::feed::{Entity, Position, Revision};
use contract::key::ApiKey;

use super::file::{File, Kind, place_of, value_of};
use super::{Replica, ReplicaError};

/// How long an operator's word holds.
pub(super) const ACCEPTED_FOR: Duration = Duration::from_mins(10);

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
    Waiting {
        /// A place in the history that is accepted.
        #[serde(skip)]
        there: Position,
        /// Until then, by the monotonic clock.
        #[serde(skip)]
        until: Duration,
    },
    /// It was taken, and this has changed.
    Taken(Box<Difference>),
}

/// Why there was nothing to accept.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotAccepted {
    /// What the control plane says is taken.
    #[error("Nothing is refused here: this gateway follows the control plane, or has not reached it yet.")]
    NothingRefused,
    /// It is refused for another reason than its history.
    #[error("An acceptance does not help against this: {0}")]
    Unacceptable(String),
    /// The local file.
    #[error(transparent)]
    File(#[from] ReplicaError),
}

/// What of the control plane is not taken.
#[derive(Clone, Debug)]
pub(crate) struct Refused {
    /// Why.
    pub(crate) why: String,
    /// Where the database is whose state it is, where an operator may accept that.
    pub(crate) there: Option<Position>,
}

impl Replica {
    /// An operator accepts, at this moment by the monotonic clock, the state that was refused last: the follower asks for a
    /// snapshot of that database, which replaces everything. Where only certificates are set aside, they are asked for again.
    ///
    /// # Errors
    /// When there is nothing to accept.
    pub(crate) fn accept(&self, now: Duration) -> Result<(), NotAccepted> {
        let there = match self.refused() {
            Some(Refused { why, there }) => there.ok_or(NotAccepted::Unacceptable(why))?,
            None if self.set_aside(1).is_empty() => return Err(NotAccepted::NothingRefused),
            None => self.position()?.ok_or(NotAccepted::NothingRefused)?,
        };
        self.acceptance.send_replace(Acceptance::Waiting { there, until: now.saturating_add(ACCEPTED_FOR) });
        Ok(())
    }

    /// What has become of the last acceptance.
    pub(crate) fn acceptance(&self) -> Acceptance {
        self.acceptance.borrow().clone()
    }

    /// The place in the history that an operator has accepted and that has not come yet.
    pub(crate) fn accepted_place(&self, now: Duration) -> Option<Position> {
        let Acceptance::Waiting { there, until } = self.acceptance() else { return None };
        if now < until {
            return Some(there);
        }
        self.end_acceptance("the control plane did not send it in time");
        None
    }

    /// What was accepted is not what there is.
    pub(super) fn end_acceptance(&self, why: &'static str) {
        self.acceptance.send_replace(Acceptance::None);
        tracing::warn!(
            why,
            "the state that an operator accepted was not taken; if it is still meant, run `tollhouse node accept` again"
        );
    }

    /// Whether an operator has accepted a state that has not come yet.
    pub(super) fn accepts(&self) -> bool {
        matches!(*self.acceptance.borrow(), Acceptance::Waiting { .. })
    }

    /// Until [`Replica::accepts`].
    pub(super) async fn accepted(&self) {
        // The sender lives as long as we do.
        let _ =
            self.acceptance.subscribe().wait_for(|acceptance| matches!(acceptance, Acceptance::Waiting { .. })).await;
    }
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
