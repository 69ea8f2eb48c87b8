//! `bench/run fuzz` drives this.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::upstream_frames(bytes));
