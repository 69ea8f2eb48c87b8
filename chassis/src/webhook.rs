//! Outgoing webhooks: how messages are signed, how often they are tried, and how they are sent safely.
//!
//! Messages follow the Standard Webhooks specification, so receivers verify them with its published libraries. What is
//! sent, to whom, and where that is written down is the service's business. The receivers' addresses are chosen by
//! customers, and with them where our packets go: [`Sender`] resolves a name once, connects to permitted addresses
//! alone, follows nothing and reads nothing but the status. A receiver that is gone costs an attempt with a deadline.

mod schedule;
mod sender;
mod signature;

pub use schedule::{ATTEMPTS_MAX, next_attempt};
pub use sender::{Attempt, AttemptResult, BadUrl, Lookup, Message, Rules, Sender, SystemLookup, URL_BYTES_MAX};
pub use signature::{InvalidSigningSecret, SigningSecret};
