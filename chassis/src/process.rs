//! What every process asks of the operating system when it starts.

use rustix::fs::Mode;
use rustix::process::{DumpableBehavior, Resource, Rlimit, getrlimit, set_dumpable_behavior, setrlimit, umask};

/// Fewer file descriptors than this and the process does not start: it could not hold its listeners and a handful of
/// clients.
pub const DESCRIPTORS_MIN: u64 = 1_024;

/// Makes new files and directories private to the user the process runs as: databases hold every tenant's orders, logs
/// hold addresses. Turns core dumps off, so that keys in memory never reach a disk, and raises the soft limit of file descriptors to
/// the hard one. Returns the number of descriptors the process may use.
///
/// # Errors
/// When fewer than [`DESCRIPTORS_MIN`] descriptors are allowed.
pub fn prepare() -> anyhow::Result<u64> {
    umask(Mode::RWXG | Mode::RWXO);
    let core = getrlimit(Resource::Core);
    // Refused in some sandboxes; the dumpable flag below covers the same ground.
    let _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: core.maximum });
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
    let files = getrlimit(Resource::Nofile);
    let wanted = files.maximum.unwrap_or(1 << 20);
    let granted = match setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum: files.maximum }) {
        Ok(()) => wanted,
        Err(_) => files.current.unwrap_or(wanted),
    };
    anyhow::ensure!(
        granted >= DESCRIPTORS_MIN,
        "only {granted} file descriptors are allowed; raise the limit (ulimit -n) to {DESCRIPTORS_MIN} or more"
    );
    Ok(granted)
}
