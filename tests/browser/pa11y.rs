//! The second accessibility engine: pa11y from npm, on the page of the same browser.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

/// The version that `tests/browser/pa11y/package.json` names.
const VERSION: &str = "8.0.0";

/// Longest check of a page.
const LOOK_MAX: Duration = Duration::from_mins(1);

/// A running pa11y. It ends when it is dropped.
pub(crate) struct Pa11y {
    questions: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
    _process: Child,
}

impl Pa11y {
    /// Starts pa11y for the browser with this debugger address.
    #[expect(clippy::disallowed_methods, reason = "where tools are, not settings of a process")]
    pub(crate) fn start(debugger: &str) -> Self {
        let modules = std::env::var("TOLLHOUSE_PA11Y")
            .map_or_else(|_| crate::person::tools().join(format!("pa11y-{VERSION}/node_modules")), PathBuf::from);
        assert!(
            modules.join("pa11y").is_dir(),
            "pa11y of npm is missing in {}: run ./check once, which fetches it",
            modules.display()
        );
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/browser/pa11y.cjs");
        let mut process = Command::new("node")
            .arg(script)
            .arg(modules)
            .arg(debugger)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("node is missing: install Debian's npm (./check does)");
        let questions = process.stdin.take().unwrap();
        let answers = BufReader::new(process.stdout.take().unwrap()).lines();
        Self { questions, answers, _process: process }
    }

    /// The errors (WCAG 2, AA) of the current page.
    pub(crate) async fn look(&mut self) -> Vec<Value> {
        let looking = async {
            self.questions.write_all(b"\n").await.unwrap();
            self.answers.next_line().await.unwrap().expect("pa11y answers every question")
        };
        let answer = tokio::time::timeout(LOOK_MAX, looking).await.expect("pa11y answers in time");
        match serde_json::from_str(&answer).unwrap() {
            Value::Array(found) => found,
            failed => panic!("pa11y could not look: {failed}"),
        }
    }
}
