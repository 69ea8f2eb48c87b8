//! What is true of the project as a whole: which crate knows which, that every rule has a test and every refusal a
//! heading, that the shipped settings are good and mistakes in settings are explained.

mod direction;
mod errors;
mod files;
mod rules;
mod shipped;
mod tree;
