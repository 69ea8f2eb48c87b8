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

/// Text or a number that is not an RFC 3339 date and time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("use an RFC 3339 date and time, for example 2026-01-31T09:30:00Z")]
pub struct InvalidShipDate;

impl ShipDate {
    /// From microseconds since the epoch.
    ///
    /// # Errors
    /// If the moment is before the year 0 or after the year 9999, which RFC 3339 cannot express.
    pub fn from_micros(micros: i64) -> Result<Self, InvalidShipDate> {
        if micros < FIRST_MICROS {
            return Err(InvalidShipDate);
        }
        Timestamp::from_microsecond(micros).map(Self).map_err(|_| InvalidShipDate)
    }

    /// From a wall clock. A moment outside of RFC 3339's range becomes the nearest end of the range.
    pub fn at(now: UnixMillis) -> Self {
        let micros = now.0.saturating_mul(1_000).max(FIRST_MICROS);
        Self(Timestamp::from_microsecond(micros).unwrap_or(Timestamp::MAX))
    }

    /// Microseconds since the epoch.
    pub fn micros(self) -> i64 {
        self.0.as_microsecond()
    }

    /// The second that contains this moment.
    pub fn seconds(self) -> UnixSeconds {
        UnixSeconds(self.0.as_microsecond().div_euclid(1_000_000))
    }
}

/// Whether the text has the form of RFC 3339. jiff alone would also accept other forms of ISO 8601.
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
        // Rounds towards the past, so that the moment stays in its second.
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
    fn a_moment_is_stored_and_written_in_utc() {
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
    fn text_outside_of_rfc_3339_is_refused() {
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
        fn a_written_date_reads_back(micros in FIRST_MICROS..250_000_000_000_000_000_i64) {
            let date = ShipDate::from_micros(micros).unwrap();
            proptest::prop_assert_eq!(date.to_string().parse::<ShipDate>().unwrap(), date);
        }

        #[test]
        fn no_text_makes_the_parser_panic(text in "\\PC{0,40}") {
            let _ = text.parse::<ShipDate>();
        }
    }
}
