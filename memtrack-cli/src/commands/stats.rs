//! `memtrack stats`: how full the segments are.

use crate::Streams;
use crate::answers;
use crate::args::ViewArgs;
use crate::error::{CliError, Exit};
use crate::load::load_segments;
use crate::report::{mention_inconsistencies, mention_samples};
use memtrack_core::viz::Stats;

/// Loads the snapshot and prints the statistics.
pub(crate) fn run(args: &ViewArgs, streams: &mut Streams<'_>) -> Result<Exit, CliError> {
    let snapshot = load_segments(&args.file.path, &args.file.input, &args.file.symbols, streams)?;
    let stats = Stats::of(&snapshot);
    if args.format.json {
        answers::STATS.print(&stats.answer(), streams)?;
    } else {
        stats.write_text(&mut streams.stdout)?;
        writeln!(streams.stdout)?;
    }
    mention_inconsistencies(&stats.odd, streams);
    mention_samples(&snapshot, streams);
    Ok(Exit::Success)
}
