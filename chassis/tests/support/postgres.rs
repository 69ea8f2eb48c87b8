//! A real PostgreSQL server for tests: Debian's programs, its own directory, one database per test.
//!
//! A shell keeps the server and waits for the end of its input, which comes with the end of the test process, however
//! it ends; then the shell stops the server and removes the directory. The server listens on a socket in that directory
//! and on a free port of loopback. Its data is temporary, so it does not wait for disks.
#![allow(clippy::disallowed_methods, reason = "the environment says whether a server is there (tools/with-postgres)")]
#![allow(dead_code, reason = "every test binary that includes this file uses another part of it")]

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// The longest start or stop of the server.
const PATIENCE: Duration = Duration::from_mins(1);

/// A server and its address.
pub(crate) struct Server {
    programs: PathBuf,
    directory: PathBuf,
    user: Option<String>,
    pub(crate) port: u16,
    keeper: std::sync::Mutex<Option<Child>>,
}

impl Server {
    /// The server that all tests of this process share: that of `tools/with-postgres`, or one of this process.
    pub(crate) fn shared() -> &'static Self {
        static SHARED: OnceLock<Server> = OnceLock::new();
        SHARED.get_or_init(|| match std::env::var("TOLLHOUSE_TEST_POSTGRES") {
            Ok(port) => Self::at(port.parse().unwrap()),
            Err(_) => Self::start(&[]),
        })
    }

    /// A server that another process keeps.
    fn at(port: u16) -> Self {
        let mut server = Self::nowhere();
        server.port = port;
        let script = "while read -r word; do :; done; rm -rf \"$1\"";
        let mut keeper = server.as_user("sh");
        keeper.args(["-c", script, "keeper"]).arg(&server.directory).stdin(Stdio::piped());
        *server.keeper.lock().unwrap() = Some(keeper.spawn().unwrap());
        server
    }

    /// A separate server for one test, with additional settings.
    pub(crate) fn start(settings: &[&str]) -> Self {
        let server = Self::nowhere();
        let made = server
            .run("initdb")
            .args(["--username=tollhouse", "--auth=trust", "--encoding=UTF8", "--locale=C.UTF-8", "--no-sync"])
            .arg("--pgdata")
            .arg(server.directory.join("data"))
            .output()
            .unwrap();
        assert!(made.status.success(), "initdb failed: {}", String::from_utf8_lossy(&made.stderr));
        server.start_with(settings);
        server
    }

    /// A standby of this server: acknowledged commits are then on disk on both.
    pub(crate) fn standby(&self) -> Self {
        let standby = Self::nowhere();
        let copied = standby
            .run("pg_basebackup")
            .args(["-h", "127.0.0.1", "-p", &self.port.to_string(), "-U", "tollhouse", "-R", "--checkpoint=fast"])
            .arg("--pgdata")
            .arg(standby.directory.join("data"))
            .output()
            .unwrap();
        assert!(copied.status.success(), "pg_basebackup failed: {}", String::from_utf8_lossy(&copied.stderr));
        standby.start_with(&[]);
        self.sql("postgres", "ALTER SYSTEM SET synchronous_standby_names = '*'");
        self.sql("postgres", "SELECT pg_reload_conf()");
        let deadline = std::time::Instant::now() + PATIENCE;
        while self.sql("postgres", "SELECT sync_state FROM pg_stat_replication") != "sync" {
            assert!(std::time::Instant::now() < deadline, "the standby does not follow");
        }
        standby
    }

    /// Promotes a standby.
    pub(crate) fn promote(&self) {
        assert_eq!(self.sql("postgres", "SELECT pg_promote()"), "t");
    }

    /// A directory for a server, and a port.
    fn nowhere() -> Self {
        let programs = programs();
        // A name of its own: one with the number of the process may be left from a test that was killed.
        let directory = tempfile::Builder::new().prefix("tollhouse-postgres-").tempdir().unwrap().keep();
        // The server refuses to run as root.
        let user = (std::fs::metadata(&directory).unwrap().uid() == 0).then(|| "nobody".to_owned());
        if let Some(user) = &user {
            let owned = Command::new("chown").arg(user).arg(&directory).status().unwrap();
            assert!(owned.success());
        }
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        Self { programs, directory, user, port, keeper: std::sync::Mutex::new(None) }
    }

    fn start_with(&self, settings: &[&str]) {
        let mut text = format!(
            "listen_addresses = '127.0.0.1'\nport = {}\nunix_socket_directories = '{}'\nfsync = off\n\
             full_page_writes = off\nmax_connections = 300\nshared_buffers = 64MB\n",
            self.port,
            self.directory.display()
        );
        for setting in settings {
            text.push_str(setting);
            text.push('\n');
        }
        let extra = self.directory.join("extra.conf");
        std::fs::write(&extra, text).unwrap();
        // The server runs as another user, and a concurrent test may have restricted the mode of new files.
        std::fs::set_permissions(extra, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
        self.start_again();
    }

    /// Starts it after [`Server::stop`].
    pub(crate) fn start_again(&self) {
        // The server is a child of the shell; the shell ends it when its own input ends.
        let script = "\"$1\" -D \"$2/data\" --config-file=\"$2/extra.conf\" --hba-file=\"$2/data/pg_hba.conf\" \
                      --data-directory=\"$2/data\" >\"$2/log\" 2>&1 <&- & \
                      while read -r word; do [ \"$word\" = keep ] && keep=1; done; \
                      kill -QUIT $!; wait $!; [ -n \"$keep\" ] || rm -rf \"$2\"";
        let mut command = self.as_user("sh");
        command.arg("-c").arg(script).arg("keeper").arg(self.programs.join("postgres")).arg(&self.directory);
        let keeper = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        *self.keeper.lock().unwrap() = Some(keeper);
        // Polled until it answers, by a shell with a deadline.
        let ready = self.programs.join("pg_isready").display().to_string();
        let script = "until \"$0\" -q -h 127.0.0.1 -p \"$1\"; do sleep 0.02; done";
        let seconds = PATIENCE.as_secs().to_string();
        let answered = Command::new("timeout")
            .args([&seconds, "sh", "-c", script, &ready, &self.port.to_string()])
            .status()
            .unwrap();
        let log = std::fs::read_to_string(self.directory.join("log")).unwrap_or_default();
        assert!(answered.success(), "the server does not start: {log}");
    }

    /// Stops it at once, like a crash; its data stays.
    pub(crate) fn stop(&self) {
        use std::io::Write as _;
        let Some(mut keeper) = self.keeper.lock().unwrap().take() else { return };
        keeper.stdin.as_mut().unwrap().write_all(b"keep\n").unwrap();
        drop(keeper.stdin.take());
        keeper.wait().unwrap();
    }

    /// Where its programs are.
    pub(crate) fn programs(&self) -> &Path {
        &self.programs
    }

    /// The process id of the server itself.
    pub(crate) fn pid(&self) -> u32 {
        let text = std::fs::read_to_string(self.directory.join("data/postmaster.pid")).unwrap();
        text.lines().next().unwrap().trim().parse().unwrap()
    }

    /// Every process of the server: itself and one for each connection and chore.
    pub(crate) fn processes(&self) -> Vec<String> {
        let parent = self.pid().to_string();
        let numbers =
            std::fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let is_child = |number: &String| {
            let status = std::fs::read_to_string(format!("/proc/{number}/status")).unwrap_or_default();
            status.lines().any(|line| line.strip_prefix("PPid:").is_some_and(|of| of.trim() == parent))
        };
        numbers.filter(is_child).chain([parent.clone()]).collect()
    }

    /// A new, empty database: its URL.
    pub(crate) fn database(&self) -> String {
        // Other processes have databases on the same server, and their numbers are used again.
        let name = format!("test_{:016x}", RandomState::new().build_hasher().finish());
        self.sql("postgres", &format!("CREATE DATABASE {name}"));
        self.url(&name)
    }

    /// The URL of a database.
    pub(crate) fn url(&self, database: &str) -> String {
        url(self.port, database)
    }

    /// A dump of a database as text.
    pub(crate) fn dump(&self, database: &str) -> String {
        let output = self
            .run("pg_dump")
            .args(["--no-owner", "-U", "tollhouse", "-h", "127.0.0.1", "-p", &self.port.to_string(), database])
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Copies a database; returns its URL.
    pub(crate) fn copy(&self, database: &str) -> String {
        let url = self.database();
        let file = self.directory.join(format!("{}.sql", name_in(&url)));
        std::fs::write(&file, self.dump(database)).unwrap();
        // The server runs as another user, and a concurrent test may have restricted the mode of new files.
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
        self.sql(name_in(&url), &format!("\\i {}", file.display()));
        url
    }

    /// Runs a statement with `psql`; returns its output.
    pub(crate) fn sql(&self, database: &str, text: &str) -> String {
        self.try_sql(database, text).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    /// Like [`Server::sql`], or the server's error.
    pub(crate) fn try_sql(&self, database: &str, text: &str) -> Result<String, String> {
        let output = self
            .run("psql")
            .args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-U", "tollhouse", "-h", "127.0.0.1"])
            .args(["-p", &self.port.to_string(), "-d", database, "-c", text])
            .output()
            .unwrap();
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into_owned());
        }
        Ok(String::from_utf8(output.stdout).unwrap().trim().to_owned())
    }

    fn run(&self, program: &str) -> Command {
        self.as_user(&self.programs.join(program).display().to_string())
    }

    fn as_user(&self, program: &str) -> Command {
        let mut command = match &self.user {
            Some(user) => {
                let mut command = Command::new("setpriv");
                command.args(["--reuid", user, "--regid", "nogroup", "--clear-groups", program]);
                command
            }
            None => Command::new(program),
        };
        // The server's user may not be allowed into the directory of the tests.
        command.current_dir("/").env("LC_ALL", "C.UTF-8");
        command
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let keeper = self.keeper.get_mut().unwrap().take();
        match keeper {
            Some(mut keeper) => {
                drop(keeper.stdin.take());
                let _ = keeper.wait();
            }
            None => drop(std::fs::remove_dir_all(&self.directory)),
        }
    }
}

