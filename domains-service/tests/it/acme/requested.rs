//! The content of a certificate signing request.

use rcgen::{PublicKeyData, SignatureAlgorithm};
use x509_parser::prelude::{FromDer as _, GeneralName, ParsedExtension, X509CertificationRequest};

/// The name that a request is for, and the key.
pub(super) fn requested(request: &[u8]) -> (String, RequestedKey) {
    let (_, request) = X509CertificationRequest::from_der(request).unwrap();
    let name = request.requested_extensions().unwrap().find_map(|extension| match extension {
        ParsedExtension::SubjectAlternativeName(names) => match names.general_names.as_slice() {
            [GeneralName::DNSName(name)] => Some((*name).to_owned()),
            _ => None,
        },
        _ => None,
    });
    let key = &request.certification_request_info.subject_pki.subject_public_key;
    (name.unwrap(), RequestedKey(key.data.to_vec()))
}

/// A P-256 key, as our requests have it.
pub(super) struct RequestedKey(Vec<u8>);

impl PublicKeyData for RequestedKey {
    fn der_bytes(&self) -> &[u8] {
        &self.0
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        &rcgen::PKCS_ECDSA_P256_SHA256
    }
}
