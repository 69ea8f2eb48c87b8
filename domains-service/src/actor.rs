//! Who asks: the holder of an API key, an operator, or the service itself.

use std::net::IpAddr;

use chassis::refusal::Refusal;
use contract::identity::Identity;
use contract::key::{KeyId, Scope, Scopes};

use crate::error::Code;
use crate::project::ProjectRef;

/// Who asks.
#[derive(Clone, Debug)]
pub(crate) struct Actor {
    name: String,
    client: Option<IpAddr>,
    rights: Rights,
    /// The project it acts in: a key's own, or the one an operator names.
    place: Option<ProjectRef>,
}

#[derive(Clone, Debug)]
enum Rights {
    Everything,
    Key { scopes: Scopes },
}

impl Actor {
    /// An operator of the platform.
    pub(crate) fn operator() -> Self {
        Self { name: "operator".to_owned(), client: None, rights: Rights::Everything, place: None }
    }

    /// An operator with a token of this name.
    pub(crate) fn operator_named(name: &str) -> Self {
        Self { name: format!("operator:{name}"), ..Self::operator() }
    }

    /// The service, acting on schedule.
    pub(crate) fn system() -> Self {
        Self { name: "system".to_owned(), client: None, rights: Rights::Everything, place: None }
    }

    /// The holder of the key the gateway vouches for; `None` when it vouches for nobody.
    pub(crate) fn of(identity: &Identity) -> Option<Self> {
        let caller = identity.caller.as_ref()?;
        let place = ProjectRef { uid: caller.project_identity(), name: caller.project.clone() };
        Some(Self::holder(&caller.key, place, caller.scopes.clone(), identity.client))
    }

    /// Whether the actor may act in every project, and has to be told in which.
    pub(crate) fn is_operator(&self) -> bool {
        matches!(self.rights, Rights::Everything)
    }

    /// An operator, acting in this project.
    pub(crate) fn within(self, place: Option<ProjectRef>) -> Self {
        Self { place, ..self }
    }

    /// The holder of a key, signed in to the dashboard from `client`.
    pub(crate) fn holder(key: &KeyId, project: ProjectRef, scopes: Scopes, client: IpAddr) -> Self {
        let rights = Rights::Key { scopes };
        Self { name: key.to_string(), client: Some(client), rights, place: Some(project) }
    }

    /// An operator, signed in to the dashboard from `client`, with a token of this name if it has one.
    pub(crate) fn operator_at(client: IpAddr, token: Option<&str>) -> Self {
        Self { client: Some(client), ..token.map_or_else(Self::operator, Self::operator_named) }
    }

    /// The name of the operator's token, if it has one.
    pub(crate) fn token(&self) -> Option<&str> {
        self.name.strip_prefix("operator:").filter(|_| self.is_operator())
    }

    /// The word in the audit log.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Whose changes are counted together: a key's, wherever it is used, and those of an operator at one address; and the
    /// one project in which a key may change anything.
    pub(crate) fn session(&self) -> (String, Option<&ProjectRef>) {
        match (&self.rights, self.client) {
            (Rights::Key { .. }, _) => (self.name.clone(), self.place.as_ref()),
            (Rights::Everything, Some(client)) => (format!("{} {client}", self.name), None),
            (Rights::Everything, None) => (self.name.clone(), None),
        }
    }

    /// The address asked from, as the gateway saw it.
    pub(crate) fn client(&self) -> Option<IpAddr> {
        self.client
    }

    /// The project a path names, if the actor may do this in it. A project that is not the caller's does not exist.
    pub(crate) fn enter(&self, project: &str, scope: Option<Scope>) -> Result<ProjectRef, Refusal> {
        let not_found = || Code::ProjectNotFound.refuse("There is no such project.");
        let place = self.place.as_ref().filter(|place| place.name.as_str() == project).ok_or_else(not_found)?.clone();
        let Rights::Key { scopes } = &self.rights else { return Ok(place) };
        match scope {
            Some(scope) if !scopes.contains(scope) => {
                Err(Code::InsufficientScope.refuse(format!("This needs a key with the scope {scope}.")))
            }
            _ => Ok(place),
        }
    }

    /// Whether the actor may give these scopes to a key: nobody gives more than they have.
    pub(crate) fn may_grant(&self, granted: &Scopes) -> bool {
        match &self.rights {
            Rights::Everything => true,
            Rights::Key { scopes, .. } => granted.is_subset(scopes),
        }
    }
}
