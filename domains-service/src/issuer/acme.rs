//! Certificates from a public authority, by ACME (RFC 8555), with renewal information (RFC 9773).
//!
//! Each order is stored with the sealed key of its certificate before any proof begins. After a crash, the next worker
//! finishes that order and does not begin another. Challenge responses are published through the change log, so the
//! authority may ask any gateway. A [mirror](crate::limits) of the authority's limits is consulted before each order:
//! this service waits where the authority would refuse.
//!
//! When the authority does not answer, the order stays and the next attempt continues it. The certificate in service
//! stays too.

mod account;
mod counts;
mod explain;
mod outage;
mod proof;
mod transport;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use contract::hostname::Hostname;
use contract::project::ProjectUid;
use contract::time::{UnixMillis, UnixSeconds};
use instant_acme::{Account, CertificateIdentifier, Error, Identifier, NewOrder, Order, OrderStatus, RetryPolicy};
use parking_lot::Mutex;
use rcgen::{CertificateParams, DistinguishedName, KeyPair};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, Der};
use x509_parser::prelude::{FromDer as _, ParsedExtension, X509Certificate};
use zeroize::Zeroizing;

use self::explain::{explain, has_kind, is_gone};
use self::outage::Outage;
use self::transport::{Transport, has_answered, noting_answers};
use super::{CaaIdentity, IssueError, IssueRequest, Issued, Issuer, RenewalAdvice};
use crate::common::Core;
use crate::config::AcmeSettings;
use crate::gateways::Gateways;
use crate::limits::{QueueKind, QueuePosition};
use crate::nodes::Nodes;
use crate::store::acme::{OrderRecord, forget_order};
use crate::store::sealed::order_place;

/// Refused nonces in a row that are retried silently: each refusal brings a new nonce (RFC 8555, section 6.5). The
/// library itself has tried three times before it reports one.
const NONCES_MAX: u32 = 8;

/// Polling of an order: first after a quarter of a second, then ever rarer, for a minute.
const POLLING: RetryPolicy =
    RetryPolicy::new().initial_delay(Duration::from_millis(250)).backoff(1.5).timeout(Duration::from_mins(1));

/// Maximum of state changes of an order within one attempt.
const STEPS_MAX: u32 = 6;

/// Orders older than this have expired at any authority.
const ORDER_AGE_MAX_MILLIS: i64 = 7 * 86_400 * 1_000;

/// Failures that a waiting task reports: at least one happened, and another task tests whether the outage lasts.
const ASKED_BY_ANOTHER: u32 = 2;

/// Longest time for the requests of a removal.
const ABANDON_TIME_MAX: Duration = Duration::from_secs(30);

/// Repeats a request while the authority refuses only its nonce.
macro_rules! retry_nonce {
    ($call:expr) => {{
        let mut left = NONCES_MAX;
        loop {
            match $call.await {
                Err(error) if left > 0 && has_kind(&error, "badNonce") => left -= 1,
                outcome => break outcome,
            }
        }
    }};
}

use retry_nonce;

/// An authority that speaks ACME.
pub(crate) struct AcmeAuthority {
    settings: AcmeSettings,
    core: Arc<Core>,
    /// The gateways that answer challenges.
    nodes: Arc<Nodes>,
    transport: Transport,
    account: tokio::sync::Mutex<Option<Account>>,
    outage: Outage,
    /// The same of our edge, as the authority sees it: while it cannot connect, one order at a time tries.
    edge_outage: Outage,
    /// The account's URI in CAA records, once there is an account.
    account_uri: Mutex<Option<String>>,
}

/// An order in progress and the private key of its certificate.
struct InProgress {
    order: Order,
    key_pem: Zeroizing<String>,
}

impl AcmeAuthority {
    /// An authority with these settings. Makes no request yet.
    pub(crate) fn new(settings: AcmeSettings, gateways: &Gateways) -> anyhow::Result<Self> {
        let transport = Transport::new(settings.ca_certificate.as_deref())?;
        Ok(Self {
            settings,
            core: gateways.core.clone(),
            nodes: gateways.nodes.clone(),
            transport,
            account: tokio::sync::Mutex::default(),
            outage: Outage::default(),
            edge_outage: Outage::default(),
            account_uri: Mutex::default(),
        })
    }

