//! Stored domains, the holders of names, and the leases by which one worker acts on a domain.

mod claims;
mod roles;
mod visits;

use chassis::sql::{Connection, Found, Kind, On, RowKey, query, query_as, query_scalar};
use contract::hostname::Hostname;
use contract::site::RedirectStatus;
use contract::time::UnixMillis;

use super::rows::{self, Columns, ReadKey, Stored, StoredRow, Table};
use super::{Result, Store, to_json, with_project};
use crate::domain::{Domain, RedirectRule, RedirectTarget, Status};
use verification::problem::{Problem, ProblemCode};

pub(crate) use self::claims::{NameClaims, find_claims, forget_tombstones, release, set_holder};
pub(crate) use self::roles::{dependants, find_next_primary, find_primary, find_successor};
use crate::project::ProjectRef;

/// Time for which an unreadable domain is postponed, in milliseconds.
pub(crate) const POSTPONED_MILLIS: i64 = 10 * 60 * 1_000;

impl Stored for Domain {
    const KEY: ReadKey = |row| rows::key(Table::Domains, row.text("name"), row.text("project"));

    fn read(row: &mut Columns<'_>) -> Option<Self> {
        let mut domain = Self {
            name: row.word("name")?,
            project: row.project("project", "project_name")?,
            // Only the display changes: the edge continues to serve the domain.
            status: row.word("status").unwrap_or(Status::Active),
            status_since: row.time("status_since"),
            primary: row.get("is_primary"),
            primary_wanted: row.get("primary_wanted"),
            redirect: redirect(row),
            is_apex: row.get("is_apex"),
            checks: row.json("checks"),
            problems: row.json("problems").unwrap_or_default(),
            certificate: row.json("certificate").unwrap_or_default(),
            watched_since: row.time("watched_since"),
            checked_at: row.time_if_any("checked_at"),
            failing_since: row.time_if_any("failing_since"),
            waits_since: row.time_if_any("waits_since"),
            due_at: row.time_if_any("due_at"),
            lease_fence: row.get("lease_fence"),
            removal: row.get::<Option<i64>>("removal").map(i64::unsigned_abs),
            rev: row.get("rev"),
            created_at: row.time("created_at"),
            updated_at: row.time("updated_at"),
            unreadable: row.unreadable(),
        };
        if domain.unreadable.is_some() {
            domain.problems = vec![unreadable_problem(&domain.name)];
        }
        Some(domain)
    }
}

fn redirect(row: &mut Columns<'_>) -> Option<RedirectRule> {
    let status: Option<i64> = row.get("redirect_status");
    let to = match row.get::<Option<String>>("redirect_to")?.as_str() {
        "primary" => RedirectTarget::Primary,
        name => RedirectTarget::Name(row.parse("redirect_to", name)?),
    };
    let Ok(code) = status.map(u16::try_from).transpose() else {
        row.bad("redirect_status", "invalid status");
        return None;
    };
    Some(RedirectRule { to, status: code.and_then(RedirectStatus::from_code) })
}

fn unreadable_problem(name: &Hostname) -> Problem {
    Problem::new(
        ProblemCode::RecordUnreadable,
        name.as_str(),
        "This domain's record is damaged. It is served as before, but not checked or renewed until an operator repairs it.",
        "There is nothing you can change in DNS. The platform's operators are notified; you can also remove the domain and add it again.",
    )
}

impl Store {
    /// The project's domain of this name.
    pub(crate) async fn find_domain(&self, project: &ProjectRef, name: &Hostname) -> Result<Option<Domain>> {
        rows::one(self.reader(), query_as(FIND).bind((name.as_str(), project.uid.as_str()))).await
    }

    /// Up to `limit` domains of the project after the name `after`, by name, with `part` in their names and in this
    /// state; empty matches any.
    pub(crate) async fn domains(
        &self,
        project: &ProjectRef,
        after: &str,
        (part, status): (&str, &str),
        limit: i64,
    ) -> Result<Vec<Domain>> {
        let statement = with_project!(
            "domains WHERE project = $1 AND name > $2 AND ($4 = '' OR REPLACE(name, $4, '') <> name)
             AND ($5 = '' OR status = $5) ORDER BY name LIMIT $3"
        );
        let found = query_as(statement).bind((project.uid.as_str(), after, limit, part, status));
        rows::all(self.reader(), found).await
    }

