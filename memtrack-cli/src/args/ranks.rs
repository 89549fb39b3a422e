//! Arguments for `memtrack ranks`.

use super::rank::by_parser;
use super::{FormatArgs, InputArgs, RowsArgs, RulesArgs, ScrubArgs, SymbolsArgs};
use clap::Args;
use memtrack_core::analysis::top::By;
use std::num::NonZero;
use std::path::PathBuf;

/// Arguments for `memtrack ranks`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  memtrack ranks run/rank*.pickle                    who holds more than the others, and why
  memtrack ranks 'run/rank*.pickle'                  the same where there are too many files for the shell
  memtrack ranks run/                                the snapshots and recordings in a folder, compressed or not
  memtrack ranks run/ --recursive                    … and in the folders in it: run/rank3/snapshot.pickle
  memtrack ranks run/ --per epoch                    how far they drift apart from epoch to epoch
  memtrack ranks run/ --by stack                     … explained by whole stacks
  memtrack ranks run/ -n 0 --json                    everything, as JSON
  memtrack ranks run/ -o ranks.html                  … and as a page: who, why, and since when, over time
  memtrack ranks run/ -o ranks.html --pages ranks/   … with each rank's own page behind a click

The rank is the one in the file (a key rank beside PyTorch's, or in user_metadata), else the number after rank in its name or
its folder's. A rank is odd if it is off the median by more than 5 scaled median absolute deviations, more than 5 % and more than
1 MiB, and where blocks were sampled by more than its error. Steps are what memtrack_core::mark(\"step\") and torch.profiler mark.
Each file is read on one core and dropped before the next is read: memtrack holds one file per core, with --pages also its page.
Exit codes: 0 success, even if some files could not be read (they are named); 2 wrong usage, or files of different jobs;
3 no file could be read, or unwritable output.")]
pub(crate) struct RanksArgs {
    /// Files, folders and patterns such as 'run/rank*.pickle'
    #[arg(value_name = "FILES", required = true)]
    pub(crate) files: Vec<PathBuf>,
    /// Search subfolders too
    #[arg(short, long)]
    pub(crate) recursive: bool,
    #[command(flatten)]
    pub(crate) input: InputArgs,
    /// How to group memory to explain the outliers among the ranks
    #[arg(long, value_parser = by_parser(), default_value = "line")]
    pub(crate) by: By,
    /// What the steps are called: a mark or a PyTorch profiler range, without the number at its end [default: step, ProfilerStep,
    /// or anything with step or iteration in its name]
    #[arg(long, value_name = "NAME")]
    pub(crate) per: Option<String>,
    /// How many files to read at a time [default: the number of cores]
    #[arg(short, long, value_name = "N", value_parser = parse_jobs)]
    pub(crate) jobs: Option<NonZero<usize>>,
    #[command(flatten)]
    pub(crate) rows: RowsArgs,
    /// Do not leave out columns or shorten names; by default, lines are as wide as COLUMNS, else the terminal, else 120
    /// characters
    #[arg(long)]
    pub(crate) wide: bool,
    #[command(flatten)]
    pub(crate) format: FormatArgs,
    /// Also write a page that compares the odd ranks with the others and shows all of them over time
    #[arg(short, long, value_name = "FILE.html")]
    pub(crate) output: Option<PathBuf>,
    /// With -o: also write each rank's own page, as `memtrack view` does, to this folder; the page links to them
    #[arg(long, value_name = "DIR", requires = "output")]
    pub(crate) pages: Option<PathBuf>,
    /// Replace pages that exist
    #[arg(long)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) symbols: SymbolsArgs,
    /// Name operators after functions that match, such as 'my_crate::ops::*'
    #[arg(long = "pattern", value_name = "GLOB")]
    pub(crate) patterns: Vec<String>,
    #[command(flatten)]
    pub(crate) rules: RulesArgs,
    #[command(flatten)]
    pub(crate) scrub: ScrubArgs,
}

pub(super) fn parse_jobs(text: &str) -> Result<NonZero<usize>, String> {
    text.parse().map_err(|_| "expected a whole number, 1 or more".into())
}
