//! The results of many requests, for every test of a fleet.

use std::collections::BTreeMap;

use crate::world::client::Reply;

/// The results of many requests.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// Admitted, by the minute with the answer's reset time.
    pub(crate) admitted: BTreeMap<i64, u32>,
    /// Refused with 429, by the minute with the answer's reset time.
    pub(crate) refused: BTreeMap<i64, u32>,
    pub(crate) statuses: BTreeMap<u16, u32>,
    /// Connections that broke before an answer.
    pub(crate) broken: u32,
}

impl Outcome {
    pub(crate) fn record(&mut self, reply: Option<&Reply>) {
        let Some(reply) = reply else {
            self.broken += 1;
            return;
        };
        *self.statuses.entry(reply.status).or_default() += 1;
        if [200, 429].contains(&reply.status) {
            // The headers may describe the day; the minute's end follows from the other field.
            let minute = reply.header("ratelimit").and_then(|both| both.split("t=").nth(1)?.split(',').next());
            let left: i64 = minute.and_then(|left| left.parse().ok()).unwrap_or(60);
            let reset = reply.number("x-ratelimit-reset");
            let minute = if reset % 86_400 == 0 { left } else { reset / 60 };
            let of_status = if reply.status == 200 { &mut self.admitted } else { &mut self.refused };
            *of_status.entry(minute).or_default() += 1;
        }
    }

    pub(crate) fn add(&mut self, other: Self) {
        for (minute, admitted) in other.admitted {
            *self.admitted.entry(minute).or_default() += admitted;
        }
        for (minute, refused) in other.refused {
            *self.refused.entry(minute).or_default() += refused;
        }
        for (status, count) in other.statuses {
            *self.statuses.entry(status).or_default() += count;
        }
        self.broken += other.broken;
    }

    pub(crate) fn total(&self) -> u32 {
        self.admitted.values().sum()
    }

    /// Asserts that no answer was an error of the gateway.
    #[track_caller]
    pub(crate) fn only(&self, statuses: &[u16]) {
        assert!(self.statuses.keys().all(|status| statuses.contains(status)), "{self:?}");
    }
}
