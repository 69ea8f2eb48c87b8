//! What the processes agree on, seen from outside.

#[cfg(test)]
mod programs;
