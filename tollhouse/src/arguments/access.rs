//! Who may speak to the control plane: gateways, services and operators.

use clap::Subcommand;

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
    /// All tokens: until when, and when they were used last.
    List,
    /// Refuse a token from now on.
    Revoke {
        /// Whose it is.
        name: String,
    },
}
