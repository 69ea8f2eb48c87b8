//! Who may speak to the control plane: gateways and operators.

use clap::Subcommand;

/// `tollhouse node`.
#[derive(Debug, Subcommand)]
pub enum Node {
    /// Make a credential for a gateway. It is shown once.
    Add {
        /// What to call the gateway.
        name: String,
    },
    /// All gateways on record.
    List,
    /// Refuse a gateway within a second, and give the others new keys.
    Revoke {
        /// What it is called.
        name: String,
    },
    /// Give all gateways new keys; those of before are worth nothing.
    Rotate,
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
