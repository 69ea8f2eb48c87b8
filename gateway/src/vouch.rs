//! Vouching for callers: the token that tells an upstream who is asking, so that it need not be told our secrets.
//!
//! A token is signed once for a caller, the site it asks, and an upstream; it is sent with all of their requests while it
//! is fresh. What it says is what the replica said when it was signed: when a key or a project changes, the next request
//! has a new one. Without a signing key no token is sent, and services that ask for one refuse.

use std::sync::Arc;

use arc_swap::ArcSwap;
use contract::identity::Identity;
use contract::key::{ApiKey, KeyId};
use contract::keyring::Generation;
use contract::project::{Project, ProjectId, UpstreamName};
use contract::time::UnixSeconds;
use contract::token::{Claims, KeySet, SigningKey, TOKEN_AGE_MAX_SECONDS};
use http::HeaderValue;
use http::header::InvalidHeaderValue;
use moka::sync::Cache;

use crate::facts::Facts;

/// Tokens that are kept for the next request: some twenty megabytes at most.
const TOKENS_MAX: u64 = 16_384;

/// A token is sent for this long after it was signed; then it has half of its time left.
const FRESH_SECONDS: i64 = TOKEN_AGE_MAX_SECONDS / 2;

/// What tokens are signed with, and the keys that verify them.
#[derive(Default)]
struct Keys {
    /// From when each signs, the newest first.
    signing: Vec<(UnixSeconds, SigningKey)>,
    published: KeySet,
}

impl Keys {
    /// The newest whose time has come.
    fn at(&self, now: UnixSeconds) -> Option<&SigningKey> {
        self.signing.iter().find(|(from, _)| *from <= now).map(|(_, key)| key)
    }
}

/// Signs tokens and keeps them while they are fresh.
pub(crate) struct Vouchers {
    keys: ArcSwap<Keys>,
    tokens: Cache<Occasion, Arc<Token>>,
}

/// Who asks whom.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Occasion {
    upstream: UpstreamName,
    key: Option<KeyId>,
    site: Option<ProjectId>,
}

struct Token {
    value: HeaderValue,
    signed_at: UnixSeconds,
    /// The keys and the records that it was made from.
    keys: Arc<Keys>,
    key: Option<Arc<ApiKey>>,
    payer: Option<Arc<Project>>,
    site: Option<Arc<Project>>,
}

impl Token {
    fn is_good(&self, keys: &Arc<Keys>, facts: &Facts, now: UnixSeconds) -> bool {
        Arc::ptr_eq(&self.keys, keys)
            && (0..FRESH_SECONDS).contains(&now.0.saturating_sub(self.signed_at.0))
            && is_same(self.key.as_ref(), facts.key.as_ref())
            && is_same(self.payer.as_ref(), facts.payer.as_ref())
            && is_same(self.site.as_ref(), facts.project.as_ref())
    }
}

/// Whether both are one record, unchanged since.
fn is_same<T>(one: Option<&Arc<T>>, other: Option<&Arc<T>>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => Arc::ptr_eq(one, other),
        (None, None) => true,
        _ => false,
    }
}

impl Vouchers {
    /// Without keys, until some are sent.
    pub(crate) fn waiting() -> Self {
        Self { keys: ArcSwap::default(), tokens: Cache::new(TOKENS_MAX) }
    }

    /// Signs with these from now on, and publishes `identities`: what verifies this gateway's tokens and the others'. Tokens
    /// that were signed with other keys are not sent any more.
    ///
    /// # Errors
    /// Never in practice: a generation's key has the right length.
    pub(crate) fn replace(&self, generations: &[Generation], identities: KeySet) -> anyhow::Result<()> {
        let key = |generation: &Generation| Ok((generation.signs_from, SigningKey::from_seed(&generation.identity)?));
        let signing = generations.iter().map(key).collect::<anyhow::Result<Vec<_>>>()?;
        self.keys.store(Arc::new(Keys { signing, published: identities }));
        self.tokens.invalidate_all();
        Ok(())
    }

    /// The keys that verify what is signed here and at other gateways.
    pub(crate) fn published(&self) -> KeySet {
        self.keys.load().published.clone()
    }

    /// The token for a request; `None` without a key to sign with. `identity` is asked for when one has to be made.
    ///
    /// # Errors
    /// Never: a token is base64url.
    pub(crate) fn token(
        &self,
        facts: &Facts,
        upstream: &UpstreamName,
        now: UnixSeconds,
        identity: impl FnOnce() -> Identity,
    ) -> Result<Option<HeaderValue>, InvalidHeaderValue> {
        let occasion = Occasion {
            upstream: upstream.clone(),
            key: facts.key.as_ref().map(|key| key.id.clone()),
            site: facts.project.as_ref().map(|project| project.id.clone()),
        };
        let keys = self.keys.load();
        if let Some(token) = self.tokens.get(&occasion).filter(|token| token.is_good(&keys, facts, now)) {
            return Ok(Some(token.value.clone()));
        }
        let Some(signing) = keys.at(now) else { return Ok(None) };
        let value = HeaderValue::try_from(signing.sign(&Claims::of(&identity(), upstream.as_str())))?;
        let token = Token {
            value: value.clone(),
            signed_at: now,
            keys: Arc::clone(&keys),
            key: facts.key.clone(),
            payer: facts.payer.clone(),
            site: facts.project.clone(),
        };
        self.tokens.insert(occasion, Arc::new(token));
        Ok(Some(value))
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::time::Duration;

    use contract::time::UnixMillis;

    use super::*;
    use crate::facts::RequestId;

    #[test]
    fn a_token_that_was_being_signed_while_the_keys_were_replaced_is_not_sent_again() {
        let vouchers = Vouchers::waiting();
        let replace = |seed: u8| {
            let generation =
                Generation { number: 1, signs_from: UnixSeconds(0), identity: [seed; 32], tickets: [0; 32] };
            vouchers.replace(&[generation], KeySet::default()).unwrap();
        };
        let now = UnixSeconds(1_700_000_000);
        let facts = Facts::new(RequestId::new(7), UnixMillis(now.0 * 1_000), Duration::ZERO);
        let token = |meanwhile: &dyn Fn()| {
            let identity = || {
                meanwhile();
                let client = Ipv4Addr::LOCALHOST.into();
                Identity { request_id: "7".to_owned(), client, site_project: None, caller: None, issued_at: now }
            };
            vouchers.token(&facts, &"orders".parse().unwrap(), now, identity).unwrap().unwrap()
        };
        replace(1);
        let of_before = token(&|| replace(2));
        let next = token(&|| {});
        assert_ne!(next, of_before);
        assert_eq!(token(&|| panic!("it is kept")), next);
    }
}
