//! A `WebDriver` (W3C) client with the commands of these tests: JSON over HTTP to `chromedriver`.
//!
//! It replaces two crates: one enables a feature of `serde_json` that changes the order of fields in every program of
//! the workspace, the other has a licence that is not allowed here. The protocol needs a dozen requests.

use std::io::{BufRead as _, BufReader, Lines, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

/// Deadline of every wait; the test then fails and names the condition.
const PATIENCE: Duration = Duration::from_secs(90);

/// Longest wait for the end of a browser.
const SESSION_END_MAX: Duration = Duration::from_secs(20);

/// Chromium's error when a network interface of the machine appeared or disappeared.
const CUT_OFF: &str = "ERR_NETWORK_CHANGED";

/// The name of the field in which the protocol refers to an element.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

/// Appearance of the window.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Look {
    Light,
    Dark,
    Phone,
}

/// A browser and its driver. Dropping it ends both.
pub(crate) struct Driver {
    process: Child,
    client: reqwest::Client,
    session: String,
    /// Address of the browser's debugger.
    pub(crate) debugger: String,
    _profile: TempDir,
}

impl Driver {
    /// Starts the driver; returns its port. The driver finds a free port and binds it for IPv4 and IPv6 one after the
    /// other: if another process takes the port in between, the driver exits and is started again.
    fn listening() -> (Child, String, Lines<BufReader<ChildStdout>>) {
        const TRIES: usize = 10;
        for _ in 0..TRIES {
            let mut process = Command::new("chromedriver")
                .arg("--port=0")
                .stdout(Stdio::piped())
                .stderr(Stdio::null())
                .spawn()
                .expect("chromedriver is missing: install Debian's chromium and chromium-driver (./check does)");
            let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
            let port = lines.by_ref().map_while(Result::ok).find_map(|line| {
                let (_, port) = line.split_once("started successfully on port ")?;
                Some(port.trim_end_matches('.').to_owned())
            });
            if let Some(port) = port {
                return (process, port, lines);
            }
            process.wait().unwrap();
        }
        panic!("chromedriver does not say where it listens");
    }

