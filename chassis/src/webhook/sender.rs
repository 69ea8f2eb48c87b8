//! Sends messages: one POST to a customer's address, restricted so that the address cannot harm the platform.

use std::error::Error as StdError;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use async_trait::async_trait;
use contract::text::is_deceptive;
use contract::time::UnixSeconds;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::header::{CONTENT_TYPE, RETRY_AFTER};
use reqwest::{StatusCode, Url};

use super::SigningSecret;

/// The longest URL of a receiver, in bytes.
pub const URL_BYTES_MAX: usize = 2_048;

/// The longest time for opening a connection, including resolution.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(5);

/// The `User-Agent` that receivers see.
const USER_AGENT: &str = "Tollhouse-Webhooks/1";

/// Restrictions on receivers.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// Whether plain HTTP is allowed: for tests and private networks.
    pub allow_http: bool,
    /// Whether a connection to an address may be opened.
    pub permits: fn(IpAddr) -> bool,
    /// Time from opening the connection to the head of the response.
    pub timeout: Duration,
}

/// Resolves names.
#[async_trait]
pub trait Lookup: Send + Sync {
    /// All addresses of a name.
    ///
    /// # Errors
    /// If there are none or they are unknown.
    async fn lookup(&self, host: &str) -> io::Result<Vec<IpAddr>>;
}

/// The system's own resolver.
#[derive(Debug)]
pub struct SystemLookup;

#[async_trait]
impl Lookup for SystemLookup {
    async fn lookup(&self, host: &str) -> io::Result<Vec<IpAddr>> {
        Ok(tokio::net::lookup_host((host, 0)).await?.map(|address| address.ip()).collect())
    }
}

/// Why a URL cannot be a receiver's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadUrl {
    /// It is not a URL, is longer than [`URL_BYTES_MAX`], or contains deceptive characters.
    #[error("it must be a URL of at most {URL_BYTES_MAX} bytes without control characters")]
    Malformed,
    /// The scheme is not https.
    #[error("it must begin with https://")]
    Scheme,
    /// It has a user name, a password or a fragment.
    #[error("it must not contain a user name, password or fragment")]
    Parts,
    /// An address of this machine, a private network, or otherwise not public.
    #[error("it must resolve to a public address")]
    Address,
}

/// One message to one receiver.
#[derive(Debug)]
pub struct Message<'m> {
    /// The same for every attempt, so that receivers can detect duplicates.
    pub id: &'m str,
    /// The time of this attempt.
    pub at: UnixSeconds,
    /// JSON.
    pub body: &'m str,
    /// The secrets for signing: during a rotation the new and the old one.
    pub secrets: &'m [SigningSecret],
}

contract::words! {
    /// The result of an attempt, as a word.
    pub enum AttemptResult {
        /// The receiver answered 2xx.
        Delivered = "delivered",
        /// It answered with another status. Redirects are not followed, so they are included.
        Refused = "refused",
        /// It answered 410: the receiver no longer exists.
        Gone = "gone",
        /// It did not answer in time.
        Timeout = "timeout",
        /// The name resolves to no permitted address.
        Blocked = "blocked",
        /// No address, no connection, a failed TLS handshake, or a response that is not HTTP.
        Unreachable = "unreachable",
    }
}

/// The result of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// As a word.
    pub result: AttemptResult,
    /// The status, if there was a response.
    pub status: Option<u16>,
    /// The pause that the receiver requested with a 429 or 503.
    pub retry_after: Option<Duration>,
    /// The error for the receiver's owner: one phrase per class of failure. It never contains text of the receiver, its
    /// certificate or the operating system, so that a request to send reveals nothing about our network.
    pub explanation: Option<&'static str>,
}

impl Attempt {
    const fn failed(result: AttemptResult, explanation: &'static str) -> Self {
        Self { result, status: None, retry_after: None, explanation: Some(explanation) }
    }
}

/// Sends messages. Clones share everything.
#[derive(Clone, Debug)]
pub struct Sender {
    client: reqwest::Client,
    rules: Rules,
}

impl Sender {
    /// A sender that resolves names with `lookup`.
    ///
    /// # Errors
    /// If the system's trusted certificates cannot be used.
    pub fn new(rules: Rules, lookup: Arc<dyn Lookup>) -> anyhow::Result<Self> {
        let client = reqwest::Client::builder()
            .user_agent(USER_AGENT)
            .timeout(rules.timeout)
            .connect_timeout(CONNECT_TIME_MAX)
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy() // a proxy would resolve the name again
            .http1_only() // its response heads are bounded
            .pool_max_idle_per_host(0) // every attempt connects to an address checked for it
            .dns_resolver(Arc::new(Guarded { lookup, permits: rules.permits }))
            .build()
            .context("an HTTP client for webhooks")?;
        Ok(Self { client, rules })
    }

