//! The faults of the platform's certificate, in words for the log and `tollhouse status`.

use std::fmt;
use std::path::PathBuf;

use chassis::certificate::FaultKind;

/// A fault of a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CertificateFault {
    /// The faulty certificate.
    pub which: FaultyCertificate,
    /// The file of the chain.
    pub file: PathBuf,
    /// The kind of fault.
    pub kind: FaultKind,
}

contract::words! {
    /// The certificate with the fault.
    pub enum FaultyCertificate {
        /// The certificate in use: handshakes get it.
        InUse = "in_use",
        /// The certificate in the files, which is not taken: handshakes get the one in use.
        Refused = "refused",
    }
}

impl CertificateFault {
    /// The remedy.
    pub(crate) const fn remedy(&self) -> &'static str {
        match (self.which, &self.kind) {
            (FaultyCertificate::Refused, FaultKind::EndsEarlier { .. }) => {
                "replace it with one that lasts longer, or restart the gateway to use this one"
            }
            (FaultyCertificate::Refused, FaultKind::Authority { .. }) => {
                "replace it with the whole chain, up to the certificate of an authority that clients trust; if they \
                 trust this one, restart the gateway"
            }
            (FaultyCertificate::Refused, FaultKind::Names { .. }) => {
                "replace it with one for all of the platform's names; if a name is no longer needed, restart the gateway"
            }
            (FaultyCertificate::Refused, _) => {
                "replace it with a valid certificate and its key before the gateway restarts"
            }
            (FaultyCertificate::InUse, _) => "replace it with a valid certificate and its key",
        }
    }
}

impl fmt::Display for CertificateFault {
    fn fmt(&self, text: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = self.file.display();
        match self.which {
            FaultyCertificate::Refused => write!(text, "{file} is refused, and the certificate in use stays")?,
            FaultyCertificate::InUse => write!(text, "the platform's certificate in use is faulty ({file})")?,
        }
        write!(text, ": {}", self.kind)
    }
}

#[cfg(test)]
mod tests {
    use contract::time::UnixSeconds;

    use super::*;

    #[test]
    fn a_fault_names_the_file_the_cause_and_the_remedy() {
        let fault = CertificateFault {
            which: FaultyCertificate::Refused,
            file: "/etc/platform.pem".into(),
            kind: FaultKind::Names {
                found: vec!["other.example".to_owned()],
                missing: (0..7).map(|number| format!("{number}.p.example")).collect(),
            },
        };
        assert_eq!(
            format!("{fault}: {}", fault.remedy()),
            "/etc/platform.pem is refused, and the certificate in use stays: it covers other.example and does not cover \
             0.p.example, 1.p.example, 2.p.example, 3.p.example, 4.p.example and 2 more: replace it with one for \
             all of the platform's names; if a name is no longer needed, restart the gateway"
        );
        let fault =
            CertificateFault { kind: FaultKind::Expired(UnixSeconds(0)), which: FaultyCertificate::InUse, ..fault };
        assert!(fault.to_string().ends_with("it expired at 1970-01-01T00:00:00Z"));
        assert_eq!(fault.remedy(), "replace it with a valid certificate and its key");
    }
}
