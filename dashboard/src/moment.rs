//! Times in words.

use contract::time::UnixMillis;
use jiff::Timestamp;

/// A time: for programs, for people, and relative to now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Moment {
    /// RFC 3339.
    pub(super) exact: String,
    /// To the minute, UTC.
    pub(super) plain: String,
    /// "3 minutes ago", "in 20 seconds".
    pub(super) relative: String,
}

impl Moment {
    /// From RFC 3339; `None` if the text is malformed.
    pub(super) fn parse(text: &str, now: UnixMillis) -> Option<Self> {
        text.parse::<Timestamp>().ok().map(|at| Self::of(at, now))
    }

    /// From milliseconds since the epoch.
    pub(super) fn at(millis: UnixMillis, now: UnixMillis) -> Self {
        Self::of(Timestamp::from_millisecond(millis.0).unwrap_or_default(), now)
    }

    /// A time known to the minute: the start of that minute.
    pub(super) fn in_minute(text: &str, now: UnixMillis) -> Option<Self> {
        let moment = Self::parse(text, now)?;
        let away = now.to_seconds().0 - text.parse::<Timestamp>().ok()?.as_second();
        let relative = match away.div_euclid(60) {
            ..1 => "less than a minute ago".to_owned(),
            1 => "a minute ago".to_owned(),
            minutes @ 2..90 => format!("{minutes} minutes ago"),
            _ => moment.relative,
        };
        Some(Self { relative, ..moment })
    }

    pub(super) fn of(at: Timestamp, now: UnixMillis) -> Self {
        let plain = at.to_string();
        let plain: String = plain.chars().take(16).map(|letter| if letter == 'T' { ' ' } else { letter }).collect();
        let away = at.as_second() - now.to_seconds().0;
        Self { exact: at.to_string(), plain: format!("{plain} UTC"), relative: relative(away) }
    }
}

/// Seconds from now as words.
fn relative(away: i64) -> String {
    let distance = away.unsigned_abs();
    let (count, unit) = match distance {
        0..=1 => return "now".to_owned(),
        2..=89 => (distance, "second"),
        90..=5_399 => ((distance + 30) / 60, "minute"),
        5_400..=129_599 => ((distance + 1_800) / 3_600, "hour"),
        _ => ((distance + 43_200) / 86_400, "day"),
    };
    let plural = if count == 1 { "" } else { "s" };
    if away < 0 { format!("{count} {unit}{plural} ago") } else { format!("in {count} {unit}{plural}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_read_naturally() {
        for (away, text) in [
            (0, "now"),
            (20, "in 20 seconds"),
            (-89, "89 seconds ago"),
            (-90, "2 minutes ago"),
            (3_599, "in 60 minutes"),
            (7_200, "in 2 hours"),
            (-86_400, "24 hours ago"),
            (86_400 * 90, "in 90 days"),
        ] {
            assert_eq!(relative(away), text, "{away}");
        }
    }

    #[test]
    fn a_minute_is_shown_without_seconds() {
        let began = 1_781_481_600_000;
        for (later, text) in [
            (0, "less than a minute ago"),
            (59_999, "less than a minute ago"),
            (60_000, "a minute ago"),
            (89 * 60_000, "89 minutes ago"),
            (90 * 60_000, "2 hours ago"),
            (3 * 86_400_000, "3 days ago"),
            (-5_000, "less than a minute ago"),
        ] {
            let moment = Moment::in_minute("2026-06-15T00:00:00Z", UnixMillis(began + later)).unwrap();
            assert_eq!(moment.relative, text, "{later}");
        }
    }

    #[test]
    fn a_moment_is_shown_to_the_minute() {
        let moment = Moment::parse("2026-06-15T00:00:20.5Z", UnixMillis(1_781_481_600_000)).unwrap();
        assert_eq!((moment.plain.as_str(), moment.relative.as_str()), ("2026-06-15 00:00 UTC", "in 20 seconds"));
        assert_eq!(Moment::parse("tomorrow", UnixMillis(0)), None);
    }
}
