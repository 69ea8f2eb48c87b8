//! The change stream as a function of bytes, for campaigns of random input that live outside of this crate. Nothing in a
//! running gateway calls this.

use contract::feed::Entity;

use super::stream::{ChangeStream, Told};
use super::validate;
use crate::tls::CertificateOpener;

/// The last snapshot among these lines that a replica would take, up to the line that it refuses.
pub fn snapshot(text: &str, opener: &CertificateOpener) -> Option<Vec<Entity>> {
    let mut stream = ChangeStream::default();
    let mut last = None;
    for line in text.lines() {
        match stream.read(line) {
            Ok(Told::Whole(entities, _)) if validate::snapshot(&entities, opener).is_ok() => last = Some(entities),
            Ok(Told::Change(_) | Told::Alive(..) | Told::Keyring(_) | Told::Part) => {}
            Ok(Told::Whole(..)) | Err(_) => break,
        }
    }
    last
}