    /// Loads the stored account, before any check of CAA records that name it.
    pub(crate) async fn load_account(&self) -> anyhow::Result<()> {
        let Some(credentials) = self.stored_account().await? else { return Ok(()) };
        let credentials: serde_json::Value = serde_json::from_slice(&credentials)?;
        *self.account_uri.lock() = credentials.get("id").and_then(|id| id.as_str()).map(str::to_owned);
        Ok(())
    }

    fn failed(&self, error: &Error) -> IssueError {
        explain(error, self.core.clock.now_seconds())
    }

    /// The order to continue: the one in progress, or a new one.
    async fn open(&self, account: &Account, request: &IssueRequest) -> Result<InProgress, IssueError> {
        if let Some(known) = self.core.store.find_order(&self.settings.name, &request.hostname).await?
            && let Some(in_progress) = self.resume(account, &known).await?
        {
            return Ok(in_progress);
        }
        // The one in service, if it came from this authority.
        let replaces = request.replaces.as_deref().and_then(identifier);
        let order = self.new_order(account, request, replaces).await?;
        let key = KeyPair::generate().map_err(|error| IssueError::Unavailable(error.to_string()))?;
        let key_pem = Zeroizing::new(key.serialize_pem());
        let record = OrderRecord {
            authority: self.settings.name.clone(),
            hostname: request.hostname.clone(),
            url: order.url().to_owned(),
            sealed_key: Some(self.core.sealing.seal(key_pem.as_bytes(), &order_place(request.hostname.as_str()))?),
            created_at: self.core.clock.now(),
        };
        self.core.store.save_order(&record).await?;
        Ok(InProgress { order, key_pem })
    }

    /// Continues an order, unless it is finished, expired or unknown at the authority.
    async fn resume(&self, account: &Account, known: &OrderRecord) -> Result<Option<InProgress>, IssueError> {
        if self.core.clock.now().since(known.created_at) > ORDER_AGE_MAX_MILLIS {
            return Ok(None);
        }
        let Some(key_pem) = self.key_of(known) else { return Ok(None) };
        match retry_nonce!(account.order(known.url.clone())) {
            Ok(mut order) => {
                let is_over = order.state().status == OrderStatus::Invalid;
                Ok((!is_over).then_some(InProgress { order, key_pem }))
            }
            Err(error) if is_gone(&error) => Ok(None),
            // An order of another account, or at an address where the authority is no more.
            Err(error) if !known.url.starts_with(self.origin()) => {
                tracing::info!(domain = %known.hostname, %error, "abandoned an order of another authority address");
                Ok(None)
            }
            Err(error) => self.refused(&error).await,
        }
    }

    /// The private key of an order's certificate; `None` if it does not open, so that the order is useless.
    fn key_of(&self, order: &OrderRecord) -> Option<Zeroizing<String>> {
        let sealed = order.sealed_key.as_deref()?;
        let opened = self.core.sealing.open(sealed, &order_place(order.hostname.as_str())).ok()?;
        String::from_utf8(opened.to_vec()).ok().map(Zeroizing::new)
    }

    /// Scheme, host and port of the authority's directory.
    fn origin(&self) -> &str {
        let url = self.settings.directory_url.as_str();
        let path = url.match_indices('/').nth(2).map_or(url.len(), |(place, _)| place);
        url.get(..path).unwrap_or(url)
    }

