//! `[overload]`: the memory of the gateway.

use std::path::PathBuf;

use chassis::config::Section;

/// With less memory a gateway would refuse every request at once.
const MEMORY_BYTES_MIN: u64 = 64 * 1024 * 1024;

/// Settings of overload.
#[derive(Clone, Debug)]
pub(crate) struct OverloadConfig {
    /// Memory of the process in bytes; `None`: the limit of its control group.
    pub memory_bytes_max: Option<u64>,
    /// The directory with the files of the process's control group.
    pub control_group: PathBuf,
}

pub(super) fn read(section: &Section<'_>) -> Option<OverloadConfig> {
    let bytes = section.optional_integer("memory_bytes_max", MEMORY_BYTES_MIN..=1 << 48);
    let control_group = section.value("control_group", PathBuf::from("/sys/fs/cgroup"));
    Some(OverloadConfig { memory_bytes_max: bytes?, control_group: control_group? })
}
