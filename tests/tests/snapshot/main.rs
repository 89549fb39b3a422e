//! Snapshots and recordings: what is read, what is written, and what is answered about them.

mod answers;
mod cut;
mod from_recording;
mod fuzz_corpus;
mod hostile;
mod keys;
mod limits;
mod of_a_run;
mod opcodes;
mod order;
mod pickle_protocols;
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
