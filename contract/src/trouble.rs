//! A problem of a process, in words for operators.

use serde::{Deserialize, Serialize};

use crate::rejection::Blame;

/// A problem in `tollhouse status`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trouble {
    /// The object and the cause.
    pub problem: String,
    /// The party that must act.
    pub who_must_act: Blame,
    /// The next step of that party.
    pub what_to_do: String,
}

impl Trouble {
    /// A problem that the operator of the platform must solve.
    pub fn of_platform(problem: impl Into<String>, what_to_do: impl Into<String>) -> Self {
        Self { problem: problem.into(), who_must_act: Blame::Platform, what_to_do: what_to_do.into() }
    }
}
