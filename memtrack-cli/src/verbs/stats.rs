//! `memtrack stats`: how full the segments are.

use super::prelude::*;
use memtrack_core::viz::{Stats, StatsAnswer};

/// Show how full the segments are, in PyTorch's text format
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  memtrack stats snapshot.pickle            PyTorch's text, byte for byte
  memtrack stats snapshot.pickle --json     all segments and the sums as JSON

Exit codes: 0 success, 2 wrong usage, 3 unreadable input or unwritable output.")]
pub(crate) struct StatsArgs {
    #[command(flatten)]
    pub(crate) file: FileArgs,
    #[command(flatten)]
    pub(crate) format: FormatArgs,
}

pub(super) const ANSWER: Answer<StatsAnswer> = Answer::new("stats", 1);

/// Loads the snapshot and prints the statistics.
pub(super) fn run(args: &StatsArgs, streams: &mut Streams<'_>) -> Result<Exit, CliError> {
    let snapshot = load_segments(&args.file.path, &args.file.input, &args.file.symbols, streams)?;
    let stats = Stats::of(&snapshot);
    if args.format.json {
        ANSWER.print(&stats.answer(), streams)?;
    } else {
        stats.write_text(&mut streams.stdout)?;
        writeln!(streams.stdout)?;
    }
    mention_inconsistencies(&stats.odd, streams);
    mention_samples(&snapshot, streams);
    Ok(Exit::Success)
}
