//! The holders of memory in a program that has ended, from the file that it left: also when it was killed and could not
//! report them itself.

use crate::args::RulesArgs;
use crate::ownership::rules;
use memtrack_core::analysis::holds::{HoldsQuery, WhoHolds};
use memtrack_core::snapshot::pytorch::LoadOptions;
use memtrack_core::snapshot::recording::older_parts;
use memtrack_core::snapshot::{Snapshot, SnapshotFiles};
use memtrack_core::stack::symbols::Symbolizer;
use std::path::Path;
use std::time::Duration;

/// Recordings up to this size are read at the end of a run; a larger one takes seconds, which would delay the shell.
const LARGEST_BYTES: u64 = 64 << 20;

/// The time limit for symbolizing functions.
const NAMING: Duration = Duration::from_secs(2);

/// Returns the paragraph about a recording; `None` where it holds nothing, or is too large to be read now.
pub(crate) fn who_held(recording: &Path, was_killed: bool) -> Option<String> {
    let parts = older_parts(recording);
    let sizes = parts.iter().map(|path| path.as_path()).chain([recording]);
    let bytes: u64 = sizes.map(|path| path.metadata().map_or(0, |data| data.len())).sum();
    if bytes > LARGEST_BYTES {
        return Some(format!("memtrack: who held the memory: memtrack summary {}\n", recording.display()));
    }
    let snapshot = Snapshot::open(recording, LoadOptions::default()).ok()?.snapshot;
    // Every report prints the errors of a rules file.
    let rules = rules(&RulesArgs::default()).unwrap_or_default();
    let query = HoldsQuery::for_ended_run(&snapshot, was_killed).rules(rules).symbol_time_limit(NAMING);
    let held = WhoHolds::of_all(&snapshot, &mut Symbolizer::of(&snapshot), &query)?;
    Some(held.log_text())
}
