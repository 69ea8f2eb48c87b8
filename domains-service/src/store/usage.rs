//! Requests per project and UTC day, as gateways report them.
//!
//! Each gateway process writes its own total for the day, repeatedly, under its own name: a lost or repeated report
//! changes nothing. Requests that a process had not reported when it ended are missing: these figures are for display.
//! Quotas are counted elsewhere, exactly.

use chassis::sql::{query, query_as, query_scalar};
use contract::usage::UsageOfProject;

use super::processes::credential_of;
use super::rows::{self, Columns, ReadKey, Stored, Table};
use super::{Result, Store, Write};
use crate::project::ProjectRef;

/// Days kept.
pub(crate) const USAGE_DAYS_MAX: i64 = 62;

/// Maximum of gateway processes with figures for one project and day, until the figures are added up.
const NODES_MAX: i64 = 2_048;

/// Maximum with one credential: gateways that are started in numbers share one, and each start has a new name.
const NODES_OF_ONE_MAX: i64 = 512;

/// Maximum that one process may report for a day, so that no sum over the retention time exceeds the database's
/// numbers.
const COUNT_MAX: u64 = 10_000_000_000;

chassis::record! {
    /// Figures of a day.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub(crate) struct DayUsage {
        project: String,
        /// Days since the epoch.
        pub(crate) day: i64,
        pub(crate) admitted: i64,
        pub(crate) refused: i64,
        pub(crate) banned: i64,
    }
}

impl Stored for DayUsage {
    const KEY: ReadKey = |row| rows::key(Table::UsageDays, row.get::<i64>("day").to_string(), row.text("project"));

    fn read(row: &mut Columns<'_>) -> Option<Self> {
        let usage = row.record()?;
        row.whole(usage)
    }
}

/// The sums of figures. One that no gateway can have said is damage and counts as none: both databases end a
/// statement whose sum leaves their numbers, and with it whatever else its transaction does.
macro_rules! with_sums {
    ($begin:literal, $rest:literal) => {
        concat!(
            $begin,
            "CAST(SUM(CASE WHEN admitted BETWEEN 0 AND 1000000000000000 THEN admitted ELSE 0 END) AS BIGINT) AS admitted,
             CAST(SUM(CASE WHEN refused BETWEEN 0 AND 1000000000000000 THEN refused ELSE 0 END) AS BIGINT) AS refused,
             CAST(SUM(CASE WHEN banned BETWEEN 0 AND 1000000000000000 THEN banned ELSE 0 END) AS BIGINT) AS banned ",
            $rest
        )
    };
}

impl Write {
    /// Stores a gateway's figure for a project and day, in place of an earlier one, unless this is older. Drops figures
    /// of erased projects, and of days that would be deleted at once or never, because a stolen gateway may report
    /// anything. Returns whether there was room.
    pub(crate) async fn record_usage(&mut self, node: &str, usage: &UsageOfProject) -> Result<bool> {
        let whole = |count: u64| i64::try_from(count.min(COUNT_MAX)).unwrap_or(i64::MAX);
        let today = self.now().to_seconds().0.div_euclid(86_400);
        // The clock of a gateway may be ahead at midnight.
        if !(today - USAGE_DAYS_MAX..=today + 1).contains(&usage.day) {
            return Ok(true);
        }
        let (others, siblings): (i64, i64) = query_as(
            "SELECT COUNT(*), COUNT(CASE WHEN substr(node, 1, length($4)) = $4 THEN 1 END) FROM usage_days
             WHERE project = $1 AND day = $2 AND node <> $3",
        )
        .bind((usage.project.as_str(), usage.day, node, credential_of(node)))
        .fetch_one(self.connection())
        .await?;
        if others >= NODES_MAX || siblings >= NODES_OF_ONE_MAX {
            return Ok(false);
        }
        query(
            "INSERT INTO usage_days (project, day, node, admitted, refused, banned, minute, in_minute)
             SELECT id, $2, $3, $4, $5, $6, $7, $8 FROM projects WHERE id = $1
             ON CONFLICT (project, day, node) DO UPDATE SET admitted = excluded.admitted, refused = excluded.refused,
                 banned = excluded.banned, minute = excluded.minute, in_minute = excluded.in_minute
             WHERE excluded.admitted + excluded.refused + excluded.banned
                     >= CAST(usage_days.admitted AS NUMERIC) + usage_days.refused + usage_days.banned
                 OR usage_days.admitted NOT BETWEEN 0 AND 1000000000000000
                 OR usage_days.refused NOT BETWEEN 0 AND 1000000000000000
                 OR usage_days.banned NOT BETWEEN 0 AND 1000000000000000",
        )
        .bind((
            usage.project.as_str(),
            usage.day,
            node,
            whole(usage.admitted),
            whole(usage.refused),
            whole(usage.banned),
            usage.minute,
            whole(usage.in_minute),
        ))
        .execute(self.connection())
        .await?;
        Ok(true)
    }

    /// Deletes days before `oldest`, and adds up the figures of days before `settled`, for which no process reports any
    /// more.
    pub(crate) async fn tidy_usage(&mut self, oldest: i64, settled: i64) -> Result<()> {
        query("DELETE FROM usage_days WHERE day < $1").bind(oldest).execute(self.connection()).await?;
        let add_up = query(with_sums!(
            "INSERT INTO usage_days (project, day, node, admitted, refused, banned, minute, in_minute)
             SELECT project, day, '', admitted, refused, banned, 0, 0 FROM (SELECT project, day, ",
            "FROM usage_days WHERE day < $1 AND node <> '' GROUP BY project, day) AS sums WHERE TRUE
             ON CONFLICT (project, day, node) DO UPDATE SET
                 admitted = excluded.admitted + CASE WHEN usage_days.admitted BETWEEN 0 AND 1000000000000000
                     THEN usage_days.admitted ELSE 0 END,
                 refused = excluded.refused + CASE WHEN usage_days.refused BETWEEN 0 AND 1000000000000000
                     THEN usage_days.refused ELSE 0 END,
                 banned = excluded.banned + CASE WHEN usage_days.banned BETWEEN 0 AND 1000000000000000
                     THEN usage_days.banned ELSE 0 END"
        ));
        add_up.bind(settled).execute(self.connection()).await?;
        query("DELETE FROM usage_days WHERE day < $1 AND node <> ''").bind(settled).run(self.connection()).await
    }
}

impl Store {
    /// A project's days from `first` on that had requests, oldest first.
    pub(crate) async fn usage(&self, project: &ProjectRef, first: i64) -> Result<Vec<DayUsage>> {
        let found = query_as(with_sums!(
            "SELECT project, day, ",
            "FROM usage_days WHERE project = $1 AND day >= $2 GROUP BY project, day ORDER BY day"
        ));
        rows::all(self.reader(), found.bind((project.uid.as_str(), first))).await
    }

    /// Requests of a project admitted in a minute, by its number since the epoch.
    pub(crate) async fn usage_of_minute(&self, project: &ProjectRef, minute: i64) -> Result<i64> {
        let sum: Option<i64> = query_scalar(
            "SELECT CAST(SUM(CASE WHEN in_minute BETWEEN 0 AND 1000000000000000 THEN in_minute ELSE 0 END) AS BIGINT)
             FROM usage_days WHERE project = $1 AND day = $2 AND minute = $3",
        )
        .bind((project.uid.as_str(), minute.div_euclid(1_440), minute))
        .fetch_one(self.reader())
        .await?;
        Ok(sum.unwrap_or(0))
    }
}
