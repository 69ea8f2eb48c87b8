//! redis-server processes on their own ports, in temporary directories.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use chassis::clock::{Clock as _, SystemClock};
use socket2::{Domain, Protocol, Socket, Type};
use tempfile::TempDir;

use super::clock;

/// The file of a server that says by how many seconds its clock is off.
const CLOCK: &str = "clock";

/// How far from midnight the clocks of servers with counted days stay, in seconds: longer than a test may take.
const AWAY_FROM_MIDNIGHT: i64 = 900;

/// The offset in seconds after which a clock's day lasts for [`AWAY_FROM_MIDNIGHT`].
fn before_midnight(now: i64) -> i64 {
    if 86_400 - now % 86_400 > AWAY_FROM_MIDNIGHT { 0 } else { -AWAY_FROM_MIDNIGHT }
}

/// A server of this test.
pub(crate) struct Redis {
    pub(crate) port: u16,
    process: Child,
    options: Vec<String>,
    /// By how many seconds its clock was off at its start; `None`: it has the clock of this machine.
    clock_off_by: Option<i64>,
    directory: TempDir,
}

impl Redis {
    pub(crate) fn start() -> Self {
        Self::with(&[])
    }

    /// Starts with additional options of redis-server.
    pub(crate) fn with(options: &[&str]) -> Self {
        Self::running(options, None)
    }

    /// Starts with a clock at the first second of a minute, so that tests need not wait for one. Its day does not end
    /// during a test.
    pub(crate) fn in_a_fresh_minute() -> Self {
        let now = SystemClock::new().now_seconds().0;
        Self::running(&[], Some(before_midnight(now) - now % 60))
    }

    /// Starts with a clock whose day does not end during a test.
    pub(crate) fn within_a_day() -> Self {
        Self::running(&[], Some(before_midnight(SystemClock::new().now_seconds().0)))
    }

    /// Another server with the same clock.
    pub(crate) fn beside(&self, options: &[&str]) -> Self {
        Self::running(options, self.clock_off_by)
    }

    fn running(options: &[&str], clock_off_by: Option<i64>) -> Self {
        let options: Vec<String> = options.iter().map(|option| (*option).to_owned()).collect();
        let directory = tempfile::tempdir().unwrap();
        let port = port_with_another_above();
        let process = spawn(port, &options, clock_off_by, directory.path());
        let server = Self { port, process, options, clock_off_by, directory };
        if let Some(clock_off_by) = clock_off_by {
            let shown = server.ask(&["TIME"]);
            let shown: i64 = shown.lines().next().and_then(|seconds| seconds.parse().ok()).expect("the server's time");
            let off_by = shown - SystemClock::new().now_seconds().0;
            assert!((off_by - clock_off_by).abs() < 10, "the server does not ask gettimeofday: {off_by} s");
        }
        server
    }

    /// A sentinel with this configuration.
    pub(crate) fn sentinel(configuration: &Path) -> Self {
        Self::with(&[&format!("@{}", configuration.display()), "--sentinel"])
    }

    /// Ends the process like a power failure.
    pub(crate) fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    /// Starts it again on the same port; without a dump it is empty.
    pub(crate) fn restart(&mut self) {
        self.process = spawn(self.port, &self.options, self.clock_off_by, self.directory.path());
    }

    /// Lets the clock of a server step, which was started with one of its own.
    pub(crate) fn step_clock(&self, seconds: i64) {
        let off_by = self.clock_off_by.expect("a server with a clock of its own") + seconds;
        clock::set(&self.directory.path().join(CLOCK), off_by);
    }

    /// SIGSTOP: the kernel still accepts connections for it.
    pub(crate) fn freeze(&self) {
        self.signal("STOP");
    }

    pub(crate) fn thaw(&self) {
        self.signal("CONT");
    }

    fn signal(&self, name: &str) {
        let status = Command::new("kill").args([&format!("-{name}"), &self.process.id().to_string()]).status();
        assert!(status.unwrap().success());
    }

    /// Runs a command through redis-cli; returns its output.
    pub(crate) fn ask(&self, command: &[&str]) -> String {
        ask(self.port, command)
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Runs a command on the server at this port.
pub(crate) fn ask(port: u16, command: &[&str]) -> String {
    cli(&[&["-p", &port.to_string()], command].concat())
}

fn cli(words: &[&str]) -> String {
    let output = Command::new("redis-cli").args(words).output();
    let output = output.expect("redis-cli is needed: install the package redis-tools (./check does)");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// Reserves a port of this machine (0: any) until this process ends, for a server that the test starts.
///
/// A socket that does not listen is bound to it. Other tests that look for a port find it taken, and the kernel gives
/// it to no client. The server can still use it, because servers set `SO_REUSEADDR`.
pub(crate) fn reserve(port: u16) -> std::io::Result<u16> {
    static HELD: Mutex<Vec<Socket>> = Mutex::new(Vec::new());
    let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP))?;
    socket.bind(&SocketAddr::from(([127, 0, 0, 1], port)).into())?;
    socket.set_reuse_address(true)?;
    let port = socket.local_addr()?.as_socket().map_or(0, |address| address.port());
    HELD.lock().unwrap().push(socket);
    Ok(port)
}

/// A port whose port 10,000 above is free too; servers of a Cluster use that one among themselves.
fn port_with_another_above() -> u16 {
    for _ in 0..100 {
        let port = reserve(0).unwrap();
        if port.checked_add(10_000).is_some_and(|above| reserve(above).is_ok()) {
            return port;
        }
    }
    panic!("a hundred ports, and the ones 10,000 above them are taken");
}

fn spawn(port: u16, options: &[String], clock_off_by: Option<i64>, directory: &Path) -> Child {
    let mut command = Command::new("redis-server");
    if let Some(off_by) = clock_off_by {
        command.envs(clock::of_redis(&directory.join(CLOCK), off_by));
    }
    // A configuration file comes before all options; a sentinel refuses an option to save.
    let (port, socket) = (port.to_string(), directory.join("socket"));
    match options.split_first() {
        Some((file, rest)) if file.starts_with('@') => {
            command.arg(file.trim_start_matches('@')).args(["--port", &port, "--bind", "127.0.0.1"]).args(rest);
        }
        _ => {
            command.args(["--port", &port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]);
            command.args(options);
        }
    }
    let mut child = command
        .arg("--unixsocket")
        .arg(&socket)
        .current_dir(directory)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("redis-server is needed: install the package redis-server (./check does)");
    // Asks through the socket, where no other server can answer; the port opens before it.
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let ended = child.try_wait().unwrap();
        assert!(ended.is_none() && Instant::now() < deadline, "redis-server does not serve at port {port}: {ended:?}");
        let answer = cli(&["-s", &socket.display().to_string(), "PING"]);
        if answer == "PONG" || answer.starts_with("NOAUTH") {
            return child;
        }
        std::thread::yield_now();
    }
}
