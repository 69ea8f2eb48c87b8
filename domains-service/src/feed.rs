//! The change stream that gateways follow.
//!
//! Each follower has a task. The task sends the changes that the follower lacks, then waits for a notification: a
//! commit of this process wakes it at once, and a commit of another replica does through the database. A poll each
//! second finds changes whose notification was lost, and carries the heartbeat. A follower that reads too slowly is
//! disconnected; when it comes back it continues, or gets a snapshot if the log no longer holds the changes that it
//! lacks. A follower with a revoked credential is disconnected at once.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use chassis::shutdown::Shutdown;
use chassis::sql::UNREADABLE_MAX;
use contract::feed::{Change, Frame, Mark, Position, Revision};
use futures_util::stream::{self, Stream};
use tokio::sync::mpsc;

use crate::gateways::Gateways;
use crate::identities::Version;
use crate::keyring::{self, KeyUpdate};
use crate::metrics::Metrics;
use crate::store::admitted::Watch;
use crate::store::credentials::Credential;
use crate::store::log::{self, CHANGES_PER_READ, Check, Next, Read};
use crate::store::{Store, StoreError};
use chassis::shares::{SharePermit, Shares};

/// Interval of heartbeats.
pub(crate) const HEARTBEAT: Duration = Duration::from_secs(1);

/// Pieces of the stream that may wait for a slow follower.
pub(crate) const PIECES_WAITING_MAX: usize = 16;

/// Bytes gathered into one piece.
const PIECE_BYTES: usize = 64 * 1024;

/// Entities that one query of a snapshot reads. Between two queries only the snapshot's transaction is held.
const ENTITIES_PER_READ: i64 = 1_000;

/// A follower that reads nothing for this long is disconnected.
const STALL_MAX: Duration = Duration::from_secs(10);

/// A snapshot is one reading transaction, which must not keep the database's log for ever.
const SNAPSHOT_TIME_MAX: Duration = Duration::from_mins(2);

/// Followers served at once.
pub(crate) const FOLLOWERS_MAX: usize = 256;

/// Followers with one credential: gateways that are started in numbers share one. A stolen credential leaves slots for
/// the others.
const FOLLOWERS_OF_ONE_MAX: usize = 128;

/// Snapshots read at once: each occupies a reading connection, and requests need some too.
const SNAPSHOTS_MAX: usize = 3;

/// Of them for followers with one credential, which wait for each other.
const SNAPSHOTS_OF_ONE_MAX: usize = 2;

/// Maximum of reports being written, and of positions of followers being compared, at once: every change in the
/// database waits behind them.
const REPORTS_MAX: usize = 16;

/// Of them with one credential, which wait for each other.
const REPORTS_OF_ONE_MAX: usize = 2;

/// Longest wait of a report for its turn. Gateways repeat a report that was not accepted.
const REPORT_WAIT_MAX: Duration = Duration::from_secs(2);

/// The permits to follow, to read snapshots and to write reports, each with a maximum in all and for one credential,
/// which its digest names.
pub(crate) struct Permits {
    followers: Arc<Shares>,
    snapshots: Arc<Shares>,
    reports: Arc<Shares>,
}

impl Default for Permits {
    fn default() -> Self {
        Self {
            followers: Shares::new(FOLLOWERS_MAX, FOLLOWERS_OF_ONE_MAX),
            snapshots: Shares::new(SNAPSHOTS_MAX, SNAPSHOTS_OF_ONE_MAX),
            reports: Shares::new(REPORTS_MAX, REPORTS_OF_ONE_MAX),
        }
    }
}

impl Permits {
    /// A permit for a follower with the credential of this digest, if one is free.
    pub(crate) fn take(&self, digest: &str) -> Option<SharePermit> {
        self.followers.take(digest)
    }

    /// Waits for a permit to write a report, or to compare a position, for the credential of this digest; `None` when
    /// none is free in time.
    pub(crate) async fn to_report(&self, digest: &str) -> Option<SharePermit> {
        tokio::time::timeout(REPORT_WAIT_MAX, self.reports.wait(digest)).await.ok().flatten()
    }
}

