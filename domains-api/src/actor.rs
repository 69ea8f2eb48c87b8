//! The actor of a request: the holder of an API key, an operator, or the service itself.

use std::fmt;
use std::net::IpAddr;

use contract::key::{KeyId, Scope, Scopes};

use crate::project::ProjectRef;

/// Where a request came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The client's address, as the gateway saw it.
    pub client: IpAddr,
    /// The gateway that it came through, by the key that signed for it.
    pub gateway: String,
}

/// The prefix of operators' names in the audit log.
const OPERATOR: &str = "operator:";

/// Who calls.
#[derive(Clone, Debug)]
pub struct Actor {
    name: String,
    origin: Option<Origin>,
    rights: Rights,
    /// The project it acts in: a key's own, or the one an operator names.
    project: Option<ProjectRef>,
}

/// Why an actor may not do something in a project.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotPermitted {
    /// There is no such project, as far as the actor may know.
    NoSuchProject,
    /// The actor's key does not have this scope.
    Needs(Scope),
}

impl fmt::Display for NotPermitted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSuchProject => f.write_str("There is no such project."),
            Self::Needs(scope) => write!(f, "This needs a key with the scope {scope}."),
        }
    }
}

#[derive(Clone, Debug)]
enum Rights {
    Everything,
    Key { scopes: Scopes },
}

impl Actor {
    /// The operator of this name.
    pub fn operator_named(name: &str) -> Self {
        Self { name: format!("{OPERATOR}{name}"), ..Self::system() }
    }

    /// The service, acting on schedule.
    pub fn system() -> Self {
        Self { name: "system".to_owned(), origin: None, rights: Rights::Everything, project: None }
    }

    /// Whether the actor may act in every project; a request names the one.
    pub fn is_operator(&self) -> bool {
        matches!(self.rights, Rights::Everything)
    }

    /// An operator, acting in this project.
    #[must_use]
    pub fn within(self, project: Option<ProjectRef>) -> Self {
        Self { project, ..self }
    }

    /// The holder of a key.
    pub fn holder(key: &KeyId, project: ProjectRef, scopes: Scopes, origin: Origin) -> Self {
        let rights = Rights::Key { scopes };
        Self { name: key.to_string(), origin: Some(origin), rights, project: Some(project) }
    }

    /// The operator of this name, signed in to the dashboard.
    pub fn operator_at(origin: Origin, name: &str) -> Self {
        Self { origin: Some(origin), ..Self::operator_named(name) }
    }

    /// The id of the key that the actor holds.
    pub fn key(&self) -> Option<&str> {
        matches!(self.rights, Rights::Key { .. }).then_some(self.name.as_str())
    }

    /// The operator's name, if it is one.
    pub fn operator(&self) -> Option<&str> {
        self.name.strip_prefix(OPERATOR).filter(|_| self.is_operator())
    }

    /// The word in the audit log.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whose changes are counted together: a key's, wherever it is used, and those of an operator at one address; and
    /// the one project in which a key may change anything.
    pub fn session(&self) -> (String, Option<&ProjectRef>) {
        match (&self.rights, self.client()) {
            (Rights::Key { .. }, _) => (self.name.clone(), self.project.as_ref()),
            (Rights::Everything, Some(client)) => (format!("{} {client}", self.name), None),
            (Rights::Everything, None) => (self.name.clone(), None),
        }
    }

    /// The address asked from, as the gateway saw it.
    pub fn client(&self) -> Option<IpAddr> {
        self.origin.as_ref().map(|origin| origin.client)
    }

    /// The gateway that the request came through, if it came through one.
    pub fn gateway(&self) -> Option<&str> {
        self.origin.as_ref().map(|origin| origin.gateway.as_str())
    }

    /// The project a path names, if the actor may do this in it. A project that is not the caller's does not exist.
    pub fn authorise(&self, project: &str, scope: Option<Scope>) -> Result<ProjectRef, NotPermitted> {
        let found = self.project.as_ref().filter(|found| found.name.as_str() == project);
        let found = found.ok_or(NotPermitted::NoSuchProject)?.clone();
        let Rights::Key { scopes } = &self.rights else { return Ok(found) };
        match scope {
            Some(scope) if !scopes.contains(scope) => Err(NotPermitted::Needs(scope)),
            _ => Ok(found),
        }
    }

    /// Whether the actor may give these scopes to a key: an actor gives only scopes of its own.
    pub fn may_grant(&self, granted: &Scopes) -> bool {
        match &self.rights {
            Rights::Everything => true,
            Rights::Key { scopes, .. } => granted.is_subset(scopes),
        }
    }
}
