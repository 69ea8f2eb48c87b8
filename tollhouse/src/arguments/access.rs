//! Who may speak to the control plane: gateways, services and operators.

use std::time::Duration;

use clap::Subcommand;

/// The longest time that events are kept: 400 days.
const AGO_MAX: Duration = Duration::from_hours(400 * 24);

/// A time such as `90m`, `12h` or `7d`.
fn ago(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is not a time: use 90m, 12h or 7d, 400 days at most");
    let (digits, unit) = text.split_at_checked(text.len().saturating_sub(1)).ok_or_else(wrong)?;
    let seconds = match unit {
        "m" => 60,
        "h" => 3_600,
        "d" => 86_400,
        _ => return Err(wrong()),
    };
    let number: u32 = digits.parse().map_err(|_| wrong())?;
    let ago = Duration::from_secs(u64::from(number).saturating_mul(seconds));
    if ago > AGO_MAX { Err(wrong()) } else { Ok(ago) }
}

/// `tollhouse node`.
#[derive(Debug, Subcommand)]
pub enum Node {
    /// Make a credential for a gateway or a service. It is shown once.
    Add {
        /// What to call it.
        name: String,
        /// It is a service that keeps data of projects: an erasure waits until it has carried it out.
        #[arg(long)]
        service: bool,
    },
    /// All gateways and services on record.
    List,
    /// Refuse a gateway within a second, and give the others new keys; or refuse a service, and wait for it no longer.
    Revoke {
        /// What it is called.
        name: String,
        /// Show what was changed through it since then: 90m, 12h or 7d ago.
        #[arg(long, default_value = "7d", value_parser = ago)]
        since: Duration,
    },
    /// What was changed through a gateway, in all projects, newest first: what to undo after a revocation.
    Changes {
        /// What it is called.
        name: String,
        /// Since then: 90m, 12h or 7d ago.
        #[arg(long, default_value = "7d", value_parser = ago)]
        since: Duration,
    },
    /// The certificates of the listeners between processes, which `tollhouse init` makes: what each names and when it ends.
    Certificates {
        /// Make new ones with new keys, for all processes or the one with this name. Processes take theirs within a second
        /// of having the files.
        #[arg(long, value_name = "NAME", num_args = 0..=1)]
        replace: Option<Option<String>>,
    },
    /// Give all gateways new keys; those of before are worth nothing.
    Rotate,
    /// Let all gateways replace what they know by what the control plane holds now, and print what that changed: keys,
    /// hostnames and projects. For a database that went back to an earlier state, for another database, and for one without
    /// most of the hostnames: gateways refuse these until then.
    Accept,
}

/// `tollhouse token`.
#[derive(Debug, Subcommand)]
pub enum Token {
    /// Make a token for an operator. It is shown once.
    Create {
        /// Whose it is: the audit log names it.
        name: String,
        /// For so many days, at most 366.
        #[arg(long, default_value_t = 90)]
        days: u32,
    },
    /// All tokens: who made them, until when they are good, and when they were used last.
    List,
    /// Refuse a token from now on, and list what it made: other tokens, and credentials of gateways and services.
    Revoke {
        /// Whose it is.
        name: String,
        /// Refuse what it made as well, and what that made.
        #[arg(long)]
        made: bool,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_has_a_number_and_a_unit_and_a_bound() {
        assert_eq!(ago("90m"), Ok(Duration::from_mins(90)));
        assert_eq!(ago("7d"), Ok(Duration::from_hours(7 * 24)));
        for wrong in ["", "d", "7", "-1d", "7w", "401d", "7ü", "1.5h"] {
            assert!(ago(wrong).unwrap_err().contains("use 90m, 12h or 7d"), "{wrong}");
        }
    }
}
