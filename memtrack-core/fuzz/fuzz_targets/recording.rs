//! Recordings with corrected checksums and arbitrary content.
#![no_main]

#[path = "../targets.rs"]
mod targets;

libfuzzer_sys::fuzz_target!(|data: &[u8]| targets::recording(data));
