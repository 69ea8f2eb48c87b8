//! Calls one of the functions that every request passes, COUNT times. `bench/run instructions` counts its instructions.
//!
//!     hot_calls                list the names
//!     hot_calls NAME COUNT     call one of them

#[path = "../benches/hot/work.rs"]
mod work;

use anyhow::Context as _;

fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let all = work::all()?;
    let Some(wanted) = arguments.next() else {
        for (name, _) in all {
            println!("{name}");
        }
        return Ok(());
    };
    let count: u32 = arguments.next().context("how many times?")?.parse()?;
    let (_, mut call) = all.into_iter().find(|(name, _)| *name == wanted).context("no function has this name")?;
    for _ in 0..count {
        call();
    }
    Ok(())
}
