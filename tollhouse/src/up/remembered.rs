//! Facts of a data directory that are fixed at its first start: platform domain and environment; and whether the demo
//! is pending and the databases are made.
//!
//! Certificates, projects and customers' DNS records contain the platform domain. A start with another domain would
//! make all of them unreachable, so it is refused.

use contract::hostname::Hostname;
use contract::key::Environment;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::demo;
use crate::arguments::Up;
use crate::directory::Directory;

const FILE: &str = "platform.json";

/// The default platform domain.
const USUAL_DOMAIN: &str = "tollhouse.localhost";

/// The contents of the file.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Remembered {
    /// The platform domain.
    pub(super) platform_domain: Hostname,
    /// Kind of the API keys.
    #[serde(default = "live")]
    pub(super) environment: Environment,
    /// The first start has not yet completed the demo.
    pub(super) demo_pending: bool,
    /// A start has made the databases: later ones make no new ones in place of lost ones.
    #[serde(default)]
    pub(super) databases_made: bool,
}

impl Remembered {
    /// The facts of this directory; for a new one, from the options.
    ///
    /// # Errors
    /// If the options contradict the directory.
    pub(super) fn of(directory: &Directory, options: &Up) -> anyhow::Result<Self> {
        let given = options.platform_domain.as_ref();
        let text = directory.read(FILE).ok().flatten();
        let known: Option<Self> = text.and_then(|text| serde_json::from_slice(&text).ok());
        let is_new = !directory.path("domains/domains.sqlite").exists();
        let domain = known.as_ref().map(|known| known.platform_domain.clone());
        // Older data directories have the domain only in demo.json.
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
        let databases_made = known.as_ref().is_some_and(|known| known.databases_made);
        let demo_pending = !options.no_demo && known.map_or(is_new, |known| known.demo_pending);
        let environment = environment.or(options.environment).unwrap_or(Environment::Live);
        let remembered = Self { platform_domain, environment, demo_pending, databases_made };
        directory.write_json(FILE, &remembered)?;
        Ok(remembered)
    }

    /// Records that the databases exist.
    pub(super) fn databases_are_made(&mut self, directory: &Directory) -> anyhow::Result<()> {
        if self.databases_made {
            return Ok(());
        }
        self.databases_made = true;
        directory.write_json(FILE, self)
    }

    /// Records that the demo is complete, even if it changes later.
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
    fn the_domain_is_saved_and_another_one_is_refused_with_a_fix() {
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
    fn an_older_directory_keeps_its_domain_and_gets_no_second_demo() {
        let place = tempfile::tempdir().unwrap();
        let directory = Directory::new(place.path());
        std::fs::create_dir_all(directory.path("domains")).unwrap();
        std::fs::write(directory.path("domains/domains.sqlite"), "").unwrap();
        std::fs::write(directory.path("demo.json"), "{\"platform_domain\":\"old.localhost\"}").unwrap();
        let remembered = Remembered::of(&directory, &Up::usual()).unwrap();
        assert_eq!((remembered.platform_domain.as_str(), remembered.demo_pending), ("old.localhost", false));
    }
}
