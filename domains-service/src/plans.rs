//! The limits of each plan, from a file or as the specification states them.
//!
//! An operator can change the figures of the three stated plans, but not their names.

use std::collections::BTreeMap;

use chassis::config::{Problems, Section, Source};
use contract::plan::{Limits, Plan};

/// Maximum of domains per project in any plan: the number that the redirect rules can read in one transaction.
pub(crate) const DOMAINS_MAX: u32 = 10_000;

/// The limits and features of one plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Requests per minute and per day.
    pub limits: Limits,
    /// Custom domains a project may attach.
    pub domains: u32,
}

/// The limits and features of all plans.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plans(BTreeMap<Plan, Grant>);

impl Plans {
    /// The plans of the specification, with 0, 10, 100 and 10 000 domains.
    pub fn stated() -> Self {
        Self(Plan::ALL.iter().map(|plan| (*plan, Self::stated_grant(*plan))).collect())
    }

    /// Reads a plans file. A plan or figure left out is as stated.
    pub fn read(source: &Source) -> Result<Self, Problems> {
        let reader = source.reader()?;
        let root = reader.root();
        let grants: Vec<Option<(Plan, Grant)>> = Plan::ALL.iter().map(|plan| read_grant(&root, *plan)).collect();
        let plans = grants.into_iter().collect::<Option<BTreeMap<_, _>>>().map(Self);
        reader.finish(plans)
    }

    /// The limits and features of `plan`.
    pub fn of(&self, plan: Plan) -> Grant {
        self.0.get(&plan).copied().unwrap_or_else(|| Self::stated_grant(plan))
    }

    fn stated_grant(plan: Plan) -> Grant {
        let domains = match plan {
            Plan::Free => 0,
            Plan::Pro => 10,
            Plan::Business => 100,
            Plan::Enterprise => DOMAINS_MAX,
        };
        Grant { limits: plan.stated_limits(), domains }
    }
}

fn read_grant(root: &Section<'_>, plan: Plan) -> Option<(Plan, Grant)> {
    let (section, stated) = (root.section(plan.as_str()), Plans::stated_grant(plan));
    let most = u64::from(u32::MAX);
    let per_minute = section.integer("requests_per_minute", stated.limits.per_minute.get().into(), 1..=most);
    let per_day = section.integer("requests_per_day", stated.limits.per_day.get().into(), 1..=most);
    let domains = section.integer("domains", stated.domains.into(), 0..=DOMAINS_MAX.into());
    let limits = Limits::new(u32::try_from(per_minute?).ok()?, u32::try_from(per_day?).ok()?)?;
    Some((plan, Grant { limits, domains: u32::try_from(domains?).ok()? }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Plans, Problems> {
        Plans::read(&Source::from_text("plans.toml", text, "T", BTreeMap::new()))
    }

    // rule: 8.6.1, 8.6.2, 8.6.3
    #[test]
    fn the_file_in_config_equals_the_specification() {
        assert_eq!(read(include_str!("../../config/plans.toml")).unwrap(), Plans::stated());
        assert_eq!(read("").unwrap(), Plans::stated());
    }

    #[test]
    fn figures_can_be_raised_and_nonsense_is_reported_with_its_line() {
        let plans = read("[pro]\ndomains = 25\n").unwrap();
        assert_eq!((plans.of(Plan::Pro).domains, plans.of(Plan::Pro).limits.per_minute.get()), (25, 300));
        let problems = read("[pro]\nrequests_per_minute = 0\n[platinum]\ndomains = 1\n").unwrap_err();
        let lines: Vec<_> = problems.list.iter().map(|problem| problem.line).collect();
        assert_eq!(lines, [Some(2), Some(3)]);
    }
}
