//! One writing transaction: records, change log and snapshot move together or not at all.

use std::sync::Arc;

use chassis::sql::{Begin, Connection, Found, Pool, query, query_as};
use contract::feed::{Effect, Entity, EntityName, Revision};
use contract::hostname::Hostname;
use contract::time::UnixMillis;

use super::log::counters::{COUNTER_MAX, Counters};
use super::rows::{self, Table};
use super::{Commits, Result, log, notices, set_setting, to_json};
use crate::actor::Actor;
use crate::project::ProjectRef;

/// A writing transaction. Dropping it without [`Write::commit`] rolls it back.
pub(crate) struct Write {
    transaction: Connection,
    current: i64,
    committed: i64,
    now: UnixMillis,
    commits: Arc<Commits>,
    done: Vec<Done>,
}

/// Added to the clock for a revision above all that a lost database can have given out: revisions start at the
/// millisecond of the first start, so they exceed the clock only by changes that came faster than one a millisecond on
/// average.
const REVISIONS_AHEAD: i64 = 1_000_000_000;

/// A change for the log: one line each, written after the commit.
pub(super) struct Done {
    pub(super) kind: String,
    pub(super) project: ProjectRef,
    pub(super) domain: Option<Hostname>,
    pub(super) actor: Actor,
}

impl Write {
    pub(super) async fn begin(pool: &Pool, now: UnixMillis, commits: Arc<Commits>) -> Result<Self> {
        let (mut transaction, mut counters) = lock(pool).await?;
        if counters.are_damaged {
            let is_incomplete = counters.repair(&mut transaction).await?;
            let mut write = Self::over(transaction, &counters, now, commits.clone());
            if is_incomplete {
                write.resend().await?;
            }
            write.commit().await?;
            (transaction, counters) = lock(pool).await?;
        }
        // All known revisions were committed before the lock was taken.
        commits.read(counters.revision(), commits.highest());
        Ok(Self::over(transaction, &counters, now, commits))
    }

    fn over(transaction: Connection, counters: &Counters, now: UnixMillis, commits: Arc<Commits>) -> Self {
        let current = counters.newest;
        Self { transaction, current, committed: current, now, commits, done: Vec::new() }
    }

    /// The connection, for statements within the transaction.
    pub(crate) fn connection(&mut self) -> &mut Connection {
        &mut self.transaction
    }

    /// The time of the transaction.
    pub(crate) fn now(&self) -> UnixMillis {
        self.now
    }

    /// To be logged when the transaction commits.
    pub(super) fn log_on_commit(&mut self, done: Done) {
        self.done.push(done);
    }

    /// The revision of the last change so far; [`Write::commit`] returns it if no change follows.
    pub(crate) fn revision(&self) -> Revision {
        Revision(self.current.unsigned_abs())
    }

    /// Whether the transaction publishes any change so far.
    pub(crate) fn changes_the_edge(&self) -> bool {
        self.current != self.committed
    }

    /// Publishes an entity, unless the edge has exactly this form already.
    pub(crate) async fn put(&mut self, entity: Entity) -> Result<()> {
        let (kind, name) = kind_and_name(&entity.name());
        let body = to_json(&entity);
        let known = query_as("SELECT body FROM entities WHERE kind = $1 AND name = $2");
        let known: Option<Found<(String,)>> = known.bind((kind, &name)).fetch_optional(&mut self.transaction).await?;
        if known.is_some_and(|known| known.bad.is_none() && known.row.0 == body) {
            return Ok(());
        }
        self.transaction.unreadable().forget(&rows::key(Table::Entities, &name, kind));
        let seal = seal_of(&entity);
        let values = [("kind", kind.into()), ("name", (&name).into()), ("body", (&body).into()), ("seal", seal.into())];
        rows::upsert(Table::Entities, &["kind", "name"], &[], values).execute(&mut self.transaction).await?;
        self.append(&Effect::Put(entity)).await
    }

    /// Withdraws an entity, unless the edge does not have it.
    pub(crate) async fn remove(&mut self, name: EntityName) -> Result<()> {
        let (kind, text) = kind_and_name(&name);
        self.transaction.unreadable().forget(&rows::key(Table::Entities, &text, kind));
        let gone = query("DELETE FROM entities WHERE kind = $1 AND name = $2");
        let gone = gone.bind((kind, &text)).execute(&mut self.transaction).await?;
        if gone.rows_affected() == 0 {
            return Ok(());
        }
        self.append(&Effect::Remove(name)).await
    }

