//! The last requests, by id, to explain a failed request.
//!
//! Failed requests have their own space, so that heavy traffic does not displace the one that an operator will look up.

use std::collections::VecDeque;

use parking_lot::Mutex;

/// Parts by id, so that requests do not block each other.
const SHARDS: usize = 16;

/// Successful requests per part: 4 096 in all.
const WELL_MAX: usize = 256;

/// Failed requests per part: 4 096 in all.
const TROUBLE_MAX: usize = 256;

/// The longest line that is kept; longer ones are only in the access log.
const LINE_BYTES_MAX: usize = 4_096;

/// Lines in order of arrival.
#[derive(Default)]
struct Ring(VecDeque<(Box<str>, Vec<u8>)>);

impl Ring {
    fn keep(&mut self, most: usize, id: &str, line: &[u8]) {
        // The newest line reuses the memory of the oldest.
        let mut text =
            if self.0.len() >= most { self.0.pop_front().map(|(_, text)| text) } else { None }.unwrap_or_default();
        text.clear();
        text.extend_from_slice(line);
        self.0.push_back((id.into(), text));
    }

    fn find(&self, id: &str) -> Option<Vec<u8>> {
        self.0.iter().rev().find(|(known, _)| **known == *id).map(|(_, line)| line.clone())
    }
}

#[derive(Default)]
struct Part {
    well: Ring,
    trouble: Ring,
}

/// The last lines of the access log, by request id.
#[derive(Default)]
pub(crate) struct Requests([Mutex<Part>; SHARDS]);

impl Requests {
    /// Keeps a line.
    pub(super) fn keep(&self, id: &str, trouble: bool, line: &[u8]) {
        if line.len() > LINE_BYTES_MAX {
            return;
        }
        let Some(part) = self.part(id) else { return };
        let mut part = part.lock();
        if trouble {
            part.trouble.keep(TROUBLE_MAX, id, line);
        } else {
            part.well.keep(WELL_MAX, id, line);
        }
    }

    /// The line of a request, if it is still kept.
    pub(crate) fn find(&self, id: &str) -> Option<Vec<u8>> {
        let part = self.part(id)?.lock();
        part.trouble.find(id).or_else(|| part.well.find(id))
    }

    fn part(&self, id: &str) -> Option<&Mutex<Part>> {
        let last = id.bytes().last().map_or(0, |byte| char::from(byte).to_digit(16).unwrap_or(0));
        self.0.get(usize::try_from(last).unwrap_or(0) % SHARDS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_requests_are_kept_longer_than_others_and_both_are_bounded() {
        let requests = Requests::default();
        requests.keep("failed0", true, b"the failed one");
        for round in 0..WELL_MAX * 4 {
            requests.keep(&format!("well{round}-0"), false, b"fine");
        }
        assert_eq!(requests.find("failed0").as_deref(), Some(b"the failed one".as_slice()));
        assert!(requests.find("well0-0").is_none(), "the oldest went");
        assert!(requests.find(&format!("well{}-0", WELL_MAX * 4 - 1)).is_some());
        for round in 0..TROUBLE_MAX {
            requests.keep(&format!("failed{round}-0"), true, b"more");
        }
        assert!(requests.find("failed0").is_none());
        requests.keep("long0", true, &[b'x'; LINE_BYTES_MAX + 1]);
        assert!(requests.find("long0").is_none());
    }
}
