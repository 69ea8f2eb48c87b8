//! What a data directory was begun with: the platform's domain, and whether the demo is still to be made.
//!
//! Certificates, projects and what customers have put into their DNS belong to one domain. A start with another one would
//! leave them all unreachable, so it is refused.

use contract::hostname::Hostname;
use contract::key::Environment;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::demo;
use crate::arguments::Up;
use crate::directory::Directory;

const FILE: &str = "platform.json";

/// The domain of a platform that was told none.
const USUAL_DOMAIN: &str = "tollhouse.localhost";

/// What the file says.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Remembered {
    /// Projects are published below it.
    pub(super) platform_domain: Hostname,
    /// Whose keys are made and accepted.
    #[serde(default = "live")]
    pub(super) environment: Environment,
    /// The first start was to make the demo and has not finished.
    pub(super) demo_pending: bool,
}

impl Remembered {
    /// What this directory was begun with; for a new one, what is given now.
    ///
    /// # Errors
    /// When it was begun with another domain, or as another deployment.
    pub(super) fn of(directory: &Directory, options: &Up) -> anyhow::Result<Self> {
        let given = options.platform_domain.as_ref();
        let text = directory.read(FILE).ok().flatten();
        let known: Option<Self> = text.and_then(|text| serde_json::from_slice(&text).ok());
        let is_new = !directory.path("domains/domains.sqlite").exists();
        let domain = known.as_ref().map(|known| known.platform_domain.clone());
        // Directories from before this file have it in the demo's.
        let domain = domain.or_else(|| if is_new { None } else { domain_of_demo(directory) });
        if let (Some(domain), Some(given)) = (&domain, given)
            && domain != given
        {
            anyhow::bail!(
                "the platform in {place} has the domain {domain}, and its projects and certificates belong to it. \
                 Start it without --platform-domain, or with --platform-domain {domain}; for a platform at {given} \
                 choose another directory with --data-dir",
                place = directory.path("").display()
            );
        }
        let environment = known.as_ref().map(|known| known.environment).or_else(|| (!is_new).then(live));
        if let (Some(environment), Some(given)) = (environment, options.environment)
            && environment != given
        {
            anyhow::bail!(
                "the platform in {place} is the deployment {environment}, and its keys belong to it; for {given} choose \
                 another directory with --data-dir",
                place = directory.path("").display()
            );
        }
        let usual = || USUAL_DOMAIN.parse::<Hostname>();
        let platform_domain = domain.or_else(|| given.cloned()).map_or_else(usual, Ok)?;
        let demo_pending = !options.no_demo && known.map_or(is_new, |known| known.demo_pending);
        let environment = environment.or(options.environment).unwrap_or(Environment::Live);
        let remembered = Self { platform_domain, environment, demo_pending };
        directory.write_json(FILE, &remembered)?;
        Ok(remembered)
    }

    /// From now on the demo is made, whatever becomes of it.
    pub(super) fn demo_is_made(&mut self, directory: &Directory) -> anyhow::Result<()> {
        self.demo_pending = false;
        directory.write_json(FILE, self)
    }
}

fn live() -> Environment {
    Environment::Live
}

fn domain_of_demo(directory: &Directory) -> Option<Hostname> {
    let demo: Value = serde_json::from_slice(&directory.read(demo::FILE).ok()??).ok()?;
    demo.get("platform_domain")?.as_str()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_domain_is_remembered_and_another_one_is_refused_with_the_way_out() {
        let place = tempfile::tempdir().unwrap();
        let directory = Directory::new(place.path());
        let of = |given: Option<&str>| {
            let platform_domain = given.map(|name| name.parse().unwrap());
            Remembered::of(&directory, &Up { platform_domain, ..Up::usual() })
        };
        let mut first = of(Some("apps.localhost")).unwrap();
        assert_eq!((first.platform_domain.as_str(), first.demo_pending), ("apps.localhost", true));
        std::fs::create_dir_all(directory.path("domains")).unwrap();
        std::fs::write(directory.path("domains/domains.sqlite"), "").unwrap();
        assert!(of(None).unwrap().demo_pending, "the first start was interrupted");
        first.demo_is_made(&directory).unwrap();
        let later = of(None).unwrap();
        assert_eq!((later.platform_domain.as_str(), later.demo_pending), ("apps.localhost", false));
        let words = of(Some("tollhouse.localhost")).unwrap_err().to_string();
        assert!(words.contains("has the domain apps.localhost") && words.contains("--data-dir"), "{words}");
        assert!(of(Some("apps.localhost")).is_ok());
        let staging = Up { environment: Some(Environment::Test), ..Up::usual() };
        let words = Remembered::of(&directory, &staging).unwrap_err().to_string();
        assert!(words.contains("is the deployment live"), "{words}");
        let other = Directory::new(&place.path().join("staging"));
        assert_eq!(Remembered::of(&other, &staging).unwrap().environment, Environment::Test);
        assert_eq!(Remembered::of(&other, &Up::usual()).unwrap().environment, Environment::Test);
    }

    #[test]
    fn a_directory_from_before_keeps_its_domain_and_gets_no_second_demo() {
        let place = tempfile::tempdir().unwrap();
        let directory = Directory::new(place.path());
        std::fs::create_dir_all(directory.path("domains")).unwrap();
        std::fs::write(directory.path("domains/domains.sqlite"), "").unwrap();
        std::fs::write(directory.path("demo.json"), "{\"platform_domain\":\"old.localhost\"}").unwrap();
        let remembered = Remembered::of(&directory, &Up::usual()).unwrap();
        assert_eq!((remembered.platform_domain.as_str(), remembered.demo_pending), ("old.localhost", false));
    }
}