/// An address that switches to another server when the one behind it fails.
pub(crate) struct Address {
    port: u16,
    target: Arc<AtomicU16>,
}

impl Address {
    /// Forwards to a server.
    pub(crate) fn of(server: &Server) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let target = Arc::new(AtomicU16::new(server.port));
        let leads_to = Arc::clone(&target);
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if let Ok(server) = TcpStream::connect(("127.0.0.1", leads_to.load(Ordering::Relaxed))) {
                    carry(&client, &server);
                    carry(&server, &client);
                }
            }
        });
        Self { port, target }
    }

    /// Forwards new connections to another server.
    pub(crate) fn lead_to(&self, server: &Server) {
        self.target.store(server.port, Ordering::Relaxed);
    }

    /// The URL of a database of the current server.
    pub(crate) fn url(&self, database: &str) -> String {
        url(self.port, database)
    }
}

/// Copies bytes from one socket to the other until either is closed.
fn carry(from: &TcpStream, to: &TcpStream) {
    let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut from, &mut to);
        let _ = to.shutdown(Shutdown::Both);
    });
}

fn url(port: u16, database: &str) -> String {
    format!("postgres://tollhouse@127.0.0.1:{port}/{database}?sslmode=disable")
}

/// The name of the database in a URL of [`Server::url`].
pub(crate) fn name_in(url: &str) -> &str {
    url.rsplit('/').next().unwrap().split('?').next().unwrap()
}

/// The directory of `initdb` and `postgres`: on the path, or Debian's, the newest version.
fn programs() -> PathBuf {
    let found = Command::new("sh").args(["-c", "command -v initdb"]).output().unwrap();
    let found = PathBuf::from(String::from_utf8_lossy(&found.stdout).trim());
    let mut folders: Vec<PathBuf> = found.parent().map(Path::to_owned).into_iter().collect();
    let mut versions: Vec<PathBuf> = std::fs::read_dir("/usr/lib/postgresql")
        .map(|entries| entries.filter_map(|entry| Some(entry.ok()?.path().join("bin"))).collect())
        .unwrap_or_default();
    versions.sort();
    folders.extend(versions.into_iter().rev());
    let has_all = |folder: &Path| ["initdb", "postgres", "psql"].iter().all(|program| folder.join(program).exists());
    folders
        .into_iter()
        .find(|folder| has_all(folder))
        .expect("PostgreSQL is missing; install it, for example: apt-get install postgresql")
}
