//! A platform started with its defaults, and a client that trusts its local authority.

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use chassis::clock::{Clock as _, SystemClock};
use reqwest::{Client, Method, RequestBuilder, Response};
use serde_json::Value;
use tempfile::TempDir;

use crate::clock;

/// Deadline of every wait; the test then fails and names the condition.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);

/// A running platform and its directory. Dropping it kills the process and removes the directory.
pub(crate) struct Platform {
    directory: TempDir,
    process: Option<Child>,
    pub(crate) demo: Value,
    pub(crate) arguments: Vec<String>,
    /// How far its clock is behind.
    seconds_behind: i64,
}

impl Platform {
    /// First start, with demo data, on free ports.
    pub(crate) fn start() -> Self {
        Self::start_with(&[])
    }

    /// First start with additional arguments.
    pub(crate) fn start_with(arguments: &[&str]) -> Self {
        Self::first(arguments, 0)
    }

    /// First start at the beginning of a minute, a quarter of an hour before midnight: the clock of the platform
    /// and of its commands is behind. So a test of one minute need not wait for the next one.
    pub(crate) fn start_in_a_new_minute() -> Self {
        const QUARTER: i64 = 900;
        let now = SystemClock::new().now_seconds().0;
        let ends_soon = 86_400 - now % 86_400 <= QUARTER;
        Self::first(&[], now % 60 + if ends_soon { QUARTER } else { 0 })
    }

    fn first(arguments: &[&str], seconds_behind: i64) -> Self {
        let mut platform = Self {
            directory: tempfile::tempdir().unwrap(),
            process: None,
            demo: Value::Null,
            arguments: arguments.iter().map(|argument| (*argument).to_owned()).collect(),
            seconds_behind,
        };
        platform.up();
        platform
    }

    /// Starts the process with the same directory and waits for its greeting.
    pub(crate) fn up(&mut self) {
        let mut process = self
            .program()
            .args(["up", "--json", "--http-port", "0", "--https-port", "0", "--admin-port", "0", "--data-dir"])
            .arg(self.path(""))
            .args(&self.arguments)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(line.starts_with('{'), "tollhouse up did not come up: {line:?}");
        self.process = Some(process);
        self.demo = serde_json::from_slice(&std::fs::read(self.path("demo.json")).unwrap()).unwrap();
    }

    /// The program, with the clock of this platform.
    fn program(&self) -> Command {
        let mut program = tollhouse();
        if self.seconds_behind > 0 {
            // Only the wall clock is wrong; deadlines are not affected.
            program.env("LD_PRELOAD", clock::libfaketime()).env("FAKETIME", format!("-{}s", self.seconds_behind));
            program.env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
        }
        program
    }

    /// `kill -9`.
    pub(crate) fn kill(&mut self) {
        let mut process = self.process.take().unwrap();
        process.kill().unwrap();
        process.wait().unwrap();
    }

    /// Ctrl-C; the exit must be clean.
    pub(crate) fn stop(&mut self) {
        let mut process = self.process.take().unwrap();
        let pid = process.id().to_string();
        assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
        let status = process.wait().unwrap();
        assert!(status.success(), "tollhouse up ended with {status}");
    }

    /// A path in the data directory.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// A command of the operator on this platform.
    pub(crate) fn command(&self, arguments: &[&str]) -> Output {
        self.program().args(arguments).arg("--data-dir").arg(self.path("")).output().unwrap()
    }

    /// A command that must succeed; its JSON.
    pub(crate) fn json(&self, arguments: &[&str]) -> Value {
        let output = self.command(&[arguments, &["--json"]].concat());
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        // 3: the command succeeded and reports a problem.
        assert!(matches!(output.status.code(), Some(0 | 3)), "{arguments:?} failed: {err}");
        serde_json::from_str(&out).unwrap_or_else(|error| panic!("{arguments:?} printed no JSON ({error}): {out}"))
    }

    /// The demo project of a plan.
    pub(crate) fn project(&self, plan: &str) -> Project {
        let projects = self.demo["projects"].as_array().unwrap();
        let found = projects.iter().find(|project| project["plan"] == plan).unwrap();
        let key = |index: usize| found["keys"][index]["key"].as_str().unwrap().to_owned();
        Project {
            id: found["id"].as_str().unwrap().to_owned(),
            host: found["host"].as_str().unwrap().to_owned(),
            key: key(0),
            read_only_key: key(1),
            pending: ids(&found["orders"]["pending"]),
            shipped: ids(&found["orders"]["shipped"]),
        }
    }

    /// The HTTPS port.
    pub(crate) fn https_port(&self) -> u16 {
        port(&self.demo["https_port"])
    }

    /// The HTTP port.
    pub(crate) fn http_port(&self) -> u16 {
        port(&self.demo["http_port"])
    }

    /// The admin listener's text at a path.
    pub(crate) async fn admin(&self, path: &str) -> String {
        let url = format!("http://127.0.0.1:{}{path}", port(&self.demo["admin_port"]));
        reqwest::get(url).await.unwrap().text().await.unwrap()
    }

    /// A client that trusts the local authority, resolves every name to this machine, and does not follow redirects.
    pub(crate) fn client(&self) -> Client {
        self.client_builder().build().unwrap()
    }

    /// The same with HTTP/1.1 only.
    pub(crate) fn old_client(&self) -> Client {
        self.client_builder().http1_only().build().unwrap()
    }

