//! Reports what held the memory of a program that has ended, from the program's recording. This works for a program that
//! was killed, too.

use super::mapped_by;
use crate::args::RulesArgs;
use crate::ownership::read_rules;
use memtrack_core::analysis::device_blocks::DeviceBlocks;
use memtrack_core::analysis::holds::{HoldsQuery, WhoHolds};
use memtrack_core::analysis::process_memory::ProcessMemory;
use memtrack_core::snapshot::pytorch::LoadOptions;
use memtrack_core::snapshot::recording::{ProcessChoice, older_parts};
use memtrack_core::snapshot::{Snapshot, SnapshotFiles};
use memtrack_core::stack::symbols::Symbolizer;
use std::path::Path;
use std::time::Duration;

/// The size of the largest recording, in bytes, that is read at the end of a run. Reading a larger one takes seconds,
/// which would delay the shell's prompt.
const MAX_RECORDING_BYTES: u64 = 64 << 20;

/// The time limit for symbolization.
const SYMBOL_TIME_LIMIT: Duration = Duration::from_secs(2);

/// Returns the paragraph about the process with the number `process`, or `None` if the recording has no memory or cannot be
/// read. `shown` is the path that the recording will have.
pub(crate) fn who_held(recording: &Path, shown: &Path, process: u32, was_killed: bool) -> Option<String> {
    let parts = older_parts(recording);
    let sizes = parts.iter().map(|path| path.as_path()).chain([recording]);
    let bytes: u64 = sizes.map(|path| path.metadata().map_or(0, |data| data.len())).sum();
    if bytes > MAX_RECORDING_BYTES {
        return Some(format!("memtrack: who held the memory: memtrack summary {}\n", shown.display()));
    }
    let options = LoadOptions::new().process(ProcessChoice::Number(process));
    let snapshot = Snapshot::open(recording, options).ok()?.snapshot;
    // Ignore errors in a rules file here, because every report prints them.
    let rules = read_rules(&RulesArgs::default()).unwrap_or_default();
    let query =
        HoldsQuery::for_ended_run(&snapshot, was_killed).rules(rules).symbol_time_limit(SYMBOL_TIME_LIMIT);
    let mut symbols = Symbolizer::of(&snapshot);
    let devices = DeviceBlocks::of_all(&snapshot);
    let held = WhoHolds::of_devices(&snapshot, &mut symbols, &devices, &query)?;
    let process = ProcessMemory::of_devices(&snapshot, &devices).and_then(|process| process.to_line());
    let process = process.map_or(String::new(), |line| format!("memtrack: the process: {line}\n"));
    Some(held.log_text() + &process + &mapped_by::lines(&snapshot, &mut symbols))
}
