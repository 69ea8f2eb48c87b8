//! Parses JSON of other programs more strictly, or more leniently, than serde.

use serde::Deserializer;
use serde::de::{DeserializeOwned, Unexpected};

/// Parses one JSON object. Derived readers also accept an array of the fields in order, which is never intended.
///
/// # Errors
/// If the text is not JSON, not an object, or not a `T`.
pub fn object<T: DeserializeOwned>(text: &[u8]) -> Result<T, serde_json::Error> {
    if text.trim_ascii_start().starts_with(b"[") {
        return Err(serde::de::Error::invalid_type(Unexpected::Seq, &"an object"));
    }
    serde_json::from_slice(text)
}

/// A whole number, also one written with a zero fraction: in JSON Schema, `2.0` is an integer.
///
/// # Errors
/// If it is not a number, has a fraction, does not fit, or is a float too large to be exact.
pub fn whole<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i64, D::Error> {
    /// 2^50: up to here a whole number written as a float is never read as another one, although the parser may miss
    /// the nearest float by a little.
    const EXACT_MAX: f64 = 1_125_899_906_842_624.0;

    struct Whole;

    impl serde::de::Visitor<'_> for Whole {
        type Value = i64;

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("a whole number of 64 bits")
        }

        fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<i64, E> {
            Ok(number)
        }

        fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<i64, E> {
            i64::try_from(number).map_err(|_| E::invalid_value(Unexpected::Unsigned(number), &self))
        }

        fn visit_f64<E: serde::de::Error>(self, number: f64) -> Result<i64, E> {
            let wrong = || E::invalid_value(Unexpected::Float(number), &self);
            // Beyond it, neighbouring whole numbers share one float, and a number too large for an integer arrives as a
            // float.
            let exact = number.fract() == 0.0 && number.abs() <= EXACT_MAX;
            if exact { format!("{number:.0}").parse().map_err(|_| wrong()) } else { Err(wrong()) }
        }
    }

    deserializer.deserialize_i64(Whole)
}

/// Like [`whole`], for a member that may be absent or null, with `#[serde(default, deserialize_with = "...")]`.
pub fn maybe_whole<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<i64>, D::Error> {
    #[derive(serde::Deserialize)]
    struct Number(#[serde(deserialize_with = "whole")] i64);

    let number = <Option<Number> as serde::Deserialize>::deserialize(deserializer)?;
    Ok(number.map(|Number(number)| number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Eq, serde::Deserialize)]
    struct Thing {
        #[serde(deserialize_with = "whole")]
        size: i64,
        #[serde(default, deserialize_with = "maybe_whole")]
        weight: Option<i64>,
    }

    #[test]
    fn whole_numbers_are_parsed_in_every_spelling() {
        for (text, size, weight) in [
            (r#"{"size":2}"#, 2, None),
            (r#"{"size":2.0,"weight":null}"#, 2, None),
            (r#"{"size":-1e3,"weight":1000000.0}"#, -1_000, Some(1_000_000)),
            (r#" {"size":1125899906842624.0,"weight":0}"#, 1_125_899_906_842_624, Some(0)),
        ] {
            assert_eq!(object::<Thing>(text.as_bytes()).unwrap(), Thing { size, weight }, "{text}");
        }
    }

    #[test]
    fn anything_else_is_an_error() {
        let sizes = ["2.5", "1125899906842625.0", "9223372036854775808", "1e400", r#""2""#, "null", "true"];
        for text in sizes.map(|size| format!(r#"{{"size":{size}}}"#)) {
            object::<Thing>(text.as_bytes()).unwrap_err();
        }
        for text in ["[2]", " [2,3]", r#"{"size":2,"weight":0.5}"#, ""] {
            object::<Thing>(text.as_bytes()).unwrap_err();
        }
    }
}
