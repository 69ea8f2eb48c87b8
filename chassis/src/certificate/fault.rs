//! What can be wrong with a certificate or its replacement, in words for logs and `tollhouse status`.

use std::fmt;

use contract::time::UnixSeconds;

/// The fault of a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// A file cannot be read, or chain and key do not belong together: why.
    Unusable(String),
    /// Its last second of validity is over.
    Expired(UnixSeconds),
    /// Its first second of validity is still to come.
    NotYetValid(UnixSeconds),
    /// It covers these names, and some that are needed are missing.
    Names {
        /// The names that it covers.
        found: Vec<String>,
        /// The names that it lacks.
        missing: Vec<String>,
    },
    /// Its key is of this kind, which browsers do not accept.
    Key(String),
    /// Its extended key usage does not include servers.
    Purpose,
    /// It is a CA certificate.
    Ca,
    /// It is self-signed, and the system does not trust it.
    SelfSigned,
    /// It does not come from the authority of the one in use, as far as the chains show, and the system trusts no
    /// authority in its chain.
    Authority {
        /// The name of its authority.
        found: String,
        /// The name of the authority of the one in use.
        in_use: String,
    },
    /// The certificate in use lasts longer.
    EndsEarlier {
        /// Its last second.
        found: UnixSeconds,
        /// The last second of the one in use.
        in_use: UnixSeconds,
    },
}

impl FaultKind {
    /// Every reason there is, for a label.
    pub const REASONS: [&'static str; 10] = [
        "unusable",
        "expired",
        "not_yet_valid",
        "names",
        "key",
        "purpose",
        "ca",
        "self_signed",
        "authority",
        "ends_earlier",
    ];

    /// For a label.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Unusable(_) => "unusable",
            Self::Expired(_) => "expired",
            Self::NotYetValid(_) => "not_yet_valid",
            Self::Names { .. } => "names",
            Self::Key(_) => "key",
            Self::Purpose => "purpose",
            Self::Ca => "ca",
            Self::SelfSigned => "self_signed",
            Self::Authority { .. } => "authority",
            Self::EndsEarlier { .. } => "ends_earlier",
        }
    }
}

/// The most names in one message.
const NAMES_LISTED_MAX: usize = 5;

fn list(names: &[String]) -> String {
    let listed = names.iter().take(NAMES_LISTED_MAX).map(String::as_str).collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(NAMES_LISTED_MAX) {
        0 => listed,
        more => format!("{listed} and {more} more"),
    }
}

/// A time as text.
pub(crate) fn moment(at: UnixSeconds) -> String {
    jiff::Timestamp::from_second(at.0).map_or_else(|_| at.0.to_string(), |at| at.to_string())
}

impl fmt::Display for FaultKind {
    fn fmt(&self, text: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unusable(why) => write!(text, "{why}"),
            Self::Expired(at) => write!(text, "it expired at {}", moment(*at)),
            Self::NotYetValid(at) => write!(text, "it is not valid before {}", moment(*at)),
            Self::Names { found, missing } => {
                write!(text, "it covers {} and does not cover {}", list(found), list(missing))
            }
            Self::Key(kind) => {
                write!(text, "its key is {kind}, which browsers do not accept; use RSA or the curve P-256 or P-384")
            }
            Self::Purpose => write!(text, "it is not for servers (extended key usage)"),
            Self::Ca => write!(text, "it is a CA certificate (basic constraints), which clients refuse for a server"),
            Self::SelfSigned => write!(text, "it is self-signed, and the system does not trust it"),
            Self::Authority { found, in_use } if found == in_use => {
                write!(
                    text,
                    "its authority {found:?} has the same name as that of the certificate in use, but perhaps \
                     another key, and the system does not trust it"
                )
            }
            Self::Authority { found, in_use } => {
                write!(
                    text,
                    "its chain ends at {found:?}, which the system does not trust; the one in use ends at {in_use:?}"
                )
            }
            Self::EndsEarlier { found, in_use } => {
                write!(text, "it expires at {}, the one in use at {}", moment(*found), moment(*in_use))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_is_listed() {
        let kinds = [
            FaultKind::Unusable(String::new()),
            FaultKind::Expired(UnixSeconds(0)),
            FaultKind::NotYetValid(UnixSeconds(0)),
            FaultKind::Names { found: Vec::new(), missing: Vec::new() },
            FaultKind::Key(String::new()),
            FaultKind::Purpose,
            FaultKind::Ca,
            FaultKind::SelfSigned,
            FaultKind::Authority { found: String::new(), in_use: String::new() },
            FaultKind::EndsEarlier { found: UnixSeconds(0), in_use: UnixSeconds(0) },
        ];
        assert_eq!(kinds.map(|kind| kind.reason()), FaultKind::REASONS);
    }
}
