//! The change stream as a function of bytes, for the fuzzing crate. The running gateway does not use this module.

use contract::feed::Entity;

use super::stream::{ChangeStream, StreamEvent};
use super::validate;
use crate::tls::CertificateOpener;

/// The last snapshot in these lines that a replica would accept, up to the first refused line.
pub fn snapshot(text: &str, opener: &CertificateOpener) -> Option<Vec<Entity>> {
    let mut stream = ChangeStream::default();
    let mut last = None;
    for line in text.lines() {
        match stream.read(line) {
            Ok(StreamEvent::Snapshot(entities, _)) if validate::snapshot(&entities, opener).is_ok() => {
                last = Some(entities);
            }
            Ok(
                StreamEvent::Change(_)
                | StreamEvent::Heartbeat(..)
                | StreamEvent::Keyring(_)
                | StreamEvent::SnapshotPart,
            ) => {}
            Ok(StreamEvent::Snapshot(..)) | Err(_) => break,
        }
    }
    last
}
