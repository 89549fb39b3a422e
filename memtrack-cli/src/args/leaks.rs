//! Arguments for `memtrack leaks`.

use super::device::DeviceArgs;
use super::rank::by_parser;
use super::{FormatArgs, InputArgs, RowsArgs, RulesArgs, SymbolsArgs, TextArgs};
use clap::Args;
use memtrack_core::analysis::leaks::{MIN_PERIODS, PERIODS};
use memtrack_core::analysis::top::By;
use std::path::PathBuf;

/// Arguments for `memtrack leaks`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  memtrack leaks server.memtrack                     which lines of your code leak, and how much in each period
  memtrack leaks train.memtrack --per step           what each step left behind; marked by memtrack_core::mark(\"step\")
  memtrack leaks 1.pickle 2.pickle 3.pickle          several snapshots of one process, in order
  memtrack leaks server.memtrack --by stack -n 5     whole stacks, the five that leak most
  memtrack leaks server.memtrack --suppress known.txt
                                                     … without what the patterns in known.txt match
  memtrack leaks run.memtrack cycles.json            with the findings of memtrack cycles
  memtrack leaks server.memtrack --json              the same as JSON

A group leaks when it grew in at least four of five periods, to the end, and little of the memory that stayed was freed later.
Caches that have filled up, buffers that are emptied now and then and vectors that grow are merely alive. The documentation
has the full rule.
Patterns: one glob a line, # begins a comment; each is compared with the functions and files of all frames of a stack.
Exit codes: 0 nothing leaks, 1 something leaks (with --strict: or was freed only at the end), 2 wrong usage, or snapshots that
are not of one process and in order, 3 unreadable input, or a recording that is too short or incomplete to judge.")]
pub(crate) struct LeaksArgs {
    /// A recording or PyTorch snapshot with its trace, or at least three from one process, in order; `-` reads standard input
    #[arg(value_name = "FILE", required = true)]
    pub(crate) files: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) input: InputArgs,
    /// How to group memory [default: by line of your own code, or by stack where no line is yours]
    #[arg(long, value_parser = by_parser())]
    pub(crate) by: Option<By>,
    /// Use these intervals as periods, and show what each left behind: the name of a mark, scope or profiler range, or forward,
    /// backward, optimizer, step
    #[arg(long, value_name = "NAME")]
    pub(crate) per: Option<String>,
    /// How many periods to divide the recording into
    #[arg(long, value_name = "N", default_value_t = PERIODS, value_parser = parse_periods)]
    pub(crate) periods: usize,
    /// Also exit with 1 if something grew in every period and was freed only at the end
    #[arg(long)]
    pub(crate) strict: bool,
    /// Leave out blocks whose stacks match a pattern in this file
    #[arg(long, value_name = "FILE")]
    pub(crate) suppress: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) rows: RowsArgs,
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
    #[command(flatten)]
    pub(crate) text: TextArgs,
    #[command(flatten)]
    pub(crate) format: FormatArgs,
    #[command(flatten)]
    pub(crate) symbols: SymbolsArgs,
    /// Name operators after functions that match, such as 'my_crate::ops::*'
    #[arg(long = "pattern", value_name = "GLOB")]
    pub(crate) patterns: Vec<String>,
    #[command(flatten)]
    pub(crate) rules: RulesArgs,
}

/// The maximum number of periods. With more, each would be too short.
const MAX_PERIODS: usize = 1000;

fn parse_periods(text: &str) -> Result<usize, String> {
    let periods = text.parse().ok().filter(|periods| (MIN_PERIODS..=MAX_PERIODS).contains(periods));
    periods.ok_or_else(|| format!("expected a whole number from {MIN_PERIODS} to {MAX_PERIODS}"))
}
