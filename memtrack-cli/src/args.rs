//! The command line: the verbs and the groups of arguments that several of them share. A new verb is a variant of
//! [`Command`], a struct of arguments beside it, and a file in `commands/`.

use clap::{Args, Parser, Subcommand};
use std::path::PathBuf;

/// Where did my device memory go?
#[derive(Debug, Parser)]
#[command(name = "memtrack", version, about, disable_help_subcommand = true)]
pub(crate) struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The verbs.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Which operators made memory grow, from the statistics of a memory tracker
    Tracker(TrackerArgs),
}

/// Arguments of `memtrack tracker`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  memtrack tracker stats.pickle                      the 20 operators that added most memory
  memtrack tracker stats.pickle --top 5 --json       the same as JSON, five of them
  memtrack tracker stats.pickle -o figures.html      and the figures, as one page
  memtrack tracker stats.pickle -o figures.svg       figures-all.svg, -allocated, -active, -reserved
  cat stats.pickle | memtrack tracker -              from a pipe

Reads the files of PyTorch's MemoryTracker.save_stats and of memtrack; nothing in them is ever executed.
Exit codes: 0 fine, 2 wrong usage, 3 unreadable input or unwritable output.")]
pub(crate) struct TrackerArgs {
    /// The statistics file; `-` reads standard input
    #[arg(value_name = "STATS.pickle")]
    pub(crate) stats: PathBuf,
    #[command(flatten)]
    pub(crate) top: TopArgs,
    #[command(flatten)]
    pub(crate) format: FormatArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// How many rows a ranking shows.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct TopArgs {
    /// How many rows to show
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub(crate) top: usize,
}

/// In which form the answer goes to standard output.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct FormatArgs {
    /// Print JSON instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

/// Where files go.
#[derive(Clone, Debug, Args)]
pub(crate) struct OutputArgs {
    /// Also write figures; the suffix picks the kind: .html, .svg or .png
    #[arg(short, long, value_name = "FIGURES")]
    pub(crate) output: Option<PathBuf>,
    /// Replace output files that exist
    #[arg(long)]
    pub(crate) force: bool,
}
