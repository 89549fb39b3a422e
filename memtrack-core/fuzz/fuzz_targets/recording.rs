//! Recordings whose checksums are right, whatever else they hold.
#![no_main]

#[path = "../targets.rs"]
mod targets;

libfuzzer_sys::fuzz_target!(|data: &[u8]| targets::recording(data));
