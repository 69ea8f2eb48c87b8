//! The ship date: a moment in RFC 3339.

use std::fmt;
use std::str::FromStr;

use contract::schema::{Schema, SharedSchemas, Value, json};
use contract::time::{UnixMillis, UnixSeconds};
use jiff::Timestamp;

/// 0000-01-01T00:00:00Z, the first moment RFC 3339 can write, in microseconds.
const FIRST_MICROS: i64 = -62_167_219_200_000_000;

/// A moment, kept to the microsecond (finer digits are cut off) and written in UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShipDate(Timestamp);

/// Text or a number that is no moment RFC 3339 can write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("write the date and time as RFC 3339 does, for example 2026-01-31T09:30:00Z")]
pub struct InvalidShipDate;

impl ShipDate {
    /// From microseconds since the epoch.
    ///
    /// # Errors
    /// Before the year 0 and after the year 9999, which RFC 3339 cannot write.
    pub fn from_micros(micros: i64) -> Result<Self, InvalidShipDate> {
        if micros < FIRST_MICROS {
            return Err(InvalidShipDate);
        }
        Timestamp::from_microsecond(micros).map(Self).map_err(|_| InvalidShipDate)
    }

    /// A wall time; moments outside of RFC 3339's range, which no clock shows, become its nearest end.
    pub fn at(now: UnixMillis) -> Self {
        let micros = now.0.saturating_mul(1_000).max(FIRST_MICROS);
        Self(Timestamp::from_microsecond(micros).unwrap_or(Timestamp::MAX))
    }

    /// Microseconds since the epoch.
    pub fn micros(self) -> i64 {
        self.0.as_microsecond()
    }

    /// The second this moment lies in.
    pub fn seconds(self) -> UnixSeconds {
        UnixSeconds(self.0.as_microsecond().div_euclid(1_000_000))
    }
}

/// RFC 3339 fixes the places of everything up to the seconds; jiff alone would also take ISO 8601's other forms.
fn has_the_form(text: &str) -> bool {
    let bytes = text.as_bytes();
    let fixed = "dddd-dd-ddTdd:dd:dd".bytes().zip(bytes).all(|(form, byte)| match form {
        b'd' => byte.is_ascii_digit(),
        b'T' => byte.eq_ignore_ascii_case(&b'T'),
        other => other == *byte,
    });
    let Some(rest) = text.get(19..) else { return false };
    let offset = match rest.strip_prefix('.') {
        None => rest,
        Some(fraction) => {
            let digits = fraction.bytes().take_while(u8::is_ascii_digit).count();
            match fraction.get(digits..) {
                Some(offset) if digits > 0 => offset,
                _ => return false,
            }
        }
    };
    let numeric = offset.len() == 6
        && "sdd:dd".bytes().zip(offset.bytes()).all(|(form, byte)| match form {
            b's' => byte == b'+' || byte == b'-',
            b'd' => byte.is_ascii_digit(),
            other => other == byte,
        });
    fixed && (offset.eq_ignore_ascii_case("z") || numeric)
}

impl FromStr for ShipDate {
    type Err = InvalidShipDate;

    fn from_str(text: &str) -> Result<Self, InvalidShipDate> {
        if !has_the_form(text) {
            return Err(InvalidShipDate);
        }
        let moment: Timestamp = text.parse().map_err(|_| InvalidShipDate)?;
        // Towards the past, so that cutting never moves a moment into the next second.
        let micros = moment.as_nanosecond().div_euclid(1_000);
        Self::from_micros(i64::try_from(micros).map_err(|_| InvalidShipDate)?)
    }
}

impl fmt::Display for ShipDate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl Schema for ShipDate {
    fn schema(_: &mut SharedSchemas) -> Value {
        json!({ "type": "string", "format": "date-time" })
    }
}

impl serde::Serialize for ShipDate {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for ShipDate {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str> as serde::Deserialize>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // rule: 2.4
    #[test]
    fn a_moment_is_kept_and_written_in_utc() {
        for (given, kept) in [
            ("2026-01-31T09:30:00Z", "2026-01-31T09:30:00Z"),
            ("2026-01-31T09:30:00.5Z", "2026-01-31T09:30:00.5Z"),
            ("2026-01-31T09:30:00.123456789Z", "2026-01-31T09:30:00.123456Z"),
            ("2026-01-31t09:30:00+02:00", "2026-01-31T07:30:00Z"),
            ("2028-02-29T23:59:59-00:00", "2028-02-29T23:59:59Z"),
            ("1969-12-31T23:59:59.9999999Z", "1969-12-31T23:59:59.999999Z"),
            ("0000-01-01T00:00:00Z", "0000-01-01T00:00:00Z"),
        ] {
            assert_eq!(given.parse::<ShipDate>().unwrap().to_string(), kept, "{given}");
        }
    }

    #[test]
    fn what_rfc_3339_does_not_allow_is_refused() {
        for text in [
            "",
            "2026-01-31",
            "2026-01-31 09:30:00Z",
            "2026-01-31T09:30:00",
            "2026-01-31T09:30Z",
            "20260131T093000Z",
            "2026-02-29T00:00:00Z",
            "2026-13-01T00:00:00Z",
            "2026-01-31T24:00:00Z",
            "2026-01-31T09:30:00.Z",
            "2026-01-31T09:30:00+0200",
            "2026-01-31T09:30:00[UTC]",
            "2026-01-31T09:30:00Z[UTC]",
            "+002026-01-31T09:30:00Z",
            "0000-01-01T00:00:00+01:00",
            "2026-01-31T09:30:00,5Z",
            "2026-01-31T09:30:00Z ",
            "yesterday",
        ] {
            assert_eq!(text.parse::<ShipDate>(), Err(InvalidShipDate), "{text}");
        }
    }

    proptest::proptest! {
        #[test]
        fn what_is_written_reads_back(micros in FIRST_MICROS..250_000_000_000_000_000_i64) {
            let date = ShipDate::from_micros(micros).unwrap();
            proptest::prop_assert_eq!(date.to_string().parse::<ShipDate>().unwrap(), date);
        }

        #[test]
        fn no_text_makes_the_parser_panic(text in "\\PC{0,40}") {
            let _ = text.parse::<ShipDate>();
        }
    }
}
