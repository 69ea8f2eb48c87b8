//! What is true of the project as a whole: which crate knows which, that every rule has a test and every refusal a
//! heading, that the shipped settings are good and mistakes in settings are explained, and that alerts and dashboards know the
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