    fn client_builder(&self) -> reqwest::ClientBuilder {
        let ca = std::fs::read(self.demo["ca_certificate"].as_str().unwrap()).unwrap();
        Client::builder()
            .tls_certs_only([reqwest::Certificate::from_pem(&ca).unwrap()])
            .redirect(reqwest::redirect::Policy::none())
            .timeout(PATIENCE)
            .no_proxy()
            .dns_resolver(ThisMachine)
    }
}

impl Drop for Platform {
    fn drop(&mut self) {
        let Some(mut process) = self.process.take() else { return };
        // SIGTERM first, so that it can stop its own processes, such as an authority.
        let signal = |name: &str, pid: &str| drop(Command::new("kill").args([name, pid]).status());
        let pid = process.id().to_string();
        signal("-INT", &pid);
        let (ended, end) = std::sync::mpsc::sync_channel(1);
        std::thread::spawn(move || drop(process.wait().map(|_| ended.send(()))));
        if end.recv_timeout(Duration::from_secs(10)).is_err() {
            signal("-KILL", &pid);
        }
    }
}

/// A demo project.
#[derive(Clone)]
pub(crate) struct Project {
    pub(crate) id: String,
    pub(crate) host: String,
    pub(crate) key: String,
    pub(crate) read_only_key: String,
    pub(crate) pending: Vec<i64>,
    pub(crate) shipped: Vec<i64>,
}

impl Project {
    /// A request with the project's key.
    pub(crate) fn request(&self, platform: &Platform, client: &Client, method: Method, path: &str) -> RequestBuilder {
        self.bare(platform, client, method, path).bearer_auth(&self.key)
    }

    /// A request without a key.
    pub(crate) fn bare(&self, platform: &Platform, client: &Client, method: Method, path: &str) -> RequestBuilder {
        client.request(method, format!("https://{}:{}{path}", self.host, platform.https_port()))
    }

    /// Cancels an order.
    pub(crate) async fn cancel(&self, platform: &Platform, client: &Client, id: i64) -> reqwest::Result<Response> {
        self.request(platform, client, Method::DELETE, &format!("/v1/store/orders/{id}")).send().await
    }

    /// All orders.
    pub(crate) async fn list(&self, platform: &Platform, client: &Client) -> Vec<Value> {
        let response = self.request(platform, client, Method::GET, "/v1/store/orders").send().await.unwrap();
        assert_eq!(response.status(), 200);
        response.json().await.unwrap()
    }
}

/// Checks the form of an Error body; returns status and code.
pub(crate) async fn error(response: Response) -> (u16, String) {
    let status = response.status().as_u16();
    assert_eq!(response.headers()["content-type"], "application/json");
    assert!(response.headers().contains_key("x-request-id"));
    let body: Value = response.json().await.unwrap();
    let fields: Vec<&String> = body.as_object().unwrap().keys().collect();
    assert_eq!(fields, ["code", "message", "status"], "{body}");
    assert_eq!(body["status"], status);
    assert!(!body["message"].as_str().unwrap().is_empty());
    (status, body["code"].as_str().unwrap().to_owned())
}

/// The rate-limit headers of a response: limit, remaining, reset.
pub(crate) fn rate_limit_headers(response: &Response) -> (i64, i64, i64) {
    let figure = |name: &str| -> i64 {
        let value = response.headers().get(name).unwrap_or_else(|| panic!("{name} is missing: {response:?}"));
        value.to_str().unwrap().parse().unwrap()
    };
    (figure("x-ratelimit-limit"), figure("x-ratelimit-remaining"), figure("x-ratelimit-reset"))
}

/// Waits for a condition, polling. The later a look, the longer the pause before it: looks take processor time.
pub(crate) async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let (started, mut pause) = (Instant::now(), Duration::from_millis(20));
    while !holds().await {
        assert!(started.elapsed() < PATIENCE, "timed out waiting until {what}");
        tokio::time::sleep(pause).await;
        pause = (pause * 3 / 2).min(Duration::from_millis(500));
    }
}

/// The program under test.
pub(crate) fn tollhouse() -> Command {
    Command::new(env!("CARGO_BIN_EXE_tollhouse"))
}

fn ids(list: &Value) -> Vec<i64> {
    list.as_array().unwrap().iter().map(|id| id.as_i64().unwrap()).collect()
}

fn port(value: &Value) -> u16 {
    value.as_u64().unwrap().try_into().unwrap()
}

/// Resolves every name to this machine, independent of the system's resolver.
pub(crate) struct ThisMachine;

impl reqwest::dns::Resolve for ThisMachine {
    fn resolve(&self, _name: reqwest::dns::Name) -> reqwest::dns::Resolving {
        let addresses: reqwest::dns::Addrs = Box::new(std::iter::once(SocketAddr::from(([127, 0, 0, 1], 0))));
        Box::pin(async move { Ok(addresses) })
    }
}

/// Writes a file of `count` orders from `first` on, all pending.
pub(crate) fn order_file(path: &Path, first: i64, count: i64) {
    use std::io::Write as _;
    let mut file = std::io::BufWriter::new(std::fs::File::create(path).unwrap());
    for id in first..first + count {
        writeln!(
            file,
            r#"{{"id":{id},"petId":{},"quantity":{},"shipDate":"2027-01-01T00:00:00Z","complete":false}}"#,
            id % 97,
            1 + id % 5
        )
        .unwrap();
    }
    file.flush().unwrap();
}