    /// Due domains without a lease: at most `limit`, and at most `per_project` of one project, so that a project with
    /// many due domains does not delay the others. Rows that cannot be read are postponed by [`POSTPONED_MILLIS`];
    /// otherwise each query would return them again in place of readable ones.
    pub(crate) async fn due_domains(&self, now: UnixMillis, per_project: usize, limit: i64) -> Result<Vec<Domain>> {
        let mut found: Vec<StoredRow<Domain>> = query_as(with_project!(
            "(SELECT *, ROW_NUMBER() OVER (PARTITION BY project ORDER BY due_at) AS turn
                            FROM domains WHERE due_at <= $1 AND CAST(lease_until AS BIGINT) <= $1) AS due
             WHERE turn <= $2 ORDER BY turn, due_at LIMIT $3"
        ))
        .bind((now.0, i64::try_from(per_project).unwrap_or(i64::MAX), limit))
        .fetch_all(self.reader())
        .await?;
        found.extend(self.undated_domains(limit).await?);
        let unreadable: Vec<_> = found.iter().filter(|row| row.bad.is_some()).map(|row| row.key.clone()).collect();
        let mut domains = rows::each(self.reader().unreadable(), found);
        domains.retain(|domain| domain.unreadable.is_none());
        for key in unreadable {
            self.postpone_unreadable(&key, now).await?;
        }
        Ok(domains)
    }

    /// Domains with a due time that is not a number, at most `limit`. SQLite sorts them after all numbers.
    async fn undated_domains(&self, limit: i64) -> Result<Vec<StoredRow<Domain>>> {
        if self.reader().kind() == Kind::Postgres {
            return Ok(Vec::new());
        }
        let found = query_as(with_project!("domains WHERE due_at >= '' ORDER BY due_at LIMIT $1"));
        Ok(found.bind(limit).fetch_all(self.reader()).await?)
    }

    /// Postpones a domain with an unreadable row, or an unreadable project, by [`POSTPONED_MILLIS`].
    pub(crate) async fn postpone_unreadable(&self, key: &RowKey, now: UnixMillis) -> Result<()> {
        let postpone = query(
            "UPDATE domains SET due_at = $1, lease_until = 0 WHERE name = $2 AND project = $3 AND removal IS NULL",
        );
        postpone.bind((now.plus(POSTPONED_MILLIS).0, &key.row, &key.of)).run(self.writer()).await
    }

    /// Takes a lease on a domain until `until`; `None` when another worker has one. The fence returned must still be
    /// the domain's when the result is written: a worker that outlived its lease writes nothing.
    pub(crate) async fn lease_domain(
        &self,
        domain: &Domain,
        now: UnixMillis,
        until: UnixMillis,
    ) -> Result<Option<i64>> {
        // A damaged fence starts again: a fence must only differ from the one before.
        let fence = query_scalar(
            "UPDATE domains SET lease_until = $1,
                 lease_fence = CASE WHEN lease_fence < 4611686018427387904 THEN lease_fence + 1 ELSE 1 END
             WHERE name = $2 AND project = $3 AND CAST(lease_until AS BIGINT) <= $4 AND removal IS NULL
             RETURNING lease_fence",
        )
        .bind((until.0, domain.name.as_str(), domain.project.uid.as_str(), now.0))
        .fetch_optional(self.writer())
        .await?;
        Ok(fence)
    }

    /// Since when the first of the domains waits that miss only their certificate.
    pub(crate) async fn oldest_certificate_wait(&self) -> Result<Option<UnixMillis>> {
        // Numbers sort before other values, so a damaged row hides no other.
        let found = query_as("SELECT MIN(waits_since) FROM domains WHERE waits_since IS NOT NULL AND removal IS NULL");
        let oldest: Found<(Option<i64>,)> = found.fetch_one(self.reader()).await?;
        Ok(oldest.row.0.map(UnixMillis))
    }

    /// How many domains are in each state.
    pub(crate) async fn domains_by_status(&self) -> Result<Vec<(String, i64)>> {
        let found = query_as("SELECT status, COUNT(*) FROM domains GROUP BY status");
        let counted: Vec<Found<(String, i64)>> = found.fetch_all(self.reader()).await?;
        Ok(counted.into_iter().map(|found| found.row).collect())
    }
}

/// `$1` name, `$2` project.
const FIND: &str = with_project!("domains WHERE name = $1 AND project = $2");
const FIND_AND_LOCK: &str = with_project!("domains WHERE name = $1 AND project = $2 FOR UPDATE");

