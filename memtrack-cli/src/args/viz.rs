//! Arguments for the verbs that PyTorch's `_memory_viz.py` also has.

use super::{FileArgs, FormatArgs, InputArgs, ScrubArgs, SymbolsArgs};
use clap::Args;
use std::path::PathBuf;

/// Arguments for `memtrack stats` and `memtrack trace`.
#[derive(Clone, Debug, Args)]
pub(crate) struct ViewArgs {
    #[command(flatten)]
    pub(crate) file: FileArgs,
    #[command(flatten)]
    pub(crate) format: FormatArgs,
}

/// The text at the end of `memtrack help stats`.
pub(super) const STATS_HELP: &str = "\
Examples:
  memtrack stats snapshot.pickle            PyTorch's text, byte for byte
  memtrack stats snapshot.pickle --json     all segments and the sums as JSON

Exit codes: 0 success, 2 wrong usage, 3 unreadable input or unwritable output.";

/// The text at the end of `memtrack help trace`.
pub(super) const TRACE_HELP: &str = "\
Examples:
  memtrack trace snapshot.pickle            PyTorch's text, byte for byte
  memtrack trace snapshot.pickle --json     every event with its stack, one per line

Exit codes: 0 success, 2 wrong usage, 3 unreadable input or unwritable output.";

/// Arguments for `memtrack segments`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  memtrack segments snapshot.pickle                  writes output.svg
  memtrack segments snapshot.pickle -o fill.svg      every segment by itself
  memtrack segments snapshot.pickle --folded         PyTorch's folded lines, for other flame graph tools
  memtrack segments snapshot.pickle --json           what is drawn, as JSON

The picture shows free blocks as free, and rounding separately. The folded lines are those that PyTorch prints, with stale
sizes of free blocks and gaps that may be negative.
Exit codes: 0 success, 2 wrong usage, 3 unreadable input or unwritable output.")]
pub(crate) struct UsageArgs {
    #[command(flatten)]
    pub(crate) file: FileArgs,
    #[command(flatten)]
    pub(crate) flame: FlameArgs,
    #[command(flatten)]
    pub(crate) scrub: ScrubArgs,
}

/// Arguments for `memtrack compare`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  memtrack compare before.pickle after.pickle            the addresses, and output.svg
  memtrack compare before.pickle after.pickle --folded   the addresses and PyTorch's folded lines
  memtrack compare before.pickle after.pickle --json     both as JSON

Segments are identified by address and size: an expandable segment that grew counts as removed and added. The contents of
segments that both snapshots have are not compared. `memtrack diff` shows what grew and which lines made it grow.
Exit codes: 0 success, 2 wrong usage, 3 unreadable input or unwritable output.")]
pub(crate) struct CompareArgs {
    /// The earlier recording or PyTorch snapshot; `-` reads standard input
    #[arg(value_name = "BEFORE")]
    pub(crate) before: PathBuf,
    /// The later recording or PyTorch snapshot
    #[arg(value_name = "AFTER")]
    pub(crate) after: PathBuf,
    #[command(flatten)]
    pub(crate) input: InputArgs,
    #[command(flatten)]
    pub(crate) symbols: SymbolsArgs,
    #[command(flatten)]
    pub(crate) flame: FlameArgs,
    #[command(flatten)]
    pub(crate) scrub: ScrubArgs,
}

/// Whether to draw a flame graph or print its data.
#[derive(Clone, Debug, Args)]
pub(crate) struct FlameArgs {
    /// The picture to write
    #[arg(short, long, value_name = "FILE.svg", default_value = "output.svg")]
    pub(crate) output: PathBuf,
    /// Replace the picture if it exists
    #[arg(long)]
    pub(crate) force: bool,
    /// Print PyTorch's folded lines instead of drawing
    #[arg(long, conflicts_with = "json")]
    pub(crate) folded: bool,
    /// Print JSON instead of drawing
    #[arg(long)]
    pub(crate) json: bool,
}
