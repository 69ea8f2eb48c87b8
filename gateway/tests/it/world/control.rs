//! A control plane with a change log: it serves the change stream, keeps node reports, and can send bad data, stop
//! answering, die and come back.

mod answers;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::sync::Arc;

use contract::error::ErrorBody;
use contract::feed::{AmongGateways, Change, Effect, Entity, EntityName, Frame, Mark, NodeReport, Position, Revision};
use contract::time::UnixMillis;
use contract::usage::{KeyReport, UsageReport};
use parking_lot::Mutex;
use tokio::net::TcpSocket;
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet};

use super::eventually;

#[expect(clippy::struct_excessive_bools, reason = "each is a fault of its own")]
#[derive(Default)]
struct Book {
    entities: Vec<Entity>,
    changes: Vec<Change>,
    revision: u64,
    /// Changes up to here are no longer in the log.
    forgotten: u64,
    streams: Vec<mpsc::Sender<String>>,
    /// Names of the processes that follow now.
    followers: BTreeSet<String>,
    reports: Vec<NodeReport>,
    key_reports: Vec<KeyReport>,
    usage_reports: Vec<UsageReport>,
    /// Reports of usage are refused: their figures are of one process too many.
    has_no_room: bool,
    /// Revisions after which the gateway asked for changes.
    asked_after: Vec<u64>,
    /// Texts of the next streams in place of the true ones; the streams end after them.
    lies: VecDeque<String>,
    silent: bool,
    /// Marks of revisions that are not in the log any more.
    marks: BTreeMap<u64, Mark>,
    /// Marks drawn so far.
    drawn: u64,
    /// Streams that were refused because of their position.
    refused: usize,
    /// Streams begin without keys.
    sends_no_keys: bool,
    shows_real_time: bool, // in heartbeats; most tests stand still
}

/// The content of a control plane's database.
#[derive(Default)]
pub(crate) struct Database {
    entities: Vec<Entity>,
    changes: Vec<Change>,
    revision: u64,
    forgotten: u64,
    marks: BTreeMap<u64, Mark>,
}

/// The control plane.
pub(crate) struct ControlPlane {
    pub(crate) address: SocketAddr,
    book: Arc<Mutex<Book>>,
    serving: Mutex<Option<JoinHandle<()>>>,
    /// Has the port while the control plane is dead: other tests would take it.
    _reserved: TcpSocket,
}

/// A socket that shares its address with others of its kind; it accepts connections once it listens.
fn bound(address: SocketAddr) -> TcpSocket {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_reuseport(true).unwrap();
    socket.bind(address).unwrap();
    socket
}

impl ControlPlane {
    /// Starts one with these entities at revision 1.
    pub(crate) fn start(entities: Vec<Entity>) -> Self {
        let reserved = bound(SocketAddr::from(([127, 0, 0, 1], 0)));
        let address = reserved.local_addr().unwrap();
        let mut book = Book { entities, revision: 1, forgotten: 1, ..Book::default() };
        book.draw();
        let plane = Self { address, book: Arc::new(Mutex::new(book)), serving: Mutex::new(None), _reserved: reserved };
        plane.revive();
        plane
    }

