//! Identity tokens: they tell an upstream who the caller is, so that upstreams need none of our secrets.
//!
//! A token is signed once per caller, site and upstream, and sent with all of their requests while it is fresh. It
//! states what the replica had when it was signed: after a change of a key or a project, the next request gets a new
//! one. Without a signing key no token is sent, and services that require one refuse.

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

/// The largest number of cached tokens: about 20 MB.
const TOKENS_MAX: u64 = 16_384;

/// A token is sent for this long after it was signed; half of its lifetime is left then.
const FRESH_SECONDS: i64 = TOKEN_AGE_MAX_SECONDS / 2;

/// The signing keys, and the published keys that verify tokens.
#[derive(Default)]
struct Keys {
    /// The time from which each key signs, and the key; the newest first.
    signing: Vec<(UnixSeconds, SigningKey)>,
    published: KeySet,
}

impl Keys {
    /// The newest key that may sign at `now`.
    fn at(&self, now: UnixSeconds) -> Option<&SigningKey> {
        self.signing.iter().find(|(from, _)| *from <= now).map(|(_, key)| key)
    }
}

/// Signs tokens and keeps them while they are fresh.
pub(crate) struct IdentityTokens {
    keys: ArcSwap<Keys>,
    tokens: Cache<TokenKey, Arc<Token>>,
}

/// The caller, the site and the upstream of a token.
#[derive(Clone, PartialEq, Eq, Hash)]
struct TokenKey {
    upstream: UpstreamName,
    key: Option<KeyId>,
    site: Option<ProjectId>,
}

struct Token {
    value: HeaderValue,
    signed_at: UnixSeconds,
    /// The keys and records that the token was made from.
    keys: Arc<Keys>,
    key: Option<Arc<ApiKey>>,
    payer: Option<Arc<Project>>,
    site: Option<Arc<Project>>,
}

impl Token {
    fn is_good(&self, keys: &Arc<Keys>, facts: &Facts, now: UnixSeconds) -> bool {
        Arc::ptr_eq(&self.keys, keys)
            && (0..FRESH_SECONDS).contains(&now.0.saturating_sub(self.signed_at.0))
            && is_same(self.key.as_ref(), facts.caller.key.as_ref())
            && is_same(self.payer.as_ref(), facts.caller.payer.as_ref())
            && is_same(self.site.as_ref(), facts.project.as_ref())
    }
}

/// Whether both are the same unchanged record.
fn is_same<T>(one: Option<&Arc<T>>, other: Option<&Arc<T>>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => Arc::ptr_eq(one, other),
        (None, None) => true,
        _ => false,
    }
}

impl IdentityTokens {
    /// Has no keys yet.
    pub(crate) fn waiting() -> Self {
        Self { keys: ArcSwap::default(), tokens: Cache::new(TOKENS_MAX) }
    }

    /// Signs with these keys from now on, and publishes `identities`, which verify the tokens of all gateways. Tokens
    /// signed with other keys are no longer sent.
    ///
    /// # Errors
    /// None in practice: a generation's key has the right length.
    pub(crate) fn replace(&self, generations: &[Generation], identities: KeySet) -> anyhow::Result<()> {
        let key = |generation: &Generation| Ok((generation.signs_from, SigningKey::from_seed(&generation.identity)?));
        let signing = generations.iter().map(key).collect::<anyhow::Result<Vec<_>>>()?;
        self.keys.store(Arc::new(Keys { signing, published: identities }));
        self.tokens.invalidate_all();
        Ok(())
    }

    /// The keys that verify the tokens of all gateways.
    pub(crate) fn published(&self) -> KeySet {
        self.keys.load().published.clone()
    }

    /// The token for a request; `None` without a signing key. `identity` is called if a new token is needed.
    ///
    /// # Errors
    /// None in practice: a token is base64url.
    pub(crate) fn token(
        &self,
        facts: &Facts,
        upstream: &UpstreamName,
        now: UnixSeconds,
        identity: impl FnOnce() -> Identity,
    ) -> Result<Option<HeaderValue>, InvalidHeaderValue> {
        let token_key = TokenKey {
            upstream: upstream.clone(),
            key: facts.caller.key.as_ref().map(|key| key.id.clone()),
            site: facts.project.as_ref().map(|project| project.id.clone()),
        };
        let keys = self.keys.load();
        if let Some(token) = self.tokens.get(&token_key).filter(|token| token.is_good(&keys, facts, now)) {
            return Ok(Some(token.value.clone()));
        }
        let Some(signing) = keys.at(now) else { return Ok(None) };
        let value = HeaderValue::try_from(signing.sign(&Claims::of(&identity(), upstream.as_str())))?;
        let token = Token {
            value: value.clone(),
            signed_at: now,
            keys: Arc::clone(&keys),
            key: facts.caller.key.clone(),
            payer: facts.caller.payer.clone(),
            site: facts.project.clone(),
        };
        self.tokens.insert(token_key, Arc::new(token));
        Ok(Some(value))
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::time::Duration;

    use contract::browsers::Browsers;
    use contract::key::{Environment, PresentedKey, Scopes};
    use contract::plan::Plan;
    use contract::project::Access;
    use contract::time::UnixMillis;

    use super::*;
    use crate::request_id::RequestId;

    /// A case's name, its upstream, the difference, seconds later, and whether a new token is signed.
    type Case<'a> = (&'a str, &'a str, &'a dyn Fn(&mut Facts), i64, bool);

