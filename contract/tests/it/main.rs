//! The shared types, tested through their public interface.

#[cfg(test)]
mod programs;
