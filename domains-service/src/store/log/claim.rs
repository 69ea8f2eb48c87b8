//! Compares the position that a gateway process reports with the log.

use std::collections::HashSet;

use chassis::sql::{Builder, Connection, Found};
use contract::feed::{Mark, NodeReport, Position, Revision};

use super::super::{Result, Store};
use super::counters::Counters;
use super::{as_mark, is_mark_of_damaged, mark_of, of_revision};

/// Positions per query.
const POSITIONS_PER_READ: usize = 500;

/// The check of a process's reported position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    /// The log has this position, or the process has applied nothing.
    Held,
    /// Unknown: the log no longer has the revision's mark, or a damaged one, or the revision belongs to a database that
    /// an operator replaced by this one.
    Unproven,
    /// This database gave the revision to another change. Its newest revision is this.
    OtherHistory(Revision),
    /// This database never gave the revision out.
    NeverGiven,
}

/// The log's facts about a process's revision.
#[derive(Clone, Copy, Debug)]
struct Known {
    /// The newest revision.
    newest: Revision,
    /// The mark of this revision, while it is kept and reads.
    mark: Option<Mark>,
    /// Revisions below are of databases that an operator replaced by this one.
    replaced_below: Revision,
}

fn judge(revision: Revision, mark: Option<Mark>, known: Known) -> Claim {
    if revision == Revision::default() {
        Claim::Held
    } else if revision > known.newest {
        Claim::NeverGiven
    } else if known.mark.is_some() && known.mark == mark {
        Claim::Held
    } else if known.mark.is_none() || revision < known.replaced_below {
        Claim::Unproven
    } else {
        Claim::OtherHistory(known.newest)
    }
}

impl Store {
    /// Compares a process's reported position with the log. A revision without its mark proves nothing.
    pub(crate) async fn claim(&self, report: &NodeReport) -> Result<Claim> {
        if report.applied == Revision::default() {
            return Ok(Claim::Held);
        }
        let mut reading = self.reader().acquire().await?;
        let counters = Counters::read(&mut reading).await?;
        let mark = mark_of(&mut reading, report.applied).await?;
        let known = Known { newest: counters.revision(), mark, replaced_below: counters.replaced_below() };
        match judge(report.applied, report.mark, known) {
            Claim::OtherHistory(_) if is_mark_of_damaged(&mut reading, report.mark, &counters).await? => {
                Ok(Claim::Unproven)
            }
            claim => Ok(claim),
        }
    }
}

/// The positions that this database lacks or has deleted.
pub(crate) async fn missing(
    connection: &mut Connection,
    mut positions: HashSet<Position>,
) -> Result<HashSet<Position>> {
    let asked: Vec<Position> = positions.iter().copied().collect();
    for some in asked.chunks(POSITIONS_PER_READ) {
        let mut statement = Builder::new("SELECT revision, mark FROM changes WHERE revision IN (");
        for (index, position) in some.iter().enumerate() {
            if index > 0 {
                statement.push(", ");
            }
            statement.push_bind(of_revision(position.revision));
        }
        statement.push(")");
        let found: Vec<Found<(i64, i64)>> = statement.build_as().fetch_all(&mut *connection).await?;
        for Found { row: (revision, mark), .. } in found.into_iter().filter(|found| found.bad.is_none()) {
            positions.remove(&Position { revision: Revision(revision.unsigned_abs()), mark: as_mark(mark) });
        }
    }
    Ok(positions)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: Option<Mark> = Some(Mark(7));

    fn claim_of(revision: u64, mark: Option<Mark>, kept: Option<Mark>) -> Claim {
        let known = Known { newest: Revision(150), mark: kept, replaced_below: Revision(50) };
        judge(Revision(revision), mark, known)
    }

    #[test]
    fn a_position_of_this_history_counts() {
        assert_eq!(claim_of(150, OURS, OURS), Claim::Held);
        assert_eq!(claim_of(49, OURS, OURS), Claim::Held, "also where the replaced database had the same");
        assert_eq!(claim_of(0, None, None), Claim::Held, "nothing is applied");
    }

    #[test]
    fn a_position_of_another_history_is_refused() {
        assert_eq!(claim_of(150, Some(Mark(8)), OURS), Claim::OtherHistory(Revision(150)));
        assert_eq!(claim_of(100, None, OURS), Claim::OtherHistory(Revision(150)), "a revision without its mark");
        assert_eq!(claim_of(151, OURS, None), Claim::NeverGiven);
    }

    #[test]
    fn a_position_without_a_mark_is_accepted_and_does_not_count() {
        assert_eq!(claim_of(100, OURS, None), Claim::Unproven, "the mark is forgotten, or damaged");
        assert_eq!(claim_of(100, None, None), Claim::Unproven);
        assert_eq!(claim_of(49, Some(Mark(8)), OURS), Claim::Unproven, "of a database that was replaced on purpose");
    }
}
