//! Arguments for `memtrack modules` and `memtrack advise`, which read operator traces.

use super::{FormatArgs, TraceArgs, parse_count};
use clap::Args;

/// Arguments for `memtrack modules`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  memtrack modules run.optrace.jsonl.gz                     the modules of the model, three levels of them
  memtrack modules run.optrace.jsonl.gz --depth 1           only the outermost ones
  memtrack modules run.optrace.jsonl.gz --json              all modules and all their calls, as JSON

For each module: bytes of its parameters, nested modules included, and for the forward and the backward pass what was
allocated on the device right before, at most, and how much more after it than before. Of several calls, the one with the
highest peak is shown.
Exit codes: 0 success, 2 wrong usage, 3 unreadable input or unwritable output.")]
pub(crate) struct ModulesArgs {
    #[command(flatten)]
    pub(crate) trace: TraceArgs,
    /// How many levels of modules to show, starting with the outermost [default: 3; with --json all]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), allow_hyphen_values = true)]
    pub(crate) depth: Option<u32>,
    /// Do not shorten names and lines
    #[arg(long)]
    pub(crate) wide: bool,
    #[command(flatten)]
    pub(crate) format: FormatArgs,
}

/// Arguments for `memtrack advise`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  memtrack advise run.optrace.jsonl.gz                      what would lower the peak most, as sentences
  memtrack advise run.optrace.jsonl.gz -n 3                 three findings
  memtrack advise run.optrace.jsonl.gz --json               all numbers, as JSON

Finds memory that is live at the peak and not used around it: obtained early, freed late, idle, or activations that could be
recomputed. Each number is how much lower the device's peak would be, wherever the new peak is: memtrack computes the peak again
without that memory.
Exit codes: 0 success, 2 wrong usage, 3 unreadable input or unwritable output.")]
pub(crate) struct AdviseArgs {
    #[command(flatten)]
    pub(crate) trace: TraceArgs,
    /// How many findings to show; 0 shows all
    #[arg(short = 'n', long, value_name = "N", default_value_t = 10, value_parser = parse_count, allow_hyphen_values = true)]
    pub(crate) rows: usize,
    /// Do not wrap lines
    #[arg(long)]
    pub(crate) wide: bool,
    #[command(flatten)]
    pub(crate) format: FormatArgs,
}
