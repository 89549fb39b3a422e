//! Snapshots and recordings: how they are read and written, and the reports about them.

mod answers;
mod cut;
mod from_recording;
mod fuzz_corpus;
mod hostile;
mod keys;
mod limits;
mod opcodes;
mod order;
mod pickle_protocols;
mod program_dump;
mod pytorch_2026;
mod read;
mod recording_damage;
mod recording_round_trip;
mod recording_symbols;
mod round_trip;
mod sharing;
mod spellings;
mod statistics;
mod unknown;

memtrack_tests::tests_wait!();
