//! The HTTP/2 connections of an address without the address, for the fuzzing crate. A running gateway does not use this
//! module.

use std::sync::Arc;

use tokio::sync::Semaphore;

use crate::ConnectionLimits;
pub use crate::pool::http2::Http2Pool;

/// An address without connections, and with permits to keep this many.
pub fn http2_pool(limits: ConnectionLimits, kept_max: usize) -> Http2Pool {
    Http2Pool::new(limits, Arc::new(Semaphore::new(kept_max)))
}
