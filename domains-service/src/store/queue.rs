//! Certificate orders: the used part of the authorities' limits, and the names that wait for them.
//!
//! A name that waits has one row at an authority, in the queue for one limit: the one that has room last. Its place is
//! its number among the rows of the queue by time. A row is written when the wait begins, and deleted when the
//! authority makes or refuses the order, with the domain, or when the name's records no longer pass. While a name waits
//! nothing is written: [`Store::offer`] makes the first names of a queue due when the limit has room for them.
//!
//! An order takes its units when it is admitted, and keeps its row until the authority has made or refused the order. A
//! name whose turn fell into an outage of the authority is thus still the first afterwards. A refused name waits by its
//! own schedule, and then at the end of the queue.

use chassis::sql::{Connection, Found, query, query_as, query_scalar};
use contract::hostname::Hostname;
use contract::project::ProjectUid;
use contract::time::UnixMillis;

use super::rows::{self, Table};
use super::{Result, Store, Write};
use crate::domain::schedule::LEASE_MILLIS;
use crate::limits::{Demand, Limit, OFFERS_MAX, QueueKind, QueuePosition, admit, queue_name};

/// Time between two offers to a name that did not order, in milliseconds.
const OFFER_AGAIN_MILLIS: i64 = 60_000;

/// Queues per round of offers.
const QUEUES_PER_ROUND: i64 = 256;

/// A name that orders or waits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Applicant<'a> {
    pub(crate) authority: &'a str,
    pub(crate) hostname: &'a Hostname,
    pub(crate) project: &'a ProjectUid,
}

chassis::record! {
    /// The row of a name.
    struct Waiting {
        queue: String,
        since: i64,
        admitted_at: i64,
    }
}

chassis::record! {
    /// The place of a name.
    struct PlaceRow {
        hostname: String,
        kind: String,
        number: i64,
        free_at: Option<i64>,
    }
}

/// When all of a limit is free. No order can have moved `free_at` beyond a whole burst: a later value is damaged and
/// would stop orders; it is replaced.
async fn free_by(write: &mut Write, name: &str, limit: Limit) -> Result<UnixMillis> {
    let latest = write.now().plus(limit.burst.saturating_mul(limit.refill));
    let free_at = query_as("SELECT free_at FROM acme_limits WHERE name = $1");
    let free_at: Option<Found<(i64,)>> = free_at.bind(name).fetch_optional(write.connection()).await?;
    // An unreadable limit counts as wholly free until the next order writes it.
    let key = rows::key(Table::AcmeLimits, name, "");
    let free_at = free_at.map(|free_at| rows::column(write.connection().unreadable(), &key, "free_at", free_at));
    let free_at = UnixMillis(free_at.unwrap_or(0));
    if free_at <= latest {
        return Ok(free_at);
    }
    tracing::error!(
        limit = name,
        free_at = free_at.0,
        latest = latest.0,
        "repaired an authority's limit whose free_at was later than possible: its row was damaged, the clock went back, \
         or the configured limit was larger before"
    );
    set_free_at(write, name, latest).await?;
    Ok(latest)
}

async fn set_free_at(write: &mut Write, name: &str, free_at: UnixMillis) -> Result<()> {
    let values = [("name", name.into()), ("free_at", free_at.0.into())];
    rows::upsert(Table::AcmeLimits, &["name"], &[], values).run(write.connection()).await
}

/// The row of a name; an unreadable one counts as absent and is written again.
async fn find(connection: &mut Connection, of: Applicant<'_>) -> Result<Option<Waiting>> {
    let found = query_as(
        "SELECT queue, since, admitted_at FROM certificate_queue WHERE authority = $1 AND hostname = $2 AND project = $3",
    );
    let found = found.bind((of.authority, of.hostname.as_str(), of.project.as_str()));
    let found: Option<Found<Waiting>> = found.fetch_optional(connection).await?;
    Ok(found.filter(|found| found.bad.is_none()).map(|found| found.row))
}

/// How many names wait in a queue before one that waits since then.
async fn ahead(connection: &mut Connection, queue: &str, since: UnixMillis, now: UnixMillis) -> Result<i64> {
    let text = "SELECT COUNT(*) FROM certificate_queue WHERE queue = $1 AND since < $2 AND admitted_at <= $3";
    let count = query_scalar(text).bind((queue, since.0, now.plus(-LEASE_MILLIS).0));
    Ok(count.fetch_one(connection).await?)
}

/// The time that a name waits since: that of its row, or of a new one: after all others, whatever the clock says.
async fn since(write: &mut Write, waiting: Option<&Waiting>) -> Result<UnixMillis> {
    if let Some(row) = waiting {
        return Ok(UnixMillis(row.since));
    }
    let now = write.now();
    // A damaged row in the future must not move those after it there.
    let last = query_scalar("SELECT MAX(since) FROM certificate_queue WHERE since <= $1");
    let last: Option<i64> = last.bind(now.plus(OFFER_AGAIN_MILLIS).0).fetch_one(write.connection()).await?;
    Ok(now.max(UnixMillis(last.unwrap_or(0)).plus(1)))
}

