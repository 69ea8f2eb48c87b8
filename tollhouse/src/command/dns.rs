//! `tollhouse dns`: the records of the test world.

use anyhow::Context as _;

use crate::arguments::{Common, Dns};
use crate::directory::Directory;
use crate::output::print;
use crate::test_world::ZONES;
use crate::test_world::zones::{self, Value, Zones};

pub(super) fn run(common: &Common, action: Dns) -> anyhow::Result<()> {
    let directory = Directory::new(&common.data_dir);
    let file = directory.path(ZONES);
    let text = std::fs::read_to_string(&file).with_context(|| {
        format!("there is no test world in {}: start one with `tollhouse up --test-world`", file.display())
    })?;
    let changed = match action {
        Dns::List => {
            print(&text);
            return Ok(());
        }
        Dns::Set { name, kind, value } => {
            Value::parse(&kind, &value).map_err(anyhow::Error::msg)?;
            zones::set(&text, &name, &kind, &value)
        }
        Dns::Clear { name, kind } => zones::without(&text, &name, kind.as_deref()),
    };
    let (_, wrong) = Zones::parse(&changed);
    anyhow::ensure!(wrong.is_empty(), "the file would not be readable any more: {}", wrong.join("; "));
    // At once or not at all: DNS may read it at any moment.
    let draft = file.with_extension("new");
    std::fs::write(&draft, changed).and_then(|()| std::fs::rename(&draft, &file)).context("writing the records")?;
    Ok(())
}
