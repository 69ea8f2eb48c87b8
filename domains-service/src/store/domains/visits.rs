//! Domains that visitors ask for before they are served.

use chassis::sql::{query, query_scalar};
use contract::hostname::Hostname;

use super::super::{Result, Store};

/// Time between two checks of a domain because of visitors, in milliseconds.
const VISIT_CHECK_MILLIS: i64 = 60_000;

/// A domain that is checked because of a visitor: `$1` name, `$2` now, `$3` the latest check before.
macro_rules! waits_for_records {
    ($statement:literal) => {
        concat!(
            $statement,
            " WHERE name = $1 AND removal IS NULL AND due_at > $2 AND COALESCE(checked_at, 0) <= $3
                 AND status IN ('pending_dns', 'pending_ownership', 'propagating', 'action_required')"
        )
    };
}

impl Store {
    /// Makes the domain of this name due that waits for its records, unless it was checked lately. Returns whether
    /// there is one. Strangers choose the names, so nothing is written for others.
    pub(crate) async fn make_due_for_visitors(&self, name: &Hostname) -> Result<bool> {
        let now = self.clock.now();
        let before = now.plus(-VISIT_CHECK_MILLIS);
        let count = query_scalar(waits_for_records!("SELECT COUNT(*) FROM domains"));
        let count: i64 = count.bind((name.as_str(), now.0, before.0)).fetch_one(self.reader()).await?;
        if count == 0 {
            return Ok(false);
        }
        let made = query(waits_for_records!("UPDATE domains SET due_at = $2"));
        let made = made.bind((name.as_str(), now.0, before.0)).execute(self.writer()).await?;
        Ok(made.rows_affected() > 0)
    }
}