async fn put(
    write: &mut Write,
    of: Applicant<'_>,
    (kind, queue): (QueueKind, &str),
    since: UnixMillis,
    admitted_at: UnixMillis,
) -> Result<()> {
    let values = [
        ("authority", of.authority.into()),
        ("hostname", of.hostname.as_str().into()),
        ("project", of.project.as_str().into()),
        ("kind", kind.as_str().into()),
        ("queue", queue.into()),
        ("since", since.0.into()),
        ("offered_at", 0_i64.into()),
        ("admitted_at", admitted_at.0.into()),
    ];
    rows::upsert(Table::CertificateQueue, &["authority", "hostname"], &[], values).run(write.connection()).await
}

impl Store {
    /// Takes a unit of every limit that an order takes from, if it is the name's turn in all of them. Otherwise takes
    /// none; the name waits in the queue of the limit that has room last.
    pub(crate) async fn admit(
        &self,
        of: Applicant<'_>,
        demands: &[Demand],
    ) -> Result<Result<(), (QueueKind, QueuePosition)>> {
        let mut write = self.write().await?;
        let now = write.now();
        let waiting = find(write.connection(), of).await?;
        if waiting.as_ref().is_some_and(|row| row.admitted_at > now.plus(-LEASE_MILLIS).0) {
            return Ok(Ok(())); // it has its units already
        }
        let since = since(&mut write, waiting.as_ref()).await?;
        let (mut taken, mut tightest) = (Vec::new(), None::<(UnixMillis, &Demand)>);
        let mut last = None::<(UnixMillis, i64, &Demand)>;
        for demand in demands {
            let free_at = free_by(&mut write, &demand.name, demand.limit).await?;
            let ahead = ahead(write.connection(), &demand.name, since, now).await?;
            let at = demand.limit.admits_at(free_at, ahead, now);
            if at <= now {
                let free_at = if demand.takes { demand.limit.take(free_at, now) } else { free_at };
                let room_from = free_at.plus(-demand.limit.burst.saturating_mul(demand.limit.refill));
                if tightest.is_none_or(|(latest, _)| room_from > latest) {
                    tightest = Some((room_from, demand));
                }
                taken.extend(demand.takes.then_some((&demand.name, free_at)));
            } else if last.is_none_or(|(latest, ..)| at > latest) {
                last = Some((at, ahead, demand));
            }
        }
        let Some((at, ahead, demand)) = last else {
            // Should the order not be made, the name waits where it would have waited next. One that takes nothing has
            // nothing to keep: without a row the same name's next application is counted.
            if let Some((_, demand)) = tightest.filter(|_| !taken.is_empty()) {
                put(&mut write, of, (demand.kind, &demand.name), since, now).await?;
            }
            for (name, free_at) in taken {
                set_free_at(&mut write, name, free_at).await?;
            }
            write.commit().await?;
            return Ok(Ok(()));
        };
        if waiting.is_none_or(|row| row.queue != demand.name || row.admitted_at != 0) {
            put(&mut write, of, (demand.kind, &demand.name), since, UnixMillis::default()).await?;
        }
        write.commit().await?; // also a repaired limit
        Ok(Err((demand.kind, QueuePosition { number: ahead + 1, at: Some(at) })))
    }

    /// The name waits until a gateway is live. It keeps its place if it waits already.
    pub(crate) async fn wait_for_edge(&self, of: Applicant<'_>) -> Result<()> {
        let mut write = self.write().await?;
        let waiting = find(write.connection(), of).await?;
        let since = since(&mut write, waiting.as_ref()).await?;
        let queue = queue_name(of.authority, QueueKind::Edge, "");
        put(&mut write, of, (QueueKind::Edge, &queue), since, UnixMillis::default()).await?;
        write.commit().await.map(drop)
    }

    /// Takes units from all limits or from none; `false` if one has no room. Queues do not matter: what is counted has
    /// happened.
    pub(crate) async fn take(&self, demands: &[Demand]) -> Result<bool> {
        let mut write = self.write().await?;
        let (now, mut taken) = (write.now(), Vec::new());
        for demand in demands {
            let free_at = free_by(&mut write, &demand.name, demand.limit).await?;
            taken.extend(admit(free_at, now, demand.limit).ok().map(|free_at| (&demand.name, free_at)));
        }
        let have_room = taken.len() == demands.len();
        for (name, free_at) in taken.into_iter().filter(|_| have_room) {
            set_free_at(&mut write, name, free_at).await?;
        }
        write.commit().await?; // also a repaired limit
        Ok(have_room)
    }

