//! CAA: which authorities may issue a certificate for a name (RFC 8659, RFC 8657), judged as certificate authorities
//! do.
//!
//! Only the closest name with CAA records counts, from the name itself upwards. A stricter check than the authority's
//! would delay a domain needlessly; a more lenient one would place orders that fail and count against limits. So this
//! module is as lenient as the largest public authority: flag 1 counts as critical like 128, and unknown properties
//! that are not critical are ignored.

use super::CaaRecord;
use super::facts::CaaLevel;

/// A certificate authority as CAA records name it, and how we use it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaaIdentity {
    /// The authority's domain, such as `letsencrypt.org`.
    pub domain: String,
    /// Our account there, if it exists.
    pub account_uri: Option<String>,
    /// The methods by which we prove control, such as `http-01`.
    pub methods: Vec<String>,
}

/// The ruling of CAA records for one authority.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CaaRuling {
    /// It may issue, after a proof by one of these methods.
    Permits(Vec<String>),
    /// It may not issue; the name of the records.
    Forbids(String),
    /// No authority may issue: the records of this name hold an unknown critical property. The flag tells whether the
    /// authority would be forbidden without that property too.
    Critical(String, bool),
    /// It may issue, but not for our account.
    OtherAccount(String),
    /// It may issue, but not by any of our methods.
    OtherMethod(String),
    /// The records of this name could not be read.
    Unknown(String),
}

/// The ruling of the CAA records of a name and its ancestors, closest first, for one authority.
pub fn rule(levels: &[CaaLevel], identity: &CaaIdentity, wildcard: bool) -> CaaRuling {
    for level in levels {
        match &level.records {
            Err(_) => return CaaRuling::Unknown(level.name.clone()),
            Ok(records) if records.is_empty() => {}
            Ok(records) => return rule_at(&level.name, records, identity, wildcard),
        }
    }
    CaaRuling::Permits(identity.methods.clone())
}

fn rule_at(place: &str, records: &[CaaRecord], identity: &CaaIdentity, wildcard: bool) -> CaaRuling {
    if records.iter().any(is_critical_unknown) {
        let others: Vec<CaaRecord> = records.iter().filter(|record| !is_critical_unknown(record)).cloned().collect();
        let without = rule_at(place, &others, identity, wildcard);
        return CaaRuling::Critical(place.to_owned(), !matches!(without, CaaRuling::Permits(_)));
    }
    let tagged = |tag: &str| records.iter().filter(|record| record.tag.eq_ignore_ascii_case(tag)).collect::<Vec<_>>();
    let issuewild = tagged("issuewild");
    let relevant = if wildcard && !issuewild.is_empty() { issuewild } else { tagged("issue") };
    if relevant.is_empty() {
        return CaaRuling::Permits(identity.methods.clone());
    }
    let mut ruling = CaaRuling::Forbids(place.to_owned());
    for record in relevant {
        let Some(property) = Property::parse(&record.value) else { continue };
        if property.domain != identity.domain {
            continue;
        }
        if !property.permits_account(identity.account_uri.as_deref()) {
            ruling = CaaRuling::OtherAccount(place.to_owned());
            continue;
        }
        let methods = property.permitted_methods(&identity.methods);
        if !methods.is_empty() {
            return CaaRuling::Permits(methods);
        }
        ruling = CaaRuling::OtherMethod(place.to_owned());
    }
    ruling
}

/// Whether authorities must refuse because of this record: it is critical and unknown.
pub fn is_critical_unknown(record: &CaaRecord) -> bool {
    let known = ["issue", "issuewild", "iodef", "issuemail"];
    record.flags & (128 | 1) != 0 && !known.iter().any(|known| record.tag.eq_ignore_ascii_case(known))
}

/// The value of an `issue` or `issuewild` property.
struct Property {
    domain: String,
    parameters: Vec<(String, String)>,
}

impl Property {
    /// `None` if it is malformed: then it permits no authority.
    fn parse(value: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(value).ok()?;
        let blank = |letter: char| letter == ' ' || letter == '\t';
        let mut parts = text.split(';');
        let domain = parts.next().unwrap_or_default().trim_matches(blank).to_owned();
        let rest: Vec<&str> = parts.collect();
        if let [only] = rest.as_slice()
            && only.trim_matches(blank).is_empty()
        {
            return Some(Self { domain, parameters: Vec::new() });
        }
        let parameters = rest.into_iter().map(|part| {
            let (tag, value) = part.split_once('=')?;
            let (tag, value) = (tag.trim_matches(blank), value.trim_matches(blank));
            let tag_ok = tag.bytes().all(|byte| byte.is_ascii_alphanumeric());
            let value_ok = value.bytes().all(|byte| (0x21..=0x7e).contains(&byte));
            (tag_ok && value_ok).then(|| (tag.to_owned(), value.to_owned()))
        });
        Some(Self { domain, parameters: parameters.collect::<Option<_>>()? })
    }

    /// The values of a parameter; its name is case-sensitive.
    fn values(&self, name: &str) -> Vec<&str> {
        self.parameters.iter().filter(|(tag, _)| tag == name).map(|(_, value)| value.as_str()).collect()
    }

    fn permits_account(&self, account: Option<&str>) -> bool {
        match self.values("accounturi").as_slice() {
            [] => true,
            // A repeated parameter can never be satisfied.
            [uri] => account == Some(uri),
            _ => false,
        }
    }

    fn permitted_methods(&self, ours: &[String]) -> Vec<String> {
        match self.values("validationmethods").as_slice() {
            [] => ours.to_vec(),
            [list] => {
                let well_formed = |method: &&str| {
                    !method.is_empty() && method.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
                };
                // Methods before a malformed one count; later ones do not.
                let named: Vec<&str> = list.split(',').take_while(well_formed).collect();
                ours.iter().filter(|method| named.contains(&method.as_str())).cloned().collect()
            }
            _ => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests;
