//! The entities that the control plane publishes in these tests.

use chassis::seal::SealingKey;
use chassis::secret::Secret;
use contract::certificate::{CertificateBundle, Challenge, SealedKey};
use contract::feed::Entity;
use contract::key::{ApiKey, Environment, KeyId, PresentedKey, Scopes};
use contract::plan::{Limits, Plan};
use contract::project::{Access, Project};
use contract::site::{Redirect, RedirectStatus, Serves, Site};
use contract::time::UnixSeconds;

use super::{SEALING_SECRET, certificates};

/// A project with the limits of its plan.
pub(crate) fn project(id: &str, plan: Plan) -> Project {
    Project {
        id: id.parse().unwrap(),
        uid: id.parse().unwrap(),
        plan,
        limits: plan.stated_limits(),
        access: Access::Key,
        upstream: "orders".parse().unwrap(),
        suspended: false,
        browsers: contract::browsers::Browsers::default(),
    }
}

/// An enterprise project with its own limits.
pub(crate) fn limited(id: &str, per_minute: u32, per_day: u32) -> Project {
    Project { limits: Limits::new(per_minute, per_day).unwrap(), ..project(id, Plan::Enterprise) }
}

/// A public site behind the `blog` upstream.
pub(crate) fn public(id: &str) -> Project {
    Project { access: Access::Public, upstream: "blog".parse().unwrap(), ..project(id, Plan::Pro) }
}

pub(crate) fn site(host: &str, project: &str) -> Entity {
    redirecting(host, project, None)
}

/// A secondary domain with a redirect.
pub(crate) fn redirecting(host: &str, project: &str, to: Option<(&str, Option<RedirectStatus>)>) -> Entity {
    Entity::Site(Site {
        hostname: host.parse().unwrap(),
        serves: Serves::Project(project.parse().unwrap()),
        redirect: to.map(|(to, status)| Redirect { to: to.parse().unwrap(), status }),
    })
}

/// A customer's certificate, its key sealed as the control plane does.
pub(crate) fn certificate(host: &str) -> Entity {
    let (chain_pem, key_pem) = certificates::leaf(&[host]);
    let seal = SealingKey::new(&Secret::parse(SEALING_SECRET).unwrap()).unwrap();
    Entity::Certificate(CertificateBundle {
        hostname: host.parse().unwrap(),
        chain_pem,
        key: SealedKey(seal.seal(key_pem.as_bytes(), host).unwrap()),
        not_before: UnixSeconds(0),
        not_after: UnixSeconds(4_000_000_000),
    })
}

pub(crate) fn challenge(host: &str, token: &str) -> Challenge {
    Challenge {
        hostname: host.parse().unwrap(),
        token: token.to_owned(),
        key_authorization: format!("{token}.thumbprint"),
    }
}

/// A key: the holder's text, and the published record.
#[derive(Clone)]
pub(crate) struct TestKey {
    pub(crate) text: String,
    pub(crate) record: ApiKey,
}

impl TestKey {
    /// The key number `number` of a project.
    pub(crate) fn new(project: &str, number: u8) -> Self {
        Self::of(project, number, Environment::Live)
    }

    pub(crate) fn of(project: &str, number: u8, environment: Environment) -> Self {
        let mut random = [number; 30];
        for (place, letter) in random.iter_mut().zip(project.bytes()) {
            *place = letter;
        }
        let presented = PresentedKey::generate(environment, &random);
        let mut id = [number; 10];
        for (place, letter) in id.iter_mut().zip(project.bytes()) {
            *place = letter;
        }
        let record = ApiKey {
            digest: presented.digest(),
            id: KeyId::from_random(id),
            project: project.parse().unwrap(),
            project_uid: project.parse().unwrap(),
            environment,
            scopes: Scopes::all(),
            expires_at: None,
        };
        Self { text: presented.reveal().to_owned(), record }
    }

    pub(crate) fn entity(&self) -> Entity {
        Entity::Key(self.record.clone())
    }
}
