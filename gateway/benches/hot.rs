//! `cargo bench -p gateway`: time per call of the functions that every request passes.

#[path = "hot/work.rs"]
mod work;

use criterion::Criterion;

fn main() -> anyhow::Result<()> {
    let mut criterion = Criterion::default().configure_from_args();
    for (name, mut call) in work::all()? {
        criterion.bench_function(name, |bencher| bencher.iter(&mut call));
    }
    criterion.final_summary();
    Ok(())
}
