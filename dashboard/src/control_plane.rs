//! The interface of the dashboard to the control plane.

use async_trait::async_trait;
use chassis::seal::SealingKey;
use contract::key::{KeyId, Scopes};
use contract::project::ProjectId;
use contract::time::UnixMillis;
use domains_api::Operation;
use domains_api::actor::{Actor, Origin};
use domains_api::project::ProjectRef;
use http::Extensions;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// The control plane as the pages use it: its API, called in the same process, and the sessions.
///
/// Pages read and change data through [`ControlPlane::call`]. Everything else here is about sessions, which the API
/// does not know: its callers send their credential with each request.
#[async_trait]
pub trait ControlPlane: Send + Sync {
    /// The time.
    fn now(&self) -> UnixMillis;

    /// Seals a new key or secret for its cookie, from the form's response to the page that shows it once.
    fn sealing(&self) -> &SealingKey;

    /// The client of a request and its gateway, from the identity among the request's extensions; `None` if the
    /// gateway's key was withdrawn after the identity was verified.
    fn origin(&self, extensions: &Extensions) -> Option<Origin>;

    /// Carries out an operation of the API. `place` is the parameters of its path, in order, and the query;
    /// `Value::Null` is no body.
    async fn call(
        &self,
        actor: &Actor,
        operation: Operation,
        place: (&[&str], &str),
        body: &Value,
    ) -> Result<Answered, Refused>;

    /// Signs in with a key as the user typed it. Returns the key's project and the session.
    async fn sign_in(&self, key: &str, origin: Origin) -> Result<(ProjectRef, NewSession), NotSignedIn>;

    /// Signs in with an operator's link, which is valid once.
    async fn follow_link(&self, link: &str, origin: Origin) -> Result<NewSession, NotSignedIn>;

    /// The holder of the session with this secret, if it is valid. A request that a page sends `by_itself` does not
    /// extend it.
    async fn find_session(&self, secret: &str, origin: Origin, by_itself: bool) -> Result<Option<SignedIn>, Refused>;

    /// Ends a session; with `everywhere` all sessions of its key, or of all operators.
    async fn end_session(&self, session: &SignedIn, everywhere: bool) -> Result<(), Refused>;

    /// Gives an operator access to the project of this name; to none if the project does not exist.
    async fn in_project(&self, operator: Actor, project: &ProjectId) -> Result<Actor, Refused>;
}

/// A response of the API.
#[derive(Clone, Debug)]
pub struct Answered {
    /// The status.
    pub status: u16,
    /// The body; null without one.
    pub body: Value,
    /// `X-Edge-Ack`, if present.
    pub acknowledged: Option<String>,
}

impl Answered {
    /// Parses the body into the type that a page shows.
    pub(super) fn read<T: DeserializeOwned>(self) -> Result<T, Refused> {
        serde_json::from_value(self.body).map_err(|error| {
            tracing::error!(%error, "the API's response was malformed; answered 500. This is a defect: report it");
            Refused::internal()
        })
    }
}

/// A refusal of the API.
#[derive(Clone, Debug)]
pub struct Refused {
    /// The status.
    pub status: u16,
    /// The code, as in the catalogue of errors.
    pub code: String,
    /// The problem and its fix.
    pub message: String,
}

impl Refused {
    /// The failure is ours; the log has the reason.
    pub fn internal() -> Self {
        let message = "The platform failed to process the request.".to_owned();
        Self { status: 500, code: "internal_error".to_owned(), message }
    }
}

/// A session that was opened.
pub struct NewSession {
    /// The secret in its cookie; the control plane keeps only its digest.
    pub secret: String,
    /// Its maximum lifetime.
    pub seconds: i64,
}

/// The holder of a key, or an operator, who is signed in.
#[derive(Clone, Debug)]
pub struct SignedIn {
    /// Names the session; not secret.
    pub id: String,
    /// The project and the key; `None` for an operator.
    pub holder: Option<(ProjectRef, KeyId)>,
    /// The actor for calls of the API.
    pub actor: Actor,
    /// The scopes of the key; all of them for an operator.
    pub scopes: Scopes,
}

/// Why signing in failed.
#[derive(Clone, Debug)]
pub enum NotSignedIn {
    /// Too many attempts from one address or with one key; retry after this number of seconds.
    TooManyAttempts(u64),
    /// The text is not an API key.
    NotAKey,
    /// The key is unknown, revoked or expired.
    UnknownKey,
    /// The key lacks the scopes that pages need.
    NothingToDo,
    /// The link was used already, or has expired.
    LinkSpent,
    /// The service refuses.
    Refused(Refused),
}
