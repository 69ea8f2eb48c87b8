//! What the pages ask of the control plane.

use async_trait::async_trait;
use chassis::seal::SealingKey;
use contract::key::{KeyId, Scopes};
use contract::project::ProjectId;
use contract::time::UnixMillis;
use domains_api::Operation;
use domains_api::actor::{Actor, Origin};
use domains_api::project::ProjectRef;
use http::Extensions;
use serde_json::Value;

/// The control plane in the view of the pages: its API, called in the same process, and who is signed in.
///
/// What pages show and change goes through [`ControlPlane::call`]. Everything else here is about sessions, which the API
/// does not know: its callers send their credential with each request.
#[async_trait]
pub trait ControlPlane: Send + Sync {
    /// The time.
    fn now(&self) -> UnixMillis;

    /// Seals what a page shows once, on its way through the browser.
    fn sealing(&self) -> &SealingKey;

    /// The client of a request and the gateway that it came through, by the identity among the request's extensions;
    /// nothing when the gateway's key was withdrawn since that was verified.
    fn origin(&self, extensions: &Extensions) -> Option<Origin>;

    /// Carries out an operation of the API. `place` is the parameters of its path, in order, and the query; `Value::Null` is no
    /// body.
    async fn call(
        &self,
        actor: &Actor,
        operation: Operation,
        place: (&[&str], &str),
        body: &Value,
    ) -> Result<Answered, Refused>;

    /// Signs in with the text of a key, as it was typed; the key's project and the session.
    async fn sign_in(&self, key: &str, origin: Origin) -> Result<(ProjectRef, NewSession), NotSignedIn>;

    /// Signs in with an operator's link, which is good once.
    async fn follow_link(&self, link: &str, origin: Origin) -> Result<NewSession, NotSignedIn>;

    /// Who has the session with this secret, if it goes on. A page that asks `by_itself` does not keep it alive.
    async fn find_session(&self, secret: &str, origin: Origin, by_itself: bool) -> Result<Option<SignedIn>, Refused>;

    /// Ends a session, or `everywhere` all of its key's or of the operators'.
    async fn end_session(&self, session: &SignedIn, everywhere: bool) -> Result<(), Refused>;

    /// An operator in the project of this name; in none if there is no such project.
    async fn in_project(&self, operator: Actor, project: &ProjectId) -> Result<Actor, Refused>;
}

/// An answer of the API.
#[derive(Clone, Debug)]
pub struct Answered {
    /// The status.
    pub status: u16,
    /// The body; null when there is none.
    pub body: Value,
    /// `X-Edge-Ack`, where there is one.
    pub acknowledged: Option<String>,
}

/// A refusal of the API.
#[derive(Clone, Debug)]
pub struct Refused {
    /// The status.
    pub status: u16,
    /// The code, as in the catalogue of errors.
    pub code: String,
    /// What is wrong, and what to do.
    pub message: String,
}

impl Refused {
    /// The failure is ours; the log has the reason.
    pub fn internal() -> Self {
        Self { status: 500, code: "internal_error".to_owned(), message: "Something went wrong on our side.".to_owned() }
    }
}

/// A session that was opened.
pub struct NewSession {
    /// What its cookie says; the control plane keeps the digest alone.
    pub secret: String,
    /// The longest it lasts.
    pub seconds: i64,
}

/// The holder of a key, or an operator, who is signed in.
#[derive(Clone, Debug)]
pub struct SignedIn {
    /// Names the session; it is no secret.
    pub id: String,
    /// The project and the key; nothing for an operator.
    pub holder: Option<(ProjectRef, KeyId)>,
    /// As whom the API is called.
    pub actor: Actor,
    /// What the key may do; everything for an operator.
    pub scopes: Scopes,
}

/// Why signing in failed.
#[derive(Clone, Debug)]
pub enum NotSignedIn {
    /// Too many attempts, from one address or with one key: try again in so many seconds.
    TooManyAttempts(u64),
    /// The text is not an API key.
    NotAKey,
    /// The key is unknown, revoked or expired.
    UnknownKey,
    /// The key may do nothing that the pages offer.
    NothingToDo,
    /// The link was followed already, or is too old.
    LinkSpent,
    /// The service says no.
    Refused(Refused),
}
