//! Credentials that a revoked credential created, as a list for the operator.

use chassis::sql::query_as;

use super::super::{Result, Write, rows};
use super::{Kind, LISTED_MAX, Recorded};

impl Write {
    /// The valid credential of this name, or else the one that was revoked last, if any.
    pub(crate) async fn last_credential(&mut self, kind: Kind, name: &str) -> Result<Option<Recorded>> {
        let found = query_as(recorded!(
            "WHERE c.kind = $1 AND c.name = $2 ORDER BY c.revoked_at IS NOT NULL, c.revoked_at DESC, c.digest LIMIT 1"
        ));
        rows::readable(self.connection(), found.bind((kind.as_str(), name))).await
    }

    /// The valid credentials that credentials of this name made, revoked ones included, and those that these made, by
    /// kind and name. With `also_revoked`, what they made and is revoked follows, as far as the list has room.
    pub(crate) async fn made_by(&mut self, kind: Kind, name: &str, also_revoked: bool) -> Result<Vec<Recorded>> {
        let found = query_as(recorded!(
            "WHERE (c.revoked_at IS NULL OR $3 > 0) AND c.digest IN
             (WITH RECURSIVE made (digest) AS
                  (SELECT digest FROM credentials WHERE made_by IN
                       (SELECT digest FROM credentials WHERE kind = $1 AND name = $2)
                   UNION
                   SELECT later.digest FROM credentials later JOIN made ON later.made_by = made.digest)
              SELECT digest FROM made)
             ORDER BY c.revoked_at IS NOT NULL, c.revoked_at DESC, c.kind, c.name LIMIT $4"
        ))
        .bind((kind.as_str(), name, i64::from(also_revoked), LISTED_MAX));
        rows::all(self.connection(), found).await
    }
}
