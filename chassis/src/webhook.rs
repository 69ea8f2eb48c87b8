//! Outgoing webhooks: signing, retries and safe delivery.
//!
//! Messages follow the Standard Webhooks specification, so receivers verify them with its published libraries. The
//! service decides what is sent to whom, and stores it. Customers choose the receivers' addresses, and so where our
//! packets go: [`Sender`] resolves a name once, connects to permitted addresses only, follows no redirects and reads
//! only the status. An unavailable receiver costs one attempt with a deadline.

mod schedule;
mod sender;
mod signature;

pub use schedule::{ATTEMPTS_MAX, next_attempt};
pub use sender::{Attempt, AttemptResult, BadUrl, Lookup, Message, Rules, Sender, SystemLookup, URL_BYTES_MAX};
pub use signature::{InvalidSigningSecret, SigningSecret};
