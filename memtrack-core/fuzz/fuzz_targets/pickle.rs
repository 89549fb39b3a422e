//! The pickle machine, and the tracker's files, which are pickles.
#![no_main]

#[path = "../targets.rs"]
mod targets;

libfuzzer_sys::fuzz_target!(|data: &[u8]| targets::pickle(data));
