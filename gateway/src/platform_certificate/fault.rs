//! The faults of the platform's certificate, in words for the log and `tollhouse status`.

use std::fmt;
use std::path::PathBuf;

use contract::time::UnixSeconds;

/// A fault of a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CertificateFault {
    /// The faulty certificate.
    pub place: Place,
    /// The file of the chain.
    pub file: PathBuf,
    /// The kind of fault.
    pub kind: FaultKind,
}

contract::words! {
    /// The certificate with the fault.
    pub enum Place {
        /// The certificate in use: handshakes get it.
        InUse = "in_use",
        /// The certificate in the files, which is not taken: handshakes get the one in use.
        Refused = "refused",
    }
}

/// The kind of fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FaultKind {
    /// A file cannot be read, or the key does not fit the chain: the reason.
    Unusable(String),
    /// It has expired; its last second of validity.
    Expired(UnixSeconds),
    /// It is not valid yet; its first second of validity.
    NotYetValid(UnixSeconds),
    /// It lacks required names.
    Names {
        /// The names it covers.
        found: Vec<String>,
        /// The names it lacks.
        missing: Vec<String>,
    },
    /// Its purposes do not include a server's.
    Purpose,
    /// It is an authority's certificate.
    Ca,
    /// It is self-signed, and the system does not trust it.
    SelfSigned,
    /// Its chain does not lead to the authority of the one in use, nor to one that the system trusts.
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
    /// All reasons, for a label.
    pub(crate) const REASONS: [&'static str; 9] =
        ["unusable", "expired", "not_yet_valid", "names", "purpose", "ca", "self_signed", "authority", "ends_earlier"];

    /// The label.
    pub(crate) const fn reason(&self) -> &'static str {
        match self {
            Self::Unusable(_) => "unusable",
            Self::Expired(_) => "expired",
            Self::NotYetValid(_) => "not_yet_valid",
            Self::Names { .. } => "names",
            Self::Purpose => "purpose",
            Self::Ca => "ca",
            Self::SelfSigned => "self_signed",
            Self::Authority { .. } => "authority",
            Self::EndsEarlier { .. } => "ends_earlier",
        }
    }
}

/// The largest number of names in one message.
const NAMES_SHOWN: usize = 5;

fn list(names: &[String]) -> String {
    let shown = names.iter().take(NAMES_SHOWN).map(String::as_str).collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(NAMES_SHOWN) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

fn moment(at: UnixSeconds) -> String {
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
            Self::Purpose => write!(text, "it is not for servers (extended key usage)"),
            Self::Ca => write!(text, "it is an authority's (basic constraints), and clients take none for a server's"),
            Self::SelfSigned => write!(text, "it is signed by itself, and the system does not trust it"),
            Self::Authority { found, in_use } if found == in_use => {
                write!(
                    text,
                    "its authority has the name {found:?} of the authority of the one in use, but nothing shows that it has \
                     the same key, and the system does not trust it"
                )
            }
            Self::Authority { found, in_use } => {
                write!(
                    text,
                    "its chain ends at {found:?}, which the system does not trust; the one in use ends at {in_use:?}"
                )
            }
            Self::EndsEarlier { found, in_use } => {
                write!(text, "it ends at {}, the one in use at {}", moment(*found), moment(*in_use))
            }
        }
    }
}

impl CertificateFault {
    /// The remedy.
    pub(crate) const fn remedy(&self) -> &'static str {
        match (self.place, &self.kind) {
            (Place::Refused, FaultKind::EndsEarlier { .. }) => {
                "put one that lasts longer in its place, or restart the gateway to take this one"
            }
            (Place::Refused, FaultKind::Authority { .. }) => {
                "put the whole chain, with the certificate of an authority that clients trust at its end, in its place; if \
                 they trust this one, restart the gateway"
            }
            (Place::Refused, FaultKind::Names { .. }) => {
                "put one for all of the platform's names in its place; if a name is given up, restart the gateway"
            }
            (Place::Refused, _) => "put a good pair in its place before the gateway is restarted",
            (Place::InUse, _) => "put a good pair in its place",
        }
    }
}

impl fmt::Display for CertificateFault {
    fn fmt(&self, text: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = self.file.display();
        match self.place {
            Place::Refused => write!(text, "{file} is refused, and the certificate in use stays")?,
            Place::InUse => write!(text, "the platform's certificate in use is bad ({file})")?,
        }
        write!(text, ": {}: {}", self.kind, self.remedy())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_names_the_file_the_cause_and_the_remedy() {
        let fault = CertificateFault {
            place: Place::Refused,
            file: "/etc/platform.pem".into(),
            kind: FaultKind::Names {
                found: vec!["other.example".to_owned()],
                missing: (0..7).map(|number| format!("{number}.p.example")).collect(),
            },
        };
        assert_eq!(
            fault.to_string(),
            "/etc/platform.pem is refused, and the certificate in use stays: it covers other.example and does not cover \
             0.p.example, 1.p.example, 2.p.example, 3.p.example, 4.p.example and 2 more: put one for all of the \
             platform's names in its place; if a name is given up, restart the gateway"
        );
        let fault = CertificateFault { kind: FaultKind::Expired(UnixSeconds(0)), place: Place::InUse, ..fault };
        assert!(fault.to_string().contains("it expired at 1970-01-01T00:00:00Z: put a good pair in its place"));
    }

    #[test]
    fn every_reason_is_listed() {
        let kinds = [
            FaultKind::Unusable(String::new()),
            FaultKind::Expired(UnixSeconds(0)),
            FaultKind::NotYetValid(UnixSeconds(0)),
            FaultKind::Names { found: Vec::new(), missing: Vec::new() },
            FaultKind::Purpose,
            FaultKind::Ca,
            FaultKind::SelfSigned,
            FaultKind::Authority { found: String::new(), in_use: String::new() },
            FaultKind::EndsEarlier { found: UnixSeconds(0), in_use: UnixSeconds(0) },
        ];
        assert_eq!(kinds.map(|kind| kind.reason()), FaultKind::REASONS);
    }
}
