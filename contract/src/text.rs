//! Types that are text outside the process and checked inside: one macro, so that no conversion is missing. Also the
//! characters that could deceive a reader of user-supplied text.

/// Whether a character affects the text around it instead of being displayed: control characters, which a terminal
/// obeys or which end a line, and characters that change the text direction.
pub const fn is_deceptive(letter: char) -> bool {
    matches!(letter,
        '\0'..='\u{1f}' | '\u{7f}'..='\u{9f}'
        | '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[doc(hidden)]
pub use serde;

/// Serialises through `as_str` and deserialises through `FromStr`, so that JSON cannot contain an unchecked value. Its
/// schema is that of any text, or the given one.
#[doc(hidden)]
#[macro_export]
macro_rules! serde_as_text {
    ($name:ty) => {
        $crate::serde_as_text!($name, { "type": "string" });
    };
    ($name:ty, $schema:tt) => {
        impl $crate::schema::Schema for $name {
            fn schema(_: &mut $crate::schema::SharedSchemas) -> $crate::schema::Value {
                $crate::schema::json!($schema)
            }
        }

        impl $crate::text::serde::Serialize for $name {
            fn serialize<S: $crate::text::serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl<'de> $crate::text::serde::Deserialize<'de> for $name {
            fn deserialize<D: $crate::text::serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = <std::borrow::Cow<'de, str> as $crate::text::serde::Deserialize>::deserialize(deserializer)?;
                text.parse().map_err($crate::text::serde::de::Error::custom)
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}

/// A closed set of words: enum, text form, parser, list of all, and an error that names the choices.
///
/// ```
/// contract::words! {
///     /// A colour.
///     enum Colour { Red = "red", Blue = "blue" }
/// }
/// assert_eq!("blue".parse::<Colour>().unwrap().to_string(), "blue");
/// assert_eq!("green".parse::<Colour>().unwrap_err().to_string(), "use one of: red, blue");
/// ```
#[macro_export]
macro_rules! words {
    ($(#[$meta:meta])* $vis:vis enum $name:ident { $($(#[$vmeta:meta])* $variant:ident = $text:literal),+ $(,)? }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        $vis enum $name { $($(#[$vmeta])* $variant,)+ }

        #[allow(dead_code, reason = "not every set of words is listed")]
        impl $name {
            /// Every value, in the order of declaration.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// Every word, in the same order.
            pub const WORDS: &'static [&'static str] = &[$($text,)+];

            /// The word in JSON, configuration, logs and metrics.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text,)+ }
            }
        }

        impl ::std::str::FromStr for $name {
            type Err = $crate::text::UnknownWord;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                match text {
                    $($text => Ok(Self::$variant),)+
                    _ => Err($crate::text::UnknownWord { choices: Self::WORDS }),
                }
            }
        }

        $crate::serde_as_text!($name, { "type": "string", "enum": Self::WORDS });
    };
}

/// A word outside of its closed set; the message lists the choices.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("use one of: {}", choices.join(", "))]
pub struct UnknownWord {
    /// The words of the set.
    pub choices: &'static [&'static str],
}

pub(crate) use {serde_as_text, words};
