//! API keys: their form, their offline check, and the stored digest.
//!
//! `th_live_<30 base62 characters of randomness><6 base62 characters of CRC-32>` (`th_test_` in staging). The checksum
//! rejects typos and scanners without a lookup. The SHA-256 of the whole key is stored: with 178 bits of randomness, no
//! slow hash is needed.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::project::{ProjectId, ProjectUid};
use crate::schema::{Schema, SharedSchemas, Value};
use crate::text::{serde_as_text, words};
use crate::time::UnixSeconds;

const ALPHABET: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
const PREFIX_LENGTH: usize = "th_live_".len();
const RANDOM_LENGTH: usize = 30;
const CHECKSUM_LENGTH: usize = 6;
/// Length of every key in bytes.
pub const KEY_LENGTH: usize = PREFIX_LENGTH + RANDOM_LENGTH + CHECKSUM_LENGTH;

words! {
    /// The deployment of a key. Each deployment refuses the other's keys.
    pub enum Environment {
        /// Production: `th_live_`.
        Live = "live",
        /// Staging: `th_test_`.
        Test = "test",
    }
}

words! {
    /// A permission of a key.
    pub enum Scope {
        /// List orders, read pets.
        OrdersRead = "orders:read",
        /// Cancel, create and ship orders.
        OrdersWrite = "orders:write",
        /// See domains.
        DomainsRead = "domains:read",
        /// Attach, verify, change and remove domains.
        DomainsWrite = "domains:write",
        /// Create, rotate and revoke keys.
        KeysWrite = "keys:write",
    }
}

/// A set of scopes, in a fixed order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Scopes(BTreeSet<Scope>);

impl Scopes {
    /// Every scope there is.
    pub fn all() -> Self {
        Scope::ALL.iter().copied().collect()
    }

    /// Whether the set holds `scope`.
    pub fn contains(&self, scope: Scope) -> bool {
        self.0.contains(&scope)
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The scopes in order.
    pub fn iter(&self) -> impl Iterator<Item = Scope> + '_ {
        self.0.iter().copied()
    }

    /// Whether every scope of this set is in `other`.
    pub fn is_subset(&self, other: &Self) -> bool {
        self.0.is_subset(&other.0)
    }
}

impl Schema for Scopes {
    fn schema(shared: &mut SharedSchemas) -> Value {
        Vec::<Scope>::schema(shared)
    }
}

impl FromIterator<Scope> for Scopes {
    fn from_iter<I: IntoIterator<Item = Scope>>(scopes: I) -> Self {
        Self(scopes.into_iter().collect())
    }
}

/// The public id of a key, `key_` and 16 characters of `a-z 0-9`, for logs, lists and bans.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyId(Arc<str>);

/// The text is not a key id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a key id is key_ followed by 16 characters of a-z and 0-9")]
pub struct InvalidKeyId;

impl KeyId {
    /// An id made from 10 random bytes.
    pub fn from_random(random: [u8; 10]) -> Self {
        const LETTERS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
        let bits = random.iter().fold(0_u128, |bits, byte| (bits << 8) | u128::from(*byte));
        let text: String = (0..16)
            .map(|index| char::from(pick(LETTERS, usize::try_from((bits >> (index * 5)) & 31).unwrap_or(0))))
            .collect();
        Self(format!("key_{text}").into())
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for KeyId {
    type Err = InvalidKeyId;

    fn from_str(text: &str) -> Result<Self, InvalidKeyId> {
        let rest = text.strip_prefix("key_").ok_or(InvalidKeyId)?;
        let fits = rest.len() == 16 && rest.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
        if fits { Ok(Self(text.into())) } else { Err(InvalidKeyId) }
    }
}

serde_as_text!(KeyId);

/// SHA-256 of a whole key, for storage, publication and lookup.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyDigest(pub [u8; 32]);

/// The text is not a digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a key digest is 32 bytes in unpadded base64url")]
pub struct InvalidKeyDigest;

impl KeyDigest {
    /// Unpadded base64url of the 32 bytes.
    pub fn to_text(self) -> String {
        URL_SAFE_NO_PAD.encode(self.0)
    }
}

impl FromStr for KeyDigest {
    type Err = InvalidKeyDigest;

    fn from_str(text: &str) -> Result<Self, InvalidKeyDigest> {
        let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| InvalidKeyDigest)?;
        Ok(Self(bytes.try_into().map_err(|_| InvalidKeyDigest)?))
    }
}

impl fmt::Debug for KeyDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyDigest({}…)", self.to_text().get(..6).unwrap_or_default())
    }
}

impl Serialize for KeyDigest {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.to_text())
    }
}