    /// Whether this can be a receiver's URL. A name that resolves to a forbidden address is detected at each use,
    /// because names change.
    pub fn check(&self, text: &str) -> Result<Url, BadUrl> {
        if text.len() > URL_BYTES_MAX || text.chars().any(is_deceptive) {
            return Err(BadUrl::Malformed);
        }
        let url = Url::parse(text).map_err(|_| BadUrl::Malformed)?;
        if url.scheme() != "https" && !(self.rules.allow_http && url.scheme() == "http") {
            return Err(BadUrl::Scheme);
        }
        if !url.username().is_empty() || url.password().is_some() || url.fragment().is_some() {
            return Err(BadUrl::Parts);
        }
        let host = url.host_str().filter(|host| !host.is_empty()).ok_or(BadUrl::Malformed)?;
        // Literal addresses are not resolved, so they are checked here. The parser has normalised every other spelling
        // (decimal, octal, short).
        match host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>() {
            Ok(address) if !(self.rules.permits)(address) => Err(BadUrl::Address),
            _ => Ok(url),
        }
    }

    /// Makes one attempt, within the timeout of the rules.
    pub async fn send(&self, url: &str, message: &Message<'_>) -> Attempt {
        let Ok(url) = self.check(url) else {
            return Attempt::failed(AttemptResult::Blocked, "the address may not be used; change the URL");
        };
        let signatures: Vec<String> =
            message.secrets.iter().map(|secret| secret.sign(message.id, message.at, message.body.as_bytes())).collect();
        let request = self
            .client
            .post(url)
            .header(CONTENT_TYPE, "application/json")
            .header("webhook-id", message.id)
            .header("webhook-timestamp", message.at.0)
            .header("webhook-signature", signatures.join(" "))
            .body(message.body.to_owned());
        // The response's body is never read: dropping the response closes the connection.
        match request.send().await {
            Ok(response) => judge(response.status(), response.headers()),
            Err(error) => explain(&error),
        }
    }
}

fn judge(status: StatusCode, headers: &reqwest::header::HeaderMap) -> Attempt {
    let (result, explanation) = if status.is_success() {
        (AttemptResult::Delivered, None)
    } else if status == StatusCode::GONE {
        (AttemptResult::Gone, Some("the receiver answered 410 (gone)"))
    } else if status.is_redirection() {
        (AttemptResult::Refused, Some("the receiver redirects; redirects are not followed"))
    } else {
        (AttemptResult::Refused, Some("the receiver answered with another status than 2xx"))
    };
    let waits = status == StatusCode::TOO_MANY_REQUESTS || status == StatusCode::SERVICE_UNAVAILABLE;
    let seconds = headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.trim().parse().ok());
    Attempt {
        result,
        status: Some(status.as_u16()),
        retry_after: seconds.filter(|_| waits).map(Duration::from_secs),
        explanation,
    }
}

/// The class of a failure without a response, found by the types in the chain of errors, never by their texts.
fn explain(error: &reqwest::Error) -> Attempt {
    let causes = std::iter::successors(Some(error as &(dyn StdError + 'static)), |cause| (**cause).source());
    for cause in causes {
        match cause.downcast_ref::<NoAddress>() {
            Some(NoAddress::Permitted) => {
                return Attempt::failed(AttemptResult::Blocked, "the name does not resolve to a public address");
            }
            Some(NoAddress::Known) => {
                return Attempt::failed(AttemptResult::Unreachable, "the name does not resolve");
            }
            None => {}
        }
    }
    if error.is_timeout() {
        return Attempt::failed(AttemptResult::Timeout, "the receiver did not answer in time");
    }
    let explanation = if error.is_connect() {
        "cannot connect; check the port and the certificate"
    } else {
        "the connection ended before a response"
    };
    Attempt::failed(AttemptResult::Unreachable, explanation)
}

/// The name has no usable address.
#[derive(Debug, thiserror::Error)]
enum NoAddress {
    /// It has addresses, but none is permitted.
    #[error("the name has no permitted address")]
    Permitted,
    /// It has none, or they are unknown.
    #[error("the name has no known address")]
    Known,
}

/// Resolves and checks in one step: the connection is opened to the checked address, without another lookup.
struct Guarded {
    lookup: Arc<dyn Lookup>,
    permits: fn(IpAddr) -> bool,
}

impl Resolve for Guarded {
    fn resolve(&self, name: Name) -> Resolving {
        let (lookup, permits) = (self.lookup.clone(), self.permits);
        Box::pin(async move {
            let boxed = |error: NoAddress| -> Box<dyn StdError + Send + Sync> { Box::new(error) };
            let addresses = lookup.lookup(name.as_str()).await.map_err(|_| boxed(NoAddress::Known))?;
            let permitted: Vec<SocketAddr> =
                addresses.into_iter().filter(|address| permits(*address)).map(|ip| SocketAddr::new(ip, 0)).collect();
            if permitted.is_empty() {
                return Err(boxed(NoAddress::Permitted));
            }
            Ok(Box::new(permitted.into_iter()) as Addrs)
        })
    }
}

#[cfg(test)]
mod tests;