    async fn new_order(
        &self,
        account: &Account,
        request: &IssueRequest,
        replaces: Option<CertificateIdentifier<'static>>,
    ) -> Result<Order, IssueError> {
        let names = [Identifier::Dns(request.hostname.to_string())];
        let plain = || {
            let order = NewOrder::new(&names);
            if let Some(profile) = &self.settings.profile { order.profile(profile) } else { order }
        };
        if let Some(replaces) = replaces {
            self.admit(request, true).await?;
            match retry_nonce!(account.new_order(&plain().replaces(replaces.clone()))) {
                Ok(order) => return Ok(order),
                // It has no renewal information, or the certificate has a successor already.
                Err(Error::Unsupported(_)) => {}
                Err(error) if has_kind(&error, "alreadyReplaced") => {}
                Err(error) => return self.refused(&error).await,
            }
        }
        self.admit(request, false).await?;
        match retry_nonce!(account.new_order(&plain())) {
            Ok(order) => Ok(order),
            Err(error) => self.refused(&error).await,
        }
    }

    /// Asks, unless the authority is away. One that has forgotten our account gets to know a new one at once.
    async fn ask(&self, request: &IssueRequest) -> Result<Issued, IssueError> {
        let name = &self.settings.name;
        let away = |until: UnixMillis, failures, message| {
            Err(IssueError::Away { until: until.plus(999).to_seconds(), failures, message })
        };
        if let Err(until) = self.outage.may_ask(self.core.clock.now()) {
            return away(until, ASKED_BY_ANOTHER, "it did not answer when it was asked last".to_owned());
        }
        if let Err(error) = self.require_edge(request).await {
            self.outage.not_tested(self.core.clock.now());
            return Err(error);
        }
        let had_account = self.account_uri.lock().is_some();
        let mut outcome = self.continue_order(request).await;
        if had_account && outcome.is_err() && self.account.lock().await.is_none() {
            outcome = self.continue_order(request).await;
        }
        if let Err(IssueError::Away { message, .. }) = outcome {
            let (until, failures) = self.outage.failed(self.core.clock.now());
            if failures == 1 {
                tracing::warn!(
                    authority = name,
                    error = message,
                    what_to_do = "check directory_url and the network to it; if it stays down, add a second authority",
                    "lost the certificate authority; orders wait, retrying at least every 5 minutes"
                );
            }
            return away(until, failures, message);
        }
        if !has_answered() {
            // It was not asked: the order waits for its turn, or our own database failed.
            self.outage.not_tested(self.core.clock.now());
        } else if let Some(failures) = self.outage.ended() {
            tracing::info!(authority = name, failures, "reached the certificate authority again; continuing orders");
        }
        self.record_edge(outcome.as_ref().err());
        outcome
    }

    async fn continue_order(&self, request: &IssueRequest) -> Result<Issued, IssueError> {
        let account = self.account().await?;
        let mut in_progress = self.open(&account, request).await?;
        for _ in 0..STEPS_MAX {
            match in_progress.order.state().status {
                OrderStatus::Pending => self.prove(&mut in_progress.order, request).await?,
                OrderStatus::Ready => self.finalize(&mut in_progress, &request.hostname).await?,
                OrderStatus::Processing | OrderStatus::Valid => {
                    let chain = retry_nonce!(in_progress.order.poll_certificate(&POLLING));
                    let chain_pem = chain.map_err(|error| self.failed(&error))?;
                    let replaces = in_progress.order.state().replaces.is_some();
                    let AcmeSettings { name, limits, .. } = &self.settings;
                    let demands = limits.of_certificate(name, request.hostname.as_str(), replaces);
                    self.count(&request.hostname, &demands).await;
                    return Ok(Issued { chain_pem, key_pem: in_progress.key_pem });
                }
                OrderStatus::Invalid => {
                    forget_order(self.core.store.writer(), &self.settings.name, &request.hostname).await?;
                    return Err(IssueError::Unavailable("the order became invalid".to_owned()));
                }
            }
        }
        Err(IssueError::Unavailable("the order did not finish".to_owned()))
    }

