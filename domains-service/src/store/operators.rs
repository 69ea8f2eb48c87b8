//! Operators' tokens: who has one, until when, and when it was used last.

use chassis::sql::{Found, RowPlace, query, query_as, query_scalar};
use contract::time::UnixMillis;

use super::rows::{self, Columns, Stored, Table};
use super::{Store, StoreError, Write};

/// Tokens on record, expired ones too.
pub(crate) const TOKENS_MAX: i64 = 1_024;

/// A token on record.
#[derive(Clone, Debug)]
pub(crate) struct OperatorToken {
    pub(crate) name: String,
    pub(crate) created_at: UnixMillis,
    pub(crate) expires_at: UnixMillis,
    pub(crate) last_used_at: Option<UnixMillis>,
}

chassis::record! {
    struct Row {
        name: String,
        created_at: i64,
        expires_at: i64,
        last_used_at: Option<i64>,
    }
}

impl Stored for Row {
    type Value = OperatorToken;

    fn place(&self) -> RowPlace {
        rows::place(Table::OperatorTokens, &self.name, "")
    }

    fn read(self, _: &mut Columns) -> Option<OperatorToken> {
        Some(OperatorToken {
            name: self.name,
            created_at: UnixMillis(self.created_at),
            expires_at: UnixMillis(self.expires_at),
            last_used_at: self.last_used_at.map(UnixMillis),
        })
    }
}

impl Store {
    /// All tokens on record, by name.
    pub(crate) async fn operator_tokens(&self) -> Result<Vec<OperatorToken>, StoreError> {
        let found: Vec<Found<Row>> =
            query_as("SELECT name, created_at, expires_at, last_used_at FROM operator_tokens ORDER BY name LIMIT $1")
                .bind(TOKENS_MAX)
                .fetch_all(self.reader())
                .await?;
        Ok(rows::each(self.reader(), found))
    }

    /// The operator whose token has this digest, unless it has expired. A row with an unreadable end or name is no token.
    pub(crate) async fn hear_operator(&self, digest: &str, now: UnixMillis) -> Result<Option<String>, StoreError> {
        let found = query_as("SELECT name FROM operator_tokens WHERE digest = $1 AND CAST(expires_at AS BIGINT) > $2");
        let found: Option<Found<(String,)>> = found.bind(digest).bind(now.0).fetch_optional(self.reader()).await?;
        let Some(Found { row: (name,), bad: None }) = found else { return Ok(None) };
        self.note_use("UPDATE operator_tokens SET last_used_at = $2 WHERE digest = $1", digest, now);
        Ok(Some(name))
    }
}

impl Store {
    /// Whether the operator of this name has a token that is good, still.
    pub(crate) async fn is_operator(&self, name: &str, now: UnixMillis) -> Result<bool, StoreError> {
        let found =
            query_scalar("SELECT COUNT(*) FROM operator_tokens WHERE name = $1 AND CAST(expires_at AS BIGINT) > $2");
        let found: i64 = found.bind(name).bind(now.0).fetch_one(self.reader()).await?;
        Ok(found > 0)
    }
}

impl Write {
    /// Puts a token on record; one of the same name that has expired is replaced. Whether there was room and no other of
    /// this name.
    pub(crate) async fn add_operator(
        &mut self,
        name: &str,
        digest: &str,
        expires_at: UnixMillis,
    ) -> Result<bool, StoreError> {
        let now = self.now().0;
        let replaced = query("DELETE FROM operator_tokens WHERE name = $1 AND CAST(expires_at AS BIGINT) <= $2")
            .bind(name)
            .bind(now)
            .execute(self.connection())
            .await?;
        if replaced.rows_affected() > 0 {
            self.end_operator(name).await?;
        }
        let added = query(
            "INSERT INTO operator_tokens (name, digest, created_at, expires_at)
             SELECT $1, $2, $3, $4 WHERE (SELECT COUNT(*) FROM operator_tokens) < $5
             ON CONFLICT DO NOTHING",
        )
        .bind(name)
        .bind(digest)
        .bind(now)
        .bind(expires_at.0)
        .bind(TOKENS_MAX)
        .execute(self.connection())
        .await?;
        Ok(added.rows_affected() > 0)
    }

    /// Forgets a token. Whether there was one.
    pub(crate) async fn remove_operator(&mut self, name: &str) -> Result<bool, StoreError> {
        let removed =
            query("DELETE FROM operator_tokens WHERE name = $1").bind(name).execute(self.connection()).await?;
        rows::forget(self.connection(), &rows::place(Table::OperatorTokens, name, ""));
        self.end_operator(name).await?;
        Ok(removed.rows_affected() > 0)
    }

    /// Ends what a token led to in the dashboard.
    async fn end_operator(&mut self, name: &str) -> Result<(), StoreError> {
        for statement in
            ["DELETE FROM dashboard_sessions WHERE operator = $1", "DELETE FROM dashboard_links WHERE operator = $1"]
        {
            query(statement).bind(name).execute(self.connection()).await?;
        }
        Ok(())
    }
}
