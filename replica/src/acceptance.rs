//! An operator's confirmation that the control plane's state is right, and the resulting changes.
//!
//! A gateway refuses another history, because a database that was restored has lost changes: revoked keys are valid in
//! it again and removed names are served. Only a person can decide whether to follow it. Therefore the operator sees
//! what it brings back and removes. The confirmation applies to the refused database, for [`ACCEPTED_FOR`].

use std::collections::BTreeMap;
use std::time::Duration;

use contract::feed::{Entity, Position, Revision};
use contract::key::ApiKey;

use super::file::{File, Kind, place_of, value_of};
use super::{Replica, ReplicaError};

/// How long a confirmation is valid.
pub(super) const ACCEPTED_FOR: Duration = Duration::from_mins(10);

/// Names in a list; the rest is only counted.
const NAMES_SHOWN: usize = 20;

/// The state of an operator's acceptance.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum Acceptance {
    /// Nothing was accepted since the start.
    #[default]
    None,
    /// A snapshot was requested, and will be applied with any contents.
    Waiting {
        /// The accepted position.
        #[serde(skip)]
        there: Position,
        /// The deadline, by the monotonic clock.
        #[serde(skip)]
        until: Duration,
    },
    /// It was applied, with these changes.
    Taken(Box<Difference>),
}

/// Why nothing could be accepted.
#[derive(Debug, thiserror::Error)]
pub enum NotAccepted {
    /// The control plane's data is not refused.
    #[error("There is nothing to accept: this gateway follows the control plane, or has not reached it yet.")]
    NothingRefused,
    /// It is refused for a reason other than its history.
    #[error("Accepting the state does not solve this: {0}")]
    Unacceptable(String),
    /// The local file failed.
    #[error(transparent)]
    File(#[from] ReplicaError),
}

/// A refusal of the control plane's data.
#[derive(Clone, Debug)]
pub(crate) struct Refused {
    /// Why.
    pub(crate) why: String,
    /// The operator's next step.
    pub(crate) what_to_do: &'static str,
    /// The position of its database, if an operator may accept it.
    pub(crate) there: Option<Position>,
}

impl Replica {
    /// An operator accepts, at this time of the monotonic clock, the last refused state: the follower requests a
    /// snapshot of that database, which replaces everything. If only certificates are unusable, they are requested
    /// again.
    ///
    /// # Errors
    /// If there is nothing to accept.
    pub fn accept(&self, now: Duration) -> Result<(), NotAccepted> {
        let there = match self.refused() {
            Some(Refused { why, what_to_do, there }) => {
                there.ok_or_else(|| NotAccepted::Unacceptable(format!("{why}: {what_to_do}")))?
            }
            None if self.unusable(1).is_empty() => return Err(NotAccepted::NothingRefused),
            None => self.position()?.ok_or(NotAccepted::NothingRefused)?,
        };
        self.acceptance.send_replace(Acceptance::Waiting { there, until: now.saturating_add(ACCEPTED_FOR) });
        Ok(())
    }

    /// The state of the last acceptance.
    pub fn acceptance(&self) -> Acceptance {
        self.acceptance.borrow().clone()
    }

    /// The position that an operator has accepted and that has not arrived yet.
    pub(crate) fn accepted_place(&self, now: Duration) -> Option<Position> {
        let Acceptance::Waiting { there, until } = self.acceptance() else { return None };
        if now < until {
            return Some(there);
        }
        self.end_acceptance("the control plane did not send it in time");
        None
    }

    /// Ends an acceptance that does not match the database.
    pub(super) fn end_acceptance(&self, why: &'static str) {
        self.acceptance.send_replace(Acceptance::None);
        tracing::warn!(why, "did not apply the accepted state. To accept the present one, run `tollhouse node accept`");
    }

    /// Whether an accepted state has not arrived yet.
    pub(super) fn accepts(&self) -> bool {
        matches!(*self.acceptance.borrow(), Acceptance::Waiting { .. })
    }

    /// Waits for [`Replica::accepts`].
    pub(super) async fn accepted(&self) {
        // The sender lives as long as `self`.
        let _ =
            self.acceptance.subscribe().wait_for(|acceptance| matches!(acceptance, Acceptance::Waiting { .. })).await;
    }
}

/// The changes of a snapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Difference {
    /// The snapshot's revision.
    pub revision: Revision,
    /// Keys by their public ids.
    pub keys: Changes,
    /// Hostnames that are served.
    pub hostnames: Changes,
    /// Projects by name.
    pub projects: Changes,
}

/// The changes of one kind of entity.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Changes {
    /// New names.
    pub added: Names,
    /// Removed names.
    pub removed: Names,
    /// Names with other content: a plan, a suspension, a redirect.
    pub changed: Names,
}

/// Some names, and their number.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Names {
    /// The number.
    pub count: u64,
    /// The first 20 of them.
    pub names: Vec<String>,
}

impl Names {
    fn add(&mut self, name: String) {
        self.count += 1;
        if self.names.len() < NAMES_SHOWN {
            self.names.push(name);
        }
    }
}

impl Difference {
    /// The changes that a snapshot would make in the file.
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
            None => changes.removed.add(display_name(kind, key, stored)),
            Some(entity) if value_of(entity)? != stored => changes.changed.add(display_name(kind, key, stored)),
            Some(_) => {}
        }
        Ok(())
    })?;
    for (key, entity) in coming {
        changes.added.add(display_name(kind, &key, &value_of(entity)?));
    }
    Ok(changes)
}

/// The displayed name of an entity: a key's public id, not its digest.
fn display_name(kind: Kind, key: &str, value: &[u8]) -> String {
    match kind {
        Kind::Key => serde_json::from_slice::<ApiKey>(value).map_or_else(|_| key.to_owned(), |key| key.id.to_string()),
        Kind::Site | Kind::Project | Kind::Certificate | Kind::Challenge => key.to_owned(),
    }
}
