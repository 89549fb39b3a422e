//! The arguments for `memtrack export`.

use super::rank::by_parser;
use super::ranks::parse_jobs;
use super::{FormatArgs, InputArgs, RulesArgs, ScrubArgs, SymbolsArgs};
use clap::Args;
use memtrack_core::analysis::top::By;
use std::num::NonZero;
use std::path::PathBuf;

/// Arguments for `memtrack export`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  memtrack export --parquet memory run/rank*.pickle         every rank a folder: memory/job=run/rank=0, …
  memtrack export --parquet memory --job 17 --rank 3 a.pickle    the file's job and rank, stated
  memtrack export --parquet memory --events rank0.pickle    its events too
  duckdb -c \"SELECT rank, max(peak_bytes) FROM 'memory/job=*/rank=*/devices.parquet' GROUP BY rank\"

Each rank is a folder of Parquet files, which appears as a whole: another rank is another folder, and exporting a file again
replaces its own. The tables are runs, devices, timeline, groups, steps, out_of_memory, live, stacks, frames and events. The
documentation describes their columns, and the repository has queries for DuckDB, Spark and DataFusion. A file that cannot be
read is named, and the others are exported.
Exit codes: 0 success, 2 wrong usage, 3 unreadable input or unwritable output.")]
pub(crate) struct ExportArgs {
    /// Recordings and PyTorch snapshots, one per rank: files, folders and patterns such as 'run/rank*.pickle'
    #[arg(value_name = "FILES", required = true)]
    pub(crate) files: Vec<PathBuf>,
    /// Search subfolders too
    #[arg(short, long)]
    pub(crate) recursive: bool,
    /// Write a data set of Parquet files to this folder, or add to it
    #[arg(long, value_name = "DIR", required = true)]
    pub(crate) parquet: PathBuf,
    /// The job of the ranks [default: from the file or its path (job=17), else the name of its folder]
    #[arg(long, value_name = "NAME")]
    pub(crate) job: Option<String>,
    /// The file's rank [default: from the file or its path (rank3.pickle, rank=3/); 0 for a single file without one]
    #[arg(long, value_name = "N")]
    pub(crate) rank: Option<u64>,
    /// Refuse a file without a rank, even a single one; use this when many processes export the same job
    #[arg(long, conflicts_with = "rank")]
    pub(crate) require_rank: bool,
    /// Write every event too, with its stack
    #[arg(long)]
    pub(crate) events: bool,
    /// Number of equal intervals in the timeline
    #[arg(long, value_name = "N", default_value = "100", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) bins: u32,
    /// How to group memory at the peak and at the end
    #[arg(long, default_value = "line", value_parser = by_parser())]
    pub(crate) by: By,
    /// What the steps are called: the name of a mark or a profiler range [default: any name that looks like a step]
    #[arg(long, value_name = "NAME")]
    pub(crate) per: Option<String>,
    /// How many files to read at a time [default: the number of cores]
    #[arg(short, long, value_name = "N", value_parser = parse_jobs)]
    pub(crate) jobs: Option<NonZero<usize>>,
    /// Replace a rank that comes from another file or is damaged
    #[arg(long)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) format: FormatArgs,
    #[command(flatten)]
    pub(crate) input: InputArgs,
    #[command(flatten)]
    pub(crate) rules: RulesArgs,
    /// Name operators after functions that match, such as 'my_crate::ops::*'
    #[arg(long = "pattern", value_name = "GLOB")]
    pub(crate) patterns: Vec<String>,
    #[command(flatten)]
    pub(crate) symbols: SymbolsArgs,
    #[command(flatten)]
    pub(crate) scrub: ScrubArgs,
}
