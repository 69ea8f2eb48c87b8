//! Parses the lines of the change stream in order.

use contract::feed::{AmongGateways, Change, Entity, Frame, Position, Revision};
use contract::time::UnixMillis;

use super::Invalid;
use super::validate::ENTITIES_MAX;

/// The meaning of a line.
pub(super) enum StreamEvent {
    /// A change.
    Change(Change),
    /// The control plane is available; its newest revision, its time, and this gateway's place among the gateways.
    Heartbeat(Revision, UnixMillis, Option<AmongGateways>),
    /// The gateways' keys, sealed.
    Keyring(String),
    /// Part of a snapshot.
    SnapshotPart,
    /// The last line of a snapshot; all announced entities have arrived.
    Snapshot(Vec<Entity>, Position),
}

/// The state of the stream.
#[derive(Default)]
pub(super) struct ChangeStream(Option<Snapshot>);

impl ChangeStream {
    /// Parses the next line.
    ///
    /// # Errors
    /// If the line is malformed or unexpected.
    pub(super) fn read(&mut self, line: &str) -> Result<StreamEvent, Invalid> {
        let frame = serde_json::from_str(line).map_err(|error| Invalid::Line(error.to_string()))?;
        let outside = || Invalid::Line("part of a snapshot that has not begun".to_owned());
        match frame {
            Frame::Change(change) => Ok(StreamEvent::Change(change)),
            Frame::Heartbeat { revision, at, among } => Ok(StreamEvent::Heartbeat(revision, at, among)),
            Frame::Keyring { sealed } => Ok(StreamEvent::Keyring(sealed)),
            Frame::SnapshotBegin { entities } => {
                self.0 = Some(Snapshot::announced(entities));
                Ok(StreamEvent::SnapshotPart)
            }
            Frame::Entity(entity) => {
                self.0.as_mut().ok_or_else(outside)?.take(entity)?;
                Ok(StreamEvent::SnapshotPart)
            }
            Frame::SnapshotEnd { revision, mark } => {
                let complete = self.0.take().ok_or_else(outside)?.complete()?;
                Ok(StreamEvent::Snapshot(complete, Position { revision, mark }))
            }
        }
    }
}

/// A snapshot while it arrives.
struct Snapshot {
    announced: u64,
    entities: Vec<Entity>,
}

impl Snapshot {
    fn announced(announced: u64) -> Self {
        Self { announced, entities: Vec::new() }
    }

    fn take(&mut self, entity: Entity) -> Result<(), Invalid> {
        self.entities.push(entity);
        let found = u64::try_from(self.entities.len()).unwrap_or(u64::MAX);
        if found > self.announced.min(ENTITIES_MAX) {
            Err(Invalid::Count { announced: self.announced, found })
        } else {
            Ok(())
        }
    }

    fn complete(self) -> Result<Vec<Entity>, Invalid> {
        let found = u64::try_from(self.entities.len()).unwrap_or(u64::MAX);
        if found == self.announced {
            Ok(self.entities)
        } else {
            Err(Invalid::Count { announced: self.announced, found })
        }
    }
}