    /// Asks for the certificate.
    async fn finalize(&self, in_progress: &mut InProgress, hostname: &Hostname) -> Result<(), IssueError> {
        let broken = |error: rcgen::Error| IssueError::Unavailable(format!("cannot build the request: {error}"));
        let key = KeyPair::from_pem(&in_progress.key_pem).map_err(broken)?;
        let mut params = CertificateParams::new([hostname.to_string()]).map_err(broken)?;
        // The name stands in the alternative names alone: a common name has room for 64 characters only.
        params.distinguished_name = DistinguishedName::new();
        let request = params.serialize_request(&key).map_err(broken)?;
        retry_nonce!(in_progress.order.finalize_csr(request.der())).map_err(|error| self.failed(&error))
    }
}

/// How renewal information names a certificate.
fn identifier(chain_pem: &str) -> Option<CertificateIdentifier<'static>> {
    let leaf = CertificateDer::from_pem_slice(chain_pem.as_bytes()).ok()?;
    let (_, leaf) = X509Certificate::from_der(&leaf).ok()?;
    let of_authority = leaf.extensions().iter().find_map(|extension| match extension.parsed_extension() {
        ParsedExtension::AuthorityKeyIdentifier(found) => found.key_identifier.as_ref(),
        _ => None,
    })?;
    Some(CertificateIdentifier::new(Der::from_slice(of_authority.0), Der::from_slice(leaf.raw_serial())))
}

#[async_trait]
impl Issuer for AcmeAuthority {
    fn name(&self) -> &str {
        &self.settings.name
    }

    fn caa(&self) -> Option<CaaIdentity> {
        Some(CaaIdentity {
            domain: self.settings.caa_identity.clone(),
            account_uri: self.account_uri.lock().clone(),
            methods: self.settings.challenges.iter().map(|kind| kind.as_str().to_owned()).collect(),
        })
    }

    async fn issue(&self, request: &IssueRequest) -> Result<Issued, IssueError> {
        noting_answers(self.ask(request)).await
    }

    async fn offer_turns(&self) -> Result<usize, IssueError> {
        let (now, mut offered) = (self.core.clock.now(), 0);
        if self.unreachable_until(now).is_some() || !self.nodes.is_any_live() {
            return Ok(0);
        }
        let AcmeSettings { name, limits, mirror_limits, .. } = &self.settings;
        for &kind in QueueKind::ALL {
            for (queue, free_at) in self.core.store.queues(name, kind, now).await? {
                let units = if *mirror_limits { limits.of_kind(kind).available(free_at, now) } else { i64::MAX };
                if units > 0 {
                    offered += self.core.store.offer(name, &queue, units, now).await?;
                }
            }
        }
        Ok(offered)
    }

    async fn places(&self, project: &ProjectUid) -> Result<Vec<(String, QueuePosition)>, IssueError> {
        let limits = self.settings.limits;
        Ok(self.core.store.queue_places(&self.settings.name, project, |kind| limits.of_kind(kind)).await?)
    }

    fn unreachable_until(&self, now: UnixMillis) -> Option<UnixMillis> {
        self.outage.until(now).max(self.edge_outage.until(now))
    }

    async fn renewal(&self, chain_pem: &str) -> Result<Option<RenewalAdvice>, IssueError> {
        let Some(identifier) = identifier(chain_pem) else { return Ok(None) };
        let advice = noting_answers(async {
            let account = self.account().await?;
            match account.renewal_info(&identifier).await {
                Ok(advice) => Ok(Some(advice)),
                Err(Error::Unsupported(_)) => Ok(None),
                Err(error) => Err(self.failed(&error)),
            }
        });
        let Some((info, again_in)) = advice.await? else { return Ok(None) };
        Ok(Some(RenewalAdvice {
            start: UnixSeconds(info.suggested_window.start.unix_timestamp()),
            end: UnixSeconds(info.suggested_window.end.unix_timestamp()),
            explanation: info.explanation_url,
            again_in,
        }))
    }

    async fn abandon(&self, order_url: &str) -> Result<(), IssueError> {
        match tokio::time::timeout(ABANDON_TIME_MAX, self.deactivate(order_url)).await {
            Ok(done) => done.map_err(|error| self.failed(&error)),
            Err(_) => Err(IssueError::Unavailable("it did not answer in time".to_owned())),
        }
    }
}
