//! Process settings of the operating system, applied at start.

use rustix::fs::Mode;
use rustix::process::{DumpableBehavior, Resource, Rlimit, getrlimit, set_dumpable_behavior, setrlimit, umask};

/// With fewer file descriptors the process does not start: it could not serve its listeners and a few clients.
pub const DESCRIPTORS_MIN: u64 = 1_024;

/// Makes new files and directories private to the process's user, because databases hold every tenant's orders and logs
/// hold addresses. Turns core dumps off, so that keys in memory never reach a disk, and raises the soft limit of file
/// descriptors to the hard one. Returns the number of descriptors the process may use.
///
/// # Errors
/// If fewer than [`DESCRIPTORS_MIN`] descriptors are allowed.
pub fn prepare() -> anyhow::Result<u64> {
    umask(Mode::RWXG | Mode::RWXO);
    let core = getrlimit(Resource::Core);
    // Refused in some sandboxes; the dumpable flag below has the same effect.
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