    /// The tokens of the challenges that are published for the name.
    pub(crate) async fn challenge_tokens(&mut self, name: &Hostname) -> Result<Vec<String>> {
        let bodies: Vec<Found<(String,)>> =
            query_as("SELECT body FROM entities WHERE kind = 'challenge'").fetch_all(&mut self.transaction).await?;
        let challenges = bodies.iter().filter_map(|found| match serde_json::from_str::<Entity>(&found.row.0) {
            Ok(Entity::Challenge(challenge)) if challenge.hostname == *name => Some(challenge.token),
            _ => None,
        });
        Ok(challenges.collect())
    }

    async fn append(&mut self, effect: &Effect) -> Result<()> {
        self.current += 1;
        self.log(&to_json(effect)).await
    }

    /// Writes the row of the newest revision. A row that already has the number is damaged: the number was not given
    /// out before.
    pub(super) async fn log(&mut self, effect: &str) -> Result<()> {
        query(
            "INSERT INTO changes (revision, effect, at_ms, mark) VALUES ($1, $2, $3, $4)
             ON CONFLICT (revision) DO UPDATE SET effect = excluded.effect, at_ms = excluded.at_ms, mark = excluded.mark",
        )
        .bind((self.current, effect, self.now.0, log::random_mark()?))
        .run(&mut self.transaction).await
    }

    /// Continues the revisions above all that this database, or the one that it replaces and that reached `lost`, ever
    /// gave out. Every follower gets a snapshot. The marks stay: they show which databases this one continues.
    pub(crate) async fn replace_earlier(&mut self, lost: i64) -> Result<()> {
        self.current = self.current.max(lost.min(COUNTER_MAX)).max(self.now.0).saturating_add(REVISIONS_AHEAD);
        set_setting(log::REPLACED_BELOW, &self.current.to_string()).execute(&mut self.transaction).await?;
        self.forget_effects().await
    }

    /// Gives out a revision that followers reach only by a snapshot: the log may lack a change that entities contain.
    pub(crate) async fn resend(&mut self) -> Result<()> {
        self.current += 1;
        self.forget_effects().await
    }

    /// Makes every follower below the newest revision take a snapshot, and writes the row of that revision.
    async fn forget_effects(&mut self) -> Result<()> {
        query("UPDATE changes SET effect = '' WHERE effect <> ''").execute(&mut self.transaction).await?;
        let update = query("UPDATE revision_counter SET oldest = $1 WHERE id = 1");
        update.bind(self.current).execute(&mut self.transaction).await?;
        self.log("").await
    }

    /// Commits records, log and snapshot, and wakes followers. Returns the revision that contains the whole
    /// transaction.
    pub(crate) async fn commit(mut self) -> Result<Revision> {
        if self.current != self.committed {
            let update = query("UPDATE revision_counter SET current = $1 WHERE id = 1");
            update.bind(self.current).execute(&mut self.transaction).await?;
            notices::committed(&mut self.transaction, self.current).await?;
        }
        self.transaction.commit().await?;
        for Done { kind, project, domain, actor } in self.done {
            let (project, domain) = (project.name.as_str(), domain.as_ref().map(Hostname::as_str));
            let (client, gateway) = (actor.client().map(|client| client.to_string()), actor.gateway());
            let actor = actor.name();
            tracing::info!(project.id = project, domain, actor, client, gateway, what = kind, "recorded a change");
        }
        let revision = Revision(self.current.unsigned_abs());
        if self.current != self.committed {
            self.commits.committed(revision);
        }
        Ok(revision)
    }
}

/// Begins a transaction, takes the writers' lock, and reads the counters.
async fn lock(pool: &Pool) -> Result<(Connection, Counters)> {
    let mut transaction = pool.begin(Begin::Write).await?;
    // Takes the lock before any read.
    query("UPDATE revision_counter SET current = current WHERE id = 1").execute(&mut transaction).await?;
    let counters = Counters::read(&mut transaction).await?;
    Ok((transaction, counters))
}

/// With which secret an entity's key is sealed.
fn seal_of(entity: &Entity) -> &str {
    match entity {
        Entity::Certificate(bundle) => chassis::seal::name_in(&bundle.key.0),
        Entity::Project(_) | Entity::Site(_) | Entity::Key(_) | Entity::Challenge(_) => "",
    }
}

/// The columns an entity is found by.
pub(super) fn kind_and_name(name: &EntityName) -> (&'static str, String) {
    match name {
        EntityName::Project(id) => ("project", id.to_string()),
        EntityName::Site(hostname) => ("site", hostname.to_string()),
        EntityName::Key(digest) => ("key", digest.to_text()),
        EntityName::Certificate(hostname) => ("certificate", hostname.to_string()),
        EntityName::Challenge(token) => ("challenge", token.clone()),
    }
}
