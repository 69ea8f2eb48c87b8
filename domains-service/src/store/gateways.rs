//! Stored generations of the gateways' keys.

use chassis::sql::{On, query, query_as};
use contract::keyring::GENERATIONS_MAX;
use contract::time::UnixSeconds;

use super::rows::{self, Columns, ReadKey, Stored, Table};
use super::{Result, Write};

/// Highest number of a generation: numbers are seconds since the Unix epoch, or one more than the last number.
const GENERATION_MAX: i64 = 1 << 40;

/// Maximum by which a generation's number may exceed a later one, in seconds: another replica's clock was ahead. It is
/// more than clocks differ, and a flipped bit above it is damage.
const AHEAD_MAX: i64 = 1 << 30;

/// A generation of keys as it rests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SealedGeneration {
    pub(crate) number: i64,
    pub(crate) sealed: String,
    pub(crate) signs_from: UnixSeconds,
}

impl Stored for SealedGeneration {
    const KEY: ReadKey = |row| rows::key(Table::GatewayKeys, row.get::<i64>("number").to_string(), "");

    fn read(row: &mut Columns<'_>) -> Option<Self> {
        let number: i64 = row.get("number");
        if !(0..=GENERATION_MAX).contains(&number) {
            row.bad("number", format!("no generation was ever given the number {number}"));
        }
        let generation = Self { number, sealed: row.get("sealed"), signs_from: UnixSeconds(row.get("signs_from")) };
        row.whole(generation)
    }
}

/// The generations of keys, the newest first.
pub(crate) async fn generations(on: impl Into<On<'_>>) -> Result<Vec<SealedGeneration>> {
    rows::all(on, query_as("SELECT number, sealed, signs_from FROM gateway_keys ORDER BY number DESC")).await
}

impl Write {
    /// Replaces the keys of a generation.
    pub(crate) async fn replace_generation(&mut self, generation: &SealedGeneration) -> Result<()> {
        let replace = query("UPDATE gateway_keys SET sealed = $2 WHERE number = $1");
        replace.bind((generation.number, &generation.sealed)).run(self.connection()).await
    }

    /// Adds a generation of keys and deletes the oldest beyond the maximum, or all others if they are `compromised`.
    pub(crate) async fn add_generation(&mut self, generation: &SealedGeneration, compromised: bool) -> Result<()> {
        let kept = if compromised { 0 } else { i64::try_from(GENERATIONS_MAX).unwrap_or(i64::MAX) - 1 };
        // Impossible numbers and values that are not numbers are excluded: they would displace real generations.
        query(
            "DELETE FROM gateway_keys WHERE number NOT IN
             (SELECT number FROM gateway_keys WHERE number BETWEEN 0 AND $2 ORDER BY number DESC LIMIT $1)",
        )
        .bind((kept, generation.number.saturating_add(AHEAD_MAX).min(GENERATION_MAX)))
        .execute(self.connection())
        .await?;
        rows::forget_all(self.connection().unreadable(), Table::GatewayKeys, "");
        // Another replica that started in the same second was first; its generation serves as well.
        let insert = query(
            "INSERT INTO gateway_keys (number, sealed, signs_from) VALUES ($1, $2, $3) ON CONFLICT (number) DO NOTHING",
        );
        insert.bind((generation.number, &generation.sealed, generation.signs_from.0)).run(self.connection()).await
    }
}