    /// Serves at its address, also once more after it died.
    pub(crate) fn revive(&self) {
        let listener = bound(self.address).listen(1_024).unwrap();
        let book = self.book.clone();
        book.lock().followers.clear();
        let serving = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(answers::answer(stream, book.clone()));
            }
        });
        *self.serving.lock() = Some(serving);
    }

    /// Closes the listener and cuts every stream.
    pub(crate) async fn die(&self) {
        let serving = self.serving.lock().take();
        if let Some(serving) = serving {
            serving.abort();
            // It was ended on purpose.
            let _ = serving.await;
        }
        self.book.lock().streams.clear();
    }

    /// Streams from now on begin without keys.
    pub(crate) fn send_no_keys(&self) {
        self.book.lock().sends_no_keys = true;
    }

    /// Heartbeats show this machine's time.
    pub(crate) fn show_real_time(&self) {
        self.book.lock().shows_real_time = true;
    }

    /// A copy of the database.
    pub(crate) fn copy_database(&self) -> Database {
        let book = self.book.lock();
        Database {
            entities: book.entities.clone(),
            changes: book.changes.clone(),
            revision: book.revision,
            forgotten: book.forgotten,
            marks: book.marks.clone(),
        }
    }

    /// The database is this one now.
    pub(crate) fn put_back(&self, database: Database) {
        let mut book = self.book.lock();
        let Database { entities, changes, revision, forgotten, marks } = database;
        (book.entities, book.changes, book.revision) = (entities, changes, revision);
        (book.forgotten, book.marks) = (forgotten, marks);
        book.streams.clear();
    }

    /// Replaces the database with an empty one with higher revisions. Returns the former one.
    pub(crate) fn lose_database(&self) -> Database {
        let lost = self.copy_database();
        let revision = lost.revision + 1_000;
        let empty = Database { revision, forgotten: revision, ..Database::default() };
        self.put_back(empty);
        self.book.lock().draw();
        lost
    }

    /// How many streams were refused because of their position.
    pub(crate) fn refused(&self) -> usize {
        self.book.lock().refused
    }

    /// Streams stay open, but nothing is sent on them any more.
    pub(crate) fn fall_silent(&self) {
        self.book.lock().silent = true;
    }

    pub(crate) fn speak_again(&self) {
        self.book.lock().silent = false;
    }

    /// Publishes an entity and waits until the gateway has reported that it applied it.
    pub(crate) async fn put(&self, entity: Entity) {
        let revision = self.publish(Effect::Put(entity));
        self.applied(revision).await;
    }

    /// Removes an entity and waits for the gateway's report.
    pub(crate) async fn remove(&self, name: EntityName) {
        let revision = self.publish(Effect::Remove(name));
        self.applied(revision).await;
    }

    /// Publishes a change without waiting; its revision.
    pub(crate) fn publish(&self, effect: Effect) -> u64 {
        let mut book = self.book.lock();
        book.revision += 1;
        let name = match &effect {
            Effect::Put(entity) => entity.name(),
            Effect::Remove(name) => name.clone(),
        };
        book.entities.retain(|entity| entity.name() != name);
        if let Effect::Put(entity) = &effect {
            book.entities.push(entity.clone());
        }
        let mark = book.draw();
        let change = Change { revision: Revision(book.revision), mark, at: UnixMillis(0), effect };
        book.changes.push(change.clone());
        let line = line(&Frame::Change(change));
        book.tell(&line);
        book.revision
    }

    /// Waits until a gateway has reported this revision.
    pub(crate) async fn applied(&self, revision: u64) {
        let reported = |report: &NodeReport| report.applied >= Revision(revision);
        eventually("a report of the applied revision", async || {
            self.book.lock().reports.last().is_some_and(reported).then_some(())
        })
        .await;
    }

    /// All reports of the gateway.
    pub(crate) fn reports(&self) -> Vec<NodeReport> {
        self.book.lock().reports.clone()
    }

    /// Refuses reports of usage from now on.
    pub(crate) fn has_no_room(&self) {
        self.book.lock().has_no_room = true;
    }

    /// The projects whose usage the gateway has reported.
    pub(crate) fn reported_usage(&self) -> BTreeSet<String> {
        let book = self.book.lock();
        let projects = book.usage_reports.iter().flat_map(|report| &report.projects);
        projects.map(|usage| usage.project.to_string()).collect()
    }

    /// Waits until the gateway has reported this of its keys.
    pub(crate) async fn reported_keys(&self, what: &str, is_reported: impl Fn(&KeyReport) -> bool) -> KeyReport {
        eventually(what, async || self.book.lock().key_reports.iter().find(|report| is_reported(report)).cloned()).await
    }

    /// Where its database is.
    pub(crate) fn position(&self) -> Position {
        self.book.lock().position()
    }

    /// The newest revision.
    pub(crate) fn revision(&self) -> u64 {
        self.book.lock().revision
    }

    /// Sends a text on the open streams, true or not.
    pub(crate) fn say(&self, text: &str) {
        self.book.lock().tell(text);
    }

    /// The next stream sends this text and ends.
    pub(crate) fn lie_next(&self, text: String) {
        self.book.lock().lies.push_back(text);
    }

    /// Trims the log: a follower that is behind needs a snapshot.
    pub(crate) fn forget_changes(&self) {
        let mut book = self.book.lock();
        book.forgotten = book.revision;
        book.changes.clear();
    }

    /// Ends every stream.
    pub(crate) fn cut(&self) {
        self.book.lock().streams.clear();
    }

    /// The revisions after which streams were requested, in order.
    pub(crate) fn asked_after(&self) -> Vec<u64> {
        self.book.lock().asked_after.clone()
    }

    /// Waits until this number of streams was requested.
    pub(crate) async fn asked(&self, times: usize) {
        eventually("streams to be asked for", async || (self.asked_after().len() >= times).then_some(())).await;
    }
}