/// Why a stream ended.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Ended {
    #[error("the follower disconnected")]
    Left,
    #[error("the follower's credential is revoked")]
    Revoked,
    #[error("the follower reads too slowly")]
    Stalled,
    #[error("the database went back to an earlier state than the follower's")]
    OtherHistory,
    #[error("more entities became unreadable; the follower gets a snapshot when it reconnects")]
    Unreadable,
    #[error("the change log was repaired again during a snapshot; the follower gets another when it reconnects")]
    Circle,
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Counts a follower while it lives.
struct Counted(Metrics);

impl Counted {
    fn new(metrics: Metrics) -> Self {
        metrics.followers.inc();
        Self(metrics)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.followers.dec();
    }
}

/// Serves one follower until it leaves, stalls, is revoked, or the service ends.
pub(crate) async fn serve(follower: Follower, shutdown: Shutdown) -> Result<(), Ended> {
    let _counted = Counted::new(follower.gateways.core.metrics.clone());
    let mut watch = follower.gateways.core.store.watch_credential(&follower.credential.digest);
    tokio::select! {
        biased;
        () = watch.revoked() => Err(Ended::Revoked),
        ended = follow(follower, shutdown) => ended,
    }
}

/// The body of the answer: the pending pieces, until the credential is revoked. Then it ends at once, and pending
/// pieces are dropped.
pub(crate) fn body(pieces: mpsc::Receiver<Bytes>, watch: Watch) -> impl Stream<Item = Result<Bytes, Ended>> {
    stream::unfold((pieces, watch), |(mut pieces, mut watch)| async {
        let piece = tokio::select! {
            biased;
            () = watch.revoked() => Err(Ended::Revoked),
            piece = pieces.recv() => Ok(piece?),
        };
        Some((piece, (pieces, watch)))
    })
}

async fn follow(mut follower: Follower, shutdown: Shutdown) -> Result<(), Ended> {
    let mut commits = follower.gateways.core.store.commits();
    let mut beat = tokio::time::interval(HEARTBEAT);
    // The keys come first, so that a gateway has them when it is ready.
    follower.keyring().await?;
    loop {
        commits.mark_unchanged();
        follower.catch_up().await?;
        tokio::select! {
            () = shutdown.begun() => return Ok(()),
            changed = commits.changed() => if changed.is_err() { return Ok(()) },
            _ = beat.tick() => {
                follower.keyring().await?;
                follower.heartbeat().await?;
            }
        }
    }
}

/// A follower, and the position up to which it was sent changes.
pub(crate) struct Follower {
    pub(crate) gateways: Arc<Gateways>,
    pub(crate) permits: Arc<Permits>,
    /// The credential of its request.
    pub(crate) credential: Credential,
    /// The name of its process.
    pub(crate) node: String,
    pub(crate) wants_keyring: bool,
    /// The keys that it has been sent.
    pub(crate) keys: Option<Version>,
    pub(crate) pieces: mpsc::Sender<Bytes>,
    /// The revision the follower has been sent, and the mark that it has for it.
    pub(crate) sent: (Revision, Option<Mark>),
}

impl Follower {
    /// Sends the keys if they changed since the last time. Without a database the follower keeps its keys.
    async fn keyring(&mut self) -> Result<(), Ended> {
        if !self.wants_keyring {
            return Ok(());
        }
        match keyring::update_for(&self.gateways, &self.credential, self.keys).await {
            Ok(KeyUpdate::Keys { sealed, version }) => {
                let mut piece = Vec::new();
                write_frame(&mut piece, &Frame::Keyring { sealed });
                self.send(piece).await?;
                self.keys = Some(version);
                Ok(())
            }
            Ok(KeyUpdate::Revoked) => Err(Ended::Revoked),
            Ok(KeyUpdate::None) => Ok(()),
            Err(error) => {
                tracing::debug!(error = format!("{error:#}"), "cannot read signing keys; the gateway keeps its own");
                Ok(())
            }
        }
    }

