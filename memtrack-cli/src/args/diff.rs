//! Arguments for `memtrack diff`.

use super::device::DeviceArgs;
use super::{FormatArgs, InputArgs, RowsArgs, RulesArgs, ScrubArgs, SymbolsArgs, TextArgs};
use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use memtrack_core::analysis::diff::{DiffAt, DiffBy};
use std::path::PathBuf;

/// Arguments for `memtrack diff`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  memtrack diff before.pickle after.pickle               which is worse at its peak, and which lines made it so
  memtrack diff old.memtrack new.memtrack --by module    … which modules; layers of one kind are one group
  memtrack diff start.pickle later.pickle --at end       what came in between: leaks, caches
  memtrack diff a.memtrack b.memtrack --at total         what was allocated in all
  memtrack diff a.pickle b.pickle -o diff.svg            a flame graph: red grew, blue shrank
  memtrack diff a.pickle b.pickle -o diff.folded         its lines, for other tools
  memtrack diff a.pickle b.pickle --json                 the same as JSON

Each file is a recording or a PyTorch snapshot. Groups are matched by the names and files of functions: addresses do not
matter, lines may have moved, and layers.0, layers.1, … are one group, layers.*, of which there may be more than before.
Bytes are requested bytes. Where blocks were sampled, differences within the error of the numbers are ignored.
`memtrack compare` shows which segments differ, by address, as PyTorch does.
Exit codes: 0 success, 2 wrong usage or no device in common, 3 unreadable or empty input, or unwritable output.")]
pub(crate) struct DiffArgs {
    /// The earlier recording or PyTorch snapshot; `-` reads standard input
    #[arg(value_name = "BEFORE")]
    pub(crate) before: PathBuf,
    /// The later recording or PyTorch snapshot
    #[arg(value_name = "AFTER")]
    pub(crate) after: PathBuf,
    #[command(flatten)]
    pub(crate) input: InputArgs,
    /// How to group memory [default: line if BEFORE has stacks, else operator]
    #[arg(long, value_parser = by_parser())]
    pub(crate) by: Option<DiffBy>,
    /// Which blocks to compare
    #[arg(long, value_name = "MOMENT", value_parser = at_parser(), default_value = DiffAt::Peak.name())]
    pub(crate) at: DiffAt,
    #[command(flatten)]
    pub(crate) rows: RowsArgs,
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
    #[command(flatten)]
    pub(crate) text: TextArgs,
    #[command(flatten)]
    pub(crate) format: FormatArgs,
    /// Also write the differences by stack: a flame graph (.svg), or its folded lines (.folded)
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Replace the output if it exists
    #[arg(long)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) symbols: SymbolsArgs,
    #[command(flatten)]
    pub(crate) rules: RulesArgs,
    #[command(flatten)]
    pub(crate) scrub: ScrubArgs,
}

/// Returns a parser for the names of the groupings.
fn by_parser() -> impl TypedValueParser<Value = DiffBy> {
    let names = DiffBy::ALL.map(|by| PossibleValue::new(by.name()).help(by.about()));
    // The parser accepts only these names, so the search always finds one.
    PossibleValuesParser::new(names)
        .map(|name| DiffBy::ALL.into_iter().find(|by| by.name() == name).unwrap_or(DiffBy::Line))
}

/// Returns a parser for the names of the blocks to compare.
fn at_parser() -> impl TypedValueParser<Value = DiffAt> {
    let names = DiffAt::ALL.map(|at| PossibleValue::new(at.name()).help(at.about()));
    PossibleValuesParser::new(names)
        .map(|name| DiffAt::ALL.into_iter().find(|at| at.name() == name).unwrap_or_default())
}
