//! Checks of the whole project: the direction of dependencies, a test for every rule, a heading for every refusal,
//! valid sample settings, an explanation for every mistake in settings, and alerts and dashboards that match the
//! metrics.

#[cfg(test)]
mod bounds;
#[cfg(test)]
mod deployment;
#[cfg(test)]
mod direction;
#[cfg(test)]
mod errors;
#[cfg(test)]
mod files;
#[cfg(test)]
mod fresh_machine;
#[cfg(test)]
mod metrics;
#[cfg(test)]
mod monitoring;
#[cfg(test)]
mod operations;
#[cfg(test)]
mod proofs;
#[cfg(test)]
mod rules;
#[cfg(test)]
mod samples;
#[cfg(test)]
mod settings;
#[cfg(test)]
mod shipped;
#[cfg(test)]
mod terminal;
#[cfg(test)]
mod tree;
