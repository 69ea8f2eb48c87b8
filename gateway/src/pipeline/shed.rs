//! Refuses requests of the lowest plans under memory pressure, before anything is spent on them.

use super::Pipeline;
use crate::answer::Answer;
use crate::facts::Facts;
use contract::rejection::Rejection;

impl Pipeline {
    pub(super) fn shed(&self, facts: &Facts) -> Result<(), Answer> {
        // The platform's own hosts have no project: operators and customers must be able to act.
        let refused = facts.project.as_ref().is_some_and(|project| self.overload.refuses(project.plan));
        if refused { Err(Rejection::Overloaded.into()) } else { Ok(()) }
    }
}
