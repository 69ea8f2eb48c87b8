//! Metrics of the certificates that expire first. Names are never labels; the worst certificate of each kind is enough
//! for an alert.

use chassis::certificate::FaultKind;
use chassis::metrics::{self, GaugeVec, IntGaugeVec, Registry};
use contract::time::UnixSeconds;

use crate::platform_certificate::{CertificateFault, FaultyCertificate};
use replica::Expiry;

contract::words! {
    /// The kind of certificate.
    pub enum CertificateKind {
        /// Certificates of customers' domains.
        Domains = "domains",
        /// The platform's wildcard.
        Platform = "platform",
    }
}

/// The gauges of certificates.
pub(crate) struct CertificateMetrics {
    expiry: IntGaugeVec,
    left: GaugeVec,
    faults: IntGaugeVec,
}

impl CertificateMetrics {
    pub(super) fn new(registry: &Registry) -> anyhow::Result<Self> {
        let metrics = Self {
            expiry: metrics::gauge_vec(
                registry,
                "edge_certificate_soonest_expiry_timestamp_seconds",
                "Earliest end of a certificate in use; 0 without one.",
                &["kind"],
            )?,
            left: metrics::fraction_gauge_vec(
                registry,
                "edge_certificate_lifetime_left_ratio",
                "Remaining part of that certificate's lifetime; 1 without one.",
                &["kind"],
            )?,
            faults: metrics::gauge_vec(
                registry,
                "edge_platform_certificate_fault",
                "1 while the platform's certificate in use is faulty, or its new files are refused, for this reason.",
                &["certificate", "reason"],
            )?,
        };
        metrics.show_faults(&[]);
        for kind in [CertificateKind::Domains, CertificateKind::Platform] {
            metrics.show(kind, None, UnixSeconds(0));
        }
        Ok(metrics)
    }

    /// Shows the certificate of a kind that expires first.
    pub(crate) fn show(&self, kind: CertificateKind, soonest: Option<&Expiry>, now: UnixSeconds) {
        self.expiry.with_label_values(&[kind.as_str()]).set(soonest.map_or(0, |expiry| expiry.not_after.0));
        self.left.with_label_values(&[kind.as_str()]).set(soonest.map_or(1.0, |expiry| expiry.left(now)));
    }

    /// Shows the faults of the platform's certificate.
    pub(crate) fn show_faults(&self, faults: &[CertificateFault]) {
        for &which in FaultyCertificate::ALL {
            for reason in FaultKind::REASONS {
                let found = faults.iter().any(|fault| fault.which == which && fault.kind.reason() == reason);
                self.faults.with_label_values(&[which.as_str(), reason]).set(i64::from(found));
            }
        }
    }
}
