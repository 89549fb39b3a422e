//! Files that are read, written and read again. Their content must not change.
#![no_main]

#[path = "../targets.rs"]
mod targets;

libfuzzer_sys::fuzz_target!(|data: &[u8]| targets::round_trip(data));
