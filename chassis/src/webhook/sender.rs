//! Sending: one POST to an address a customer chose, with everything an address could do to us ruled out.

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

/// The longest address of a receiver, in bytes.
pub const URL_BYTES_MAX: usize = 2_048;

/// The longest a connection may take to open, resolution included.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(5);

/// How receivers know who calls.
const USER_AGENT: &str = "Tollhouse-Webhooks/1";

/// Where messages may go.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// Whether receivers may speak plain HTTP: for tests and private networks.
    pub allow_http: bool,
    /// Whether a connection to an address may be opened.
    pub permits: fn(IpAddr) -> bool,
    /// From opening the connection to the head of the answer.
    pub timeout: Duration,
}

/// Turns names into addresses.
#[async_trait]
pub trait Lookup: Send + Sync {
    /// All addresses of a name.
    ///
    /// # Errors
    /// When there are none or nobody could tell.
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

/// Why an address cannot be a receiver's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadUrl {
    /// It does not read as a URL, is longer than [`URL_BYTES_MAX`], or holds characters that deceive.
    #[error("it is no URL of at most {URL_BYTES_MAX} bytes without control characters")]
    Malformed,
    /// Another scheme than https.
    #[error("it must begin with https://")]
    Scheme,
    /// A name and password, or a fragment.
    #[error("it must carry no name, password or fragment")]
    Parts,
    /// An address of this machine, a private network, or otherwise not of the internet.
    #[error("it must lead to a public address")]
    Address,
}

/// One message on its way to one receiver.
#[derive(Debug)]
pub struct Message<'m> {
    /// The same for every attempt: receivers know by it what they have.
    pub id: &'m str,
    /// When this attempt is made.
    pub at: UnixSeconds,
    /// JSON.
    pub body: &'m str,
    /// Secrets to sign with: during a rotation the new and the old one.
    pub secrets: &'m [SigningSecret],
}

contract::words! {
    /// How an attempt ended, as a word.
    pub enum AttemptResult {
        /// The receiver said 2xx.
        Delivered = "delivered",
        /// It said something else. Redirects are not followed, so they are in here.
        Refused = "refused",
        /// It said 410: nobody wants messages there any more.
        Gone = "gone",
        /// It did not answer in time.
        Timeout = "timeout",
        /// The name leads to no address a connection may be opened to.
        Blocked = "blocked",
        /// No address, no connection, no TLS, or no HTTP.
        Unreachable = "unreachable",
    }
}

/// How an attempt ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// In a word.
    pub result: AttemptResult,
    /// The status, if there was an answer.
    pub status: Option<u16>,
    /// For how long the receiver asked to be left alone, with a 429 or 503.
    pub retry_after: Option<Duration>,
    /// What went wrong, for the receiver's owner: one phrase per class of failure. Nothing that a receiver, its
    /// certificate or the operating system said can be in it, so nobody learns of our network by asking us to send.
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
    /// A sender that finds addresses with `lookup`.
    ///
    /// # Errors
    /// When the system's trusted certificates cannot be used.
    pub fn new(rules: Rules, lookup: Arc<dyn Lookup>) -> anyhow::Result<Self> {
        let client = reqwest::Client::builder()
            .user_agent(USER_AGENT)
            .timeout(rules.timeout)
            .connect_timeout(CONNECT_TIME_MAX)
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy() // a proxy would resolve the name again
            .http1_only() // of which the answer's head is bounded
            .pool_max_idle_per_host(0) // every attempt connects to an address checked for it
            .dns_resolver(Arc::new(Guarded { lookup, permits: rules.permits }))
            .build()
            .context("an HTTP client for webhooks")?;
        Ok(Self { client, rules })
    }

    /// Whether this can be a receiver's address. A name that leads to a forbidden one is found out when it is used,
    /// every time: names change.
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
        // Connections to addresses written as such ask no resolver, so they are looked at here. The parser has turned
        // every other spelling (decimal, octal, short) into this one.
        match host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>() {
            Ok(address) if !(self.rules.permits)(address) => Err(BadUrl::Address),
            _ => Ok(url),
        }
    }

    /// Makes one attempt. It takes at most the timeout of the rules.
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
        // The answer's body is never read: dropping the response closes the connection.
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
        (AttemptResult::Gone, Some("the receiver says that it is gone"))
    } else if status.is_redirection() {
        (AttemptResult::Refused, Some("the receiver redirects, which is not followed"))
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

/// The class of a failure without an answer, found by what the chain of errors is made of, never by what it says.
fn explain(error: &reqwest::Error) -> Attempt {
    let causes = std::iter::successors(Some(error as &(dyn StdError + 'static)), |cause| (**cause).source());
    for cause in causes {
        match cause.downcast_ref::<NoAddress>() {
            Some(NoAddress::Permitted) => {
                return Attempt::failed(AttemptResult::Blocked, "the name leads to no public address");
            }
            Some(NoAddress::Known) => {
                return Attempt::failed(AttemptResult::Unreachable, "the name leads to no address");
            }
            None => {}
        }
    }
    if error.is_timeout() {
        return Attempt::failed(AttemptResult::Timeout, "the receiver did not answer in time");
    }
    let explanation = if error.is_connect() {
        "no connection could be opened; check the port and the certificate"
    } else {
        "the connection ended before an answer came"
    };
    Attempt::failed(AttemptResult::Unreachable, explanation)
}

/// The name leads nowhere we go.
#[derive(Debug, thiserror::Error)]
enum NoAddress {
    /// It has addresses, none of which may be connected to.
    #[error("no permitted address")]
    Permitted,
    /// It has none, or nobody could tell.
    #[error("no known address")]
    Known,
}

/// Resolution and permission in one step: the connection is opened to what was checked, and nothing is asked twice.
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
