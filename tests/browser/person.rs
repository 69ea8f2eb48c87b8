//! A user of the dashboard. Each visited page is checked: accessibility, messages in the console,
//! and size.

use std::path::PathBuf;

use serde_json::Value;
use tokio::sync::Mutex;

use crate::driver::{Driver, Look};
use crate::pa11y::Pa11y;
use crate::platform::Platform;

/// The largest page, in bytes of HTML.
const PAGE_BYTES_MAX: u64 = 50_000;

/// Most findings of axe that are accepted.
const GRAVE: [&str; 2] = ["serious", "critical"];

/// A person, their browser and the platform.
pub(crate) struct Person {
    pub(crate) browser: Driver,
    pub(crate) platform: Platform,
    axe: String,
    pa11y: Mutex<Pa11y>,
    pictures: Option<PathBuf>,
}

impl Person {
    /// A user at the sign-in page of a new platform.
    #[expect(clippy::disallowed_methods, reason = "where tools are and pictures go, not settings of a process")]
    pub(crate) async fn start() -> Self {
        let axe = std::env::var("TOLLHOUSE_AXE").map_or_else(|_| tools().join("axe-core-4.14.1.js"), PathBuf::from);
        let axe = std::fs::read_to_string(&axe).unwrap_or_else(|error| {
            panic!("axe-core of npm is missing at {} ({error}): run ./check once, which fetches it", axe.display())
        });
        let platform = Platform::start();
        let browser = Driver::start().await;
        let pa11y = Mutex::new(Pa11y::start(&browser.debugger));
        let pictures = std::env::var_os("TOLLHOUSE_PICTURES").map(PathBuf::from);
        let person = Self { browser, platform, axe, pa11y, pictures };
        person.browser.go(&person.platform.dashboard("/")).await;
        person.browser.reads("Use an API key of your project").await;
        person
    }

    /// A user signed in with the key of a plan's demo project.
    pub(crate) async fn signed_in(plan: &str) -> Self {
        let person = Self::start().await;
        let key = person.platform.key(plan);
        person.browser.fill("#key", &key).await;
        person.browser.click("form[action='/sign-in'] button").await;
        person.browser.reads("Served at").await;
        person
    }

    pub(crate) async fn go(&self, path: &str) {
        self.browser.go(&self.platform.dashboard(path)).await;
    }

    /// Checks the current page in the light scheme, the dark scheme and at phone size.
    pub(crate) async fn inspect(&self, name: &str) {
        for (look, word) in [(Look::Light, "light"), (Look::Dark, "dark"), (Look::Phone, "phone")] {
            self.browser.look(look).await;
            let wide = self.browser.run("return document.documentElement.scrollWidth - innerWidth").await;
            assert!(wide.as_i64().unwrap() <= 0, "{name} ({word}) is {wide} pixels wider than its window");
            let sideways = "return [...document.querySelectorAll('main, main *, header *')]
                .filter((one) => one.scrollWidth > one.clientWidth + 1
                    && ['auto', 'scroll'].includes(getComputedStyle(one).overflowX))
                .map((one) => `${one.tagName} ${one.className} ${one.scrollWidth - one.clientWidth}`)";
            let sideways = self.browser.run(sideways).await;
            assert_eq!(sideways.as_array().map(Vec::len), Some(0), "{name} ({word}) scrolls sideways: {sideways}");
            self.is_accessible(name, word).await;
            if let Some(place) = &self.pictures {
                std::fs::create_dir_all(place).unwrap();
                std::fs::write(place.join(format!("{name}-{word}.png")), self.browser.screenshot().await).unwrap();
            }
        }
        self.browser.look(Look::Light).await;
        let size = "const done = arguments[0]; fetch(location.href).then((answer) => answer.text())
            .then((text) => done(new Blob([text]).size))";
        let size = self.browser.run_async(size).await.as_u64().unwrap();
        assert!(size < PAGE_BYTES_MAX, "{name} has {size} bytes");
        let complaints = self.browser.complaints().await;
        assert!(complaints.is_empty(), "{name}: the console complains: {complaints:#?}");
    }

    async fn is_accessible(&self, name: &str, look: &str) {
        let grave = self.asked_axe().await;
        assert!(grave.is_empty(), "{name} ({look}): axe: {grave:#?}");
        let errors = self.asked_pa11y().await;
        assert!(errors.is_empty(), "{name} ({look}): pa11y: {errors:#?}");
    }

    /// The serious findings of axe.
    pub(crate) async fn asked_axe(&self) -> Vec<Value> {
        self.browser.run(&format!("if (!window.axe) {{ {} }}", self.axe)).await;
        let found = self
            .browser
            .run_async(
                "const done = arguments[0];
                 axe.run(document, { resultTypes: ['violations'] }).then((result) => done(result.violations.map((one) => ({
                     id: one.id, impact: one.impact, help: one.help, nodes: one.nodes.map((node) => node.html + ' ' + node.failureSummary),
                 }))))",
            )
            .await;
        let grave = |one: &&Value| GRAVE.iter().any(|impact| one["impact"] == *impact);
        found.as_array().unwrap().iter().filter(grave).cloned().collect()
    }

    /// The errors reported by pa11y.
    pub(crate) async fn asked_pa11y(&self) -> Vec<Value> {
        self.pa11y.lock().await.look().await
    }
}

/// The directory of programs that `./check` downloads.
#[expect(clippy::disallowed_methods, reason = "where ./check keeps tools")]
pub(crate) fn tools() -> PathBuf {
    let home = || PathBuf::from(std::env::var("HOME").unwrap_or_default()).join(".cache");
    std::env::var("XDG_CACHE_HOME").map_or_else(|_| home(), PathBuf::from).join("tollhouse-tools")
}
