//! Files that are read, written and read again, which must not change them.
#![no_main]

#[path = "../targets.rs"]
mod targets;

libfuzzer_sys::fuzz_target!(|data: &[u8]| targets::round_trip(data));