    /// The queues of one kind at an authority with names to make due, and when the limit of each is free; those that
    /// have room first come first.
    pub(crate) async fn queues(
        &self,
        authority: &str,
        kind: QueueKind,
        now: UnixMillis,
    ) -> Result<Vec<(String, UnixMillis)>> {
        let found: Vec<Found<(String, Option<i64>)>> = query_as(
            // One step in the index finds the next queue, so that the cost does not grow with the names that wait.
            "WITH RECURSIVE queues(queue) AS
                 (SELECT MIN(queue) FROM certificate_queue WHERE authority = $1 AND kind = $2
                  UNION ALL
                  SELECT (SELECT MIN(queue) FROM certificate_queue
                          WHERE authority = $1 AND kind = $2 AND queue > queues.queue)
                  FROM queues WHERE queues.queue IS NOT NULL)
             SELECT queues.queue, l.free_at FROM queues LEFT JOIN acme_limits l ON l.name = queues.queue
             WHERE EXISTS (SELECT 1 FROM certificate_queue w WHERE w.authority = $1 AND w.kind = $2
                               AND w.queue = queues.queue AND w.admitted_at <= $3 AND w.offered_at <= $4)
             ORDER BY COALESCE(l.free_at, 0) LIMIT $5",
        )
        .bind((authority, kind.as_str(), now.plus(-LEASE_MILLIS).0, now.plus(-OFFER_AGAIN_MILLIS).0, QUEUES_PER_ROUND))
        .fetch_all(self.reader())
        .await?;
        Ok(found.into_iter().map(|found| (found.row.0, UnixMillis(found.row.1.unwrap_or(0)))).collect())
    }

    /// Makes the first `units` names of a queue due, those that were not lately. Returns how many.
    pub(crate) async fn offer(&self, authority: &str, queue: &str, units: i64, now: UnixMillis) -> Result<usize> {
        let offered: Vec<Found<(String, String)>> = query_as(
            "UPDATE certificate_queue SET offered_at = $1
             WHERE authority = $2 AND offered_at <= $3 AND hostname IN
                 (SELECT hostname FROM certificate_queue WHERE authority = $2 AND queue = $4 AND admitted_at <= $5
                  ORDER BY since LIMIT $6)
             RETURNING hostname, project",
        )
        .bind((
            now.0,
            authority,
            now.plus(-OFFER_AGAIN_MILLIS).0,
            queue,
            now.plus(-LEASE_MILLIS).0,
            units.min(OFFERS_MAX),
        ))
        .fetch_all(self.writer())
        .await?;
        for Found { row: (hostname, project), .. } in &offered {
            let make_due = query(
                "UPDATE domains SET due_at = $1
                 WHERE name = $2 AND project = $3 AND removal IS NULL AND (due_at IS NULL OR due_at > $1)",
            );
            make_due.bind((now.0, hostname, project)).execute(self.writer()).await?;
        }
        Ok(offered.len())
    }

    /// The places of a project's names at an authority. `limits`: of each kind of queue.
    pub(crate) async fn queue_places(
        &self,
        authority: &str,
        project: &ProjectUid,
        limits: impl Fn(QueueKind) -> Limit,
    ) -> Result<Vec<(String, QueuePosition)>> {
        let now = self.clock.now();
        let found: Vec<Found<PlaceRow>> = query_as(
            "SELECT hostname, kind, number, (SELECT free_at FROM acme_limits WHERE name = queue) AS free_at FROM
                 (SELECT hostname, project, kind, queue, admitted_at,
                         ROW_NUMBER() OVER (PARTITION BY queue ORDER BY since) AS number
                  FROM certificate_queue WHERE authority = $1 AND admitted_at <= $3 AND queue IN
                      (SELECT queue FROM certificate_queue WHERE authority = $1 AND project = $2)) AS places
             WHERE project = $2",
        )
        .bind((authority, project.as_str(), now.plus(-LEASE_MILLIS).0))
        .fetch_all(self.reader())
        .await?;
        let place = |found: Found<PlaceRow>| {
            let PlaceRow { hostname, kind, number, free_at } = found.row;
            let kind: QueueKind = kind.parse().ok()?;
            let admits_at = || limits(kind).admits_at(UnixMillis(free_at.unwrap_or(0)), number - 1, now);
            Some((hostname, QueuePosition { number, at: (kind != QueueKind::Edge).then(admits_at) }))
        };
        Ok(found.into_iter().filter_map(place).collect())
    }
}

/// Ends the waits of a name at all authorities, if it is this project's.
pub(crate) async fn leave(connection: &mut Connection, hostname: &Hostname, project: &ProjectUid) -> Result<()> {
    let delete = query("DELETE FROM certificate_queue WHERE hostname = $1 AND project = $2");
    delete.bind((hostname.as_str(), project.as_str())).run(connection).await
}

/// Ends the wait of a name at one authority: the authority has made the order, or refused it.
pub(crate) async fn leave_one(connection: &mut Connection, authority: &str, hostname: &Hostname) -> Result<()> {
    let delete = query("DELETE FROM certificate_queue WHERE authority = $1 AND hostname = $2");
    delete.bind((authority, hostname.as_str())).run(connection).await
}

/// Deletes limits that are wholly free again, and rows of names without a domain, which a crash may leave.
pub(super) async fn tidy(connection: &mut Connection, now: UnixMillis) -> Result<()> {
    query("DELETE FROM acme_limits WHERE CAST(free_at AS BIGINT) < $1").bind(now.0).execute(&mut *connection).await?;
    query(
        "DELETE FROM certificate_queue WHERE NOT EXISTS
             (SELECT 1 FROM domains WHERE name = hostname AND project = certificate_queue.project AND removal IS NULL)",
    )
    .run(connection)
    .await
}