impl Book {
    /// The place of a follower among all that follow now.
    fn among(&self, node: &str) -> AmongGateways {
        let count = |number: usize| u32::try_from(number).unwrap();
        let gateways = NonZeroU32::new(count(self.followers.len())).unwrap_or(NonZeroU32::MIN);
        AmongGateways { gateways, before: count(self.followers.range(..node.to_owned()).count()) }
    }

    fn tell(&mut self, text: &str) {
        if !self.silent {
            self.streams.retain(|stream| stream.try_send(text.to_owned()).is_ok());
        }
    }

    /// The messages for a follower that has applied `after`.
    fn story(&self, after: u64) -> String {
        if after >= self.forgotten && after <= self.revision {
            let news = self.changes.iter().filter(|change| change.revision > Revision(after));
            return news.map(|change| line(&Frame::Change(change.clone()))).collect();
        }
        snapshot_at(&self.entities, self.position())
    }

    /// The refusal of a gateway with a position outside this database's history.
    fn refusal(&mut self, after: u64, mark: Option<Mark>) -> Option<String> {
        if self.was_at(after, mark) || !self.lies.is_empty() {
            return None;
        }
        self.refused += 1;
        let mut body = ErrorBody::new(409, "history", "Another history.");
        body.details = serde_json::to_value(self.position()).ok();
        Some(body.to_json())
    }

    fn position(&self) -> Position {
        Position { revision: Revision(self.revision), mark: self.marks[&self.revision] }
    }

    /// A mark for the newest revision that no other revision had.
    fn draw(&mut self) -> Mark {
        self.drawn += 1;
        let mark = Mark(self.drawn);
        self.marks.insert(self.revision, mark);
        mark
    }

    /// Whether this database was ever where a gateway is.
    fn was_at(&self, after: u64, mark: Option<Mark>) -> bool {
        after == 0 || (after <= self.revision && mark.is_some() && mark == self.marks.get(&after).copied())
    }
}

/// A snapshot as it goes over the wire, with any mark.
pub(crate) fn snapshot(entities: &[Entity], revision: u64) -> String {
    snapshot_at(entities, Position { revision: Revision(revision), mark: Mark(revision) })
}

fn snapshot_at(entities: &[Entity], Position { revision, mark }: Position) -> String {
    let begin = Frame::SnapshotBegin { entities: u64::try_from(entities.len()).unwrap() };
    let all = entities.iter().map(|entity| line(&Frame::Entity(entity.clone())));
    let end = Frame::SnapshotEnd { revision, mark };
    std::iter::once(line(&begin)).chain(all).chain([line(&end)]).collect()
}

/// One line of the stream.
pub(crate) fn line(frame: &Frame) -> String {
    serde_json::to_string(frame).unwrap() + "\n"
}
