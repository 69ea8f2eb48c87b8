//! `tollhouse node certificates`.

use chassis::clock::{Clock as _, SystemClock};

use crate::arguments::Common;
use crate::client::Client;
use crate::directory::Directory;
use crate::output::{answer, table};
use crate::up::authority::internal::{list, replace};

/// Lists the certificates of listeners between processes, after replacing all of them or that of one process if
/// requested.
pub(super) fn run(common: &Common, client: &Client, which: Option<Option<String>>) -> anyhow::Result<()> {
    let (directory, run, now) = (Directory::new(&common.data_dir), &client.run, SystemClock::new().now_seconds());
    anyhow::ensure!(
        run.pid.is_none(),
        "this platform is a single process without internal certificates; `tollhouse init` creates them for several processes"
    );
    if let Some(which) = which {
        if let Some(name) = &which {
            let known: Vec<_> = list(&directory, run, now).into_iter().map(|one| one.name).collect();
            anyhow::ensure!(
                known.contains(name),
                "{name:?} has no certificate; processes with a certificate: {}",
                known.join(", ")
            );
        }
        replace(&directory, run, now, |one| which.as_ref().is_none_or(|name| *name == one.name))?;
    }
    let columns = [("PROCESS", "/name"), ("NAMES", "/names"), ("ENDS", "/ends_at"), ("REPLACE IT", "/fault")];
    answer(common, &serde_json::to_value(list(&directory, run, now))?, |rows| table(rows, &columns));
    Ok(())
}
