//! The records of the test world, as a person at a DNS provider's form would write them.

use std::path::Path;

use anyhow::Context as _;
use clap::Subcommand;

use super::ZONES;
use super::zones::{self, Value, Zones};

/// What is done with the records.
#[derive(Clone, Debug, Subcommand)]
pub enum Dns {
    /// Every record and misbehaviour.
    List,
    /// Set a record; what the name had of this type is replaced.
    Set {
        /// The name.
        name: String,
        /// A, AAAA, CNAME, TXT or CAA.
        kind: String,
        /// The value as a provider's form wants it; one with spaces is quoted.
        value: String,
    },
    /// Remove a name's records, of one type or all.
    Clear {
        /// The name.
        name: String,
        /// A, AAAA, CNAME, TXT or CAA.
        kind: Option<String>,
    },
}

/// Does it; what there is to read afterwards.
///
/// # Errors
/// When there is no test world below this directory, or a record cannot be read.
pub fn carry_out(data: &Path, action: Dns) -> anyhow::Result<String> {
    let file = data.join(ZONES);
    let text = std::fs::read_to_string(&file)
        .with_context(|| format!("there is no test world in {}: start one with `./up --test-world`", file.display()))?;
    let changed = match action {
        Dns::List => return Ok(text),
        Dns::Set { name, kind, value } => {
            Value::parse(&kind, &value).map_err(anyhow::Error::msg)?;
            zones::set(&text, &name, &kind, &value)
        }
        Dns::Clear { name, kind } => zones::without(&text, &name, kind.as_deref()),
    };
    let (_, wrong) = Zones::parse(&changed);
    anyhow::ensure!(wrong.is_empty(), "the file would not be readable any more: {}", wrong.join("; "));
    // At once or not at all: DNS may read it at any moment.
    let draft = file.with_extension("new");
    std::fs::write(&draft, changed).and_then(|()| std::fs::rename(&draft, &file)).context("writing the records")?;
    Ok(String::new())
}
