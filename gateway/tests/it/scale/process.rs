//! A process under measurement: the gateway or a peer.

use std::fs::read_to_string;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use super::chosen;

/// The kernel's clock ticks per second (`USER_HZ`), a part of its interface.
const TICKS_PER_SECOND: u32 = 100;

/// It ends, with its children and at once, when dropped.
pub(super) struct Process {
    child: Child,
    /// Where it serves.
    pub(super) https: SocketAddr,
}

impl Process {
    /// Starts a program with these words and a configuration; on the core that `SCALE_CORE` names, if it names one.
    pub(super) fn start(program: &str, words: &[&str], configuration: &Path, https: SocketAddr) -> Self {
        let mut command = chosen("SCALE_CORE").map_or_else(
            || Command::new(program),
            |core| {
                let mut command = Command::new("taskset");
                command.args(["-c", &core, program]);
                command
            },
        );
        command.args(words).arg(configuration).stdout(Stdio::null()).stderr(Stdio::inherit());
        let child = command.spawn().unwrap_or_else(|error| panic!("{program}: {error}"));
        Self { child, https }
    }

    /// It and its children.
    fn ids(&self) -> Vec<u32> {
        let own = self.child.id();
        let children = read_to_string(format!("/proc/{own}/task/{own}/children")).unwrap_or_default();
        [own].into_iter().chain(children.split_whitespace().map(|id| id.parse().unwrap())).collect()
    }

    /// KiB in memory.
    pub(super) fn resident_kib(&self) -> u32 {
        let of = |id| {
            let status = read_to_string(format!("/proc/{id}/status")).unwrap();
            let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
            line.split_whitespace().nth(1).unwrap().parse::<u32>().unwrap()
        };
        self.ids().into_iter().map(of).sum()
    }

    /// Time on a core so far, for itself and in the kernel.
    pub(super) fn cpu(&self) -> Duration {
        let of = |id| {
            let stat = read_to_string(format!("/proc/{id}/stat")).unwrap();
            // The program's name comes first and may contain anything.
            let fields = stat.rsplit_once(')').unwrap().1.split_whitespace().skip(11).take(2);
            fields.map(|ticks| ticks.parse::<u32>().unwrap()).sum::<u32>()
        };
        Duration::from_secs(1) * self.ids().into_iter().map(of).sum() / TICKS_PER_SECOND
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        for id in self.ids() {
            let id = Pid::from_raw(i32::try_from(id).unwrap()).unwrap();
            let _ = kill_process(id, Signal::KILL);
        }
        let _ = self.child.wait();
    }
}
