//! The records of the test world, written as in a DNS provider's form.

use std::path::Path;

use anyhow::Context as _;
use clap::Subcommand;

use super::ZONES;
use super::zones::{self, Value, Zones};

/// An action on the records.
#[derive(Clone, Debug, Subcommand)]
pub enum Dns {
    /// List all records and misbehaviours
    List,
    /// Set a record; replaces the name's records of this type
    Set {
        /// DNS name
        name: String,
        /// A, AAAA, CNAME, TXT or CAA.
        kind: String,
        /// Value as in a provider's form; quote it if it has spaces
        value: String,
    },
    /// Remove a name's records, of one type or all
    Clear {
        /// DNS name
        name: String,
        /// A, AAAA, CNAME, TXT or CAA.
        kind: Option<String>,
    },
}

/// Runs the action; returns its output.
///
/// # Errors
/// If there is no test world in this directory, or a record cannot be parsed.
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
    anyhow::ensure!(wrong.is_empty(), "the change would make the zone file malformed: {}", wrong.join("; "));
    // Atomically, because DNS may read it at any time.
    let draft = file.with_extension("new");
    std::fs::write(&draft, changed).and_then(|()| std::fs::rename(&draft, &file)).context("writing the records")?;
    Ok(String::new())
}
