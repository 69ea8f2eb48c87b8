//! A local certificate authority, for one machine whose user trusts its root by hand.

use std::time::Duration;

use anyhow::Context as _;
use async_trait::async_trait;
use chassis::peer::CERTIFICATES_BYTES_MAX;
use chassis::secret::read_regular;
use rcgen::{
    CertificateParams, DistinguishedName, DnType, DnValue, ExtendedKeyUsagePurpose, Issuer as SigningIssuer,
    KeyIdMethod, KeyPair, KeyUsagePurpose, SerialNumber,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use x509_parser::der_parser::asn1_rs::Tag;
use x509_parser::prelude::{FromDer as _, ParsedExtension, X509Certificate};
use zeroize::Zeroizing;

use super::{CaaIdentity, IssueError, IssueRequest, Issued, Issuer};
use crate::config::LocalAuthorityFiles;

/// How long its certificates are valid.
pub(crate) const LIFETIME: Duration = Duration::from_hours(90 * 24);

/// Certificates are backdated by this, because clocks differ.
const BACKDATED: Duration = Duration::from_hours(1);

/// Our own certificate authority.
pub struct LocalAuthority {
    certificate_pem: String,
    issuer: SigningIssuer<'static, KeyPair>,
}

impl LocalAuthority {
    /// From its files.
    ///
    /// # Errors
    /// When a file cannot be read, is no certificate or key, or they do not belong together.
    pub fn load(files: &LocalAuthorityFiles) -> anyhow::Result<Self> {
        let read = |path: &std::path::Path| {
            let (bytes, _) = read_regular(path, CERTIFICATES_BYTES_MAX)?;
            let text = std::str::from_utf8(&bytes).with_context(|| format!("reading {}", path.display()))?;
            anyhow::Ok(Zeroizing::new(text.to_owned()))
        };
        let key = read(&files.key)?;
        Self::from_pem(read(&files.certificate)?.to_string(), &key)
            .with_context(|| format!("reading the local authority {}", files.certificate.display()))
    }

    /// From its certificate and key, both PEM.
    pub fn from_pem(certificate_pem: String, key_pem: &str) -> anyhow::Result<Self> {
        let key = KeyPair::from_pem(key_pem).context("its key")?;
        super::bundle::check_authority(&certificate_pem, key_pem).context("its certificate")?;
        let issuer = signing(&certificate_pem, key).context("its certificate")?;
        Ok(Self { certificate_pem, issuer })
    }

    fn sign(&self, request: &IssueRequest) -> anyhow::Result<Issued> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new([request.hostname.to_string()])?;
        // Only the alternative names have the name: a common name has at most 64 characters.
        params.distinguished_name = DistinguishedName::new();
        // Times are the epoch and a duration, so that rcgen does the calendar arithmetic.
        let now = rcgen::date_time_ymd(1970, 1, 1) + Duration::from_secs(request.now.0.unsigned_abs());
        params.not_before = now - BACKDATED;
        params.not_after = now + LIFETIME;
        params.serial_number = Some(SerialNumber::from_slice(&serial()?));
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        let leaf = params.signed_by(&key, &self.issuer)?;
        let chain_pem = format!("{}{}", leaf.pem(), self.certificate_pem);
        Ok(Issued { chain_pem, key_pem: Zeroizing::new(key.serialize_pem()) })
    }
}

/// A signer in the name of an authority: its subject as its certificate encodes it, its key's identifier, and its key.
/// rcgen reads certificates with a second version of the parser, which a subject and an identifier do not need.
///
/// # Errors
/// When the certificate cannot be read, or its name has what rcgen cannot write.
pub fn signing(certificate_pem: &str, key: KeyPair) -> anyhow::Result<SigningIssuer<'static, KeyPair>> {
    let certificate = CertificateDer::from_pem_slice(certificate_pem.as_bytes())?;
    let (_, certificate) = X509Certificate::from_der(&certificate)?;
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    for attribute in certificate.subject().iter_attributes() {
        let kind: Vec<u64> = attribute.attr_type().iter().context("an attribute of its name has no type")?.collect();
        let (tag, text) = (attribute.attr_value().tag(), attribute.as_str());
        let value = match tag {
            Tag::Utf8String => DnValue::Utf8String(text?.to_owned()),
            Tag::PrintableString => DnValue::PrintableString(text?.try_into()?),
            Tag::Ia5String => DnValue::Ia5String(text?.try_into()?),
            _ => anyhow::bail!("its name is written as {tag}; write it as a UTF-8 string"),
        };
        params.distinguished_name.push(DnType::from_oid(&kind), value);
    }
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    for extension in certificate.extensions() {
        if let ParsedExtension::SubjectKeyIdentifier(identifier) = extension.parsed_extension() {
            params.key_identifier_method = KeyIdMethod::PreSpecified(identifier.0.to_vec());
        }
    }
    Ok(SigningIssuer::new(params, key))
}

/// 127 random bits: positive, and far more than the 64 that make serials unguessable.
fn serial() -> anyhow::Result<[u8; 16]> {
    let mut serial = chassis::random::bytes::<16>()?;
    serial[0] = serial[0] & 0x7f | 0x40;
    Ok(serial)
}

#[async_trait]
impl Issuer for LocalAuthority {
    fn name(&self) -> &'static str {
        "local"
    }

    fn caa(&self) -> Option<CaaIdentity> {
        None
    }

    async fn issue(&self, request: &IssueRequest) -> Result<Issued, IssueError> {
        Ok(self.sign(request)?)
    }
}
