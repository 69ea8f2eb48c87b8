//! Mistakes in configuration, and their report.

use std::fmt;

use super::effective::EffectiveSettings;

/// One mistake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingProblem {
    /// Line in the file, from 1; `None` if the value came from the environment or is missing.
    pub line: Option<usize>,
    /// The setting's path, for example `quota.on_store_down`.
    pub setting: String,
    /// The value as written; `None` if it is missing.
    pub value: Option<String>,
    /// How to fix it.
    pub way_out: String,
}

impl fmt::Display for SettingProblem {
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
    pub list: Vec<SettingProblem>,
    /// The settings that were readable.
    pub effective: EffectiveSettings,
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