    #[test]
    fn a_token_is_sent_again_to_its_upstream_while_it_is_fresh_and_its_records_are_unchanged() {
        let identity_tokens = IdentityTokens::waiting();
        let generation = Generation { number: 1, signs_from: UnixSeconds(0), identity: [1; 32], tickets: [0; 32] };
        identity_tokens.replace(&[generation], KeySet::default()).unwrap();
        let project = Project {
            id: "demo".parse().unwrap(),
            uid: "demo".parse().unwrap(),
            plan: Plan::Pro,
            limits: Plan::Pro.stated_limits(),
            access: Access::Key,
            upstream: "orders".parse().unwrap(),
            suspended: false,
            browsers: Browsers::default(),
        };
        let key = ApiKey {
            digest: PresentedKey::generate(Environment::Live, &[1; 30]).digest(),
            id: KeyId::from_random([1; 10]),
            project: project.id.clone(),
            project_uid: project.uid.clone(),
            environment: Environment::Live,
            scopes: Scopes::all(),
            expires_at: None,
        };
        let (key, payer, site) = (Arc::new(key), Arc::new(project.clone()), Arc::new(project));
        let now = UnixSeconds(1_700_000_000);
        let is_signed = |upstream: &str, change: &dyn Fn(&mut Facts), now: UnixSeconds| {
            let mut facts = Facts::new(RequestId::new(7), UnixMillis(now.0 * 1_000), Duration::ZERO);
            (facts.caller.key, facts.caller.payer) = (Some(key.clone()), Some(payer.clone()));
            facts.project = Some(site.clone());
            change(&mut facts);
            let mut is_signed = false;
            let identity = || {
                is_signed = true;
                let client = Ipv4Addr::LOCALHOST.into();
                Identity { request_id: "7".to_owned(), client, site_project: None, caller: None, issued_at: now }
            };
            identity_tokens.token(&facts, &upstream.parse().unwrap(), now, identity).unwrap().unwrap();
            is_signed
        };
        let unchanged: &dyn Fn(&mut Facts) = &|_| {};
        let cases: [Case<'_>; 9] = [
            ("the same", "orders", unchanged, 0, false),
            ("half a minute is not over", "orders", unchanged, 29, false),
            ("half a minute later", "orders", unchanged, 30, true),
            ("another upstream", "blog", unchanged, 0, true),
            ("a changed key", "orders", &|facts| facts.caller.key = Some(Arc::new((*key).clone())), 0, true),
            ("a changed payer", "orders", &|facts| facts.caller.payer = Some(Arc::new((*payer).clone())), 0, true),
            ("a changed site", "orders", &|facts| facts.project = Some(Arc::new((*site).clone())), 0, true),
            ("a host of the platform", "orders", &|facts| facts.project = None, 0, true),
            ("a visitor", "orders", &|facts| (facts.caller.key, facts.caller.payer) = (None, None), 0, true),
        ];
        for (what, upstream, change, later, signed) in cases {
            identity_tokens.tokens.invalidate_all();
            assert!(is_signed("orders", unchanged, now), "{what}");
            assert_eq!(is_signed(upstream, change, now.plus(later)), signed, "{what}");
        }
    }

    #[test]
    fn a_token_that_was_being_signed_while_the_keys_were_replaced_is_not_sent_again() {
        let identity_tokens = IdentityTokens::waiting();
        let replace = |seed: u8| {
            let generation =
                Generation { number: 1, signs_from: UnixSeconds(0), identity: [seed; 32], tickets: [0; 32] };
            identity_tokens.replace(&[generation], KeySet::default()).unwrap();
        };
        let now = UnixSeconds(1_700_000_000);
        let facts = Facts::new(RequestId::new(7), UnixMillis(now.0 * 1_000), Duration::ZERO);
        let token = |meanwhile: &dyn Fn()| {
            let identity = || {
                meanwhile();
                let client = Ipv4Addr::LOCALHOST.into();
                Identity { request_id: "7".to_owned(), client, site_project: None, caller: None, issued_at: now }
            };
            identity_tokens.token(&facts, &"orders".parse().unwrap(), now, identity).unwrap().unwrap()
        };
        replace(1);
        let of_before = token(&|| replace(2));
        let next = token(&|| {});
        assert_ne!(next, of_before);
        assert_eq!(token(&|| panic!("it is kept")), next);
    }
}