    /// Sends all changes that the follower lacks. If the log requires another snapshot right after one, without a
    /// change in between, the stream ends: the follower reconnects after a growing pause.
    async fn catch_up(&mut self) -> Result<(), Ended> {
        let (core, mut last) = (self.gateways.core.clone(), None);
        loop {
            match core.store.changes_after(&core.sealing, self.sent, CHANGES_PER_READ).await? {
                Next::Changes(changes) if changes.is_empty() => return Ok(()),
                Next::Changes(changes) => self.changes(changes).await?,
                Next::Snapshot if last == Some(self.sent) => return Err(Ended::Circle),
                Next::Snapshot => {
                    self.snapshot().await?;
                    last = Some(self.sent);
                }
                // It followed this history until now.
                Next::OtherHistory(_) => {
                    self.gateways.went_back();
                    return Err(Ended::OtherHistory);
                }
            }
        }
    }

    async fn changes(&mut self, changes: Vec<Change>) -> Result<(), Ended> {
        let mut piece = Vec::new();
        for change in changes {
            let (revision, mark) = (change.revision, change.mark);
            write_frame(&mut piece, &Frame::Change(change));
            if piece.len() >= PIECE_BYTES {
                self.send(std::mem::take(&mut piece)).await?;
            }
            self.sent = (revision, Some(mark));
        }
        self.send(piece).await
    }

    async fn snapshot(&mut self) -> Result<(), Ended> {
        let _permit = self.permits.snapshots.wait(&self.credential.digest).await.ok_or(Ended::Left)?;
        let reading = self.read_snapshot();
        let position = tokio::time::timeout(SNAPSHOT_TIME_MAX, reading).await.map_err(|_| Ended::Stalled)??;
        self.sent = (position.revision, Some(position.mark));
        Ok(())
    }

    async fn read_snapshot(&self) -> Result<Position, Ended> {
        let (mut reading, position, entities) = self.gateways.core.store.snapshot().await?;
        let mut piece = Vec::new();
        write_frame(&mut piece, &Frame::SnapshotBegin { entities });
        // By kind, certificates before the sites that need them.
        let (mut read, mut check) = (Read::default(), Check::new(&self.gateways.core.sealing));
        let (mut sent, mut unreadable) = (0, Vec::new());
        loop {
            let entities = Store::entities_after(&mut reading, &read, ENTITIES_PER_READ).await?;
            if entities.is_empty() {
                break;
            }
            for found in entities {
                match check.unreadable(&mut reading, &found).await? {
                    None => {
                        write_entity(&mut piece, &found.row.body);
                        sent += 1;
                    }
                    // Of more no snapshot is sent.
                    Some(place) if unreadable.len() < UNREADABLE_MAX => unreadable.push(place),
                    Some(_) => {}
                }
                if piece.len() >= PIECE_BYTES {
                    self.send(std::mem::take(&mut piece)).await?;
                }
                read.pass(found);
            }
        }
        if sent != entities {
            log::are_unreadable(&reading, &unreadable);
            return Err(Ended::Unreadable);
        }
        write_frame(&mut piece, &Frame::SnapshotEnd { revision: position.revision, mark: position.mark });
        self.send(piece).await?;
        Ok(position)
    }

    async fn heartbeat(&self) -> Result<(), Ended> {
        let mut piece = Vec::new();
        let among = Some(self.gateways.nodes.among(&self.node));
        write_frame(&mut piece, &Frame::Heartbeat { revision: self.sent.0, at: self.gateways.core.clock.now(), among });
        self.send(piece).await
    }

    async fn send(&self, piece: Vec<u8>) -> Result<(), Ended> {
        if piece.is_empty() {
            return Ok(());
        }
        match self.pieces.send_timeout(piece.into(), STALL_MAX).await {
            Ok(()) => Ok(()),
            Err(mpsc::error::SendTimeoutError::Timeout(_)) => Err(Ended::Stalled),
            Err(mpsc::error::SendTimeoutError::Closed(_)) => Err(Ended::Left),
        }
    }
}

fn write_frame(piece: &mut Vec<u8>, frame: &Frame) {
    // Writing our own types to memory cannot fail.
    let _ = serde_json::to_writer(&mut *piece, frame);
    piece.push(b'\n');
}

/// Writes a [`Frame::Entity`] around stored JSON, so that a million entities need no new serialisation.
fn write_entity(piece: &mut Vec<u8>, body: &str) {
    piece.extend_from_slice(b"{\"entity\":");
    piece.extend_from_slice(body.as_bytes());
    piece.extend_from_slice(b"}\n");
}

#[cfg(test)]
mod tests;
