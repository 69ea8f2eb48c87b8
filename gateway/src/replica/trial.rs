//! The change stream as a function of bytes, for campaigns of random input that live outside of this crate. Nothing in a
//! running gateway calls this.

use contract::feed::{Entity, Revision};

use super::Invalid;
use super::follow::{ChangeStream, Told};
use super::validate;
use crate::tls::CertificateOpener;

/// The last snapshot among these lines that a replica would take, up to the line that it refuses.
pub fn snapshot(text: &str, opener: &CertificateOpener) -> (Option<(Vec<Entity>, Revision)>, Option<Invalid>) {
    let mut stream = ChangeStream::default();
    let mut last = None;
    for line in text.lines() {
        let refused = match stream.read(line) {
            Ok(Told::Whole(entities, revision)) => match validate::snapshot(&entities, opener) {
                Ok(()) => {
                    last = Some((entities, revision));
                    None
                }
                Err(invalid) => Some(invalid),
            },
            Ok(Told::Change(_) | Told::Alive(..) | Told::Part) => None,
            Err(invalid) => Some(invalid),
        };
        if refused.is_some() {
            return (last, refused);
        }
    }
    (last, None)
}
