//! Arguments of `tollhouse node` and `tollhouse token`: credentials at the control plane.

use std::time::Duration;

use clap::Subcommand;

/// How long events are kept: 400 days.
const AGO_MAX: Duration = Duration::from_hours(400 * 24);

/// A time such as `90m`, `12h` or `7d`.
fn ago(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is not a valid time: use 90m, 12h or 7d, at most 400 days");
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
    /// Create a credential for a gateway or a service and print it once.
    Add {
        /// Name of the gateway or service.
        name: String,
        /// Credential of a service that stores data of projects; erasures wait for its confirmation.
        #[arg(long)]
        service: bool,
    },
    /// List gateways and services.
    List,
    /// Refuse a gateway within a second and rotate the keys of the others; or refuse a service and no longer wait for
    /// it.
    Revoke {
        /// Name of the gateway or service.
        name: String,
        /// List changes made through it in this time: 90m, 12h or 7d.
        #[arg(long, default_value = "7d", value_parser = ago)]
        since: Duration,
    },
    /// List changes made through a gateway in all projects, newest first, to undo them after a revocation.
    Changes {
        /// Name of the gateway or service.
        name: String,
        /// Time to look back: 90m, 12h or 7d.
        #[arg(long, default_value = "7d", value_parser = ago)]
        since: Duration,
    },
    /// List the certificates of listeners between processes, which `tollhouse init` creates: names and expiry.
    Certificates {
        /// Create new certificates and keys, for all processes or for the one with this name. A process uses them
        /// within a second after its files changed.
        #[arg(long, value_name = "NAME", num_args = 0..=1)]
        replace: Option<Option<String>>,
    },
    /// Rotate the signing keys of all gateways; the old keys become invalid.
    Rotate,
    /// Replace the replica of every gateway by the current data of the control plane, and print the changes: keys,
    /// hostnames and projects. Needed after the database was restored, replaced, or lost most of
    /// its hostnames, because gateways refuse such data.
    Accept,
}

/// `tollhouse token`.
#[derive(Debug, Subcommand)]
pub enum Token {
    /// Create a token for an operator and print it once.
    Create {
        /// Name of the operator, for the audit log.
        name: String,
        /// Days until it expires, at most 366.
        #[arg(long, default_value_t = 90)]
        days: u32,
    },
    /// List tokens: creator, expiry and last use.
    List,
    /// Revoke a token, and list the tokens and credentials that it created.
    Revoke {
        /// Name of the token's operator.
        name: String,
        /// Also revoke everything that it created, directly or indirectly.
        #[arg(long)]
        made: bool,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_has_a_number_a_unit_and_a_bound() {
        assert_eq!(ago("90m"), Ok(Duration::from_mins(90)));
        assert_eq!(ago("7d"), Ok(Duration::from_hours(7 * 24)));
        for wrong in ["", "d", "7", "-1d", "7w", "401d", "7ü", "1.5h"] {
            assert!(ago(wrong).unwrap_err().contains("use 90m, 12h or 7d"), "{wrong}");
        }
    }
}