impl<'de> Deserialize<'de> for KeyDigest {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str> as Deserialize>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// A key as a client presents it: well-formed and with a matching checksum. It cannot be printed, and its memory is
/// wiped.
pub struct PresentedKey(Zeroizing<String>);

/// The text cannot be a Tollhouse key, as known without a lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a Tollhouse API key")]
pub struct MalformedKey;

impl PresentedKey {
    /// Checks form and checksum.
    pub fn parse(text: &str) -> Result<Self, MalformedKey> {
        let body_length = KEY_LENGTH - CHECKSUM_LENGTH;
        let environment_ok = text.starts_with("th_live_") || text.starts_with("th_test_");
        if text.len() != KEY_LENGTH || !environment_ok {
            return Err(MalformedKey);
        }
        let (body, checksum) = text.split_at_checked(body_length).ok_or(MalformedKey)?;
        let random = body.get(PREFIX_LENGTH..).ok_or(MalformedKey)?;
        if random.bytes().all(|byte| byte.is_ascii_alphanumeric()) && checksum.as_bytes() == checksum_of(body) {
            Ok(Self(Zeroizing::new(text.to_owned())))
        } else {
            Err(MalformedKey)
        }
    }

    /// Parses the value of an `Authorization` field: `Bearer <key>`, the scheme in any case, one or more spaces.
    ///
    /// # Errors
    /// If the scheme is another one, or [`Self::parse`] refuses the rest.
    pub fn from_authorization(value: &str) -> Result<Self, MalformedKey> {
        let (scheme, rest) = value.split_once(' ').ok_or(MalformedKey)?;
        if !scheme.eq_ignore_ascii_case("bearer") {
            return Err(MalformedKey);
        }
        Self::parse(rest.trim_matches(' '))
    }

    /// A new key from 30 random bytes. Bytes of 248 and above would favour some characters. They are folded, which
    /// costs less than 0.2 of the 178 bits.
    pub fn generate(environment: Environment, random: &[u8; RANDOM_LENGTH]) -> Self {
        let mut text = String::with_capacity(KEY_LENGTH);
        text.push_str("th_");
        text.push_str(environment.as_str());
        text.push('_');
        text.extend(random.iter().map(|byte| char::from(pick(ALPHABET, usize::from(*byte) % ALPHABET.len()))));
        let checksum = checksum_of(&text);
        text.extend(checksum.map(char::from));
        Self(Zeroizing::new(text))
    }

    /// The deployment in the key's prefix.
    pub fn environment(&self) -> Environment {
        if self.0.starts_with("th_test_") { Environment::Test } else { Environment::Live }
    }

    /// The digest for lookups.
    pub fn digest(&self) -> KeyDigest {
        let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, self.0.as_bytes());
        let mut bytes = [0; 32];
        bytes.copy_from_slice(digest.as_ref());
        KeyDigest(bytes)
    }

    /// The last four characters, which lists show to distinguish keys.
    pub fn last4(&self) -> &str {
        self.0.get(KEY_LENGTH - 4..).unwrap_or_default()
    }

    /// The secret itself, for the one response that shows it to its owner.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

/// Character `index` of an alphabet; callers never exceed it.
fn pick(alphabet: &[u8], index: usize) -> u8 {
    alphabet.get(index).copied().unwrap_or(b'0')
}

fn checksum_of(body: &str) -> [u8; CHECKSUM_LENGTH] {
    let mut rest = crc32fast::hash(body.as_bytes());
    let mut text = [b'0'; CHECKSUM_LENGTH];
    for place in text.iter_mut().rev() {
        *place = pick(ALPHABET, usize::try_from(rest % 62).unwrap_or(0));
        rest /= 62;
    }
    text
}

/// The record by which the edge authenticates a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ApiKey {
    /// The digest for lookups.
    pub digest: KeyDigest,
    /// The id for logs and lists.
    pub id: KeyId,
    /// The project of its quota and hosts.
    pub project: ProjectId,
    /// The identity of that project, independent of its name.
    pub project_uid: ProjectUid,
    /// The deployment it belongs to.
    pub environment: Environment,
    /// Its permissions.
    pub scopes: Scopes,
    /// From this second it is refused with 401 `expired_api_key`.
    pub expires_at: Option<UnixSeconds>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> PresentedKey {
        PresentedKey::generate(Environment::Live, &std::array::from_fn(|index| u8::try_from(index * 7).unwrap()))
    }

    #[test]
    fn a_generated_key_has_the_published_form() {
        let key = sample();
        assert_eq!(key.reveal().len(), KEY_LENGTH);
        assert!(key.reveal().starts_with("th_live_"));
        assert!(PresentedKey::parse(key.reveal()).is_ok());
        assert_eq!(key.environment(), Environment::Live);
    }