    /// A new browser that resolves every name to this machine.
    pub(crate) async fn start() -> Self {
        let (process, port, lines) = Self::listening();
        // Its further output is read, so that it never blocks.
        std::thread::spawn(move || lines.for_each(drop));
        let profile = tempfile::tempdir().unwrap();
        let arguments = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--force-color-profile=srgb",
            "--hide-scrollbars",
            "--host-resolver-rules=MAP * 127.0.0.1",
            &format!("--user-data-dir={}", profile.path().display()),
        ];
        let wanted = json!({ "capabilities": { "alwaysMatch": {
            "acceptInsecureCerts": true, // the platform's authority is of its own making
            "goog:chromeOptions": { "args": arguments },
            "goog:loggingPrefs": { "browser": "ALL" },
        } } });
        let client = reqwest::Client::builder().no_proxy().timeout(PATIENCE).build().unwrap();
        let base = format!("http://127.0.0.1:{port}/session");
        let answer: Value = client.post(&base).json(&wanted).send().await.unwrap().json().await.unwrap();
        let id = answer["value"]["sessionId"].as_str().unwrap_or_else(|| panic!("no browser: {answer}"));
        let debugger = answer["value"]["capabilities"]["goog:chromeOptions"]["debuggerAddress"].as_str();
        let debugger = debugger.expect("chromedriver names the browser's debugger").to_owned();
        let driver = Self { process, session: format!("{base}/{id}"), client, debugger, _profile: profile };
        driver.look(Look::Light).await;
        driver
    }

    /// Ends the browser and waits for the confirmation.
    fn end_session(&self) -> std::io::Result<()> {
        let (place, path) = self.session["http://".len()..].split_once('/').unwrap_or_default();
        let mut stream = TcpStream::connect(place)?;
        stream.set_read_timeout(Some(SESSION_END_MAX))?;
        write!(stream, "DELETE /{path} HTTP/1.1\r\nHost: {place}\r\nConnection: close\r\n\r\n")?;
        stream.read_exact(&mut [0; "HTTP/1.1 200".len()])
    }

    async fn ask(&self, command: &str, body: Value) -> Result<Value, String> {
        let request = self.client.post(format!("{}/{command}", self.session)).json(&body);
        let answer: Value = request.send().await.unwrap().json().await.unwrap();
        match answer["value"]["error"].as_str() {
            Some(error) => Err(format!("{error}: {}", answer["value"]["message"])),
            None => Ok(answer["value"].clone()),
        }
    }

    async fn tell(&self, command: &str, body: Value) -> Value {
        self.ask(command, body).await.unwrap_or_else(|error| panic!("{command}: {error}"))
    }

    /// A command of the `DevTools` protocol.
    async fn devtools(&self, command: &str, parameters: Value) {
        self.tell("goog/cdp/execute", json!({ "cmd": command, "params": parameters })).await;
    }

    pub(crate) async fn go(&self, url: &str) {
        loop {
            self.tell("url", json!({ "url": url })).await;
            if !self.was_cut_off().await {
                return;
            }
        }
    }

    /// Whether the page could not be fetched because an interface of this machine came or went meanwhile: Chromium
    /// gives up on every request then, those to loopback included, and containers that start elsewhere are enough for
    /// that.
    async fn was_cut_off(&self) -> bool {
        self.text().await.contains(CUT_OFF)
    }

    /// The value of a script's `return`.
    pub(crate) async fn run(&self, script: &str) -> Value {
        self.tell("execute/sync", json!({ "script": script, "args": [] })).await
    }

    /// The value that a script passes to the callback in its last argument.
    pub(crate) async fn run_async(&self, script: &str) -> Value {
        self.tell("execute/async", json!({ "script": script, "args": [] })).await
    }

    /// The visible text.
    pub(crate) async fn text(&self) -> String {
        self.run("return document.body?.innerText ?? \"\"").await.as_str().unwrap_or_default().to_owned()
    }

    pub(crate) async fn path(&self) -> String {
        self.run("return location.pathname").await.as_str().unwrap_or_default().to_owned()
    }

    /// The element a CSS selector finds.
    async fn find(&self, selector: &str) -> Result<String, String> {
        let found = self.ask("element", json!({ "using": "css selector", "value": selector })).await?;
        Ok(found[ELEMENT].as_str().unwrap_or_default().to_owned())
    }

    /// Replaces the text of a field.
    pub(crate) async fn fill(&self, selector: &str, text: &str) {
        self.until(&format!("{selector} can be filled in"), async || {
            let Ok(element) = self.find(selector).await else { return false };
            self.ask(&format!("element/{element}/clear"), json!({})).await.is_ok()
                && self.ask(&format!("element/{element}/value"), json!({ "text": text })).await.is_ok()
        })
        .await;
    }

    /// Clicks the element of a selector; repeats if the page replaced the element meanwhile.
    pub(crate) async fn click(&self, selector: &str) {
        self.until(&format!("{selector} can be clicked"), async || {
            let Ok(element) = self.find(selector).await else { return false };
            self.ask(&format!("element/{element}/click"), json!({})).await.is_ok()
        })
        .await;
    }

    /// Presses keys in the focused element.
    pub(crate) async fn press(&self, keys: &[&str]) {
        let strokes = keys
            .iter()
            .flat_map(|key| [json!({ "type": "keyDown", "value": key }), json!({ "type": "keyUp", "value": key })]);
        let strokes: Vec<Value> = strokes.collect();
        self.tell("actions", json!({ "actions": [{ "type": "key", "id": "keyboard", "actions": strokes }] })).await;
    }

    /// Waits for a condition, polling.
    pub(crate) async fn until(&self, what: &str, mut holds: impl AsyncFnMut() -> bool) {
        let began = Instant::now();
        let mut pause = tokio::time::interval(Duration::from_millis(100));
        while !holds().await {
            let page = if began.elapsed() > PATIENCE { Some(self.text().await) } else { None };
            if self.was_cut_off().await {
                self.tell("refresh", json!({})).await;
            }
            assert!(page.is_none(), "timed out waiting until {what}; the page says:\n{}", page.unwrap_or_default());
            pause.tick().await;
        }
    }

    /// Waits until this text is visible on the page.
    pub(crate) async fn reads(&self, words: &str) {
        self.until(&format!("{words:?} is on the page"), async || self.text().await.contains(words)).await;
    }

    /// Sets the appearance: light, dark, or phone.
    pub(crate) async fn look(&self, look: Look) {
        let (width, height, phone) = match look {
            Look::Phone => (390, 844, true),
            _ => (1_200, 860, false),
        };
        let scheme = if matches!(look, Look::Dark) { "dark" } else { "light" };
        let size = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": phone });
        self.devtools("Emulation.setDeviceMetricsOverride", size).await;
        let media = json!({ "features": [
            { "name": "prefers-color-scheme", "value": scheme },
            // During the transition between two schemes, colours match neither.
            { "name": "prefers-reduced-motion", "value": "reduce" },
        ] });
        self.devtools("Emulation.setEmulatedMedia", media).await;
    }

    /// The whole page as PNG.
    pub(crate) async fn screenshot(&self) -> Vec<u8> {
        use base64::Engine as _;
        let taken =
            json!({ "cmd": "Page.captureScreenshot", "params": { "format": "png", "captureBeyondViewport": true } });
        let taken = self.tell("goog/cdp/execute", taken).await;
        base64::engine::general_purpose::STANDARD.decode(taken["data"].as_str().unwrap()).unwrap()
    }

    /// New warnings and errors of the console.
    pub(crate) async fn complaints(&self) -> Vec<String> {
        let lines = self.tell("se/log", json!({ "type": "browser" })).await;
        let lines = lines.as_array().unwrap().iter();
        let severe = lines.filter(|line| line["level"] == "SEVERE" || line["level"] == "WARNING");
        let messages = severe.map(|line| line["message"].as_str().unwrap_or_default().to_owned());
        messages.filter(|message| !message.contains(CUT_OFF)).collect()
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // The browser ends with its session, not with the driver. Errors are ignored: the test is over.
        let _ = self.end_session();
        let pid = self.process.id().to_string();
        let _ = Command::new("kill").args(["-TERM", &pid]).status();
        let _ = self.process.wait();
    }
}
