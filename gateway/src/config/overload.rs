//! `[overload]`: how much memory the gateway may have.

use std::path::PathBuf;

use chassis::config::Section;

/// Less than this and a gateway would refuse everything as soon as it runs.
const MEMORY_BYTES_MIN: u64 = 64 * 1024 * 1024;

/// Settings of overload.
#[derive(Clone, Debug)]
pub(crate) struct OverloadConfig {
    /// Bytes the process may have for itself; `None`: what its control group may have.
    pub memory_bytes_max: Option<u64>,
    /// The directory with the files of the process's control group.
    pub control_group: PathBuf,
}

pub(super) fn read(section: &Section<'_>) -> Option<OverloadConfig> {
    let stated = section.has("memory_bytes_max");
    let bytes = section.integer("memory_bytes_max", MEMORY_BYTES_MIN, MEMORY_BYTES_MIN..=1 << 48);
    let control_group = section.value("control_group", PathBuf::from("/sys/fs/cgroup"));
    Some(OverloadConfig {
        memory_bytes_max: bytes.map(|bytes| stated.then_some(bytes))?,
        control_group: control_group?,
    })
}
