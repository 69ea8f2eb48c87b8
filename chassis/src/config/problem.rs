//! Mistakes in configuration, and how they read.

use std::fmt;

use super::told::Told;

/// One mistake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Line in the file, from 1; `None` when the value came from the environment or is missing.
    pub line: Option<usize>,
    /// The setting's path, for example `quota.on_store_down`.
    pub setting: String,
    /// The value found, as written; `None` when it is missing.
    pub value: Option<String>,
    /// What to do about it.
    pub way_out: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "  line {line:<4} ")?,
            None => write!(f, "  {:<10}", "")?,
        }
        match &self.value {
            Some(value) => write!(f, "{} = {value}", self.setting)?,
            None => f.write_str(&self.setting)?,
        }
        write!(f, "\n             {}", self.way_out)
    }
}

/// All mistakes of one source.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Problems {
    /// The file's name.
    pub source_name: String,
    /// The mistakes, in the order of the file.
    pub list: Vec<Problem>,
    /// What the source says all the same.
    pub told: Told,
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.list.len();
        let noun = if count == 1 { "problem" } else { "problems" };
        writeln!(f, "{} has {count} {noun}", self.source_name)?;
        for (index, problem) in self.list.iter().enumerate() {
            if index > 0 {
                writeln!(f)?;
            }
            write!(f, "{problem}")?;
        }
        Ok(())
    }
}