    #[test]
    fn any_flipped_character_is_refused_without_a_lookup() {
        let key = sample();
        for index in 0..KEY_LENGTH {
            let mut bytes = key.reveal().as_bytes().to_vec();
            bytes[index] = if bytes[index] == b'x' { b'y' } else { b'x' };
            assert!(PresentedKey::parse(std::str::from_utf8(&bytes).unwrap()).is_err(), "position {index}");
        }
    }

    #[test]
    fn a_key_is_read_only_from_the_bearer_scheme() {
        let key = sample();
        for good in ["Bearer ", "bearer ", "BEARER   "] {
            assert!(PresentedKey::from_authorization(&format!("{good}{}", key.reveal())).is_ok(), "{good:?}");
        }
        for bad in ["", "Bearer", "Basic ", "Bearer\t", "Bearer x "] {
            assert!(PresentedKey::from_authorization(&format!("{bad}{}", key.reveal())).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn other_text_is_not_a_key() {
        let long = "th_live_".to_owned() + &"a".repeat(10_000);
        for text in ["", "th_live_", "Bearer x", "ghp_abc", "th_live_üüüüüüüüüüüüüüüüüü", long.as_str()]
        {
            assert!(PresentedKey::parse(text).is_err(), "{text}");
        }
    }

    /// The digest of [`sample`] as stored by earlier versions, made by another program.
    const STORED_DIGEST: &str = "-XZ0C4Y3-0LuquUG3jv00AxXyB-OiDkRbIPKvk0wAwA";

    #[test]
    fn a_key_issued_and_stored_by_any_version_is_found() {
        assert_eq!(sample().reveal(), "th_live_07ELSZgnu18FMTahov29GNUbipw3AH1mJvbi");
        assert_eq!(sample().digest().to_text(), STORED_DIGEST);
        let staging = PresentedKey::parse("th_test_07ELSZgnu18FMTahov29GNUbipw3AH2Uid1x").unwrap();
        assert_eq!((staging.environment(), staging.last4()), (Environment::Test, "id1x"));
        assert_ne!(staging.digest(), sample().digest());
    }

    #[test]
    fn digests_travel_as_text() {
        let json = format!("{STORED_DIGEST:?}");
        let digest: KeyDigest = serde_json::from_str(&json).unwrap();
        assert_eq!(digest, sample().digest());
        assert_eq!(serde_json::to_string(&digest).unwrap(), json);
        assert_eq!(format!("{digest:?}"), "KeyDigest(-XZ0C4…)", "too little of it to look a key up");
        for wrong in ["", "-XZ0", &STORED_DIGEST[1..], &format!("{STORED_DIGEST}="), &STORED_DIGEST.replace('-', "+")] {
            assert_eq!(wrong.parse::<KeyDigest>(), Err(InvalidKeyDigest), "{wrong}");
        }
    }

    #[test]
    fn a_key_is_recorded_as_other_versions_read_it() {
        let text = format!(
            r#"{{"digest":"{STORED_DIGEST}","id":"key_kicqqdyafabgabea","project":"demo","project_uid":"prj_aaaaaaaaaaaaaaaaaaaaaaaaaa","environment":"live","scopes":["orders:read","orders:write","domains:read","domains:write","keys:write"],"expires_at":1700000000}}"#
        );
        let key = ApiKey {
            digest: sample().digest(),
            id: KeyId::from_random([1, 2, 3, 4, 5, 6, 7, 8, 9, 10]),
            project: "demo".parse().unwrap(),
            project_uid: "prj_aaaaaaaaaaaaaaaaaaaaaaaaaa".parse().unwrap(),
            environment: Environment::Live,
            scopes: Scopes::all(),
            expires_at: Some(UnixSeconds(1_700_000_000)),
        };
        assert_eq!(serde_json::to_string(&key).unwrap(), text);
        assert_eq!(serde_json::from_str::<ApiKey>(&text).unwrap(), key);
    }

    #[test]
    fn key_ids_have_one_spelling() {
        assert_eq!(KeyId::from_random([1, 2, 3, 4, 5, 6, 7, 8, 9, 10]).as_str(), "key_kicqqdyafabgabea");
        assert_eq!("key_0123456789abcdef".parse::<KeyId>().unwrap().as_str(), "key_0123456789abcdef");
        for wrong in
            ["key_UPPER", "key_0123456789ABCDEF", "key_0123456789abcde", "0123456789abcdef", "key_0123456789abcde-"]
        {
            assert_eq!(wrong.parse::<KeyId>(), Err(InvalidKeyId), "{wrong}");
        }
    }
}
