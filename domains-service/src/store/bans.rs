//! The bans in force, as gateways report them.
//!
//! Gateways and their quota store hold the bans; this table holds each gateway's last report, for people to read.
//! Gateways that share a store report the same bans, so bans are told apart by key. A report counts for half a minute:
//! a gateway that ended or lost its connection reports no more, and its bans may have been lifted.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use chassis::sql::{Found, query, query_as};
use contract::ban::Ban;
use contract::key::KeyId;
use contract::time::UnixMillis;
use contract::usage::KeyReport;
use domains_api::types::ListedBan;

use super::processes::credential_of;
use super::rows::{self, Columns, ReadKey, Stored, Table};
use super::{Result, Store, Write, to_json};

/// Validity of a gateway's report, in milliseconds: three reports may be lost.
pub(crate) const REPORTED_MILLIS: i64 = 30_000;

/// Maximum of gateway processes with stored and read reports.
const NODES_MAX: i64 = 1_024;

/// Maximum with one credential: the processes that may be on record, and those that they replaced within half a minute.
const NODES_OF_ONE_MAX: i64 = 256;

/// A gateway's report: the bans in it, and how many there are.
struct Report(Vec<Ban>, i64);

impl Stored for Report {
    const KEY: ReadKey = |row| rows::key(Table::EdgeBans, row.text("node"), "");

    fn read(row: &mut Columns<'_>) -> Option<Self> {
        Some(Self(row.json("bans")?, row.get("total")))
    }
}

impl Write {
    /// Stores the bans that a gateway reports, in place of its last report. Returns whether there was room.
    pub(crate) async fn record_bans(&mut self, report: &KeyReport) -> Result<bool> {
        if report.bans_total == 0 {
            query("DELETE FROM edge_bans WHERE node = $1").bind(&report.node).execute(self.connection()).await?;
            return Ok(true);
        }
        if !self.has_room_for_bans(&report.node).await? {
            self.tidy_bans().await?;
            if !self.has_room_for_bans(&report.node).await? {
                return Ok(false);
            }
        }
        let now = self.now();
        query(
            "INSERT INTO edge_bans (node, bans, total, reported_at) VALUES ($1, $2, $3, $4)
             ON CONFLICT (node) DO UPDATE SET bans = excluded.bans, total = excluded.total, reported_at = excluded.reported_at",
        )
        .bind((&report.node, to_json(&report.bans), i64::try_from(report.bans_total).unwrap_or(i64::MAX), now.0))
        .execute(self.connection())
        .await?;
        Ok(true)
    }

    async fn has_room_for_bans(&mut self, node: &str) -> Result<bool> {
        let (others, siblings): (i64, i64) = query_as(
            "SELECT COUNT(*), COUNT(CASE WHEN substr(node, 1, length($2)) = $2 THEN 1 END) FROM edge_bans WHERE node <> $1",
        )
        .bind((node, credential_of(node)))
        .fetch_one(self.connection())
        .await?;
        Ok(others < NODES_MAX && siblings < NODES_OF_ONE_MAX)
    }

    /// Deletes expired reports.
    pub(crate) async fn tidy_bans(&mut self) -> Result<()> {
        let since = self.now().plus(-REPORTED_MILLIS).0;
        query("DELETE FROM edge_bans WHERE reported_at < $1").bind(since).run(self.connection()).await
    }
}

impl Store {
    /// The bans in force that gateways name, by key, and how many there are.
    pub(crate) async fn bans_in_force(&self, now: UnixMillis) -> Result<(BTreeMap<KeyId, Ban>, u64)> {
        let reports =
            query_as("SELECT node, bans, total FROM edge_bans WHERE reported_at >= $1 ORDER BY node LIMIT $2")
                .bind((now.plus(-REPORTED_MILLIS).0, NODES_MAX));
        let mut by_key: BTreeMap<KeyId, Ban> = BTreeMap::new();
        let mut of_cut = 0;
        for Report(bans, total) in rows::all(self.reader(), reports).await? {
            let total = total.unsigned_abs();
            if total > bans.len() as u64 {
                of_cut = total.max(of_cut);
            }
            for ban in bans.into_iter().filter(|ban| now < ban.until.to_millis()) {
                let known = by_key.entry(ban.key.clone()).or_insert_with(|| ban.clone());
                if known.until < ban.until {
                    *known = ban;
                }
            }
        }
        let total = of_cut.max(by_key.len() as u64);
        Ok((by_key, total))
    }

    /// The bans in force with their keys' holders: at most `limit`, the one that ends last first. And how many there
    /// are.
    pub(crate) async fn bans(&self, now: UnixMillis, limit: usize) -> Result<(Vec<ListedBan>, u64)> {
        let (by_key, total) = self.bans_in_force(now).await?;
        let mut bans: Vec<Ban> = by_key.into_values().collect();
        bans.sort_by_key(|ban| Reverse(ban.until));
        let mut listed = Vec::new();
        for ban in bans.into_iter().take(limit) {
            let row =
                query_as("SELECT p.name, k.label FROM api_keys k JOIN projects p ON p.id = k.project WHERE k.id = $1");
            let row: Option<Found<(String, String)>> = row.bind(ban.key.as_str()).fetch_optional(self.reader()).await?;
            // A project with an unreadable name is recorded where its row is read.
            let holder = row.and_then(|found| Some((found.row.0.parse().ok()?, found.row.1)));
            let (project, label) = holder.unzip();
            listed.push(ListedBan { ban, project, label });
        }
        Ok((listed, total))
    }
}
