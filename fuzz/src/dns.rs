//! Answers of nameservers.

use futures_util::FutureExt as _;
use verification::fuzzing::{self, Case, EDGE, TARGET};

use crate::cut;

/// Answers of nameservers: a domain passes only if an answer names its target.
pub fn dns(bytes: &[u8]) {
    let outcome = passes(bytes);
    assert!(outcome.is_some(), "it waits or fails");
    let label = TARGET.split('.').next().unwrap_or_default().as_bytes();
    let leads = |window: &[u8]| window.eq_ignore_ascii_case(label);
    let (_, messages) = cut(bytes);
    let named = messages.windows(label.len()).any(leads) || messages.windows(4).any(|window| window == EDGE.octets());
    assert!(named || outcome == Some(false), "it passes without an answer that leads to the edge");
}

/// Whether the domain passes. The first byte selects the question, the others are the answers. `None` if the work waits
/// or fails.
pub fn passes(bytes: &[u8]) -> Option<bool> {
    let (choice, messages) = cut(bytes);
    let case = Case { authoritative: choice & 1 != 0, contested: choice & 2 != 0, caa: choice & 4 != 0 };
    alone(fuzzing::passes(case, messages)).and_then(Result::ok)
}

/// The result of work that never waits.
fn alone<T>(work: impl Future<Output = T>) -> Option<T> {
    thread_local! {
        static RUNTIME: Option<tokio::runtime::Runtime> =
            tokio::runtime::Builder::new_current_thread().enable_time().build().ok();
    }
    RUNTIME.with(|runtime| {
        let _entered = runtime.as_ref()?.enter();
        work.now_or_never()
    })
}