/// The project's domain of this name, within a writing transaction. No worker can lease the domain until the
/// transaction ends, so a fence that was read here is still current when the result is written. (SQLite has one writer
/// anyway.)
pub(crate) async fn find_domain(
    connection: &mut Connection,
    project: &ProjectRef,
    name: &Hostname,
) -> Result<Option<Domain>> {
    let text = match connection.kind() {
        Kind::Sqlite => FIND,
        Kind::Postgres => FIND_AND_LOCK,
    };
    rows::one(connection, query_as(text).bind((name.as_str(), project.uid.as_str()))).await
}

/// Domains of a project that count towards its limit.
pub(crate) async fn count_domains(on: impl Into<On<'_>>, project: &ProjectRef) -> Result<u64> {
    let count = query_scalar("SELECT COUNT(*) FROM domains WHERE project = $1 AND removal IS NULL");
    let count: i64 = count.bind(project.uid.as_str()).fetch_one(on).await?;
    Ok(count.unsigned_abs())
}

/// All domains of a project.
pub(crate) async fn all_domains(connection: &mut Connection, project: &ProjectRef) -> Result<Vec<Domain>> {
    let found = query_as(with_project!("domains WHERE project = $1 ORDER BY name")).bind(project.uid.as_str());
    rows::all(connection, found).await
}

/// The row of a domain.
pub(crate) fn row_key(domain: &Domain) -> RowKey {
    rows::key(Table::Domains, domain.name.as_str(), domain.project.uid.as_str())
}

/// Writes a domain, new or changed. The lease stays as it is: see [`release_lease`].
///
/// # Errors
/// Also when its row could not be read: what is in it would be lost.
pub(crate) async fn save_domain(connection: &mut Connection, domain: &Domain) -> Result<()> {
    rows::must_be_whole(domain.unreadable, || row_key(domain))?;
    let redirect = domain.redirect.as_ref();
    let redirect_status = redirect.and_then(|rule| rule.status).map(|status| i64::from(status.code()));
    let values = [
        ("name", domain.name.as_str().into()),
        ("project", domain.project.uid.as_str().into()),
        ("status", domain.status.as_str().into()),
        ("status_since", domain.status_since.0.into()),
        ("is_primary", domain.primary.into()),
        ("primary_wanted", domain.primary_wanted.into()),
        ("redirect_to", redirect.map(|rule| rule.to.as_str()).into()),
        ("redirect_status", redirect_status.into()),
        ("is_apex", domain.is_apex.into()),
        ("checks", domain.checks.as_ref().map(to_json).into()),
        ("problems", to_json(&domain.problems).into()),
        ("certificate", to_json(&domain.certificate).into()),
        ("watched_since", domain.watched_since.0.into()),
        ("checked_at", domain.checked_at.map(|at| at.0).into()),
        ("failing_since", domain.failing_since.map(|at| at.0).into()),
        ("waits_since", domain.waits_since.map(|at| at.0).into()),
        ("due_at", domain.due_at.map(|at| at.0).into()),
        ("lease_until", 0_i64.into()),
        ("lease_fence", 0_i64.into()),
        ("removal", domain.removal.map(u64::cast_signed).into()),
        ("rev", domain.rev.into()),
        ("created_at", domain.created_at.0.into()),
        ("updated_at", domain.updated_at.0.into()),
    ];
    let once = ["lease_until", "lease_fence", "created_at"];
    rows::upsert(Table::Domains, &["name", "project"], &once, values).run(connection).await
}

/// Makes the project's domains due now, because its plan has changed.
pub(crate) async fn check_again(connection: &mut Connection, project: &ProjectRef, now: UnixMillis) -> Result<()> {
    let make_due = query("UPDATE domains SET due_at = $1 WHERE project = $2 AND removal IS NULL");
    make_due.bind((now.0, project.uid.as_str())).run(connection).await
}

/// Releases a lease on a domain.
pub(crate) async fn release_lease(connection: &mut Connection, domain: &Domain) -> Result<()> {
    let release = query("UPDATE domains SET lease_until = 0 WHERE name = $1 AND project = $2");
    release.bind((domain.name.as_str(), domain.project.uid.as_str())).run(connection).await
}

/// Deletes a domain's row.
pub(crate) async fn delete_domain(connection: &mut Connection, domain: &Domain) -> Result<()> {
    connection.unreadable().forget(&row_key(domain));
    let delete = query("DELETE FROM domains WHERE name = $1 AND project = $2");
    delete.bind((domain.name.as_str(), domain.project.uid.as_str())).run(connection).await
}
